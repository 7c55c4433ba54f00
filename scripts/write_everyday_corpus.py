"""Write the bundled corpus: `python scripts/write_everyday_corpus.py` draws sentences from everyday_grammar.

Each line of the file holds a Japanese and an English sentence as words, the links between the words, the name of the
construction, and the combinations of content words by which the corpus is split.
"""

import lzma
import random
from collections.abc import Iterator
from pathlib import Path

from everyday_grammar.grammar import CONSTRUCTIONS, Draw, Words

from attn_course.data.everyday.corpus import AlignedPair

PATH = Path(__file__).parents[1] / "src" / "attn_course" / "data" / "everyday" / "everyday.tsv.xz"
NUM_PAIRS = 15_000
MAX_WORDS = 14  # of Japanese, punctuation not counted
WEIGHTED = [name for name, (_, weight) in CONSTRUCTIONS.items() for _ in range(weight)]


def draw_pair(draw: Draw) -> AlignedPair:
    """Draw one pair of a construction that is chosen by its weight."""
    while True:
        draw.start()
        name = draw.pick(WEIGHTED)
        ja, en = CONSTRUCTIONS[name][0](draw)
        if sum(word not in ("、", "。") for word, _ in ja) <= MAX_WORDS:
            return to_pair(ja, en, name, draw.combinations)


def to_pair(ja: Words, en: Words, construction: str, combinations: list[tuple[str, ...]]) -> AlignedPair:
    """Turn words with numbered links into a pair with an alignment."""
    places: dict[int, list[int]] = {}
    for j, (_, link) in enumerate(ja):
        if link >= 0:
            places.setdefault(link, []).append(j)
    alignment = frozenset((i, j) for i, (_, link) in enumerate(en) if link >= 0 for j in places.get(link, ()))
    words = (tuple(word for word, _ in side) for side in (ja, en))
    return AlignedPair(*words, alignment, construction, tuple(combinations))


def draw_different_pairs(seed: int = 0) -> Iterator[AlignedPair]:
    """Draw pairs without end, each Japanese sentence once."""
    draw, sources = Draw(random.Random(seed)), set()
    while True:
        pair = draw_pair(draw)
        if pair.ja not in sources:
            sources.add(pair.ja)
            yield pair


def to_line(pair: AlignedPair) -> str:
    links = " ".join(f"{i}-{j}" for i, j in sorted(pair.alignment))
    combinations = ";".join("|".join(words) for words in pair.combinations)
    return "\t".join([" ".join(pair.ja), " ".join(pair.en), links, pair.construction, combinations])


if __name__ == "__main__":
    lines = [to_line(pair) for _, pair in zip(range(NUM_PAIRS), draw_different_pairs(), strict=False)]
    PATH.write_bytes(lzma.compress("".join(f"{line}\n" for line in lines).encode()))
    print(f"{PATH.name}: {len(lines):,} pairs, {PATH.stat().st_size:,} bytes")
