"""The exercises of the chapter on translation data. Used from chapter 10 on."""

import contextlib
import itertools
from collections import Counter

import numpy as np
import torch
from torch import Tensor

from attn_course.data.subwords import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from attn_course.exercises.engine.convert_output import as_integers
from attn_course.exercises.engine.exercise import CHANGES_ITS_INPUT, KEPT_BETWEEN_CALLS, Exercise, Mistake, Remark
from attn_course.exercises.engine.mutants import Edited

SPECIAL = {"<pad>": PAD_ID, "<s>": BOS_ID, "</s>": EOS_ID, "<unk>": UNK_ID}


def _stays(name, found, answer, *others):
    """Refuse an answer whose result becomes another one when it is called with something else."""
    before = str(found)
    with contextlib.suppress(Exception):
        answer(*others)
    if str(found) != before:
        raise Remark(
            f"What {name} returned is something else after the next call: each call has to make its own result.",
            KEPT_BETWEEN_CALLS,
        )


# ---------------------------------------------------------------- a vocabulary


def _sentences(draw):
    """Words of one to three letters; some twice in a sentence, some equally frequent."""

    def sentences(count, longest, words):
        rows = []
        for length in (1 + draw.ints(count, high=longest)).tolist():
            # Small numbers more often than large ones, as with words.
            picks = torch.minimum(draw.ints(length, high=words), draw.ints(length, high=words))
            rows.append([_word(i) for i in picks.tolist()])
        return rows

    yield "every word", [["う", "い", "う"], ["い", "え", "う"]], 1
    yield "a few sentences", sentences(7, 5, 11), 2
    yield "many sentences", sentences(23, 11, 23), 5
    yield "words equally frequent", [["ねこ", "いぬ"], ["いぬ", "ねこ"], ["うし"]], 1
    yield "an empty sentence", [*sentences(5, 7, 5), []], 2
    yield "no word frequent enough", [["い", "う"], ["え"]], 2
    yield "capitals", [["The", "cat", "the"], ["the", "Cat"]], 1
    yield "signs and numbers", [["1990", "is", "over", "."], ["don't", "go", "in", "1990", "."], ["?"]], 1
    yield "wide and narrow letters", [["ＡＢ", "１０"], ["AB", "10", "AB"]], 1
    yield "a word of two words", [["New York", "York"], ["New York"]], 1


def _is_whole(number):
    """Whether it is an integer, of Python, of NumPy or a tensor of one; each can be an index."""
    if isinstance(number, Tensor):
        return number.dim() == 0 and not number.is_floating_point() and number.dtype != torch.bool
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def _word(number):
    """A word for a number; the order of numbers is not that of words."""
    letters = "かむせろにたうほけやなつひめれきさほいぬ"
    first, second = letters[number * 7 % 20], letters[number * 11 % 19]
    return first + second * (number % 3)


def _entries(answer, sentences, min_count):
    """A dict as things that can be compared and named."""
    found = answer(sentences, min_count)
    if found is None:
        return None
    if not isinstance(found, dict):
        raise Remark(
            f"build_vocabulary must return a dict from word to id, not a {type(found).__name__}. See section 10.4."
        )
    _stays("build_vocabulary", found, answer, [["ほ", "ん"]], 1)
    if not all(_is_whole(i) for i in found.values()):
        if all(type(i) is int and isinstance(word, str) for i, word in found.items()):
            follow = max(found) - min(found) < len(found)
            return len(found), None, "ids to words" if follow else "numbers to words", ""
        raise Remark("build_vocabulary must give each word a whole number, its id. See section 10.4.")
    if not all(isinstance(word, str) for word in found):
        raise Remark("The keys of the dict must be words, which are strings, and its values ids. See section 10.4.")
    found = {word: int(i) for word, i in found.items()}
    by_id = sorted(found, key=lambda word: (found[word], word))
    special = [f"{found[word]} {word}" for word in by_id if word in SPECIAL]
    return (
        len(found),
        torch.tensor(sorted(found.values()), dtype=torch.long),
        ", ".join(special),
        " ".join(word for word in by_id if word not in SPECIAL),
    )


def _vocabulary(sentences, min_count):
    counts = Counter(word for sentence in sentences for word in sentence)
    words = [word for word in counts if counts[word] >= min_count]
    words.sort(key=lambda word: (-counts[word], word))
    return SPECIAL | {word: i for i, word in enumerate(words, 4)}


def _occurrences(sentences):
    return Counter(word for sentence in sentences for word in sentence)


build_vocabulary = Exercise(
    name="build_vocabulary",
    trials=_sentences,
    right=_vocabulary,
    use=_entries,
    returns=(
        "the number of entries",
        "the ids, sorted",
        "the special words with their ids",
        "the other words in the order of their ids",
    ),
    mistakes={
        "signs and numbers left out": Mistake(
            "Words that are not made of letters alone are missing, such as the full stop, 1990 and don't: every "
            "string of a sentence is a word here. See section 10.4.",
            {"for word in sentence)": "for word in sentence if word.isalpha())"},
        ),
        "no special words": Mistake(
            "The four special words are not in it, and the first word has the id 0, which is that of the padding. "
            "See section 10.4.",
            {"SPECIAL | ": "", "words, 4": "words, 0"},
        ),
        "special words left out": Mistake(
            "The ids begin with 4, as they should, but the four special words themselves are not in it. See section "
            "10.4.",
            {"SPECIAL | ": ""},
        ),
        "ids used twice": Mistake(
            "The words are counted from 0, so the first four share their ids with the special words. See section 10.4.",
            {"words, 4": "words, 0"},
        ),
        "counted from 1": Mistake(
            "The words begin with 5, and no word has the id 4. See section 10.4.",
            {"words, 4": "words, 5"},
        ),
        "special ids in another order": Mistake(
            "Special words have changed places: the padding is 0, the beginning 1, the end 2 and the unknown 3. See "
            "section 10.4.",
            sign=lambda found, sentences, least: (
                _has_other_ids(found[2])
                and torch.equal(found[1], torch.arange(found[0]))
                and found[3] == _entries(_vocabulary, sentences, least)[3]
            ),
        ),
        "special words last": Mistake(
            "The special words stand behind the others, so their ids change with the text; they are 0 to 3. See "
            "section 10.4.",
            {"SPECIAL | ": "", "words, 4": "[*words, *SPECIAL]"},
        ),
        "more than min_count": Mistake(
            "Words that occur exactly min_count times are missing, and that is often enough. See section 10.4.",
            {">=": ">"},
        ),
        "min_count ignored": Mistake(
            "Every word is in it, however rare. See section 10.4.",
            {" if counts[word] >= min_count": ""},
        ),
        "not by frequency": Mistake(
            "The words stand in the order of `sorted`; the most frequent comes first, and the alphabet decides only "
            "among equals. See section 10.4.",
            {"(-counts[word], word)": "word"},
        ),
        "first seen first": Mistake(
            "The words stand in the order in which the text brings them; the most frequent comes first. See section "
            "10.4.",
            {"(-counts[word], word)": "0"},
        ),
        "equals as they come": Mistake(
            "The most frequent comes first, but words that are equally frequent stand as the text brings them, "
            "and not in the order of `sorted`. See section 10.4.",
            {"(-counts[word], word)": "-counts[word]"},
        ),
        "equals backwards": Mistake(
            "The most frequent comes first, but words that are equally frequent stand in the reverse order of "
            "`sorted`. See section 10.4.",
            {"(-counts[word], word)": "_backwards(counts, word)"},
        ),
        "rarest first": Mistake(
            "The rarest word comes first, and it has to be the most frequent. See section 10.4.",
            {"-counts[word]": "counts[word]"},
        ),
        "sentences counted": Mistake(
            "A word that is twice in a sentence is counted once: these are the sentences with the word, "
            "and asked for is how often it occurs. See section 10.4.",
            {"in sentence)": "in set(sentence))"},
        ),
        "letters counted": Mistake(
            "The entries are single letters: a sentence is a list of words, and each of them is an entry. See section "
            "10.4.",
            {"Counter(word for": "Counter(letter for", "in sentence)": "in sentence for letter in word)"},
        ),
        "ids to words": Mistake(
            "It is the wrong way round, from id to word; a model is given words and needs their ids. See section 10.4.",
            sign=lambda found, sentences, least: found[2] == "ids to words" if found[0] else None,
        ),
        "counts instead of ids": Mistake(
            "The numbers are how often each word occurs; an id is its place in the vocabulary. See section 10.4.",
            sign=lambda found, sentences, least: _holds_counts(found, sentences, least),
        ),
        "as many as min_count": Mistake(
            "It holds the min_count most frequent words; min_count says how often a word has to occur, and not how "
            "many words are taken. See section 10.4.",
            {" if counts[word] >= min_count": "", "words, 4": "words[:min_count], 4"},
        ),
        "ids in steps of another kind": Mistake(
            "The words stand in the order of `sorted`, and the ids of those that are too rare are left out: the "
            "most frequent comes first, and from 4 on no number is skipped. See section 10.4.",
            {
                " if counts[word] >= min_count": "",
                "(-counts[word], word)": "word",
                "words, 4)": "words, 4) if counts[word] >= min_count",
            },
        ),
        "longest first": Mistake(
            "The words stand in the order of their length; the most frequent comes first. See section 10.4.",
            {"-counts[word], word": "-len(word), word"},
        ),
        "special words counted from 1": Mistake(
            "The ids begin with 1; the padding has to be 0, where masks and losses look for it. See section 10.4.",
            {"SPECIAL": "{word: i + 1 for word, i in SPECIAL.items()}", "words, 4": "words, 5"},
        ),
        "one sentence only": Mistake(
            "Only the words of the first sentence are in it: count over all of them. See section 10.4.",
            {"    counts =": "    sentences = sentences[:1]\n    counts ="},
        ),
        "last sentence only": Mistake(
            "Only the words of the last sentence are in it: count over all of them. See section 10.4.",
            {"    counts =": "    sentences = sentences[-1:]\n    counts ="},
        ),
        "least in each sentence": Mistake(
            "Words that occur min_count times, but never so often in one and the same sentence, are missing: it is "
            "the number in all sentences together that counts. See section 10.4.",
            {"counts[word] >= min_count": "any(sentence.count(word) >= min_count for sentence in sentences)"},
        ),
        "counted one too early": Mistake(
            "The words begin with id 3, which is that of the unknown word: the four special words have 0 to 3. See "
            "section 10.4.",
            {"words, 4": "words, 3"},
        ),
        "at least 2 whatever is asked": Mistake(
            "It holds the words that occur at least twice, whatever `min_count` says. See section 10.4.",
            {">= min_count": ">= 2"},
        ),
        "rare words with the unknown's id": Mistake(
            "Rare words are in it as well, with the id of the unknown word: leave them out, and whoever looks one "
            "up takes the unknown's id then. See section 10.4.",
            {"words, 4)}": "words, 4)} | {word: UNK_ID for word in counts if counts[word] < min_count}"},
        ),
        "lower case": Mistake(
            "Capitals are lost: `The` and `the` are two words here, and the sentences are taken as they are. See "
            "section 10.4.",
            {"Counter(word for": "Counter(word.lower() for"},
        ),
        "equals by length, then as they come": Mistake(
            "Equally frequent words stand in the order of their length; it should be the order of `sorted`, which "
            "compares their letters. See section 10.4.",
            {"-counts[word], word": "-counts[word], len(word)"},
        ),
        "equals by length": Mistake(
            "Among words that are equally frequent the shortest comes first, as in the choice of a pair; here the "
            "order of `sorted` decides. See section 10.5.",
            {"-counts[word], word": "-counts[word], len(word), word"},
        ),
    },
)


