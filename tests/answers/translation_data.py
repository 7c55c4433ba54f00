"""Answers to the exercises of chapter 10."""

import difflib
import itertools
import re
import unicodedata
from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from answers import right, unnamed, wrong
from attn_course.data.subwords import BOS_ID, EOS_ID, PAD_ID

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]


def merged_at(pieces, pair, between=""):
    """The pieces with the pair glued wherever it stands."""
    done, i = [], 0
    while i < len(pieces):
        if pieces[i : i + 2] == pair:
            done.append(between.join(pair))
            i += 2
        else:
            done.append(pieces[i])
            i += 1
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


def by_frequency(sentences):
    counts = Counter(itertools.chain.from_iterable(sentences))
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


@wrong("no special words")
def build_vocabulary(sentences, min_count):
    words = [word for word, count in by_frequency(sentences) if count >= min_count]
    return {word: i for i, word in enumerate(words)}


@wrong("special words left out")
def build_vocabulary(sentences, min_count):
    words = [word for word, count in by_frequency(sentences) if count >= min_count]
    return {word: i + 4 for i, word in enumerate(words)}


@wrong("ids used twice")
def build_vocabulary(sentences, min_count):
    vocabulary = {word: i for i, word in enumerate(SPECIAL)}
    words = [word for word, count in by_frequency(sentences) if count >= min_count]
    for i, word in enumerate(words):
        vocabulary[word] = i
    return vocabulary


@wrong("counted from 1")
def build_vocabulary(sentences, min_count):
    vocabulary = {word: i for i, word in enumerate(SPECIAL)}
    for word, count in by_frequency(sentences):
        if count >= min_count:
            vocabulary[word] = len(vocabulary) + 1
    return vocabulary


@wrong("special ids in another order")
def build_vocabulary(sentences, min_count):
    words = ["<unk>", "<s>", "</s>", "<pad>"]
    words += [word for word, count in by_frequency(sentences) if count >= min_count]
    return {word: i for i, word in enumerate(words)}


@wrong("special words last")
def build_vocabulary(sentences, min_count):
    words = [word for word, count in by_frequency(sentences) if count >= min_count] + SPECIAL
    return {word: words.index(word) for word in words}


@wrong("more than min_count")
def build_vocabulary(sentences, min_count):
    words = SPECIAL + [word for word, count in by_frequency(sentences) if count > min_count]
    return {word: i for i, word in enumerate(words)}


@wrong("min_count ignored")
def build_vocabulary(sentences, min_count):
    return {word: i for i, word in enumerate(SPECIAL + [word for word, _ in by_frequency(sentences)])}


@wrong("not by frequency")
def build_vocabulary(sentences, min_count):
    counts = Counter(itertools.chain.from_iterable(sentences))
    words = SPECIAL + sorted(word for word, count in counts.items() if count >= min_count)
    return {word: i for i, word in enumerate(words)}


@wrong("first seen first")
def build_vocabulary(sentences, min_count):
    counts = Counter(itertools.chain.from_iterable(sentences))
    vocabulary = {word: i for i, word in enumerate(SPECIAL)}
    for sentence in sentences:
        for word in sentence:
            if word not in vocabulary and counts[word] >= min_count:
                vocabulary[word] = len(vocabulary)
    return vocabulary


@wrong("equals as they come")
def build_vocabulary(sentences, min_count):
    counts = Counter(word for sentence in sentences for word in sentence)
    words = SPECIAL + [word for word, count in counts.most_common() if count >= min_count]
    return {word: i for i, word in enumerate(words)}


@wrong("equals backwards")
def build_vocabulary(sentences, min_count):
    counts = Counter(word for sentence in sentences for word in sentence)
    words = sorted(counts, key=lambda word: (counts[word], word), reverse=True)
    return {word: i for i, word in enumerate(SPECIAL + [word for word in words if counts[word] >= min_count])}


@wrong("rarest first")
def build_vocabulary(sentences, min_count):
    counts = Counter(word for sentence in sentences for word in sentence)
    words = sorted(counts, key=lambda word: (counts[word], word))
    return {word: i for i, word in enumerate(SPECIAL + [word for word in words if counts[word] >= min_count])}


@wrong("sentences counted")
def build_vocabulary(sentences, min_count):
    counts = Counter()
    for sentence in sentences:
        counts.update(dict.fromkeys(sentence, 1))
    words = sorted((w for w in counts if counts[w] >= min_count), key=lambda w: (-counts[w], w))
    return {word: i for i, word in enumerate(SPECIAL + words)}


@wrong("letters counted")
def build_vocabulary(sentences, min_count):
    counts = Counter("".join("".join(sentence) for sentence in sentences))
    words = sorted((w for w in counts if counts[w] >= min_count), key=lambda w: (-counts[w], w))
    return {word: i for i, word in enumerate(SPECIAL + words)}


@wrong("ids to words")
def build_vocabulary(sentences, min_count):
    words = SPECIAL + [word for word, count in by_frequency(sentences) if count >= min_count]
    return dict(enumerate(words))


@wrong("counts instead of ids")
def build_vocabulary(sentences, min_count):
    counts = {word: count for word, count in by_frequency(sentences) if count >= min_count}
    return {word: i for i, word in enumerate(SPECIAL)} | counts


@wrong("as many as min_count")
def build_vocabulary(sentences, min_count):
    counts = Counter(word for sentence in sentences for word in sentence)
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:min_count]
    vocabulary = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}
    for word, _ in ranked:
        vocabulary[word] = len(vocabulary)
    return vocabulary


@wrong("ids in steps of another kind")
def build_vocabulary(sentences, min_count):
    counts = Counter(word for sentence in sentences for word in sentence)
    vocabulary = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}
    for i, word in enumerate(sorted(counts)):
        if counts[word] >= min_count:
            vocabulary[word] = i + 4
    return vocabulary


@wrong("longest first")
def build_vocabulary(sentences, min_count):
    counts = Counter(word for sentence in sentences for word in sentence)
    frequent = sorted(word for word in counts if counts[word] >= min_count)
    frequent.sort(key=len, reverse=True)
    return {w: i for i, w in enumerate(["<pad>", "<s>", "</s>", "<unk>", *frequent])}


@wrong("special words counted from 1")
def build_vocabulary(sentences, min_count):
    counts = Counter(word for sentence in sentences for word in sentence)
    frequent = sorted((w for w in counts if counts[w] >= min_count), key=lambda w: (-counts[w], w))
    return {w: i for i, w in enumerate(["<pad>", "<s>", "</s>", "<unk>", *frequent], start=1)}


@wrong("one sentence only")
def build_vocabulary(sentences, min_count):
    counts = Counter(sentences[0])
    frequent = sorted((w for w in counts if counts[w] >= min_count), key=lambda w: (-counts[w], w))
    return {w: i for i, w in enumerate(["<pad>", "<s>", "</s>", "<unk>", *frequent])}


@wrong("last sentence only")
def build_vocabulary(sentences, min_count):
    for sentence in sentences:
        counts = Counter(sentence)
    frequent = sorted((w for w in counts if counts[w] >= min_count), key=lambda w: (-counts[w], w))
    return {w: i for i, w in enumerate(["<pad>", "<s>", "</s>", "<unk>", *frequent])}


