"""The exercises of the chapter on translation data. Used from chapter 10 on."""

import contextlib
import itertools
import re
from collections import Counter
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from attn_course.data.subwords import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from attn_course.exercises.engine.convert_output import as_integers
from attn_course.exercises.engine.exercise import Exercise
from attn_course.exercises.engine.general_mistakes import KEPT_BETWEEN_CALLS
from attn_course.exercises.engine.runner import AnswerError

SPECIAL = {"<pad>": PAD_ID, "<s>": BOS_ID, "</s>": EOS_ID, "<unk>": UNK_ID}


def _stays(name, found, answer, *others):
    """Refuse an answer whose result changes when the answer is called again."""
    before = str(found)
    with contextlib.suppress(Exception):
        answer(*others)
    if str(found) != before:
        raise AnswerError(
            f"The next call changes the result of {name}. Each call must create its own result.",
            KEPT_BETWEEN_CALLS,
        )


# ---------------------------------------------------------------- a vocabulary


def _sentences(draw):
    """Yield trials: sentences of words with one to three letters. Some words repeat, and some are equally
    frequent."""

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
    """Return whether a value is an integer of Python, NumPy or PyTorch."""
    if isinstance(number, Tensor):
        return number.dim() == 0 and not number.is_floating_point() and number.dtype != torch.bool
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def _word(number):
    """Return a word for a number. The order of the words is not the order of the numbers."""
    letters = "かむせろにたうほけやなつひめれきさほいぬ"
    first, second = letters[number * 7 % 20], letters[number * 11 % 19]
    return first + second * (number % 3)


class _Entries(NamedTuple):
    count: int
    ids: Tensor | None  # sorted
    special: str  # the special words with their ids
    words: str  # the others, in the order of their ids


