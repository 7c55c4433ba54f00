"""The exercises of the chapter on translation data. Used from chapter 10 on."""

import contextlib
import itertools
from collections import Counter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attn_course.data.subwords import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from attn_course.exercises.engine.convert_output import as_integers
from attn_course.exercises.engine.exercise import Exercise
from attn_course.exercises.engine.general_mistakes import KEPT_BETWEEN_CALLS
from attn_course.exercises.engine.mutants import Edited
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


def _occurrences(sentences):
    return Counter(word for sentence in sentences for word in sentence)


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
        "ids to words": lambda found, sentences, least: found.special == "ids to words" if found.count else None,
        "counts instead of ids": lambda found, sentences, least: _holds_counts(found, sentences, least),
    },
)


def _has_other_ids(special):
    """Return whether the four special words have the ids 0 to 3 in another order."""
    pairs = [entry.split() for entry in special.split(", ")]
    right = [[str(i), word] for word, i in SPECIAL.items()]
    return pairs != right and [sorted(column) for column in zip(*pairs, strict=True)] == [
        sorted(column) for column in zip(*right, strict=True)
    ]


def _backwards(counts, word):
    """Return a sort key that puts frequent words first and reverses the alphabet."""
    return -counts[word], [*(-ord(letter) for letter in word), 1]


def _holds_counts(found, sentences, least):
    """Return whether the ids are the counts of the words; None if no word is frequent."""
    counts = {word: n for word, n in _occurrences(sentences).items() if n >= least}
    if not counts:
        return None
    alone = sorted(counts.values())
    return found.ids.tolist() in (alone, sorted([*alone, *SPECIAL.values()])) and found.words == " ".join(
        sorted(counts, key=lambda word: (counts[word], word))
    )


# ---------------------------------------------------------------- byte-pair encoding


def _cut_words(draw):
    """Yield trials: words cut into pieces. One pair is more frequent than all others."""

    def random(count, letters, longest):
        while True:
            cut = {}
            for length in (1 + draw.ints(count, high=longest)).tolist():
                pieces = tuple("たべのみまし"[i] for i in draw.ints(length, high=letters))
                cut[pieces] = 1 + draw.ints(1, high=9).item()
            if all(_has_one_winner(pairs) for pairs in (_pairs(cut), _pairs_of_words(cut))):
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


def _pairs(cut, *, weigh=True, name=lambda a, b: (a, b)):
    pairs = Counter()
    for pieces, count in cut.items():
        for a, b in itertools.pairwise(pieces):
            pairs[name(a, b)] += count if weigh else 1
    return pairs


def _pairs_of_words(cut):
    """Count each pair once in a word, as a mistake does; a tie would be decided by chance."""
    return Counter(
        pair for pieces, count in cut.items() for pair in set(itertools.pairwise(pieces)) for _ in range(count)
    )


def _has_one_winner(pairs):
    counts = sorted(pairs.values(), reverse=True)
    return len(counts) > 1 and counts[0] > counts[1]


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
    if any(not isinstance(piece, str) for piece in pieces):
        return f"{pieces}" + " (a tuple in it)" * any(isinstance(piece, tuple) for piece in pieces)
    return "·".join(pieces)


def _first_only(pieces, pair):
    for i in range(len(pieces) - 1):
        if pieces[i : i + 2] == pair:
            return (*pieces[:i], pieces[i] + pieces[i + 1], *pieces[i + 2 :])
    return pieces


def _overlapping(pieces, pair):
    """Merge at each position separately, so that the second half of a pair remains."""
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
    """Merge while at least two pieces are left, and forget a single last piece."""
    done, i = [], 0
    while i < len(pieces) - 1:
        size = 2 if pieces[i : i + 2] == pair else 1
        done.append("".join(pieces[i : i + size]))
        i += size
    return tuple(done)


def _replaced(pieces, pair):
    return tuple(" ".join(pieces).replace(" ".join(pair), "".join(pair)).split(" "))


def _by_letters(pieces, pair):
    """Merge wherever the letters match, even across other pieces."""
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
    """Count the pairs in a text that repeats each word as often as it occurs."""
    text = [piece for pieces, n in cut.items() for _ in range(n) for piece in pieces]
    return Counter(itertools.pairwise(text))