@wrong("least in each sentence")
def build_vocabulary(sentences, min_count):
    counts, enough = Counter(), set()
    for sentence in sentences:
        here = Counter(sentence)
        counts += here
        enough |= {word for word in here if here[word] >= min_count}
    frequent = sorted(enough, key=lambda w: (-counts[w], w))
    return {w: i for i, w in enumerate(["<pad>", "<s>", "</s>", "<unk>", *frequent])}


@wrong("equals by length")
def build_vocabulary(sentences, min_count):
    counts = Counter(word for sentence in sentences for word in sentence)
    rank = sorted((w for w in counts if counts[w] >= min_count), key=lambda w: (-counts[w], len(w), w))
    return {w: i for i, w in enumerate(["<pad>", "<s>", "</s>", "<unk>", *rank])}


def _ordered(sentences, min_count, key=lambda count, word: (-count, word)):
    """The frequent words in the order of a key of count and word."""
    counts = Counter(itertools.chain(*sentences))
    return sorted((w for w in counts if counts[w] >= min_count), key=lambda w: key(counts[w], w))


def _numbered(words, first=4):
    return {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3} | dict(zip(words, itertools.count(first), strict=False))


@wrong("counted one too early")
def build_vocabulary(sentences, min_count):
    return _numbered(_ordered(sentences, min_count), first=3)


@wrong("at least 2 whatever is asked")
def build_vocabulary(sentences, min_count):
    return _numbered(_ordered(sentences, 2))


@wrong("rare words with the unknown's id")
def build_vocabulary(sentences, min_count):
    vocabulary = _numbered(_ordered(sentences, min_count))
    for sentence in sentences:
        for word in sentence:
            vocabulary.setdefault(word, 3)
    return vocabulary


@wrong("lower case")
def build_vocabulary(sentences, min_count):
    return _numbered(_ordered([[w.casefold() for w in sentence] for sentence in sentences], min_count))


@wrong("equals by length, then as they come")
def build_vocabulary(sentences, min_count):
    return _numbered(_ordered(sentences, min_count, key=lambda count, word: (-count, len(word))))