def _has_other_ids(special):
    """Whether "0 <unk>, 1 <s>, …" gives the ids 0 to 3 to the four special words, in another order."""
    pairs = [entry.split() for entry in special.split(", ")]
    right = [[str(i), word] for word, i in SPECIAL.items()]
    return pairs != right and [sorted(column) for column in zip(*pairs, strict=True)] == [
        sorted(column) for column in zip(*right, strict=True)
    ]


def _backwards(counts, word):
    """A key that puts frequent words first, and the end of the alphabet before its beginning."""
    return -counts[word], [*(-ord(letter) for letter in word), 1]


def _holds_counts(found, sentences, least):
    """Whether each word has its count for an id; a text without a frequent word cannot tell."""
    counts = {word: n for word, n in _occurrences(sentences).items() if n >= least}
    if not counts:
        return None
    alone = sorted(counts.values())
    return found[1].tolist() in (alone, sorted([*alone, *SPECIAL.values()])) and found[3] == " ".join(
        sorted(counts, key=lambda word: (counts[word], word))
    )


# ---------------------------------------------------------------- byte-pair encoding


def _cut_words(draw):
    """Words cut into pieces; one pair is more frequent than all others."""

    def random(count, letters, longest):
        while True:
            cut = {}
            for length in (1 + draw.ints(count, high=longest)).tolist():
                pieces = tuple("たべのみまし"[i] for i in draw.ints(length, high=letters))
                cut[pieces] = 1 + draw.ints(1, high=9).item()
            pairs = sorted(_pairs(cut).values(), reverse=True)
            if len(pairs) > 1 and pairs[0] > pairs[1]:
                return cut

    yield "letters", {tuple("たべた"): 3, tuple("たべまし"): 2, tuple("のみた"): 4}
    yield "random letters", random(7, 5, 5)
    yield "a pair twice in a word", {tuple("ましまし"): 2, tuple("しま"): 1, tuple("の"): 9}
    yield "a pair three times in a word", {tuple("たべたべたべ"): 3, tuple("みた"): 1}
    yield ("pieces of several letters", {("べま", "し"): 2, ("ま", "し", "た"): 5, ("ま", "し"): 1, ("ま", "しま"): 3})
    yield "the same letter again", {tuple("ののの"): 2, tuple("のみ"): 3}
    yield "a frequent word and many rare ones", _many_rare()
    yield "a word of one piece", {("です",): 11, ("ま", "す"): 2}
    yield ("long pieces that are rare", {("べまし", "たの"): 3, ("ま", "し", "の"): 4, ("ま", "し"): 1})
    yield ("long words that are rare", {tuple("のみたべしまの"): 3, ("ま", "た"): 4, ("た",): 2})
    yield "other pieces that spell the same", {("た", "べる"): 5, ("たべ", "る"): 2, ("の", "たべ", "る"): 1}
    yield "pieces that are signs", {("o", "k", "."): 4, ("k", "."): 1, ("k", "x"): 2, ("?", "?"): 3}
    yield "many random words", random(23, 6, 7)


def _many_rare():
    words = ["まのし", "まのた", "まのべ", "のまみ", "べまの"]
    return {tuple("たべ"): 29} | {tuple(word): 1 + i % 2 for i, word in enumerate(words)}


def _pairs(cut, *, weigh=True, name=lambda a, b: (a, b)):
    pairs = Counter()
    for pieces, count in cut.items():
        for a, b in itertools.pairwise(pieces):
            pairs[name(a, b)] += count if weigh else 1
    return pairs


def _merge(pieces, pair):
    done = []
    for piece in pieces:
        if done and (done[-1], piece) == pair:
            done[-1] += piece
        else:
            done.append(piece)
    return tuple(done)


def _one_round(cut):
    pairs = Counter()
    for pieces, count in cut.items():
        for pair in itertools.pairwise(pieces):
            pairs[pair] += count
    best = max(pairs, key=pairs.get)
    return best, {_merge(pieces, best): count for pieces, count in cut.items()}


def _round_text(answer, cut):
    found = answer(cut)
    if found is None:
        return None
    if isinstance(found, dict):
        return "a dict alone", ""
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise Remark("merge_step must return two things, the pair and the new dict. See section 10.5.")
    _stays("merge_step", found, answer, {("は", "な"): 1})
    pair, merged = found
    if isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], tuple) and isinstance(pair[1], int):
        raise Remark(
            "The first result holds the pair together with its count; asked for is the pair alone. See section 10.5."
        )
    if not isinstance(pair, tuple | list | str) or not all(isinstance(piece, str) for piece in pair):
        raise Remark("The first result must be the pair, a tuple of two strings. See section 10.5.")
    if not isinstance(merged, dict):
        raise Remark("The second result must be a dict, as `cut` is. See section 10.5.")
    kind = {str: "one string ", list: "a list "}.get(type(pair), "")
    words = [
        f"{_word_text(pieces)} {repr(count) if isinstance(count, str) else count}" for pieces, count in merged.items()
    ]
    return kind + "·".join(pair), ", ".join(sorted(words))


