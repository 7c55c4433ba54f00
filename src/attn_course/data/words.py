"""Japanese words, found by a morphological analyser. Used from chapter 10."""

from functools import cache

import sudachipy


@cache
def _analyser() -> sudachipy.Tokenizer:
    return sudachipy.Dictionary(dict="small").create(mode=sudachipy.SplitMode.A)


def words(text: str) -> list[str]:
    """Cut Japanese into words, by SudachiPy's short unit."""
    return [morpheme.surface() for morpheme in _analyser().tokenize(text)]