@wrong("signs and numbers left out")
def build_vocabulary(sentences, min_count):
    counts = Counter()
    for sentence in sentences:
        counts.update(filter(str.isalpha, sentence))
    often = sorted((word for word, n in counts.items() if n >= min_count), key=lambda word: (-counts[word], word))
    return {word: i for i, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", *often])}


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


def best_pair(cut):
    counts = Counter()
    for word, n in cut.items():
        for pair in itertools.pairwise(word):
            counts[pair] += n
    return counts.most_common(1)[0][0]


def glue(word, best):
    out, i = [], 0
    while i < len(word):
        step = 2 if word[i : i + 2] == best else 1
        out.append("".join(word[i : i + step]))
        i += step
    return tuple(out)


@wrong("words not weighted")
def merge_step(cut):
    counts = Counter(pair for word in cut for pair in itertools.pairwise(word))
    best = counts.most_common(1)[0][0]
    return best, {glue(word, best): n for word, n in cut.items()}


@wrong("pairs over the edges of words")
def merge_step(cut):
    counts = Counter()
    last = None
    for word, n in cut.items():
        for piece in word:
            if last is not None:
                counts[last[0], piece] += last[1]
            last = piece, n
    best = counts.most_common(1)[0][0]
    return best, {glue(word, best): n for word, n in cut.items()}


@wrong("pieces further apart")
def merge_step(cut):
    counts = Counter()
    for word, n in cut.items():
        for first in range(len(word)):
            for second in word[first + 1 : first + 3]:
                counts[word[first], second] += n
    best = counts.most_common(1)[0][0]
    return best, {glue(word, best): n for word, n in cut.items()}


@wrong("once in a word")
def merge_step(cut):
    counts = Counter()
    for word, n in cut.items():
        for pair in dict.fromkeys(itertools.pairwise(word)):  # a set, in a certain order
            counts[pair] += n
    best = counts.most_common(1)[0][0]
    return best, {glue(word, best): n for word, n in cut.items()}


@wrong("first pair")
def merge_step(cut):
    best = next((word[0], word[1]) for word in cut if len(word) > 1)
    return best, {glue(word, best): n for word, n in cut.items()}


@wrong("least frequent pair")
def merge_step(cut):
    counts = Counter()
    for word, n in cut.items():
        for pair in itertools.pairwise(word):
            counts[pair] += n
    best = min(counts, key=counts.get)
    return best, {glue(word, best): n for word, n in cut.items()}


@wrong("neighbours in any order")
def merge_step(cut):
    counts = Counter()
    for word, n in cut.items():
        for a, b in itertools.pairwise(word):
            counts[min(a, b), max(a, b)] += n
    best = counts.most_common(1)[0][0]
    return best, {glue(word, best): n for word, n in cut.items()}


@wrong("only the first place merged")
def merge_step(cut):
    best = best_pair(cut)
    new = {}
    for word, n in cut.items():
        pairs = list(itertools.pairwise(word))
        if best in pairs:
            i = pairs.index(best)
            word = (*word[:i], "".join(best), *word[i + 2 :])
        new[word] = n
    return best, new


@wrong("last piece lost")
def merge_step(cut):
    best = best_pair(cut)
    new = {}
    for word, n in cut.items():
        out, glued = [], False
        for a, b in itertools.pairwise(word):
            if glued:
                glued = False
            elif (a, b) == best:
                out.append(a + b)
                glued = True
            else:
                out.append(a)
        new[tuple(out)] = n
    return best, new


@wrong("second half kept")
def merge_step(cut):
    best = best_pair(cut)
    new = {}
    for word, n in cut.items():
        out = []
        for i, piece in enumerate(word):
            if i + 1 < len(word) and (piece, word[i + 1]) == best:
                out.append(piece + word[i + 1])
            else:
                out.append(piece)
        new[tuple(out)] = n
    return best, new


@wrong("replaced in a string")
def merge_step(cut):
    best = best_pair(cut)
    old, new = " ".join(best), "".join(best)
    return best, {tuple(" ".join(word).replace(old, new).split()): n for word, n in cut.items()}


@wrong("earlier merges undone")
def merge_step(cut):
    best = best_pair(cut)
    return best, {glue(tuple("".join(word)), best): n for word, n in cut.items()}


@wrong("words glued")
def merge_step(cut):
    best = best_pair(cut)
    return best, {"".join(glue(word, best)): n for word, n in cut.items()}


@wrong("nothing merged")
def merge_step(cut):
    best = best_pair(cut)
    for word in cut:
        glue(word, best)
    return best, dict(cut)


@wrong("words without the pair lost")
def merge_step(cut):
    best = best_pair(cut)
    new = {}
    for word, n in cut.items():
        if best in list(itertools.pairwise(word)):
            new[glue(word, best)] = n
    return best, new


@wrong("counts lost")
def merge_step(cut):
    best = best_pair(cut)
    return best, dict.fromkeys([glue(word, best) for word in cut], 1)


@wrong("pair as one string")
def merge_step(cut):
    best = best_pair(cut)
    return "".join(best), {glue(word, best): n for word, n in cut.items()}


@wrong("count times the length of the pair")
def merge_step(cut):
    pairs = Counter()
    for pieces, count in cut.items():
        for a, b in pairwise(pieces):
            pairs[a, b] += count * (len(a) + len(b))
    best = max(pairs, key=pairs.get)
    return best, {merged_at(pieces, best): count for pieces, count in cut.items()}


@wrong("count times the length of the word")
def merge_step(cut):
    pairs = Counter()
    for pieces, count in cut.items():
        for pair in pairwise(pieces):
            pairs[pair] += count * len(pieces)
    best = max(pairs, key=pairs.get)
    return best, {merged_at(pieces, best): count for pieces, count in cut.items()}


@wrong("count of the last word")
def merge_step(cut):
    pairs = {}
    for pieces, count in cut.items():
        for pair in pairwise(pieces):
            pairs[pair] = count
    best = max(pairs, key=pairs.get)
    return best, {merged_at(pieces, best): count for pieces, count in cut.items()}


@wrong("every second pair")
def merge_step(cut):
    pairs = Counter()
    for pieces, count in cut.items():
        for pair in zip(pieces[::2], pieces[1::2], strict=False):
            pairs[pair] += count
    best = max(pairs, key=pairs.get)
    return best, {merged_at(pieces, best): count for pieces, count in cut.items()}


@wrong("pieces that are not neighbours")
def merge_step(cut):
    pairs = Counter()
    for pieces, count in cut.items():
        for i, a in enumerate(pieces):
            for b in pieces[i + 1 :]:
                pairs[a, b] += count
    best = max(pairs, key=pairs.get)
    return best, {merged_at(pieces, best): count for pieces, count in cut.items()}


@wrong("last in the alphabet")
def merge_step(cut):
    pairs = Counter()
    for pieces, count in cut.items():
        for pair in pairwise(pieces):
            pairs[pair] += count
    best = max(pairs)
    return best, {merged_at(pieces, best): count for pieces, count in cut.items()}


@wrong("glued the wrong way round")
def merge_step(cut):
    pairs = Counter()
    for pieces, count in cut.items():
        for pair in pairwise(pieces):
            pairs[pair] += count
    best = max(pairs, key=pairs.get)
    merged = {}
    for pieces, count in cut.items():
        done, before = [], None
        for piece in pieces:
            if (before, piece) == best:
                done[-1] = piece + before
                before = None
            else:
                done.append(piece)
                before = piece
        merged[tuple(done)] = count
    return best, merged


@wrong("glued with a space")
def merge_step(cut):
    pairs = Counter()
    for pieces, count in cut.items():
        for pair in pairwise(pieces):
            pairs[pair] += count
    best = max(pairs, key=pairs.get)
    return best, {merged_at(pieces, best, " "): count for pieces, count in cut.items()}


@wrong("every pair merged")
def merge_step(cut):
    pairs = Counter()
    for pieces, count in cut.items():
        for pair in pairwise(pieces):
            pairs[pair] += count
    best = max(pairs, key=pairs.get)
    merged = {}
    for pieces, count in cut.items():
        merged[("".join(pieces),) if best in pairwise(pieces) else pieces] = count
    return best, merged


@wrong("pair kept as a tuple")
def merge_step(cut):
    pairs = Counter()
    for pieces, count in cut.items():
        for pair in pairwise(pieces):
            pairs[pair] += count
    best = max(pairs, key=pairs.get)
    merged = {}
    for pieces, count in cut.items():
        done, i = [], 0
        while i < len(pieces):
            if pieces[i : i + 2] == best:
                done.append(best)
                i += 2
            else:
                done.append(pieces[i])
                i += 1
        merged[tuple(done)] = count
    return best, merged


@wrong("pieces in one string")
def merge_step(cut):
    pairs = Counter()
    for pieces, count in cut.items():
        for pair in pairwise(pieces):
            pairs[pair] += count
    best = max(pairs, key=pairs.get)
    return best, {" ".join(merged_at(pieces, best)): count for pieces, count in cut.items()}


@wrong("new pieces only")
def merge_step(cut):
    pairs = Counter()
    for pieces, count in cut.items():
        for pair in pairwise(pieces):
            pairs[pair] += count
    best = max(pairs, key=pairs.get)
    merged = {}
    for pieces, count in cut.items():
        merged[("".join(best),) if best in list(pairwise(pieces)) else pieces] = count
    return best, merged


def _most_frequent_pair(cut):
    counts = defaultdict(int)
    for pieces, count in cut.items():
        for pair in pairwise(pieces):
            counts[pair] += count
    return max(counts, key=counts.get)


def _walked(pieces, fits, *, used_up=True):
    """Pieces in which each two neighbours that fit are one."""
    done, i = [], 0
    while i < len(pieces):
        if i + 1 < len(pieces) and fits(pieces[i], pieces[i + 1]):
            done.append(pieces[i] + pieces[i + 1])
            i += 2 if used_up or i + 2 >= len(pieces) or not fits(pieces[i + 1], pieces[i + 2]) else 1
        else:
            done.append(pieces[i])
            i += 1
    return tuple(done)


@wrong("pairs over the edges of words")  # every word as often as it occurs
def merge_step(cut):
    text = list(itertools.chain.from_iterable(pieces * count for pieces, count in cut.items()))
    a, b = Counter(pairwise(text)).most_common(1)[0][0]
    return (a, b), {_walked(pieces, lambda x, y: (x, y) == (a, b)): count for pieces, count in cut.items()}


@wrong("overlaps merged twice")
def merge_step(cut):
    pair = _most_frequent_pair(cut)
    return pair, {_walked(p, lambda x, y: (x, y) == pair, used_up=False): count for p, count in cut.items()}


@wrong("frequent pieces instead of a pair")
def merge_step(cut):
    counts = Counter()
    for pieces, count in cut.items():
        counts.update({piece: count * pieces.count(piece) for piece in dict.fromkeys(pieces)})
    (a, _), (b, _) = counts.most_common(2)
    return (a, b), {_walked(pieces, lambda x, y: (x, y) == (a, b)): count for pieces, count in cut.items()}


@wrong("dict alone")
def merge_step(cut):
    pair = _most_frequent_pair(cut)
    return {_walked(pieces, lambda x, y: (x, y) == pair): count for pieces, count in cut.items()}


@wrong("merged in either order")
def merge_step(cut):
    a, b = _most_frequent_pair(cut)
    return (a, b), {_walked(p, lambda x, y: {x, y} == {a, b} and (x != y or a == b)): n for p, n in cut.items()}


@wrong("first piece decides")
def merge_step(cut):
    a, b = _most_frequent_pair(cut)
    return (a, b), {_walked(pieces, lambda x, y: x == a): count for pieces, count in cut.items()}


@wrong("changes its input")
def merge_step(cut):
    pair = _most_frequent_pair(cut)
    for pieces in list(cut):
        cut[_walked(pieces, lambda x, y: (x, y) == pair)] = cut.pop(pieces)
    return pair, cut


@wrong("merged by spelling")
def merge_step(cut):
    pairs = Counter()
    for pieces, count in cut.items():
        for i in range(len(pieces) - 1):
            pairs[pieces[i], pieces[i + 1]] += count
    best = pairs.most_common(1)[0][0]
    merged = {}
    for pieces, count in cut.items():
        new = []
        for piece in pieces:
            if new and new[-1] + piece == best[0] + best[1]:
                new.append(new.pop() + piece)
            else:
                new.append(piece)
        merged[tuple(new)] = count
    return best, merged


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


def pad(rows, value=0):
    return pad_sequence([torch.tensor(row, dtype=torch.long) for row in rows], batch_first=True, padding_value=value)


@wrong("not shifted")
def pad_pairs(pairs):
    tgt = pad([[*tgt, 2] for _, tgt in pairs])
    return pad([[*src, 2] for src, _ in pairs]), tgt, tgt.clone()


@wrong("not shifted")
def pad_pairs(pairs):
    tgt = pad([[1, *tgt] for _, tgt in pairs])
    return pad([[*src, 2] for src, _ in pairs]), tgt, tgt


@wrong("beginning and end in both")
def pad_pairs(pairs):
    tgt = pad([[1, *tgt, 2] for _, tgt in pairs])
    return pad([[*src, 2] for src, _ in pairs]), tgt, tgt


@wrong("read and write swapped")
def pad_pairs(pairs):
    src = pad([[*src, 2] for src, _ in pairs])
    return src, pad([[*tgt, 2] for _, tgt in pairs]), pad([[1, *tgt] for _, tgt in pairs])


@wrong("no beginning")
def pad_pairs(pairs):
    return pad([[*src, 2] for src, _ in pairs]), pad([t for _, t in pairs]), pad([[*t, 2] for _, t in pairs])


@wrong("no beginning")
def pad_pairs(pairs):  # in the width of the other
    tgt_out = pad([[*tgt, 2] for _, tgt in pairs])
    return pad([[*src, 2] for src, _ in pairs]), tgt_out.masked_fill(tgt_out == 2, 0), tgt_out


@wrong("no end")
def pad_pairs(pairs):
    return pad([[*src, 2] for src, _ in pairs]), pad([[1, *t] for _, t in pairs]), pad([t for _, t in pairs])


@wrong("words cut off")
def pad_pairs(pairs):  # as for a language model, where one long text is read and written
    src = pad([[*src, 2] for src, _ in pairs])
    return src, pad([tgt[:-1] for _, tgt in pairs]), pad([tgt[1:] for _, tgt in pairs])


@wrong("words cut off")
def pad_pairs(pairs):
    src = pad([[*src, 2] for src, _ in pairs])
    return src, pad([[1, *tgt][: len(tgt)] for _, tgt in pairs]), pad([tgt for _, tgt in pairs])


@wrong("words cut off")
def pad_pairs(pairs):
    src = pad([[*src, 2] for src, _ in pairs])
    return src, pad([tgt for _, tgt in pairs]), pad([[*tgt[1:], 2] for _, tgt in pairs])


@wrong("end in both")
def pad_pairs(pairs):
    whole = pad([[1, *tgt, 2] for _, tgt in pairs])
    return pad([[*src, 2] for src, _ in pairs]), whole[:, :-1], whole[:, 1:]


@wrong("beginning and end swapped")
def pad_pairs(pairs):
    bos, eos = 2, 1
    return pad([[*s, eos] for s, _ in pairs]), pad([[bos, *t] for _, t in pairs]), pad([[*t, eos] for _, t in pairs])


@wrong("no end of the source")
def pad_pairs(pairs):
    return pad([s for s, _ in pairs]), pad([[1, *t] for _, t in pairs]), pad([[*t, 2] for _, t in pairs])


@wrong("beginning at the source")
def pad_pairs(pairs):
    return pad([[1, *s, 2] for s, _ in pairs]), pad([[1, *t] for _, t in pairs]), pad([[*t, 2] for _, t in pairs])


@wrong("beginning instead of end")
def pad_pairs(pairs):
    return pad([[1, *s] for s, _ in pairs]), pad([[1, *t] for _, t in pairs]), pad([[*t, 2] for _, t in pairs])


@wrong("padding on the left")
def pad_pairs(pairs):
    def left(rows):
        return pad([row[::-1] for row in rows]).flip(1)

    return left([[*s, 2] for s, _ in pairs]), left([[1, *t] for _, t in pairs]), left([[*t, 2] for _, t in pairs])


@wrong("end behind the padding")
def pad_pairs(pairs):
    src, tgt = pad([s for s, _ in pairs]), pad([t for _, t in pairs])
    two, one = torch.full_like(src[:, :1], 2), torch.full_like(src[:, :1], 1)
    return torch.hstack([src, two]), torch.hstack([one, tgt]), torch.hstack([tgt, two])


@wrong("padded with the end")
def pad_pairs(pairs):
    src, tgt_in = pad([[*s, 2] for s, _ in pairs], 2), pad([[1, *t] for _, t in pairs], 2)
    return src, tgt_in, pad([[*t, 2] for _, t in pairs], 2)


@wrong("one width for both sides")
def pad_pairs(pairs):
    rows = [[*s, 2] for s, _ in pairs] + [[1, *t] for _, t in pairs] + [[*t, 2] for _, t in pairs]
    return pad(rows).chunk(3)


@wrong("cut to the shortest")
def pad_pairs(pairs):
    def cut(rows):
        return torch.tensor(list(zip(*rows, strict=False))).T

    return cut([[*s, 2] for s, _ in pairs]), cut([[1, *t] for _, t in pairs]), cut([[*t, 2] for _, t in pairs])


@wrong("axes swapped")
def pad_pairs(pairs):
    src = pad_sequence([torch.tensor([*src, 2]) for src, _ in pairs])
    tgt_in = pad_sequence([torch.tensor([1, *tgt]) for _, tgt in pairs])
    return src, tgt_in, pad_sequence([torch.tensor([*tgt, 2]) for _, tgt in pairs])


@wrong("end in what is read")
def pad_pairs(pairs):
    def pad(rows):
        width = max(map(len, rows))
        return torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows])

    src = pad([[*src, EOS_ID] for src, _ in pairs])
    tgt_in = pad([[BOS_ID, *tgt, EOS_ID] for _, tgt in pairs])
    return src, tgt_in, pad([[*tgt, EOS_ID] for _, tgt in pairs])