def _word_text(pieces):
    if not isinstance(pieces, tuple):
        return f"{pieces} (a {type(pieces).__name__})"
    if any(not isinstance(piece, str) for piece in pieces):
        return f"{pieces}" + " (a tuple in it)" * any(isinstance(piece, tuple) for piece in pieces)
    return "·".join(pieces)


def _first_only(pieces, pair):
    for i in range(len(pieces) - 1):
        if pieces[i : i + 2] == pair:
            return (*pieces[:i], pieces[i] + pieces[i + 1], *pieces[i + 2 :])
    return pieces


def _overlapping(pieces, pair):
    """Each place is looked at by itself, so the second half of a pair stays."""
    glued = [pieces[i] + pieces[i + 1] if pieces[i : i + 2] == pair else pieces[i] for i in range(len(pieces))]
    return tuple(glued)


def _from_the_right(pieces, pair):
    done = []
    for piece in reversed(pieces):
        if done and (piece, done[-1]) == pair:
            done[-1] = piece + done[-1]
        else:
            done.append(piece)
    return tuple(reversed(done))


def _last_lost(pieces, pair):
    """Looks as long as there are two, and forgets the one that is left."""
    done, i = [], 0
    while i < len(pieces) - 1:
        size = 2 if pieces[i : i + 2] == pair else 1
        done.append("".join(pieces[i : i + size]))
        i += size
    return tuple(done)


def _replaced(pieces, pair):
    return tuple(" ".join(pieces).replace(" ".join(pair), "".join(pair)).split(" "))


def _by_letters(pieces, pair):
    """Merges wherever the letters stand, even where pieces were merged otherwise."""
    return tuple(p for p in _replaced(tuple("".join(pieces)), pair))


def _over_edges(cut):
    flat = [(piece, count) for pieces, count in cut.items() for piece in pieces]
    pairs = Counter()
    for (a, count), (b, _) in itertools.pairwise(flat):
        pairs[a, b] += count
    return pairs


def _turned(pieces, pair):
    a, b = pair
    return tuple(b + a if piece == a + b else piece for piece in _merge(pieces, pair))


def _with_a_space(pieces, pair):
    return tuple(
        " ".join(pair) if piece == "".join(pair) and piece not in pieces else piece for piece in _merge(pieces, pair)
    )


def _over_edges_as_often(cut):
    """Every word written down as often as it occurs, and all pairs of neighbours in that text."""
    text = [piece for pieces, n in cut.items() for _ in range(n) for piece in pieces]
    return Counter(itertools.pairwise(text))


def _both_merged(pieces, pair):
    """Where the pair overlaps itself, a piece goes into two merged ones."""
    at = [i for i in range(len(pieces) - 1) if pieces[i : i + 2] == pair]
    return tuple("".join(pair) if i in at else piece for i, piece in enumerate(pieces) if i in at or i - 1 not in at)


def _first_piece_decides(pieces, pair):
    done = []
    for piece in pieces:
        if done and done[-1] == pair[0]:
            done[-1] += piece
        else:
            done.append(piece)
    return tuple(done)


def _either_order(pieces, pair):
    done = []
    for piece in pieces:
        if done and (done[-1], piece) in (pair, pair[::-1]):
            done[-1] += piece
        else:
            done.append(piece)
    return tuple(done)


def _spelled_alike(pieces, pair):
    done = []
    for piece in pieces:
        if done and done[-1] + piece == "".join(pair):
            done[-1] += piece
        else:
            done.append(piece)
    return tuple(done)


def _frequent_pieces(cut):
    counts = Counter()
    for pieces, n in cut.items():
        for piece in pieces:
            counts[piece] += n
    pair = tuple(piece for piece, _ in counts.most_common(2))
    return pair, {_merge(pieces, pair): n for pieces, n in cut.items()}


merge_step = Exercise(
    name="merge_step",
    trials=_cut_words,
    right=_one_round,
    use=_round_text,
    returns=("the pair", "the new dict"),
    mistakes={
        "words not weighted": Mistake(
            "This is the most frequent pair where each word counts once: a pair in a word that occurs a hundred "
            "times counts a hundred times. See section 10.5.",
            {"+= count": "+= 1"},
        ),
        "merged by spelling": Mistake(
            "Two pieces that spell the same as the pair when they are glued are merged too; the pair is these two "
            "pieces and no others. See section 10.5.",
            {"_merge(": "_spelled_alike("},
        ),
        "pairs over the edges of words": Mistake(
            "The end of a word and the beginning of the next one in the dict are taken for neighbours; pairs are "
            "counted within words. See section 10.5.",
            sign=lambda found, cut: (
                found
                in [
                    _round_text(Edited(_one_round, {"    best =": f"    pairs = {pairs}(cut)\n    best ="}), cut)
                    for pairs in ("_over_edges", "_over_edges_as_often")
                ]
            ),
        ),
        "pieces further apart": Mistake(
            "Pieces with another one between them are counted as a pair too; only neighbours are one. See section "
            "10.5.",
            {"in itertools.pairwise(pieces)": "in [*itertools.pairwise(pieces), *zip(pieces, pieces[2:])]"},
        ),
        "once in a word": Mistake(
            "A pair that is several times in a word counts too little there: each place counts, as often as the word "
            "occurs. See section 10.5.",
            {"in itertools.pairwise(pieces)": "in dict.fromkeys(itertools.pairwise(pieces))"},
        ),
        "first pair": Mistake(
            "The pair is the first one in the dict, not the most frequent. See section 10.5.",
            {"max(pairs, key=pairs.get)": "next(iter(pairs))"},
        ),
        "least frequent pair": Mistake(
            "The pair is the rarest one, and it has to be the most frequent. See section 10.5.",
            {"max(": "min("},
        ),
        "neighbours in any order": Mistake(
            "た before べ and べ before た are counted as one pair, and a pair has an order. See section 10.5.",
            {"in itertools.pairwise(pieces)": "in map(tuple, map(sorted, itertools.pairwise(pieces)))"},
        ),
        "only the first place merged": Mistake(
            "In a word that holds the pair twice, the second one is left in two pieces. See section 10.5.",
            {"_merge(": "_first_only("},
        ),
        "second half kept": Mistake(
            "The pair is glued and its second half still follows, so the word has become longer. See section 10.5.",
            {"_merge(": "_overlapping("},
        ),
        "last piece lost": Mistake(
            "The last piece of a word is missing when it is no part of the pair: where no pair can begin, a piece is "
            "left all the same. See section 10.5.",
            {"_merge(": "_last_lost("},
        ),
        "replaced in a string": Mistake(
            "Pieces that only end or begin like those of the pair are merged too: べま し has no piece ま, so the pair "
            "of ま and し is not in it. See section 10.5.",
            {"_merge(": "_replaced("},
        ),
        "earlier merges undone": Mistake(
            "Pieces that were merged before are in letters again: merge pieces, not letters. See section 10.5.",
            {"_merge(": "_by_letters("},
        ),
        "words glued": Mistake(
            "The keys of the new dict are whole words, and their pieces are gone: a key is the tuple of its pieces. "
            "See section 10.5.",
            {"_merge(pieces, best)": '"".join(pieces)'},
        ),
        "nothing merged": Mistake(
            "The dict is as it was: the pair is still in two pieces. See section 10.5.",
            {"_merge(pieces, best)": "pieces"},
        ),
        "words without the pair lost": Mistake(
            "Words that do not hold the pair are missing in the new dict. See section 10.5.",
            {"in cut.items()}": "in cut.items() if _merge(pieces, best) != pieces}"},
        ),
        "counts lost": Mistake(
            "Each count in the new dict is 1: keep how often the words occur, for the next round needs it. See "
            "section 10.5.",
            {"best): count": "best): 1"},
        ),
        "pair as one string": Mistake(
            "The first result is the merged piece; asked for is the pair, a tuple of two strings, from which a new "
            "word can be cut. See section 10.5.",
            {"return best": 'return "".join(best)'},
        ),
        "pair as a list": Mistake(
            "The pair is a list, and a list equals no tuple, even of the same strings: asked for is a tuple of two "
            "strings. See section 10.5.",
            {"return best": "return list(best)"},
        ),
        "count times the length of the pair": Mistake(
            "A pair of long pieces wins over one that is more frequent. What decides is how often a pair occurs, and "
            "not its length. See section 10.5.",
            {"+= count": '+= count * len("".join(pair))'},
        ),
        "count times the length of the word": Mistake(
            "A pair in a long word wins over one that is more frequent. A pair counts as often as it occurs, "
            "however long the word. See section 10.5.",
            {"+= count": "+= count * len(pieces)"},
        ),
        "count of the last word": Mistake(
            "A pair has the count of the last word that holds it: add up the counts of all its words. See section "
            "10.5.",
            {"+= count": "= count"},
        ),
        "every second pair": Mistake(
            "Only every second pair of neighbours is counted: after the first and second piece come the second and "
            "third. See section 10.5.",
            {"itertools.pairwise(pieces)": "zip(pieces[::2], pieces[1::2], strict=False)"},
        ),
        "pieces that are not neighbours": Mistake(
            "Pieces that stand further apart count as a pair as well; a pair stands side by side. See section 10.5.",
            {"pairwise(pieces)": "combinations(pieces, 2)"},
        ),
        "last in the alphabet": Mistake(
            "The pair is the last one in the order of `sorted`, as a plain `max` finds it: the count decides. "
            "See section 10.5.",
            {", key=pairs.get": ""},
        ),
        "glued the wrong way round": Mistake(
            "The pair is glued the wrong way round: the piece that comes first stays in front. See section 10.5.",
            {"_merge(": "_turned("},
        ),
        "glued with a space": Mistake(
            "There is a space in the new piece: glue the two halves without one. See section 10.5.",
            {"_merge(": "_with_a_space("},
        ),
        "every pair merged": Mistake(
            "A word that holds the pair becomes one single piece: a round merges this pair, and what stands beside it "
            "stays. See section 10.5.",
            {"_merge(pieces, best)": '("".join(pieces),) if _merge(pieces, best) != pieces else pieces'},
        ),
        "pair kept as a tuple": Mistake(
            "A tuple stands among the pieces of a word, where a string belongs: the two strings of the pair, glued "
            "into one. See section 10.5.",
            sign=lambda found, cut: "a tuple in it" in found[1],
        ),
        "pieces in one string": Mistake(
            "There are strings among the keys of the new dict: a key is a tuple, with one string for each piece. "
            "See section 10.5.",
            sign=lambda found, cut: "(a str)" in found[1],
        ),
        "new pieces only": Mistake(
            "Words that hold the pair have lost their other pieces: what is no part of the pair should stay. See "
            "section 10.5.",
            {"_merge(pieces, best)": '("".join(best),) if _merge(pieces, best) != pieces else pieces'},
        ),
        "overlaps merged twice": Mistake(
            "Where a pair overlaps itself, as in のの の, the middle piece goes into two merged ones: a piece that has "
            "been merged is used up, and the next place begins behind it. See section 10.5.",
            {"_merge(": "_both_merged("},
        ),
        "frequent pieces instead of a pair": Mistake(
            "These are the two most frequent pieces, which may never stand side by side: count neighbours. See section "
            "10.5.",
            _frequent_pieces,
        ),
        "dict alone": Mistake(
            "A dict comes back alone; asked for are two things, the pair and the new dict, so that new text can be "
            "cut by the same pair. See section 10.5.",
            sign=lambda found, cut: found[0] == "a dict alone",
        ),
        "merged in either order": Mistake(
            "The two pieces are merged in the other order too, the second before the first: a pair has an order. See "
            "section 10.5.",
            {"_merge(": "_either_order("},
        ),
        "first piece decides": Mistake(
            "Whatever stands behind the first piece of the pair is merged with it: both pieces have to be those of the "
            "pair. See section 10.5.",
            {"_merge(": "_first_piece_decides("},
        ),
        CHANGES_ITS_INPUT: Mistake("Make a new dict: whoever called may still need the old one. See section 10.5."),
        "merged from the right": Mistake(
            "Where a word has the pair twice with a piece in common, the last two are merged: go from left to right. "
            "See section 10.5.",
            {"_merge(": "_from_the_right("},
        ),
    },
)


