"""Answers to the exercises of chapter 10."""

import difflib
import itertools
import re
import unicodedata
from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

from answers import right, unnamed, wrong
from attn_course.data.subwords import BOS_ID, EOS_ID

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]


def merged_at(pieces, pair):
    """The pieces with the pair glued wherever it stands."""
    done, i = [], 0
    while i < len(pieces):
        size = 2 if pieces[i : i + 2] == pair else 1
        done.append("".join(pieces[i : i + size]))
        i += size
    return tuple(done)


# -- build_vocabulary ---------------------------------------------------------------------------------


@right
def build_vocabulary(sentences, min_count):
    every = sorted(itertools.chain.from_iterable(sentences))
    groups = [(word, len(list(same))) for word, same in itertools.groupby(every)]
    groups.sort(key=lambda pair: pair[1], reverse=True)  # a stable sort: equals stay in the order of the alphabet
    words = SPECIAL + [word for word, count in groups if count >= min_count]
    return dict(zip(words, range(len(words)), strict=True))


@right
def build_vocabulary(sentences, min_count):
    counts = defaultdict(int)
    for sentence in sentences:
        for word in sentence:
            counts[word] += 1
    vocabulary = {"<unk>": 3, "</s>": 2, "<s>": 1, "<pad>": 0}
    for count in sorted(set(counts.values()), reverse=True):
        for word in sorted(w for w in counts if counts[w] == count):
            if count >= min_count:
                vocabulary[word] = len(vocabulary)
    return vocabulary


@right
def build_vocabulary(sentences, min_count):
    words = SPECIAL + [word for word, count in by_frequency(sentences) if count >= min_count]
    return dict(zip(words, np.arange(len(words)), strict=True))


def by_frequency(sentences):
    counts = Counter(itertools.chain.from_iterable(sentences))
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


@wrong("special ids in another order")
def build_vocabulary(sentences, min_count):
    words = ["<unk>", "<s>", "</s>", "<pad>"]
    words += [word for word, count in by_frequency(sentences) if count >= min_count]
    return {word: i for i, word in enumerate(words)}


def _ordered(sentences, min_count, key=lambda count, word: (-count, word)):
    """The frequent words in the order of a key of count and word."""
    counts = Counter(itertools.chain(*sentences))
    return sorted((w for w in counts if counts[w] >= min_count), key=lambda w: key(counts[w], w))


def _numbered(words, first=4):
    return {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3} | dict(zip(words, itertools.count(first), strict=False))


VOCABULARY = {}


@wrong("something kept between calls")
def build_vocabulary(sentences, min_count):
    VOCABULARY.clear()
    VOCABULARY.update(_numbered(_ordered(sentences, min_count)))
    return VOCABULARY


@unnamed("counts to words")
def build_vocabulary(sentences, min_count):
    return {count: word for word, count in by_frequency(sentences) if count >= min_count}


@unnamed("wide letters made narrow")
def build_vocabulary(sentences, min_count):
    narrow = [[unicodedata.normalize("NFKC", word) for word in sentence] for sentence in sentences]
    return _numbered(_ordered(narrow, min_count))


@unnamed("joined and cut at the spaces")
def build_vocabulary(sentences, min_count):
    return _numbered(_ordered([" ".join(sentence).split() for sentence in sentences], min_count))


# -- merge_step ---------------------------------------------------------------------------------------


@right
def merge_step(cut):
    counts = defaultdict(int)
    for word in cut:
        for i in range(len(word) - 1):
            counts[word[i], word[i + 1]] += cut[word]
    best = sorted(counts, key=lambda pair: counts[pair])[-1]
    new = {}
    for word, n in cut.items():
        out, i = [], 0
        while i < len(word):
            if word[i : i + 2] == best:
                out.append("".join(best))
                i += 2
            else:
                out.append(word[i])
                i += 1
        new[tuple(out)] = n
    return best, new


@right
def merge_step(cut):  # with a sign between the pieces that no word holds
    every = Counter()
    for word, n in cut.items():
        every.update({pair: n * list(itertools.pairwise(word)).count(pair) for pair in itertools.pairwise(word)})
    best = every.most_common(1)[0][0]
    old, new = f"|{best[0]}||{best[1]}|", f"|{best[0]}{best[1]}|"
    texts = {"".join(f"|{piece}|" for piece in word).replace(old, new): n for word, n in cut.items()}
    return best, {tuple(text.strip("|").split("||")): n for text, n in texts.items()}


def _most_frequent_pair(cut):
    counts = defaultdict(int)
    for pieces, count in cut.items():
        for pair in pairwise(pieces):
            counts[pair] += count
    return max(counts, key=counts.get)


@wrong("pieces in one string")
def merge_step(cut):
    pair = _most_frequent_pair(cut)
    return pair, {" ".join(merged_at(pieces, pair)): count for pieces, count in cut.items()}