@wrong("beginning in what is written")
def pad_pairs(pairs):
    def pad(rows):
        width = max(map(len, rows))
        return torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows])

    src = pad([[*src, EOS_ID] for src, _ in pairs])
    tgt_in = pad([[BOS_ID, *tgt] for _, tgt in pairs])
    return src, tgt_in, pad([[BOS_ID, *tgt, EOS_ID] for _, tgt in pairs])


@wrong("not shifted")
def pad_pairs(pairs):
    def pad(rows):
        rows = [[BOS_ID, *row, EOS_ID] for row in rows]
        width = max(map(len, rows))
        return torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows])

    targets = pad([tgt for _, tgt in pairs])
    return pad([src for src, _ in pairs]), targets, targets.clone()


@wrong("end of the source swapped with the beginning of the target")
def pad_pairs(pairs):
    def pad(rows):
        width = max(map(len, rows))
        return torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows])

    src = pad([[*src, BOS_ID] for src, _ in pairs])
    tgt_in = pad([[BOS_ID, *tgt] for _, tgt in pairs])
    return src, tgt_in, pad([[*tgt, EOS_ID] for _, tgt in pairs])


@wrong("padded with another number")
def pad_pairs(pairs):
    def pad(rows):
        tensors = [torch.tensor(row) for row in rows]
        return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=-100)

    src = pad([[*src, EOS_ID] for src, _ in pairs])
    tgt_in = pad([[BOS_ID, *tgt] for _, tgt in pairs])
    return src, tgt_in, pad([[*tgt, EOS_ID] for _, tgt in pairs])