# ---------------------------------------------------------------- padding and the shift


def _pairs_of_ids(draw):
    def pairs(*sizes):
        return [tuple((4 + draw.ints(length, high=50)).tolist() for length in size) for size in sizes]

    yield "a batch", pairs((5, 3), (2, 7), (3, 2))
    yield "a batch of one", pairs((3, 5))
    yield "a target not yet begun", pairs((2, 0), (3, 5))
    yield "single words", pairs((1, 1), (1, 1), (1, 1))
    yield "unknown words", [([5, 3, 7], [3]), ([3], [4, 3])]
    yield "ids of a large vocabulary", [([300, 70_001], [80_001]), ([5], [70_003, 6])]
    yield "a source of no word", [([], [5, 7]), ([4], [6])]
    yield "a larger batch", pairs((7, 11), (3, 2), (11, 5), (2, 3), (5, 7))


def _tensors(answer, pairs):
    found = answer(pairs)
    if isinstance(found, Tensor):
        raise Remark("pad_pairs must return three tensors: src, tgt_in and tgt_out. See section 10.7.")
    _stays("pad_pairs", found, answer, [([11, 13], [17, 19, 23])])
    if isinstance(found, tuple | list):
        return tuple(as_integers(tensor) for tensor in found)
    return found


def _filled(rows, *, value=PAD_ID, width=None, left=False):
    width = max(map(len, rows)) if width is None else width
    return torch.tensor(
        [[value] * (width - len(row)) + row if left else (row + [value] * (width - len(row))) for row in rows],
        dtype=torch.long,
    ).view(len(rows), width)


def _padded(pairs):
    src = [[*src, EOS_ID] for src, _ in pairs]
    tgt_in = [[BOS_ID, *tgt] for _, tgt in pairs]
    tgt_out = [[*tgt, EOS_ID] for _, tgt in pairs]
    return tuple(_filled(rows) for rows in (src, tgt_in, tgt_out))


def _end_behind(pairs):
    ends = torch.full((len(pairs), 1), EOS_ID)
    src = _filled([list(src) for src, _ in pairs])
    tgt = _filled([list(tgt) for _, tgt in pairs])
    return torch.cat([src, ends], 1), _padded(pairs)[1], torch.cat([tgt, ends], 1)


def _whole_then_cut(pairs):
    whole = _filled([[BOS_ID, *tgt, EOS_ID] for _, tgt in pairs])
    return _padded(pairs)[0], whole[:, :-1], whole[:, 1:]


def _cuts(pairs):
    """What is read and what is written, shifted by leaving words out."""
    targets = [list(tgt) for _, tgt in pairs]
    yield [tgt[:-1] for tgt in targets], [tgt[1:] for tgt in targets]
    yield [[BOS_ID, *tgt[:-1]] for tgt in targets], targets
    yield targets, [[*tgt[1:], EOS_ID] for tgt in targets]


def _is_filled_otherwise(found, pairs):
    """Whether all is right but the number in all the places of padding of one tensor or several."""
    right = _padded(pairs)
    both = list(zip(found, right, strict=True))
    if any(f.dtype != r.dtype or f.shape != r.shape for f, r in both):
        return False
    same_words = all(torch.equal(f[r != PAD_ID], r[r != PAD_ID]) for f, r in both)
    return same_words and all(torch.equal(f, r) or not (f[r == PAD_ID] == PAD_ID).any() for f, r in both)


def _is_wider(found, pairs):
    """Whether all is right but for columns of padding at the end."""
    right = _padded(pairs)
    wider = [f.size(1) > r.size(1) for f, r in zip(found, right, strict=True)]
    return any(wider) and all(
        torch.equal(f[:, : r.size(1)], r) and (f[:, r.size(1) :] == PAD_ID).all()
        for f, r in zip(found, right, strict=True)
    )


def _filled_one_column_short(rows):
    width = max(map(len, rows)) - 1
    ends = [row[: max(width - 1, 0)] + row[-1:] if len(row) > width else row for row in rows]
    return _filled(ends, width=width)


def _shifted_by_two(found, pairs):
    """Whether what is written begins with the second word, and all else is right."""
    later = [[*tgt[1:], EOS_ID] for _, tgt in pairs]
    wanted, right = _filled(later), _padded(pairs)
    if any(not tgt for _, tgt in pairs):
        return None
    written = found[2][:, : wanted.size(1)]
    return (
        torch.equal(found[0], right[0])
        and torch.equal(found[1], right[1])
        and torch.equal(written, wanted)
        and not found[2][:, wanted.size(1) :].any()
    )