@wrong("once in a word")
def merge_step(cut):
    pairs = Counter(pair for pieces, count in cut.items() for pair in set(pairwise(pieces)) for _ in range(count))
    best = max(pairs, key=pairs.get)
    return best, {merged_at(pieces, best): count for pieces, count in cut.items()}


@wrong("changes its input")
def merge_step(cut):
    pair = _most_frequent_pair(cut)
    for pieces in list(cut):
        cut[merged_at(pieces, pair)] = cut.pop(pieces)
    return pair, cut


@unnamed("a sign read as a pattern")
def merge_step(cut):
    a, b = _most_frequent_pair(cut)
    alone = re.compile(rf"(?<!\S){a} {b}(?!\S)")  # without re.escape
    return (a, b), {tuple(alone.sub(a + b, " ".join(pieces)).split()): count for pieces, count in cut.items()}


@unnamed("two places in a word at most")
def merge_step(cut):
    pair = _most_frequent_pair(cut)
    new = {}
    for pieces, count in cut.items():
        pieces = list(pieces)
        for _ in range(2):
            places = [i for i in range(len(pieces) - 1) if tuple(pieces[i : i + 2]) == pair]
            if places:
                pieces[places[0] : places[0] + 2] = ["".join(pair)]
        new[tuple(pieces)] = count
    return pair, new


@unnamed("counts as strings")
def merge_step(cut):
    pair = _most_frequent_pair(cut)
    return pair, {merged_at(pieces, pair): str(count) for pieces, count in cut.items()}


# -- pad_pairs ----------------------------------------------------------------------------------------


@right
def pad_pairs(pairs):
    src = pad_sequence([torch.tensor([*src, 2]) for src, _ in pairs], batch_first=True)
    whole = [[1, *tgt, 2] for _, tgt in pairs]
    tgt_in = pad_sequence([torch.tensor(ids[:-1]) for ids in whole], batch_first=True)
    tgt_out = pad_sequence([torch.tensor(ids[1:]) for ids in whole], batch_first=True)
    return src, tgt_in, tgt_out


@right
def pad_pairs(pairs):
    S, T = (max(len(pair[side]) for pair in pairs) + 1 for side in (0, 1))
    src, tgt_in, tgt_out = (torch.zeros(len(pairs), width, dtype=torch.long) for width in (S, T, T))
    for b, (a, c) in enumerate(pairs):
        src[b, : len(a)] = torch.tensor(a)
        src[b, len(a)] = 2
        tgt_in[b, 0], tgt_out[b, len(c)] = 1, 2
        tgt_in[b, 1 : len(c) + 1] = tgt_out[b, : len(c)] = torch.tensor(c)
    return src, tgt_in, tgt_out


@right
def pad_pairs(pairs):
    return tuple(pad(rows).int() for rows in _three(pairs))


def pad(rows, value=0):
    return pad_sequence([torch.tensor(row, dtype=torch.long) for row in rows], batch_first=True, padding_value=value)


@wrong("not shifted")
def pad_pairs(pairs):
    tgt = pad([[*tgt, 2] for _, tgt in pairs])
    return pad([[*src, 2] for src, _ in pairs]), tgt, tgt.clone()


@wrong("padded with another number")
def pad_pairs(pairs):
    return tuple(pad(rows, -100) for rows in _three(pairs))


def _three(pairs):
    """The rows of the three tensors, not filled up."""
    src, tgt = zip(*pairs, strict=True)
    return [[*s, EOS_ID] for s in src], [[BOS_ID, *t] for t in tgt], [[*t, EOS_ID] for t in tgt]


@wrong("a column too many")
def pad_pairs(pairs):
    return tuple(F.pad(pad(rows), (0, 1)) for rows in _three(pairs))


@wrong("changes its input")
def pad_pairs(pairs):
    for src, _ in pairs:
        src += [EOS_ID]
    _, read, written = _three(pairs)
    return pad([src for src, _ in pairs]), pad(read), pad(written)


@wrong("no end of the source")
def pad_pairs(pairs):  # and what is read has one
    src, read, written = _three(pairs)
    return pad([row[:-1] for row in src]), pad([[*row, EOS_ID] for row in read]), pad(written)


@unnamed("unknown words dropped")
def pad_pairs(pairs):
    src, read, written = _three([([i for i in s if i > 3], [i for i in t if i > 3]) for s, t in pairs])
    return pad(src), pad(read), pad(written)


@unnamed("ids through float16")
def pad_pairs(pairs):
    return tuple(pad(rows).half().long() for rows in _three(pairs))


@unnamed("pairs without a source dropped")
def pad_pairs(pairs):
    return tuple(pad(rows) for rows in _three([(s, t) for s, t in pairs if s]))


# -- fill_buckets -------------------------------------------------------------------------------------


@right
def fill_buckets(lengths, max_cells):
    buckets, bucket = [], []
    for length, i in sorted(zip(lengths, range(len(lengths)), strict=True)):
        if bucket and (len(bucket) + 1) * length > max_cells:
            buckets.append(bucket)
            bucket = []
        bucket.append(i)
    return [*buckets, bucket] if bucket else buckets