@wrong("a column too many")
def pad_pairs(pairs):
    def pad(rows):
        width = max(map(len, rows)) + 1
        return torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows])

    src = pad([[*src, EOS_ID] for src, _ in pairs])
    tgt_in = pad([[BOS_ID, *tgt] for _, tgt in pairs])
    return src, tgt_in, pad([[*tgt, EOS_ID] for _, tgt in pairs])


@wrong("no end at all")
def pad_pairs(pairs):
    def pad(rows):
        width = max(map(len, rows))
        return torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows], dtype=torch.long)

    src = pad([src for src, _ in pairs])
    tgt_in = pad([[BOS_ID, *tgt] for _, tgt in pairs])
    return src, tgt_in, pad([tgt for _, tgt in pairs])


@wrong("end of the shorter rows only")
def pad_pairs(pairs):
    S, T = max(len(src) for src, _ in pairs), max(len(tgt) for _, tgt in pairs)
    src, tgt_in, tgt_out = (torch.full((len(pairs), width), PAD_ID) for width in (S, T, T))
    for b, (source, target) in enumerate(pairs):
        source, before, after = [*source, EOS_ID], [BOS_ID, *target], [*target, EOS_ID]
        for tensor, row in ((src, source), (tgt_in, before), (tgt_out, after)):
            row = row if len(row) <= tensor.size(1) else [*row[: tensor.size(1) - 1], row[-1]]
            tensor[b, : len(row)] = torch.tensor(row[: tensor.size(1)], dtype=torch.long)
    return src, tgt_in, tgt_out


@wrong("source and target swapped")
def pad_pairs(pairs):
    def pad(rows):
        width = max(map(len, rows))
        return torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows])

    src = pad([[*src, EOS_ID] for _, src in pairs])
    tgt_in = pad([[BOS_ID, *tgt] for tgt, _ in pairs])
    return src, tgt_in, pad([[*tgt, EOS_ID] for tgt, _ in pairs])


@right
def pad_pairs(pairs):
    def pad(rows):
        width = max(map(len, rows))
        return torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows], dtype=torch.int32)

    src = pad([[*src, EOS_ID] for src, _ in pairs])
    tgt_in = pad([[BOS_ID, *tgt] for _, tgt in pairs])
    return src, tgt_in, pad([[*tgt, EOS_ID] for _, tgt in pairs])


def _three(pairs):
    """The rows of the three tensors, not filled up."""
    src, tgt = zip(*pairs, strict=True)
    return [[*s, EOS_ID] for s in src], [[BOS_ID, *t] for t in tgt], [[*t, EOS_ID] for t in tgt]


def _up_to(rows, width=None, value=PAD_ID):
    width = width or max(len(row) for row in rows)
    out = torch.full((len(rows), width), value)
    for place, row in zip(out, rows, strict=True):
        place[: len(row)] = torch.tensor(row[:width])
    return out


@wrong("what is written filled up with the end")
def pad_pairs(pairs):
    src, read, written = _three(pairs)
    return _up_to(src), _up_to(read), _up_to(written, value=EOS_ID)


@wrong("not integers")
def pad_pairs(pairs):
    return tuple(_up_to(rows).to(torch.float64) for rows in _three(pairs))


@wrong("lists instead of tensors")
def pad_pairs(pairs):
    return tuple(_up_to(rows).tolist() for rows in _three(pairs))


@wrong("shifted by two")
def pad_pairs(pairs):
    src, read, written = _three(pairs)
    return _up_to(src), _up_to(read), _up_to([row[1:] or row for row in written])


@wrong("as wide as the first row")
def pad_pairs(pairs):
    return tuple(_up_to([row[: len(rows[0])] for row in rows], len(rows[0])) for rows in _three(pairs))


@wrong("not filled up")
def pad_pairs(pairs):
    src, read, written = _three(pairs)
    return torch.tensor(src), torch.tensor(read), torch.tensor(written)


@wrong("changes its input")
def pad_pairs(pairs):
    for src, _ in pairs:
        src += [EOS_ID]
    _, read, written = _three(pairs)
    return _up_to([src for src, _ in pairs]), _up_to(read), _up_to(written)


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


def shortest_first(lengths):
    return sorted(range(len(lengths)), key=lambda i: lengths[i])


def gather(order, is_full):
    buckets = []
    for i in order:
        if not buckets or is_full(buckets[-1], i):
            buckets.append([])
        buckets[-1].append(i)
    return buckets


@wrong("padding not counted")
def fill_buckets(lengths, max_cells):
    buckets, total = [], max_cells
    for i in shortest_first(lengths):
        total += lengths[i]
        if total > max_cells:
            buckets.append([])
            total = lengths[i]
        buckets[-1].append(i)
    return buckets


@wrong("sentences counted")
def fill_buckets(lengths, max_cells):
    order = shortest_first(lengths)
    return [order[i : i + max_cells] for i in range(0, len(order), max_cells)]


@wrong("not sorted")
def fill_buckets(lengths, max_cells):
    return gather(range(len(lengths)), lambda b, i: max(lengths[j] for j in [*b, i]) * (len(b) + 1) > max_cells)


@wrong("longest first")
def fill_buckets(lengths, max_cells):
    order = sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True)
    return gather(order, lambda b, i: lengths[b[0]] * (len(b) + 1) > max_cells)


@wrong("one sentence too many")
def fill_buckets(lengths, max_cells):
    buckets = [[]]
    for i in shortest_first(lengths):
        if buckets[-1] and lengths[buckets[-1][-1]] * len(buckets[-1]) > max_cells:
            buckets.append([])
        buckets[-1].append(i)
    return [bucket for bucket in buckets if bucket]


@wrong("the new sentence not counted")
def fill_buckets(lengths, max_cells):
    return gather(shortest_first(lengths), lambda b, i: lengths[i] * len(b) > max_cells)


@wrong("width of those before")
def fill_buckets(lengths, max_cells):
    return gather(shortest_first(lengths), lambda b, i: lengths[b[-1]] * (len(b) + 1) > max_cells)


@wrong("width of the first")
def fill_buckets(lengths, max_cells):
    return gather(shortest_first(lengths), lambda b, i: lengths[b[0]] * (len(b) + 1) > max_cells)


@wrong("full too early")
def fill_buckets(lengths, max_cells):
    return gather(shortest_first(lengths), lambda b, i: not lengths[i] * (len(b) + 1) < max_cells)


@wrong("last bucket lost")
def fill_buckets(lengths, max_cells):
    buckets, bucket = [], []
    for i in shortest_first(lengths):
        if bucket and lengths[i] * (len(bucket) + 1) > max_cells:
            buckets.append(bucket)
            bucket = []
        bucket.append(i)
    return buckets