pad_pairs = Exercise(
    name="pad_pairs",
    trials=_pairs_of_ids,
    right=_padded,
    use=_tensors,
    returns=("src", "tgt_in", "tgt_out"),
    mistakes={
        "end in what is read": Mistake(
            "The end stands in tgt_in: nothing is to be written behind it, so it is not read. See section 10.8.",
            {"BOS_ID, *tgt": "BOS_ID, *tgt, EOS_ID"},
        ),
        "beginning in what is written": Mistake(
            "tgt_out begins with the beginning, which is only to be read: the first word is the first to be written. "
            "See section 10.8.",
            {"*tgt, EOS_ID": "BOS_ID, *tgt, EOS_ID"},
        ),
        "end of the source swapped with the beginning of the target": Mistake(
            "The source ends with the beginning; it should end with the end, as what is written does. See section "
            "10.7.",
            {"*src, EOS_ID": "*src, BOS_ID"},
        ),
        "beginning and end in both": Mistake(
            "Both rows of the target have a beginning and an end, so they are the same and nothing is shifted; "
            "tgt_in needs the one and tgt_out the other. See section 10.8.",
            {"[BOS_ID, *tgt]": "[BOS_ID, *tgt, EOS_ID]", "[*tgt, EOS_ID]": "[BOS_ID, *tgt, EOS_ID]"},
        ),
        "not shifted": Mistake(
            "tgt_in and tgt_out are the same: the decoder would read the very word that it must write, and learn to "
            "copy. See section 10.8.",
            sign=lambda found, pairs: torch.equal(found[1], found[2]) and found[1].size(0) == len(pairs),
        ),
        "read and write swapped": Mistake(
            "What has to be written stands where what is read belongs, or the other way round: the decoder reads "
            "from the beginning on and writes up to the end. See section 10.8.",
            {"tgt_in, tgt_out)": "tgt_out, tgt_in)"},
        ),
        "no beginning": Mistake(
            f"tgt_in does not begin with the beginning ({BOS_ID}), which the decoder reads to write the first word. "
            "See section 10.8.",
            sign=lambda found, pairs: (
                bool((found[1] != BOS_ID).all())
                and torch.equal(found[0], _padded(pairs)[0])
                and torch.equal(found[2], _padded(pairs)[2])
            ),
        ),
        "no end": Mistake(
            "tgt_out has no end, so the model never learns to stop. See section 10.8.",
            sign=lambda found, pairs: (
                bool((found[2] != EOS_ID).all())
                and torch.equal(found[0], _padded(pairs)[0])
                and torch.equal(found[1], _padded(pairs)[1])
            ),
        ),
        "words cut off": Mistake(
            "A word of each target is never read or never written: put the beginning in front of tgt_in and the end "
            "behind tgt_out, and leave every word in both. See section 10.8.",
            sign=lambda found, pairs: (
                None
                if any(not tgt for _, tgt in pairs)
                else torch.equal(found[0], _padded(pairs)[0])
                and any(
                    all(torch.equal(tensor, _filled(rows)) for tensor, rows in zip(found[1:], cut, strict=True))
                    for cut in _cuts(pairs)
                )
            ),
        ),
        "end in both": Mistake(
            "In the shorter rows tgt_in holds the end too, and the end is only to be written. Shift each sentence "
            "first, and pad then. See section 10.8.",
            _whole_then_cut,
        ),
        "beginning and end swapped": Mistake(
            f"Where the beginning ({BOS_ID}) belongs stands the end ({EOS_ID}), or the other way round. See section "
            "10.4.",
            {"*src, EOS_ID": "*src, BOS_ID", "BOS_ID, *tgt": "EOS_ID, *tgt", "*tgt, EOS_ID": "*tgt, BOS_ID"},
        ),
        "no end of the source": Mistake(
            "The sources have no end: every source needs one, for the model to see where it stops. See section 10.7.",
            {"*src, EOS_ID": "*src"},
        ),
        "beginning at the source": Mistake(
            "The sources have a beginning, which only the decoder needs: a source is read all at once. See section "
            "10.7.",
            {"*src, EOS_ID": "BOS_ID, *src, EOS_ID"},
        ),
        "beginning instead of end": Mistake(
            "The sources have a beginning and no end; it should be the other way round. See section 10.7.",
            {"*src, EOS_ID": "BOS_ID, *src"},
        ),
        "padding on the left": Mistake(
            "The padding stands on the left, and in this course it stands on the right. See section 10.7.",
            {"_filled(rows)": "_filled(rows, left=True)"},
        ),
        "end behind the padding": Mistake(
            "The end stands in the last column, behind the padding, and it belongs right behind the last word: add it "
            "before you pad. See section 10.7.",
            _end_behind,
        ),
        "padded with the end": Mistake(
            f"The rows are filled up with the end ({EOS_ID}), and padding has an id of its own ({PAD_ID}), which masks "
            "and loss leave out. See section 10.7.",
            {"_filled(rows)": "_filled(rows, value=EOS_ID)"},
        ),
        "one width for both sides": Mistake(
            "A tensor has the width of the other side's longest row; each should be as wide as its own longest row. "
            "See section 10.7.",
            {"_filled(rows)": "_filled(rows, width=max(map(len, src + tgt_in)))"},
        ),
        "cut to the shortest": Mistake(
            "The rows are cut off where the shortest ends, and the words behind that are lost: pad to the longest. "
            "See section 10.7.",
            {"_filled(rows)": "torch.tensor([row[: min(map(len, rows))] for row in rows])"},
        ),
        "axes swapped": Mistake(
            "The sentences stand in columns: the first axis is the batch, (B, S). See section 10.7.",
            {"_filled(rows)": "_filled(rows).mT"},
        ),
        "a column too many": Mistake(
            "There are columns in which nothing but padding stands: a tensor is as wide as its longest row, beginning "
            "or end included. See section 10.7.",
            sign=lambda found, pairs: _is_wider(found, pairs),
        ),
        "no end at all": Mistake(
            "The end is missing: the sources need one, and so does tgt_out, for the model has to learn to stop. See "
            "section 10.8.",
            {"*src, EOS_ID": "*src", "*tgt, EOS_ID": "*tgt"},
        ),
        "end of the shorter rows only": Mistake(
            "The tensors are a column too narrow, and the longest rows have lost what came before their last id: "
            "they need one column more than the longest sentence has words. See section 10.7.",
            {"_filled(rows)": "_filled_one_column_short(rows)"},
        ),
        "a column too few": Mistake(
            "The tensors are a column too narrow, and the longest rows have lost what stands last: they need one "
            "column more than the longest sentence has words. See section 10.7.",
            {"_filled(rows)": "_filled(rows, width=max(map(len, rows)))[:, :-1]"},
        ),
        "source and target swapped": Mistake(
            "Sources stand where the targets belong, or the other way round: a pair is (source, target). See "
            "section 10.8.",
            {"    src =": "    pairs = [pair[::-1] for pair in pairs]\n    src ="},
        ),
        "what is written filled up with the end": Mistake(
            f"tgt_out is filled up with the end ({EOS_ID}) instead of the padding ({PAD_ID}): the model would learn to "
            "write many ends. See section 10.7.",
            {
                "tuple(_filled(rows) for rows in (src, tgt_in, tgt_out))": (
                    "_filled(src), _filled(tgt_in), _filled(tgt_out, value=EOS_ID)"
                )
            },
        ),
        "padded with another number": Mistake(
            f"Rows are filled up with something other than the padding, whose id is {PAD_ID}: masks and losses look "
            "for that one. See section 10.7.",
            sign=lambda found, pairs: _is_filled_otherwise(found, pairs),
        ),
        "not integers": Mistake(
            "The numbers are right and have a point: ids are looked up in a table, which takes integers. See section "
            "10.7.",
            sign=lambda found, pairs: all(
                f.is_floating_point() and torch.equal(f.long(), r) for f, r in zip(found, _padded(pairs), strict=True)
            ),
        ),
        "lists instead of tensors": Mistake(
            "Lists come back; asked for are three tensors, and torch.tensor makes one of rows of one length. See "
            "section 10.7.",
            sign=lambda found, pairs: all(isinstance(f, list) for f in found),
        ),
        "shifted by two": Mistake(
            "The first word is missing in tgt_out, so it is never learned: tgt_in has the beginning in front, and "
            "that is the whole shift. See section 10.8.",
            sign=lambda found, pairs: _shifted_by_two(found, pairs),
        ),
        "as wide as the first row": Mistake(
            "A tensor is as wide as its first row here, and longer ones are cut off: the width should be that of "
            "the longest. See section 10.7.",
            {"_filled(rows)": "_filled([row[: len(rows[0])] for row in rows], width=len(rows[0]))"},
        ),
        "not filled up": Mistake(
            "Rows of one length fit, and others stop it: a tensor has no rows of different lengths, so fill them up "
            "with padding first. See section 10.7.",
            {"_filled(rows)": "torch.tensor(rows)"},
        ),
        CHANGES_ITS_INPUT: Mistake(
            "Whoever uses these lists again, as the next epoch does, finds other ids in them: make new lists. See "
            "section 10.7."
        ),
    },
)