@right
def fill_buckets(lengths, max_cells):
    order = torch.tensor(lengths, dtype=torch.long).argsort(stable=True).tolist()
    buckets = []
    while order:
        n = 1
        while n < len(order) and lengths[order[n]] * (n + 1) <= max_cells:
            n += 1
        buckets.append(order[:n])
        order = order[n:]
    return buckets[::-1]


@right
def fill_buckets(lengths, max_cells):
    buckets = []
    for i in np.argsort(lengths, kind="stable"):
        if not buckets or lengths[i] * (len(buckets[-1]) + 1) > max_cells:
            buckets.append([])
        buckets[-1].append(i)
    return buckets


@unnamed("lengths up to 99")
def fill_buckets(lengths, max_cells):
    buckets = []
    for length in range(1, 100):
        for i, other in enumerate(lengths):
            if other == length:
                if not buckets or length * (len(buckets[-1]) + 1) > max_cells:
                    buckets.append([])
                buckets[-1].append(i)
    return buckets


# -- remove_leaks -------------------------------------------------------------------------------------


@right
def remove_leaks(train, held_out, key):
    kept = []
    for ja, en in train:
        if all(key(ja) != key(other_ja) and key(en) != key(other_en) for other_ja, other_en in held_out):
            kept.append([ja, en])
    return kept


@right
def remove_leaks(train, held_out, key):
    known = {(side, key(pair[side])) for pair in held_out for side in (0, 1)}
    return list(filter(lambda pair: not known & {(0, key(pair[0])), (1, key(pair[1]))}, train))


@wrong("order lost")
def remove_leaks(train, held_out, key):
    ja, en = {key(pair[0]) for pair in held_out}, {key(pair[1]) for pair in held_out}
    return sorted(pair for pair in train if key(pair[0]) not in ja and key(pair[1]) not in en)


def _sides(held_out, key):
    return [{key(text) for text in column} for column in zip(*held_out, strict=True)] or [set(), set()]


@wrong("changes its input")
def remove_leaks(train, held_out, key):
    japanese, english = _sides(held_out, key)
    for pair in list(train):
        if key(pair[0]) in japanese or key(pair[1]) in english:
            train.remove(pair)
    return train


@wrong("order and repeats lost")
def remove_leaks(train, held_out, key):
    japanese, english = (set(map(key, side)) for side in zip(*held_out, strict=True)) if held_out else (set(), set())
    return sorted({(ja, en) for ja, en in train if not ({key(ja)} & japanese or {key(en)} & english)}, reverse=True)


@unnamed("nearly equal sentences removed")
def remove_leaks(train, held_out, key):
    def alike(one, other):
        return difflib.SequenceMatcher(None, key(one), key(other)).ratio() > 0.9

    return [p for p in train if not any(alike(p[0], ja) or alike(p[1], en) for ja, en in held_out)]


@unnamed("one translation for each held-out sentence")
def remove_leaks(train, held_out, key):
    pairs = {key(ja): key(en) for ja, en in held_out}
    return [(ja, en) for ja, en in train if key(ja) not in pairs and key(en) not in pairs.values()]


@unnamed("empty keys skipped")
def remove_leaks(train, held_out, key):
    japanese, english = ({key(pair[side]) for pair in held_out} - {""} for side in (0, 1))
    return [(ja, en) for ja, en in train if key(ja) not in japanese and key(en) not in english]


@unnamed("widths made alike")
def remove_leaks(train, held_out, key):
    japanese, english = _sides(held_out, lambda text: unicodedata.normalize("NFKC", key(text)))
    return [
        (ja, en)
        for ja, en in train
        if unicodedata.normalize("NFKC", key(ja)) not in japanese and key(en) not in english
    ]


@unnamed("letters sorted")
def remove_leaks(train, held_out, key):
    japanese, english = _sides(held_out, lambda text: str(sorted(key(text))))
    return [
        (ja, en) for ja, en in train if str(sorted(key(ja))) not in japanese and str(sorted(key(en))) not in english
    ]


@unnamed("key of the key")
def remove_leaks(train, held_out, key):
    japanese, english = _sides(held_out, lambda text: key(key(text)))
    return [(ja, en) for ja, en in train if key(key(ja)) not in japanese and key(key(en)) not in english]


@unnamed("everything where nothing is left")
def remove_leaks(train, held_out, key):
    japanese, english = _sides(held_out, key)
    return [(ja, en) for ja, en in train if key(ja) not in japanese and key(en) not in english] or train


@unnamed("no training pair")
def remove_leaks(train, held_out, key):
    japanese, english = _sides(held_out, key)
    left, right = zip(*train, strict=True)
    return [(ja, en) for ja, en in zip(left, right, strict=True) if key(ja) not in japanese and key(en) not in english]