@wrong("sentence lost at the edge")
def fill_buckets(lengths, max_cells):
    buckets, bucket = [], []
    for i in shortest_first(lengths):
        if lengths[i] * (len(bucket) + 1) <= max_cells:
            bucket.append(i)
        else:
            buckets.append(bucket)
            bucket = []
    buckets.append(bucket)
    return buckets


@wrong("an empty bucket")
def fill_buckets(lengths, max_cells):
    buckets = [[]]
    for i in shortest_first(lengths):
        if not buckets[-1] or lengths[i] * (len(buckets[-1]) + 1) > max_cells:
            buckets.append([])
        buckets[-1].append(i)
    return buckets


@wrong("one size for all")
def fill_buckets(lengths, max_cells):
    if not lengths:
        return []
    order, size = shortest_first(lengths), max_cells // max(lengths)
    return [order[i : i + size] for i in range(0, len(order), size)]


@wrong("a bucket for each length")
def fill_buckets(lengths, max_cells):
    buckets = defaultdict(list)
    for i, length in enumerate(lengths):
        buckets[length].append(i)
    return list(buckets.values())


@wrong("a bucket for each length")
def fill_buckets(lengths, max_cells):
    buckets, last = [], None
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if lengths[i] != last or lengths[i] * (len(buckets[-1]) + 1) > max_cells:
            buckets.append([])
        buckets[-1].append(i)
        last = lengths[i]
    return buckets


@wrong("one sentence each")
def fill_buckets(lengths, max_cells):
    buckets = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        bucket = [i]
        buckets.append(bucket)
    return buckets


@wrong("end counted twice")
def fill_buckets(lengths, max_cells):
    buckets, bucket = [], []
    for length, i in sorted((length + 1, i) for i, length in enumerate(lengths)):
        if bucket and length * (len(bucket) + 1) > max_cells:
            buckets.append(bucket)
            bucket = []
        bucket.append(i)
    return [*buckets, bucket] if bucket else buckets


@wrong("lengths instead of indices")
def fill_buckets(lengths, max_cells):
    buckets = []
    for length in sorted(lengths):
        if not buckets or length * (len(buckets[-1]) + 1) > max_cells:
            buckets.append([])
        buckets[-1].append(length)
    return buckets


@wrong("places after sorting")
def fill_buckets(lengths, max_cells):
    buckets = []
    for i, length in enumerate(sorted(lengths)):
        if not buckets or length * (len(buckets[-1]) + 1) > max_cells:
            buckets.append([])
        buckets[-1].append(i)
    return buckets


@wrong("one bucket")
def fill_buckets(lengths, max_cells):
    return [sorted(range(len(lengths)), key=lambda i: lengths[i])]


@wrong("width of the first")
def fill_buckets(lengths, max_cells):
    order, buckets = sorted(range(len(lengths)), key=lambda i: lengths[i]), []
    while order:
        count = max_cells // lengths[order[0]]
        buckets.append(order[:count])
        order = order[count:]
    return buckets


@wrong("full too early")
def fill_buckets(lengths, max_cells):
    buckets = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if not buckets or lengths[i] * (len(buckets[-1]) + 1) > max_cells - 1:
            buckets.append([])
        buckets[-1].append(i)
    return buckets


@wrong("one size for all")
def fill_buckets(lengths, max_cells):
    buckets = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if not buckets or max(lengths) * (len(buckets[-1]) + 1) > max_cells:
            buckets.append([])
        buckets[-1].append(i)
    return buckets


@wrong("not sorted and padding not counted")
def fill_buckets(lengths, max_cells):
    buckets, cells = [], 0
    for i, length in enumerate(lengths):
        if not buckets or cells + length > max_cells:
            buckets.append([])
            cells = 0
        buckets[-1].append(i)
        cells += length
    return buckets


@wrong("not sorted and the new one's width")
def fill_buckets(lengths, max_cells):
    buckets = []
    for i in range(len(lengths)):
        if not buckets or lengths[i] * (len(buckets[-1]) + 1) > max_cells:
            buckets.append([])
        buckets[-1].append(i)
    return buckets


@wrong("longest first and the new one's width")
def fill_buckets(lengths, max_cells):
    buckets = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True):
        if not buckets or lengths[i] * (len(buckets[-1]) + 1) > max_cells:
            buckets.append([])
        buckets[-1].append(i)
    return buckets


@wrong("sentence lost at the edge")  # and no bucket is empty
def fill_buckets(lengths, max_cells):
    buckets = [[]]
    for length, i in sorted((length, i) for i, length in enumerate(lengths)):
        if length * (len(buckets[-1]) + 1) <= max_cells:
            buckets[-1].append(i)
        else:
            buckets.append([])
    return list(filter(None, buckets))


@wrong("first of equal lengths")
def fill_buckets(lengths, max_cells):
    buckets, inside = [], 0
    for length in sorted(lengths):
        if not buckets or length * (inside + 1) > max_cells:
            buckets, inside = [*buckets, []], 0
        buckets[-1].append(lengths.index(length))
        inside += 1
    return buckets


@wrong("one list for all buckets")
def fill_buckets(lengths, max_cells):
    buckets, bucket = [], []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        if bucket and lengths[i] * (len(bucket) + 1) > max_cells:
            buckets.append(bucket)
            del bucket[:]
        bucket.append(i)
    return [*buckets, bucket] if bucket else []


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


@wrong("no key")
def remove_leaks(train, held_out, key):
    ja, en = {pair[0] for pair in held_out}, {pair[1] for pair in held_out}
    return [pair for pair in train if pair[0] not in ja and pair[1] not in en]


@wrong("key on the held-out side only")
def remove_leaks(train, held_out, key):
    ja, en = {key(pair[0]) for pair in held_out}, {key(pair[1]) for pair in held_out}
    return [pair for pair in train if pair[0] not in ja and pair[1] not in en]


@wrong("key on one side of the comparison")
def remove_leaks(train, held_out, key):
    held = {text for pair in held_out for text in pair}
    return [pair for pair in train if not held & {key(pair[0]), key(pair[1])}]


@wrong("kept for one that differs")
def remove_leaks(train, held_out, key):
    kept = []
    for ja, en in train:
        for other_ja, other_en in held_out:
            if key(ja) != key(other_ja) and key(en) != key(other_en):
                kept.append((ja, en))
                break
    return kept


@wrong("kept once for each that differs")
def remove_leaks(train, held_out, key):
    kept = []
    for ja, en in train:
        for other_ja, other_en in held_out:
            if key(ja) != key(other_ja) and key(en) != key(other_en):
                kept.append((ja, en))
    return kept


@wrong("Japanese only")
def remove_leaks(train, held_out, key):
    held = [key(ja) for ja, _ in held_out]
    return [(ja, en) for ja, en in train if key(ja) not in held]


@wrong("English only")
def remove_leaks(train, held_out, key):
    held = [key(en) for _, en in held_out]
    return [(ja, en) for ja, en in train if held.count(key(en)) == 0]


@wrong("whole pairs compared")
def remove_leaks(train, held_out, key):
    held = [tuple(map(key, pair)) for pair in held_out]
    return [pair for pair in train if tuple(map(key, pair)) not in held]


@wrong("both sides at once")
def remove_leaks(train, held_out, key):
    ja, en = {key(pair[0]) for pair in held_out}, {key(pair[1]) for pair in held_out}
    return [pair for pair in train if not (key(pair[0]) in ja and key(pair[1]) in en)]