# ---------------------------------------------------------------- buckets


def _some_lengths(draw):
    yield "a few sentences", [3, 7, 2, 5, 3, 11, 2], 24
    yield "random lengths", (1 + draw.ints(29, high=13)).tolist(), 31
    yield "one sentence", [5], 7
    yield "all of one length", [3] * 11, 15
    yield "a sentence that fills a bucket", [2, 11, 3, 11, 5], 11
    yield "many sentences", (2 + draw.ints(101, high=23)).tolist(), 97
    yield "long sentences", [130, 3, 120], 250
    yield "no sentence", [], 7


def _described(answer, lengths, max_cells):
    found = answer(lengths, max_cells)
    if found is None:
        return None
    if not isinstance(found, list | tuple) or not all(isinstance(bucket, list | tuple) for bucket in found):
        raise Remark(
            "fill_buckets must return a list of buckets, and each bucket is a list of indices. See section 10.7."
        )
    _stays("fill_buckets", found, answer, [2, 2, 2], 2)
    if not all(_is_whole(i) for bucket in found for i in bucket):
        raise Remark("The indices must be whole numbers, the places of the sentences in `lengths`. See section 10.7.")
    found = [[int(i) for i in bucket] for bucket in found]
    indices = [i for bucket in found for i in bucket]
    # Indices that are none come last, whatever they are.
    known = [[lengths[i] for i in b if 0 <= i < len(lengths)] for b in found]
    return (
        torch.tensor(sorted(indices), dtype=torch.long),
        len(found),
        "; ".join(" ".join(map(str, sorted(b))) for b in sorted(known, key=sorted)),
        all(_cells(bucket) <= max_cells for bucket in known),
    )


def _cells(lengths):
    return len(lengths) * max(lengths, default=0)


def _walk(lengths, max_cells):
    buckets = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if not buckets or lengths[i] * (len(buckets[-1]) + 1) > max_cells:
            buckets.append([])
        buckets[-1].append(i)
    return buckets


# A new bucket is begun, and the sentence that did not fit is forgotten.
_LOST = {
    "= []": "= [[]]",
    "not buckets or ": "",
    "        buckets[-1].append(i)": "        else:\n            buckets[-1].append(i)",
}
_LOST_AT_THE_EDGE = [
    Edited(_walk, _LOST),
    Edited(_walk, _LOST | {"return buckets": "return [b for b in buckets if b]"}),
]
_THE_SAME_LIST = Edited(_walk, {"return buckets": "return [buckets[-1] for _ in buckets] or [[]]"})


def _fixed_size(lengths, max_cells):
    size = max_cells // max(lengths, default=1)
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return [order[i : i + size] for i in range(0, len(order), size)]


