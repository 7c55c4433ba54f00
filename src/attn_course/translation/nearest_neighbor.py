"""A translator without a model, the baseline of chapter 13."""

from array import array
from collections.abc import Sequence

import torch


class CopyNearest:
    """A baseline that copies the translation of the most similar source of the training corpus.

    The similarity is the cosine of the tf-idf vectors: counts of character n-grams, weighted by the logarithm of the
    inverse share of sources with this n-gram. The score of this baseline shows what memory alone can reach.

    Args:
        sources: the sources of the training corpus; spaces do not count.
        targets: their translations, in the same order.
        orders: the lengths of the n-grams.

    Raises:
        ValueError: if the numbers of sources and targets differ, or are 0.

    Example:
        >>> copy = CopyNearest(["犬が好きだ", "猫を見た"], ["i like dogs", "i saw a cat"])
        >>> copy("猫が好きだ")
        'i like dogs'
    """

    def __init__(self, sources: Sequence[str], targets: Sequence[str], *, orders: Sequence[int] = (1, 2, 3)) -> None:
        if len(sources) != len(targets) or len(sources) == 0:
            raise ValueError(
                f"there must be as many sources ({len(sources)}) as targets ({len(targets)}), and at least one"
            )
        self.targets = list(targets)
        self.orders = tuple(orders)
        self._number: dict[str, int] = {}  # of each n-gram
        ngram_ids, sizes = array("q"), []
        for source in sources:
            ngrams = self._ngrams(source)
            ngram_ids.extend(self._number.setdefault(ngram, len(self._number)) for ngram in ngrams)
            sizes.append(len(ngrams))
        N, V = len(sources), len(self._number)
        # One entry for each n-gram and each source that has it, sorted by n-gram.
        ngram = torch.tensor(ngram_ids, dtype=torch.int64)
        source = torch.arange(N).repeat_interleave(torch.tensor(sizes))
        entries, counts = (ngram * N + source).unique(return_counts=True)
        ngram, self._source = entries // N, entries % N
        num_having = torch.bincount(ngram, minlength=V)  # sources with this n-gram
        rarity = ((1 + N) / num_having).double().log()  # above 0 even if all sources have it
        weights = counts * rarity[ngram]
        squares = torch.zeros(N, dtype=torch.float64).index_add_(0, self._source, weights**2)
        self._lengths = squares.sqrt().clamp(min=1e-12)  # an empty source has length 0
        self._products = weights * rarity[ngram]  # the query has the rarity as a factor, too
        self._first = torch.cat([torch.zeros(1, dtype=torch.int64), num_having.cumsum(0)]).tolist()

    def _ngrams(self, text: str) -> list[str]:
        text = "".join(text.split())
        return [text[i : i + n] for n in self.orders for i in range(len(text) - n + 1)]

    def nearest(self, source: str) -> int:
        """Return the index of the most similar source. Ties go to the first one."""
        similar = torch.zeros_like(self._lengths)
        for ngram in self._ngrams(source):
            if (number := self._number.get(ngram)) is not None:
                entries = slice(*self._first[number : number + 2])
                similar.index_add_(0, self._source[entries], self._products[entries])
        return int((similar / self._lengths).argmax())

    def __call__(self, source: str) -> str:
        """Return the translation of the most similar source."""
        return self.targets[self.nearest(source)]