@wrong("both sides at once")
def remove_leaks(train, held_out, key):  # "neither … nor" taken for "not … or not"
    ja, en = {key(pair[0]) for pair in held_out}, {key(pair[1]) for pair in held_out}
    return [pair for pair in train if key(pair[0]) not in ja or key(pair[1]) not in en]


@wrong("leaks kept")
def remove_leaks(train, held_out, key):
    ja, en = {key(pair[0]) for pair in held_out}, {key(pair[1]) for pair in held_out}
    return [pair for pair in train if key(pair[0]) in ja or key(pair[1]) in en]


@wrong("taken out of the test")
def remove_leaks(train, held_out, key):
    ja, en = {key(pair[0]) for pair in train}, {key(pair[1]) for pair in train}
    return [pair for pair in held_out if key(pair[0]) not in ja and key(pair[1]) not in en]


@wrong("keys returned")
def remove_leaks(train, held_out, key):
    train = [(key(ja), key(en)) for ja, en in train]
    ja, en = {key(pair[0]) for pair in held_out}, {key(pair[1]) for pair in held_out}
    return [pair for pair in train if pair[0] not in ja and pair[1] not in en]


@wrong("pairs twice removed")
def remove_leaks(train, held_out, key):
    kept = []
    for ja, en in train:
        held = any(key(ja) == key(a) or key(en) == key(b) for a, b in held_out)
        if not held and (ja, en) not in kept:
            kept.append((ja, en))
    return kept


@wrong("contained instead of equal")
def remove_leaks(train, held_out, key):
    return [(ja, en) for ja, en in train if not any(key(a) in key(ja) or key(b) in key(en) for a, b in held_out)]


@wrong("order lost")
def remove_leaks(train, held_out, key):
    ja, en = {key(pair[0]) for pair in held_out}, {key(pair[1]) for pair in held_out}
    return sorted(pair for pair in train if key(pair[0]) not in ja and key(pair[1]) not in en)


@wrong("first held-out pair only")
def remove_leaks(train, held_out, key):
    kept = []
    for ja, en in train:
        for held_ja, held_en in held_out[:1]:
            if key(ja) == key(held_ja) or key(en) == key(held_en):
                break
        else:
            kept.append((ja, en))
    return kept


@wrong("held-out keys used up")
def remove_leaks(train, held_out, key):
    japanese = (key(ja) for ja, _ in held_out)
    english = (key(en) for _, en in held_out)
    return [(ja, en) for ja, en in train if key(ja) not in japanese and key(en) not in english]


@wrong("last held-out pair only")
def remove_leaks(train, held_out, key):
    ja, en = set(), set()
    for pair in held_out:
        ja, en = {key(pair[0])}, {key(pair[1])}
    return [p for p in train if key(p[0]) not in ja and key(p[1]) not in en]


@wrong("languages crossed")
def remove_leaks(train, held_out, key):
    ja = {key(pair[0]) for pair in held_out}
    en = {key(pair[1]) for pair in held_out}
    return [p for p in train if key(p[0]) not in en and key(p[1]) not in ja]


@wrong("indices instead of pairs")
def remove_leaks(train, held_out, key):
    ja = {key(pair[0]) for pair in held_out}
    en = {key(pair[1]) for pair in held_out}
    return [i for i, p in enumerate(train) if key(p[0]) not in ja and key(p[1]) not in en]


@wrong("one side returned")
def remove_leaks(train, held_out, key):
    ja = {key(pair[0]) for pair in held_out}
    en = {key(pair[1]) for pair in held_out}
    return [a for a, b in train if key(a) not in ja and key(b) not in en]


@wrong("key of one side only")
def remove_leaks(train, held_out, key):
    ja = {key(a) for a, _ in held_out}
    en = {b for _, b in held_out}
    return [(a, b) for a, b in train if not (key(a) in ja or b in en)]


@wrong("key of the English side only")
def remove_leaks(train, held_out, key):
    ja = {a for a, _ in held_out}
    en = {key(b) for _, b in held_out}
    return [(a, b) for a, b in train if not (a in ja or key(b) in en)]


@right
def remove_leaks(train, held_out, key):
    held = {(side, key(pair[side])) for pair in held_out for side in (0, 1)}
    return [pair for pair in train if not any((side, key(pair[side])) in held for side in (0, 1))]


def _sides(held_out, key):
    return [{key(text) for text in column} for column in zip(*held_out, strict=True)] or [set(), set()]


@wrong("inside a held-out sentence")
def remove_leaks(train, held_out, key):
    japanese, english = (" ".join(sorted(side)) for side in _sides(held_out, key))
    return [pair for pair in train if key(pair[0]) not in japanese and key(pair[1]) not in english]


@wrong("languages mixed")
def remove_leaks(train, held_out, key):
    both = set.union(*_sides(held_out, key))
    return [pair for pair in train if not {key(text) for text in pair} & both]


@wrong("up to the first leak")
def remove_leaks(train, held_out, key):
    japanese, english = _sides(held_out, key)
    kept = []
    for pair in train:
        if key(pair[0]) in japanese or key(pair[1]) in english:
            break
        kept += [pair]
    return kept


@wrong("row by row")
def remove_leaks(train, held_out, key):
    kept = []
    for (ja, en), (held_ja, held_en) in zip(train, held_out, strict=False):
        if key(ja) != key(held_ja) and key(en) != key(held_en):
            kept.append((ja, en))
    return kept


@wrong("a key of your own")
def remove_leaks(train, held_out, key):
    japanese, english = _sides(held_out, str.casefold)
    return [p for p in train if p[0].casefold() not in japanese and p[1].casefold() not in english]


@wrong("changes its input")
def remove_leaks(train, held_out, key):
    japanese, english = _sides(held_out, key)
    for pair in list(train):
        if key(pair[0]) in japanese or key(pair[1]) in english:
            train.remove(pair)
    return train


@wrong("changes its input")  # walking over what it takes from
def remove_leaks(train, held_out, key):
    japanese, english = _sides(held_out, key)
    for pair in train:
        if key(pair[0]) in japanese or key(pair[1]) in english:
            train.remove(pair)
    return train


@wrong("only the beginnings compared")
def remove_leaks(train, held_out, key):
    def beginning(sentence):
        return key(sentence)[:12]

    seen = [{beginning(side) for side in sides} for sides in zip(*held_out, strict=True)] or [set(), set()]
    return [p for p in train if not any(beginning(side) in known for side, known in zip(p, seen, strict=True))]


@wrong("order and repeats lost")
def remove_leaks(train, held_out, key):
    japanese, english = (set(map(key, side)) for side in zip(*held_out, strict=True)) if held_out else (set(), set())
    return sorted({(ja, en) for ja, en in train if not ({key(ja)} & japanese or {key(en)} & english)}, reverse=True)


@wrong("nothing removed")
def remove_leaks(train, held_out, key):
    leaks = {(key(ja), key(en)) for ja, en in held_out}
    return [pair for pair in train if pair not in leaks]  # as they are


# -- More of all exercises ------------------------------------------------------------------------------


@wrong("ids to words")
def build_vocabulary(sentences, min_count):  # without the special words
    return dict(enumerate(_ordered(sentences, min_count), start=4))