def _each_length_alone(lengths, max_cells):
    """A bucket is left when the length changes, or when it is full."""
    buckets = []
    for length in sorted(set(lengths)):
        same = [i for i, other in enumerate(lengths) if other == length]
        size = max(max_cells // length, 1)
        buckets += [same[i : i + size] for i in range(0, len(same), size)]
    return buckets


def _by_length(lengths, max_cells):
    """One bucket for each length, however many cells that makes."""
    return [[i for i, other in enumerate(lengths) if other == length] for length in sorted(set(lengths))]


fill_buckets = Exercise(
    name="fill_buckets",
    trials=_some_lengths,
    right=_walk,
    use=_described,
    returns=("all indices, sorted", "the number of buckets", "the lengths in each bucket", "'no bucket is too large'"),
    mistakes={
        "padding not counted": Mistake(
            "These are buckets of lengths added up, and padding takes cells too: a bucket has as many columns as its "
            "longest sentence. See section 10.7.",
            {"lengths[i] * (len(buckets[-1]) + 1)": "lengths[i] + sum(lengths[j] for j in buckets[-1])"},
        ),
        "sentences counted": Mistake(
            "A bucket is full when it has max_cells sentences; what is limited is its cells, sentences times the "
            "longest of them. See section 10.7.",
            {"lengths[i] * (len(buckets[-1]) + 1) > max_cells": "len(buckets[-1]) >= max_cells"},
        ),
        "not sorted": Mistake(
            "The sentences stand as they come, long beside short, so that most of a bucket can be padding: sort them "
            "first. See section 10.7.",
            {
                "sorted(range(len(lengths)), key=lambda i: lengths[i])": "range(len(lengths))",
                "lengths[i] * (len": "max(lengths[j] for j in [*buckets[-1], i]) * (len",
            },
        ),
        "longest first": Mistake(
            "The buckets are filled from the longest sentence down; asked for is from the shortest up. See section "
            "10.7.",
            {
                "lambda i: lengths": "lambda i: -lengths",
                "lengths[i] * (len": "max(lengths[j] for j in [*buckets[-1], i]) * (len",
            },
        ),
        "one sentence too many": Mistake(
            "Some buckets are too large by one sentence: whether it fits must be asked before it is put in, "
            "with the sentence counted. See section 10.7.",
            {"lengths[i] * (len(buckets[-1]) + 1)": "_cells([lengths[j] for j in buckets[-1]])"},
        ),
        "the new sentence not counted": Mistake(
            "Some buckets are too large: the sentence that is about to be added makes the bucket wider and also gives "
            "it one row more. See section 10.7.",
            {" + 1)": ")"},
        ),
        "width of those before": Mistake(
            "Some buckets are too large: the width is that of the sentences that are in already, and the new one can "
            "be longer. See section 10.7.",
            {"lengths[i] * (len": "max(lengths[j] for j in buckets[-1]) * (len"},
        ),
        "width of the first": Mistake(
            "Some buckets are too large: the width is taken from the first sentence, and that is the shortest one. "
            "See section 10.7.",
            {"lengths[i] * (len": "lengths[buckets[-1][0]] * (len"},
        ),
        "full too early": Mistake(
            "A sentence that would fill its bucket to the last cell is put into the next one: max_cells cells are "
            "still allowed. See section 10.7.",
            {"> max_cells": ">= max_cells"},
        ),
        "last bucket lost": Mistake(
            "The longest sentences are missing: the last bucket has to be returned too, full or not. See section 10.7.",
            {"return buckets": "return buckets[:-1]"},
        ),
        "sentence lost at the edge": Mistake(
            "Each time a new bucket begins, the sentence that did not fit into the old one is lost: it should be "
            "the first of the new one. See section 10.7.",
            sign=lambda found, lengths, most: (
                any(
                    torch.equal(found[0], lost[0]) and found[1:] == lost[1:]
                    for lost in (_described(answer, lengths, most) for answer in _LOST_AT_THE_EDGE)
                )
                if lengths
                else None
            ),
        ),
        "an empty bucket": Mistake(
            "There is a bucket with no sentence in it, and a batch of none cannot be made. See section 10.7.",
            sign=lambda found, lengths, most: (
                found[1] > _described(_walk, lengths, most)[1]
                and torch.equal(found[0], torch.arange(len(lengths)))
                and found[2].strip("; ") == _described(_walk, lengths, most)[2]
            ),
        ),
        "one size for all": Mistake(
            "No bucket holds more sentences than would fit if all were as long as the longest; of short ones more "
            "fit. See section 10.7.",
            _fixed_size,
        ),
        "a bucket for each length": Mistake(
            "Only sentences of exactly the same length share a bucket: put those of other lengths into it too, as "
            "long as the next one fits. See section 10.7.",
            sign=lambda found, lengths, most: (
                torch.equal(found[0], torch.arange(len(lengths)))
                and found[2]
                in (_described(_by_length, lengths, most)[2], _described(_each_length_alone, lengths, most)[2])
            ),
        ),
        "one sentence each": Mistake(
            "Every sentence has a bucket of its own: put them together as long as the next one fits. See section 10.7.",
            lambda lengths, most: [[i] for i in range(len(lengths))],
        ),
        "end counted twice": Mistake(
            "These are the buckets of lengths that are larger by 1, for the end, as in section 10.7; here the "
            "lengths have the end in them. See section 10.7.",
            {"lengths[i] * (len": "(lengths[i] + 1) * (len"},
        ),
        "lengths instead of indices": Mistake(
            "The buckets hold the lengths of the sentences; asked for are their places in `lengths`. See section 10.7.",
            {"append(i)": "append(lengths[i])"},
        ),
        "places after sorting": Mistake(
            "The numbers are places in the sorted list; asked for are those in `lengths`, or the wrong sentences "
            "will be fetched. See section 10.7.",
            {"    buckets = []": "    lengths = sorted(lengths)\n    buckets = []"},
        ),
        "one bucket": Mistake(
            "All sentences are in one bucket, however many cells that makes: begin a new one when the next sentence "
            "does not fit. See section 10.7.",
            sign=lambda found, lengths, most: (
                found[1] == 1 and torch.equal(found[0], torch.arange(len(lengths))) if lengths else None
            ),
        ),
        "not sorted and padding not counted": Mistake(
            "The sentences stand as they come, long beside short, and their lengths are added up, although padding "
            "takes cells too: sort them, and count as many columns as the longest has. See section 10.7.",
            {
                "sorted(range(len(lengths)), key=lambda i: lengths[i])": "range(len(lengths))",
                "lengths[i] * (len(buckets[-1]) + 1)": "lengths[i] + sum(lengths[j] for j in buckets[-1])",
            },
        ),
        "not sorted and the new one's width": Mistake(
            "The sentences stand as they come, and a bucket is taken to be as wide as the sentence that is about to "
            "be added, which is the longest only if they are sorted. See section 10.7.",
            {"sorted(range(len(lengths)), key=lambda i: lengths[i])": "range(len(lengths))"},
        ),
        "longest first and the new one's width": Mistake(
            "The buckets are filled from the longest sentence down, and each is taken to be as wide as the sentence "
            "that is about to be added, its shortest. See section 10.7.",
            {"lambda i: lengths": "lambda i: -lengths"},
        ),
        "first of equal lengths": Mistake(
            "Of sentences of one length only the first is there, several times. `index` finds the first place of a "
            "length; sort the places, and not the lengths. See section 10.7.",
            {"append(i)": "append(lengths.index(lengths[i]))"},
        ),
        "one list for all buckets": Mistake(
            "All buckets hold the same sentences, those that came last: begin a new list for each bucket. See section "
            "10.7.",
            sign=lambda found, lengths, most: (
                (
                    lengths != []
                    and torch.equal(found[0], _described(_THE_SAME_LIST, lengths, most)[0])
                    and found[1:3] == _described(_THE_SAME_LIST, lengths, most)[1:3]
                )
                or (None if not lengths else False)
            ),
        ),
    },
)


# ---------------------------------------------------------------- leaks


def _key(text):
    return "".join(letter for letter in text.lower() if letter.isalnum())


_LETTERS, _SPACES, _FIRST = "letters and digits", "all but spaces", "all but the first letter"
_KEYS = {_LETTERS: _key, _SPACES: lambda text: "".join(text.split()), _FIRST: lambda text: text[1:]}


def _train_and_held_out(draw):
    """What is tried, the two lists, and what the key keeps."""
    for what, train, held_out in _like_the_chapter(draw):
        yield what, train, held_out, _LETTERS
    train = [
        ("魚を買う!", "i buy fish."),
        ("Tシャツ だ 。", "It is mine."),
        ("雨です。", "It rains."),
        ("雪だ。", "IT RAINS."),
    ]
    yield (
        "sentences that this key tells apart",
        [("１０だ。", "Go ."), ("魚", "no one"), ("海", "It is so.")],
        [("10だ。", "Go"), ("肉", "one no"), ("山", "It is so")],
        _SPACES,
    )
    yield "a key that is not the same when used twice", [("abc", "one"), ("xyz", "two")], [("adc", "six")], _FIRST
    yield (
        "a key that keeps capitals and signs",
        train,
        [("魚を買う。", "I buy fish."), ("Tシャツだ。", "It rains .")],
        _SPACES,
    )


def _like_the_chapter(draw):
    held_out = [("魚を買う。", "I buy fish."), ("猫だ。", "It is a cat."), ("雨だ。", "It rains.")]
    free = [("犬だ。", "It is a dog."), ("本を読む。", "I read."), ("海へ行く。", "I go to sea.")]
    yield "nothing to remove", free, held_out
    yield "the same pair", [free[0], held_out[1], free[1]], held_out
    yield ("other spellings", [("魚 を 買う !", "i buy fish !"), *free, ("雨 だ 。", "IT RAINS.")], held_out)
    yield "the same Japanese", [free[2], ("猫だ!", "A cat."), free[0]], held_out
    yield "the same English", [("雨が降る。", "it rains"), *free], held_out
    yield ("one side, spelled alike", [("魚を買う。", "We sell."), *free, ("傘。", "It rains.")], held_out)
    yield "sides of two pairs", [free[1], ("猫だ", "It rains!"), free[0]], held_out
    yield ("a sentence inside another", [("黒猫だ。", "It is a cat and it rains."), *free], held_out)
    yield "part of a held-out sentence", [("猫", "A cat."), *free], held_out
    yield ("a name in the other language", [("放送局だ。", "NHK."), *free], [("NHK", "It is on TV."), *held_out])
    yield "pairs twice", [free[0], free[1], free[0], held_out[0], held_out[0]], held_out
    yield "nothing held out", [held_out[2], *free], []
    yield "spelled like its key", [("傘", "It is mine."), *free], [("傘", "umbrella"), *held_out]
    yield (
        "a sentence held out with two translations",
        [("雪。", "It rained."), *free],
        [("猫だ。", "It rained."), ("猫だ。", "A cat."), ("犬だよ。", "It is a dog!")],
    )
    yield "sentences of signs", [free[0], ("！", "Wow!"), free[1]], [("？", "Really?"), *held_out]
    yield "every pair held out", [held_out[0], held_out[2]], held_out
    yield "no training pair", [], held_out
    long = ("公園の大きな木の下で猫が寝ている。", "In the large park a cat is asleep.")
    other = ("公園の大きな木の下で犬が水を飲む。", "In the large park a dog drinks water.")
    nearly = ("公園の大きな木の下で猫が寝ていた。", "In the large park a cat was asleep.")
    yield "long sentences that begin alike", [other, *free, nearly], [long, *held_out]
    for _ in range(2):
        order = draw.ints(11, high=6).tolist()
        yield "random pairs", [(*held_out, *free)[i] for i in order], held_out[:2]


def _kept(answer, train, held_out, key):
    found = answer(train, held_out, _KEYS[key])
    if found is None:
        return None
    if isinstance(found, list | tuple) and found:
        for kind, what in ((int, "numbers"), (str, "sentences")):
            if all(type(pair) is kind for pair in found):
                return len(found), what
    if not isinstance(found, list | tuple) or not all(
        isinstance(pair, tuple | list) and len(pair) == 2 for pair in found
    ):
        raise Remark("remove_leaks must return a list of pairs (Japanese, English). See section 10.10.")
    return len(found), "; ".join(f"{ja} {en}" for ja, en in found)


def _without(train, held_out, key):
    japanese = {key(ja) for ja, _ in held_out}
    english = {key(en) for _, en in held_out}
    return [(ja, en) for ja, en in train if key(ja) not in japanese and key(en) not in english]


def _up_to_the_first(train, held_out, key):
    kept = _without(train, held_out, key)
    return list(itertools.takewhile(lambda pair: pair in kept, train))


def _row_by_row(train, held_out, key):
    rows = zip(train, held_out, strict=False)
    return [p for p, h in rows if all(key(p[side]) != key(h[side]) for side in (0, 1))]


def _by_another_key(found, train, held_out, given):
    """Whether some key that is often written was used instead of the one that was given."""
    keys = (
        str.lower,
        str.strip,
        lambda text: text.lower().strip(),
        lambda text: "".join(text.split()),
        lambda text: "".join(text.lower().split()),
    )
    if any(not _KEYS[given](text) for pair in held_out for text in pair):  # which none of these keys makes alike
        return None
    return any(found == _kept(lambda a, b, _, key=key: _without(a, b, key), train, held_out, given) for key in keys)


remove_leaks = Exercise(
    name="remove_leaks",
    trials=_train_and_held_out,
    right=_without,
    use=_kept,
    returns=("the number of pairs", "the pairs"),
    mistakes={
        "only the beginnings compared": Mistake(
            "Sentences that begin alike and end otherwise are removed: compare the whole of what `key` returns. "
            "See section 10.10.",
            {"    japanese =": "    whole, key = key, lambda text: whole(text)[:10]\n    japanese ="},
        ),
        "no key": Mistake(
            "Only sentences spelled exactly alike are found; other spaces, capitals or signs hide the rest: compare "
            "what `key` makes of them. See section 10.10.",
            {"    japanese =": "    key = str\n    japanese ="},
        ),
        "key on one side of the comparison": Mistake(
            "Of the held-out sentences only those are found that are spelled like their own key: compare `key` of "
            "the one with `key` of the other. See section 10.10.",
            {"{key(ja)": "{ja", "{key(en)": "{en"},
        ),
        "key on the held-out side only": Mistake(
            "Of the training sentences only those are found that are spelled like a key: compare `key` of the one "
            "with `key` of the other. See section 10.10.",
            {"if key(ja)": "if ja", "and key(en)": "and en"},
        ),
        "kept for one that differs": Mistake(
            "A pair stays as soon as one of the held-out pairs is another one; it may stay only if all of them are. "
            "See section 10.10.",
            lambda train, held, key: [
                p for p in train if any(key(p[0]) != key(h[0]) and key(p[1]) != key(h[1]) for h in held)
            ],
        ),
        "kept once for each that differs": Mistake(
            "A pair is there once for each held-out pair from which it differs: look at all of them first, and then "
            "keep it once or not at all. See section 10.10.",
            lambda train, held, key: [
                p for p in train for h in held if key(p[0]) != key(h[0]) and key(p[1]) != key(h[1])
            ],
        ),
        "Japanese only": Mistake(
            "Pairs with a held-out English sentence are still there: who trains on them has seen the answer. "
            "See section 10.10.",
            {" and key(en) not in english": ""},
        ),
        "English only": Mistake(
            "Pairs with a held-out Japanese sentence are still there: both sides count. See section 10.10.",
            {"key(ja) not in japanese and ": ""},
        ),
        "whole pairs compared": Mistake(
            "Only pairs held out as a whole are found, and one side alone is a leak as well. See section 10.10.",
            lambda train, held, key: [
                p for p in train if (key(p[0]), key(p[1])) not in {(key(h[0]), key(h[1])) for h in held}
            ],
        ),
        "both sides at once": Mistake(
            "A pair goes out only if both of its sides are held out, and one is enough. See section 10.10.",
            {"japanese and": "japanese or"},
        ),
        "leaks kept": Mistake(
            "It is the wrong way round: these are the pairs that have to go. See section 10.10.",
            {"key(ja) not in japanese and key(en) not in english": "key(ja) in japanese or key(en) in english"},
        ),
        "taken out of the test": Mistake(
            "This is what is left of the held-out pairs; they should stay as they are, and the training text should "
            "get smaller. See section 10.10.",
            {"    japanese =": "    train, held_out = held_out, train\n    japanese ="},
        ),
        "keys returned": Mistake(
            "The sentences come back as `key` makes them: `key` is for comparing, and the pairs should be returned "
            "as they are. See section 10.10.",
            {"[(ja, en)": "[(key(ja), key(en))"},
        ),
        "pairs twice removed": Mistake(
            "A pair that is twice in the training text is there once: asked for is to remove what is held out, and "
            "nothing else. See section 10.10.",
            {"return [": "return [*dict.fromkeys([", "english]": "english])]"},
        ),
        "contained instead of equal": Mistake(
            "Longer sentences go out in which a held-out one stands; a leak is a sentence that is equal. See "
            "section 10.10.",
            {
                "key(ja) not in japanese": "not any(held in key(ja) for held in japanese)",
                "key(en) not in english": "not any(held in key(en) for held in english)",
            },
        ),
        "order lost": Mistake(
            "The right pairs are left, in another order than in the training text. See section 10.10.",
            sign=lambda found, train, held, key: (
                sorted(found[1].split("; ")) == sorted(_kept(_without, train, held, key)[1].split("; "))
            ),
        ),
        "order and repeats lost": Mistake(
            "The right pairs are left, each of them once and not in the order of the training text: a `set` keeps "
            "neither order nor repeats. See section 10.10.",
            sign=lambda found, train, held, key: (
                sorted(found[1].split("; ")) == sorted(set(_kept(_without, train, held, key)[1].split("; ")))
            ),
        ),
        "nothing removed": Mistake(
            "Nothing is removed: a pair goes out if its Japanese or its English is held out. See section 10.10.",
            lambda train, held, key: train,
        ),
        "first held-out pair only": Mistake(
            "Only the first of the held-out pairs is looked at; every one of them has to stay out of the training "
            "text. See section 10.10.",
            {"    japanese =": "    held_out = held_out[:1]\n    japanese ="},
        ),
        "held-out keys used up": Mistake(
            "The keys of the held-out sentences are gone after the first search: a `map` or a generator can be walked "
            "through once, a set as often as you like. See section 10.10.",
            {
                "{key(ja) for ja, _ in held_out}": "iter([key(ja) for ja, _ in held_out])",
                "{key(en) for _, en in held_out}": "iter([key(en) for _, en in held_out])",
            },
        ),
        "last held-out pair only": Mistake(
            "Only the last of the held-out pairs counts, and all of them should. See section 10.10.",
            {"    japanese =": "    held_out = held_out[-1:]\n    japanese ="},
        ),
        "indices instead of pairs": Mistake(
            "It returns numbers; asked for are the pairs themselves. See section 10.10.",
            sign=lambda found, *_: found[1] == "numbers",
        ),
        "one side returned": Mistake(
            "It returns strings; asked for are the pairs, (Japanese, English). See section 10.10.",
            sign=lambda found, *_: found[1] == "sentences",
        ),
        "key of one side only": Mistake(
            "An English sentence in another spelling is not found: compare `key` of the one with `key` of the other "
            "here too, as on the Japanese side. See section 10.10.",
            {"{key(en)": "{en", "and key(en)": "and en"},
        ),
        "key of the English side only": Mistake(
            "A Japanese sentence in another spelling is not found: compare `key` of the one with `key` of the other "
            "here too, as on the English side. See section 10.10.",
            {"{key(ja)": "{ja", "if key(ja)": "if ja"},
        ),
        "inside a held-out sentence": Mistake(
            "A sentence goes out that is no more than a part of a held-out one: only equal keys are a leak. `in` looks "
            "for a part of a string, and for an element of a set. See section 10.10.",
            {
                "key(ja) not in japanese": "not any(key(ja) in held for held in japanese)",
                "key(en) not in english": "not any(key(en) in held for held in english)",
            },
        ),
        "languages mixed": Mistake(
            "A sentence goes out that is held out in the other language: compare Japanese with Japanese, and "
            "English with English, each with a set of its own. See section 10.10.",
            {"    return": "    japanese = english = japanese | english\n    return"},
        ),
        "up to the first leak": Mistake(
            "All pairs behind the first leak are missing: go on with the next one, as `continue` does. See section "
            "10.10.",
            _up_to_the_first,
        ),
        "row by row": Mistake(
            "Each pair is compared with the held-out pair in the same row, and those behind the last one are lost: "
            "every pair has to be compared with all of them. See section 10.10.",
            _row_by_row,
        ),
        "the key of the chapter": Mistake(
            "Sentences count as equal that the given `key` tells apart: these are the results of the key of section "
            "10.10, and another one may be given. See section 10.10.",
            {"    japanese =": "    key = _key\n    japanese ="},
        ),
        "a key of your own": Mistake(
            "Some spellings are found and others are not: what decides whether two are equal is the key that was "
            "given, `key`. See section 10.10.",
            sign=_by_another_key,
        ),
        CHANGES_ITS_INPUT: Mistake(
            "Make a new list, and leave the old ones as they are; whoever removes from a list while walking over it "
            "also skips what comes next. See section 10.10."
        ),
        "languages crossed": Mistake(
            "Japanese sentences are looked for among the English ones, and English among the Japanese: each "
            "language needs a set of its own. See section 10.10.",
            {"not in japanese": "not in english", "not in english": "not in japanese"},
        ),
    },
)