def _both_merged(pieces, pair):
    """Merge overlapping pairs twice, so that one piece is in two merged pieces."""
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
    result_names=("the pair", "the new dict"),
    chapter=10,
    answers={
        "frequent pieces instead of a pair": _frequent_pieces,
    },
    signs={
        "pairs over the edges of words": lambda found, cut: (
            found
            in [
                _round_text(Edited(_one_round, {"    best =": f"    pairs = {pairs}(cut)\n    best ="}), cut)
                for pairs in ("_over_edges", "_over_edges_as_often")
            ]
        ),
        "pair kept as a tuple": lambda found, cut: "a tuple in it" in found[1],
        "pieces in one string": lambda found, cut: "(a str)" in found[1],
        "dict alone": lambda found, cut: found[0] == "a dict alone",
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
    """Yield inputs and targets that lose the first or the last word in the shift."""
    targets = [list(tgt) for _, tgt in pairs]
    yield [tgt[:-1] for tgt in targets], [tgt[1:] for tgt in targets]
    yield [[BOS_ID, *tgt[:-1]] for tgt in targets], targets
    yield targets, [[*tgt[1:], EOS_ID] for tgt in targets]


def _is_filled_otherwise(found, pairs):
    """Return whether only the number in the padding differs."""
    right = _padded(pairs)
    both = list(zip(found, right, strict=True))
    if any(f.dtype != r.dtype or f.shape != r.shape for f, r in both):
        return False
    same_words = all(torch.equal(f[r != PAD_ID], r[r != PAD_ID]) for f, r in both)
    return same_words and all(torch.equal(f, r) or not (f[r == PAD_ID] == PAD_ID).any() for f, r in both)


def _is_wider(found, pairs):
    """Return whether only extra columns of padding at the end differ."""
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
    """Return whether the targets begin with the second word and everything else is right."""
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
    result_names=("src", "tgt_in", "tgt_out"),
    chapter=10,
    answers={
        "end in both": _whole_then_cut,
        "end behind the padding": _end_behind,
    },
    signs={
        "not shifted": lambda found, pairs: torch.equal(found[1], found[2]) and found[1].size(0) == len(pairs),
        "no beginning": lambda found, pairs: (
            bool((found[1] != BOS_ID).all())
            and torch.equal(found[0], _padded(pairs)[0])
            and torch.equal(found[2], _padded(pairs)[2])
        ),
        "no end": lambda found, pairs: (
            bool((found[2] != EOS_ID).all())
            and torch.equal(found[0], _padded(pairs)[0])
            and torch.equal(found[1], _padded(pairs)[1])
        ),
        "words cut off": lambda found, pairs: (
            None
            if any(not tgt for _, tgt in pairs)
            else torch.equal(found[0], _padded(pairs)[0])
            and any(
                all(torch.equal(tensor, _filled(rows)) for tensor, rows in zip(found[1:], cut, strict=True))
                for cut in _cuts(pairs)
            )
        ),
        "a column too many": lambda found, pairs: _is_wider(found, pairs),
        "padded with another number": lambda found, pairs: _is_filled_otherwise(found, pairs),
        "not integers": lambda found, pairs: all(
            f.is_floating_point() and torch.equal(f.long(), r) for f, r in zip(found, _padded(pairs), strict=True)
        ),
        "lists instead of tensors": lambda found, pairs: all(isinstance(f, list) for f in found),
        "shifted by two": lambda found, pairs: _shifted_by_two(found, pairs),
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
    """Start a new bucket when the length changes or the bucket is full."""
    buckets = []
    for length in sorted(set(lengths)):
        same = [i for i, other in enumerate(lengths) if other == length]
        size = max(max_cells // length, 1)
        buckets += [same[i : i + size] for i in range(0, len(same), size)]
    return buckets


def _by_length(lengths, max_cells):
    """Return one bucket for each length, of any size."""
    return [[i for i, other in enumerate(lengths) if other == length] for length in sorted(set(lengths))]


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
    answers={
        "one size for all": _fixed_size,
        "one sentence each": lambda lengths, most: [[i] for i in range(len(lengths))],
    },
    signs={
        "sentence lost at the edge": lambda found, lengths, most: (
            any(
                torch.equal(found.indices, lost.indices) and found[1:] == lost[1:]
                for lost in (_described(answer, lengths, most) for answer in _LOST_AT_THE_EDGE)
            )
            if lengths
            else None
        ),
        "an empty bucket": lambda found, lengths, most: (
            found.count > _described(_walk, lengths, most).count
            and torch.equal(found.indices, torch.arange(len(lengths)))
            and found.lengths.strip("; ") == _described(_walk, lengths, most).lengths
        ),
        "a bucket for each length": lambda found, lengths, most: (
            torch.equal(found.indices, torch.arange(len(lengths)))
            and found.lengths
            in (_described(_by_length, lengths, most).lengths, _described(_each_length_alone, lengths, most).lengths)
        ),
        "one bucket": lambda found, lengths, most: (
            found.count == 1 and torch.equal(found.indices, torch.arange(len(lengths))) if lengths else None
        ),
        "one list for all buckets": lambda found, lengths, most: (
            (
                lengths != []
                and torch.equal(found.indices, _described(_THE_SAME_LIST, lengths, most).indices)
                and found.count == _described(_THE_SAME_LIST, lengths, most).count
                and found.lengths == _described(_THE_SAME_LIST, lengths, most).lengths
            )
            or (None if not lengths else False)
        ),
    },
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
                return len(found), what
    if not isinstance(found, list | tuple) or not all(
        isinstance(pair, tuple | list) and len(pair) == 2 for pair in found
    ):
        raise AnswerError("remove_leaks must return a list of pairs (Japanese, English). See section 10.10.")
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
    """Return whether another common key was used instead of the given one."""
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
    result_names=("the number of pairs", "the pairs"),
    chapter=10,
    answers={
        "kept for one that differs": lambda train, held, key: [
            p for p in train if any(key(p[0]) != key(h[0]) and key(p[1]) != key(h[1]) for h in held)
        ],
        "kept once for each that differs": lambda train, held, key: [
            p for p in train for h in held if key(p[0]) != key(h[0]) and key(p[1]) != key(h[1])
        ],
        "whole pairs compared": lambda train, held, key: [
            p for p in train if (key(p[0]), key(p[1])) not in {(key(h[0]), key(h[1])) for h in held}
        ],
        "nothing removed": lambda train, held, key: train,
        "up to the first leak": _up_to_the_first,
        "row by row": _row_by_row,
    },
    signs={
        "order lost": lambda found, train, held, key: (
            sorted(found[1].split("; ")) == sorted(_kept(_without, train, held, key)[1].split("; "))
        ),
        "order and repeats lost": lambda found, train, held, key: (
            sorted(found[1].split("; ")) == sorted(set(_kept(_without, train, held, key)[1].split("; ")))
        ),
        "indices instead of pairs": lambda found, *_: found[1] == "numbers",
        "one side returned": lambda found, *_: found[1] == "sentences",
        "a key of your own": _by_another_key,
    },
)