def _entries(answer, sentences, min_count):
    """Check that the result is a dict, and return its entries in a form that can be compared and named."""
    found = answer(sentences, min_count)
    if found is None:
        return None
    if not isinstance(found, dict):
        raise AnswerError(
            f"build_vocabulary must return a dict from word to id, not a {type(found).__name__}. See section 10.4."
        )
    _stays("build_vocabulary", found, answer, [["ほ", "ん"]], 1)
    if not all(_is_whole(i) for i in found.values()):
        if all(type(i) is int and isinstance(word, str) for i, word in found.items()):
            follow = max(found) - min(found) < len(found)
            return _Entries(len(found), None, "ids to words" if follow else "numbers to words", "")
        raise AnswerError("build_vocabulary must give each word a whole number, its id. See section 10.4.")
    if not all(isinstance(word, str) for word in found):
        raise AnswerError("The keys of the dict must be words (strings), and its values must be ids. See section 10.4.")
    found = {word: int(i) for word, i in found.items()}
    by_id = sorted(found, key=lambda word: (found[word], word))
    special = [f"{found[word]} {word}" for word in by_id if word in SPECIAL]
    return _Entries(
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


build_vocabulary = Exercise(
    name="build_vocabulary",
    trials=_sentences,
    right=_vocabulary,
    use=_entries,
    result_names=(
        "the number of entries",
        "the ids, sorted",
        "the special words with their ids",
        "the other words in the order of their ids",
    ),
    chapter=10,
    signs={
        "special ids in another order": lambda found, sentences, least: (
            _has_other_ids(found.special)
            and torch.equal(found.ids, torch.arange(found.count))
            and found.words == _entries(_vocabulary, sentences, least).words
        ),
    },
)


def _has_other_ids(special):
    """Return whether the four special words have the ids 0 to 3 in another order."""
    right = ", ".join(f"{i} {word}" for word, i in SPECIAL.items())
    return special != right and sorted(re.findall(r"[^ ,]+", special)) == sorted(re.findall(r"[^ ,]+", right))


# ---------------------------------------------------------------- byte-pair encoding


def _cut_words(draw):
    """Yield trials: words cut into pieces. One pair is more frequent than all others."""

    def random(count, letters, longest):
        while True:
            cut = {}
            for length in (1 + draw.ints(count, high=longest)).tolist():
                pieces = tuple("たべのみまし"[i] for i in draw.ints(length, high=letters))
                cut[pieces] = 1 + draw.ints(1, high=9).item()
            if _has_one_winner(cut, list) and _has_one_winner(cut, set):
                return cut

    yield "letters", {tuple("たべた"): 3, tuple("たべまし"): 2, tuple("のみた"): 4}
    yield "random letters", random(7, 5, 5)
    yield "a pair twice in a word", {tuple("ましまし"): 2, tuple("しま"): 1, tuple("の"): 9}
    yield "a pair three times in a word", {tuple("たべたべたべ"): 3, tuple("べた"): 1}
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


def _has_one_winner(cut, kind):
    """Return whether one pair is more frequent than all others.

    With ``kind`` set, each pair counts once in a word, as in a mistake; a tie would be decided by chance.
    """
    pairs = Counter()
    for pieces, count in cut.items():
        for pair in kind(itertools.pairwise(pieces)):
            pairs[pair] += count
    counts = sorted(pairs.values(), reverse=True)
    return len(counts) > 1 and counts[0] > counts[1]


def _one_round(cut):
    pairs = Counter()
    for pieces, count in cut.items():
        for pair in itertools.pairwise(pieces):
            pairs[pair] += count
    best = max(pairs, key=pairs.get)
    merged = {}
    for pieces, count in cut.items():
        done, i = [], 0
        while i < len(pieces):
            size = 2 if pieces[i : i + 2] == best else 1
            done.append("".join(pieces[i : i + size]))
            i += size
        merged[tuple(done)] = count
    return best, merged


def _round_text(answer, cut):
    found = answer(cut)
    if found is None:
        return None
    if isinstance(found, dict):
        return "a dict alone", ""
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise AnswerError("merge_step must return two things, the pair and the new dict. See section 10.5.")
    _stays("merge_step", found, answer, {("は", "な"): 1})
    pair, merged = found
    if isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], tuple) and isinstance(pair[1], int):
        raise AnswerError("Your first result contains the pair and its count. Return only the pair. See section 10.5.")
    if not isinstance(pair, tuple | list | str) or not all(isinstance(piece, str) for piece in pair):
        raise AnswerError("The first result must be the pair, a tuple of two strings. See section 10.5.")
    if not isinstance(merged, dict):
        raise AnswerError("The second result must be a dict, like `cut`. See section 10.5.")
    kind = {str: "one string ", list: "a list "}.get(type(pair), "")
    words = [
        f"{_word_text(pieces)} {repr(count) if isinstance(count, str) else count}" for pieces, count in merged.items()
    ]
    return kind + "·".join(pair), ", ".join(sorted(words))


def _word_text(pieces):
    if not isinstance(pieces, tuple):
        return f"{pieces} (a {type(pieces).__name__})"
    return "·".join(map(str, pieces))


