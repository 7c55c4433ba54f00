"""Japanese words, found by a morphological analyser. Used from chapter 10."""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sudachipy


@cache
def _analyser() -> "sudachipy.Tokenizer":
    # Only whoever cuts words needs the analyser: a translator of raw text starts without it.
    import sudachipy

    return sudachipy.Dictionary(dict="small").tokenizer(mode=sudachipy.SplitMode.A)


def words(text: str) -> list[str]:
    """Split Japanese into words with SudachiPy's short unit and its small dictionary.

    SudachiPy has three lengths of unit. In A, the shortest and the one used here, 引っ張っ (pulled) is two words, 引っ
    and 張っ; in B and C it is one. Short words occur more often, so fewer words are unknown, and a heatmap shows the
    parts of a compound.

    Args:
        text: of at most 49,149 bytes in UTF-8, about 16,000 Japanese characters. White space counts as a word;
            :func:`~attn_course.data.text.normalize_japanese` removes it.

    Returns:
        The words; joined, they are the text.

    Raises:
        ValueError: if the text is longer.

    Example:
        >>> words("猫が好きでした。")
        ['猫', 'が', '好き', 'でし', 'た', '。']
    """
    analyser = _analyser()
    from sudachipy.errors import SudachiError

    try:
        return [morpheme.surface() for morpheme in analyser.tokenize(text)]
    except SudachiError as error:
        raise ValueError(
            f"text must have at most 49,149 bytes, not {len(text.encode()):,}: cut it into sentences"
        ) from error