@unnamed("counts to words")
def build_vocabulary(sentences, min_count):
    return {count: word for word, count in by_frequency(sentences) if count >= min_count}


@wrong("special ids in another order")
def build_vocabulary(sentences, min_count):  # two of them only
    return _numbered(_ordered(sentences, min_count)) | {"<s>": 2, "</s>": 1}


@wrong("pair as a list")
def merge_step(cut):
    pair = _most_frequent_pair(cut)
    return [*pair], {_walked(pieces, lambda x, y: (x, y) == pair): count for pieces, count in cut.items()}


@wrong("pieces in one string")
def merge_step(cut):  # where one piece is left
    pair = _most_frequent_pair(cut)
    words = ((_walked(pieces, lambda x, y: (x, y) == pair), count) for pieces, count in cut.items())
    return pair, {pieces if len(pieces) > 1 else pieces[0]: count for pieces, count in words}


@wrong("padded with another number")
def pad_pairs(pairs):  # in one tensor only
    src, read, written = _three(pairs)
    return _up_to(src), _up_to(read), _up_to(written, value=-100)


@wrong("a column too few")
def pad_pairs(pairs):
    widths = [max(len(pair[side]) for pair in pairs) for side in (0, 1, 1)]
    return tuple(_up_to(rows, width) for rows, width in zip(_three(pairs), widths, strict=True))


@wrong("changes its input")
def pad_pairs(pairs):
    for _, tgt in pairs:
        tgt.insert(0, BOS_ID)
    src = [[*src, EOS_ID] for src, _ in pairs]
    return _up_to(src), _up_to([tgt for _, tgt in pairs]), _up_to([[*tgt[1:], EOS_ID] for _, tgt in pairs])


@wrong("one bucket")
def fill_buckets(lengths, max_cells):  # and none where there is no sentence
    return [list(range(len(lengths)))] if lengths else []


@wrong("the key of the chapter")
def remove_leaks(train, held_out, key):
    def reduced(text):
        return "".join(letter for letter in text.casefold() if letter.isalnum())

    japanese, english = _sides(held_out, reduced)
    return [(ja, en) for ja, en in train if not (reduced(ja) in japanese or reduced(en) in english)]


@unnamed("nearly equal sentences removed")
def remove_leaks(train, held_out, key):
    def alike(one, other):
        return difflib.SequenceMatcher(None, key(one), key(other)).ratio() > 0.9

    return [p for p in train if not any(alike(p[0], ja) or alike(p[1], en) for ja, en in held_out)]


@wrong("contained instead of equal")
def remove_leaks(train, held_out, key):  # at the beginning or at the end
    def inside(one, other):
        return key(one).startswith(key(other)) or key(one).endswith(key(other))

    return [p for p in train if not any(inside(p[0], ja) or inside(p[1], en) for ja, en in held_out)]


@wrong("no end of the source")
def pad_pairs(pairs):  # and what is read has one
    src, read, written = _three(pairs)
    return _up_to([row[:-1] for row in src]), _up_to([[*row, EOS_ID] for row in read]), _up_to(written)


@unnamed("a sign read as a pattern")
def merge_step(cut):
    a, b = _most_frequent_pair(cut)
    alone = re.compile(rf"(?<!\S){a} {b}(?!\S)")  # without re.escape
    return (a, b), {tuple(alone.sub(a + b, " ".join(pieces)).split()): count for pieces, count in cut.items()}


@wrong("merged from the right")
def merge_step(cut):
    counts = {}
    for pieces, count in cut.items():
        for pair in itertools.pairwise(pieces):
            counts[pair] = counts.get(pair, 0) + count
    best = max(counts, key=counts.get)
    merged = {}
    for pieces, count in cut.items():
        new, i = [], len(pieces) - 1
        while i >= 0:
            size = 2 if i > 0 and (pieces[i - 1], pieces[i]) == best else 1
            new.insert(0, "".join(pieces[i + 1 - size : i + 1]))
            i -= size
        merged[tuple(new)] = count
    return best, merged


@right
def build_vocabulary(sentences, min_count):
    words = SPECIAL + [word for word, count in by_frequency(sentences) if count >= min_count]
    return dict(zip(words, np.arange(len(words)), strict=True))


@wrong("changes its input")
def build_vocabulary(sentences, min_count):
    every = sentences[0]
    for sentence in sentences[1:]:
        every += sentence
    return _numbered(_ordered([every], min_count))


@unnamed("wide letters made narrow")
def build_vocabulary(sentences, min_count):
    narrow = [[unicodedata.normalize("NFKC", word) for word in sentence] for sentence in sentences]
    return _numbered(_ordered(narrow, min_count))


@unnamed("joined and cut at the spaces")
def build_vocabulary(sentences, min_count):
    return _numbered(_ordered([" ".join(sentence).split() for sentence in sentences], min_count))


VOCABULARY = {}


@wrong("something kept between calls")
def build_vocabulary(sentences, min_count):
    VOCABULARY.clear()
    VOCABULARY.update(_numbered(_ordered(sentences, min_count)))
    return VOCABULARY


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


MERGED = {}


@wrong("something kept between calls")
def merge_step(cut):
    pair = _most_frequent_pair(cut)
    MERGED.clear()
    for pieces, count in cut.items():
        MERGED[merged_at(pieces, pair)] = count
    return pair, MERGED


@unnamed("unknown words dropped")
def pad_pairs(pairs):
    src, read, written = _three([([i for i in s if i > 3], [i for i in t if i > 3]) for s, t in pairs])
    return _up_to(src), _up_to(read), _up_to(written)


@unnamed("ids through float16")
def pad_pairs(pairs):
    return tuple(_up_to(rows).half().long() for rows in _three(pairs))


@unnamed("pairs without a source dropped")
def pad_pairs(pairs):
    return tuple(_up_to(rows) for rows in _three([(s, t) for s, t in pairs if s]))


BUFFER = torch.zeros(3, 64, 64, dtype=torch.long)


@wrong("something kept between calls")
def pad_pairs(pairs):
    BUFFER.zero_()
    made = []
    for buffer, rows in zip(BUFFER, _three(pairs), strict=True):
        for place, row in zip(buffer, rows, strict=False):
            place[: len(row)] = torch.tensor(row)
        made.append(buffer[: len(rows), : max(map(len, rows))])
    return tuple(made)


@right
def fill_buckets(lengths, max_cells):
    buckets = []
    for i in np.argsort(lengths, kind="stable"):
        if not buckets or lengths[i] * (len(buckets[-1]) + 1) > max_cells:
            buckets.append([])
        buckets[-1].append(i)
    return buckets


@wrong("changes its input")
def fill_buckets(lengths, max_cells):
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    lengths.sort()
    buckets = []
    for i, length in zip(order, lengths, strict=True):
        if not buckets or length * (len(buckets[-1]) + 1) > max_cells:
            buckets.append([])
        buckets[-1].append(i)
    return buckets


BUCKETS = []


@wrong("something kept between calls")
def fill_buckets(lengths, max_cells):
    BUCKETS.clear()
    for i in shortest_first(lengths):
        if not BUCKETS or lengths[i] * (len(BUCKETS[-1]) + 1) > max_cells:
            BUCKETS.append([])
        BUCKETS[-1].append(i)
    return BUCKETS


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