merge_step = Exercise(
    name="merge_step",
    trials=_cut_words,
    right=_one_round,
    use=_round_text,
    result_names=("the pair", "the new dict"),
    chapter=10,
    signs={
        "pieces in one string": lambda found, cut: "(a str)" in found[1],
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
        raise AnswerError("pad_pairs must return three tensors: src, tgt_in and tgt_out. See section 10.7.")
    _stays("pad_pairs", found, answer, [([11, 13], [17, 19, 23])])
    if isinstance(found, tuple | list):
        return tuple(as_integers(tensor) for tensor in found)
    return found


def _filled(rows, *, value=PAD_ID, width=None):
    width = max(map(len, rows)) if width is None else width
    filled = [row + [value] * (width - len(row)) for row in rows]
    return torch.tensor(filled, dtype=torch.long).view(len(rows), width)


def _padded(pairs):
    src = [[*src, EOS_ID] for src, _ in pairs]
    tgt_in = [[BOS_ID, *tgt] for _, tgt in pairs]
    tgt_out = [[*tgt, EOS_ID] for _, tgt in pairs]
    return tuple(_filled(rows) for rows in (src, tgt_in, tgt_out))


def _is_filled_otherwise(found, pairs):
    """Return whether only the number in the padding differs."""
    for f, r in zip(found, _padded(pairs), strict=True):
        padding = r == PAD_ID
        if f.dtype != r.dtype or f.shape != r.shape or not torch.equal(f[~padding], r[~padding]):
            return False
        if not torch.equal(f, r) and (f[padding] == PAD_ID).any():
            return False
    return True


pad_pairs = Exercise(
    name="pad_pairs",
    trials=_pairs_of_ids,
    right=_padded,
    use=_tensors,
    result_names=("src", "tgt_in", "tgt_out"),
    chapter=10,
    signs={
        "not shifted": lambda found, pairs: torch.equal(found[1], found[2]) and found[1].size(0) == len(pairs),
        "a column too many": lambda found, pairs: all(
            f.dtype == r.dtype and f.size(1) >= r.size(1) and torch.equal(f, F.pad(r, (0, f.size(1) - r.size(1))))
            for f, r in zip(found, _padded(pairs), strict=True)
        ),
        "padded with another number": _is_filled_otherwise,
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


class _Buckets(NamedTuple):
    indices: Tensor  # all, sorted
    count: int
    lengths: str  # those in each bucket
    fit: bool  # no bucket is too large


def _described(answer, lengths, max_cells):
    found = answer(lengths, max_cells)
    if found is None:
        return None
    if not isinstance(found, list | tuple) or not all(isinstance(bucket, list | tuple) for bucket in found):
        raise AnswerError(
            "fill_buckets must return a list of buckets, and each bucket is a list of indices. See section 10.7."
        )
    _stays("fill_buckets", found, answer, [2, 2, 2], 2)
    if not all(_is_whole(i) for bucket in found for i in bucket):
        raise AnswerError("The indices must be integers, the positions of sentences in `lengths`. See section 10.7.")
    found = [[int(i) for i in bucket] for bucket in found]
    indices = [i for bucket in found for i in bucket]
    # Indices that are none come last, whatever they are.
    known = [[lengths[i] for i in b if 0 <= i < len(lengths)] for b in found]
    return _Buckets(
        torch.tensor(sorted(indices), dtype=torch.long),
        len(found),
        "; ".join(" ".join(map(str, sorted(b))) for b in sorted(known, key=sorted)),
        all(len(b) * max(b, default=0) <= max_cells for b in known),
    )


def _walk(lengths, max_cells):
    buckets = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if not buckets or lengths[i] * (len(buckets[-1]) + 1) > max_cells:
            buckets.append([])
        buckets[-1].append(i)
    return buckets


fill_buckets = Exercise(
    name="fill_buckets",
    trials=_some_lengths,
    right=_walk,
    use=_described,
    result_names=(
        "all indices, sorted",
        "the number of buckets",
        "the lengths in each bucket",
        "'no bucket is too large'",
    ),
    chapter=10,
)


# ---------------------------------------------------------------- leaks


def _key(text):
    return "".join(letter for letter in text.lower() if letter.isalnum())


_LETTERS, _SPACES, _FIRST = "letters and digits", "all but spaces", "all but the first letter"
_KEYS = {_LETTERS: _key, _SPACES: lambda text: "".join(text.split()), _FIRST: lambda text: text[1:]}


def _train_and_held_out(draw):
    """Yield trials: a name, the two lists, and what the key keeps."""
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
                return 0, what  # however many
    if not isinstance(found, list | tuple) or not all(
        isinstance(pair, tuple | list) and len(pair) == 2 for pair in found
    ):
        raise AnswerError("remove_leaks must return a list of pairs (Japanese, English). See section 10.10.")
    return len(found), "; ".join(f"{ja} {en}" for ja, en in found)


def _without(train, held_out, key):
    japanese = {key(ja) for ja, _ in held_out}
    english = {key(en) for _, en in held_out}
    kept = []
    for ja, en in train:
        if key(ja) in japanese or key(en) in english:
            continue
        kept.append((ja, en))
    return kept


remove_leaks = Exercise(
    name="remove_leaks",
    trials=_train_and_held_out,
    right=_without,
    use=_kept,
    result_names=("the number of pairs", "the pairs"),
    chapter=10,
    signs={
        "order lost": lambda found, train, held, key: (
            sorted(found[1].split("; ")) == sorted(_kept(_without, train, held, key)[1].split("; "))
        ),
        "order and repeats lost": lambda found, train, held, key: (
            sorted(found[1].split("; ")) == sorted(set(_kept(_without, train, held, key)[1].split("; ")))
        ),
    },
)
