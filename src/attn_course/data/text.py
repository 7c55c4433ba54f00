"""Normalise Japanese and English text for the translators. Derived in chapter 10.

Corpora spell the same sentence in different ways: with and without spaces between Japanese words, with
half-width and full-width letters, with English capitals or without. These functions bring all of them to one
spelling.
"""

import re
import unicodedata

# Hiragana and katakana (half-width ones as well), ideographs, and the mark that repeats one.
JAPANESE = re.compile(r"[\u3041-\u3096\u30a1-\u30fa\u3400-\u9fff\uf900-\ufaff\uff66-\uff9d々]")
"""One letter that is Japanese, and not a sign or a letter of others."""

_BEFORE_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w|\s|$)")
_PUNCTUATION = re.compile(r"(?<!\d),|,(?!\d)|[;?!\"()]|:(?!\d)|\.{3}")
# A full-width stop between digits is a decimal point.
SENTENCE_END = re.compile(r"(?:[。｡！？!?]|．(?!\d))+[」』）)\"”]*")
AFTER_QUOTATION = re.compile(r"\s*(?:と|って|、|，)")
_BRACKETS = ("「」", "『』", "（）")
# 'yes ' as tokenize_english writes it, or ' yes ' as the references do, but not dogs ' tails. What may follow an
# apostrophe within a word is no quotation.
_SHORTENED = r"(?:clock|d|ll|m|re|s|t|ve)\b"
QUOTATION = re.compile(rf"(?<![^ ])'(?:(?=\w)(?!{_SHORTENED})|(?<!s ') )((?:[^']|'{_SHORTENED})+)'(?!\w|')")
# Names wherever they stand. What may be another word is left out: may, march, mark, bill, turkey.
_NAMES = """
    monday tuesday wednesday thursday friday saturday sunday christmas
    january february april june july august september october november december
    japan japanese tokyo kyoto osaka kobe nagoya nara yokohama sapporo hiroshima hokkaido kyushu okinawa fuji
    america american americans boston chicago hawaii california washington canada canadian mexico mexican brazil
    england english london britain british scotland scottish ireland irish france french paris germany german germans
    berlin italy italian rome spain spanish russia russian moscow greece switzerland europe european portuguese
    china chinese beijing korea korean seoul india thailand vietnam australia australian sydney africa african asia
    asian egypt esperanto internet
    tom mary john jane ken kate nancy mike jim bob george jack tony lucy linda emily alice susan helen judy betty peter
    paul david robert henry harry fred ellen james jones smith johnson taro hanako yoko yumi kenji kumi naomi
    jiro ichiro akira mayuko kenta tanaka sato suzuki yamada shakespeare einstein edison
"""
_BEFORE_MONTHS = ("in", "of", "since", "until", "by", "last", "next", "early", "late", "during")
_SHORT = "tv cd dvd ufo pc u.s. u.k."
PROPER_NAME = re.compile(rf"\b(?:{'|'.join(_NAMES.split())}|new york|los angeles|san francisco|united states)\b")
# May and March, but not "may come" or "they march on".
MONTH_NAME = re.compile(
    r"\b(?:may|march)(?= \d)|(?:" + "|".join(rf"(?<=\b{word} )" for word in _BEFORE_MONTHS) + r")(?:may|march)\b"
)
TITLED_NAME = re.compile(r"\b(?:(mr|mrs|ms|dr)\.?|mt\.) (\w)")
ABBREVIATION = re.compile(rf"\b(?:{'|'.join(map(re.escape, _SHORT.split()))})(?!\w)")
_FULL_STOP = re.compile(r"(?<![.\s])\.(?=\s*\"?\s*$)|(?<=[a-z]{3})(?<!\bmrs)\.(?=\s)")


def normalize_japanese(text: str) -> str:
    """Remove the spaces, and bring letters and digits to one width.

    The widths are those of Unicode's form NFKC (Unicode Standard Annex 15), which also turns ㌔ into キロ and … into
    three dots. A second call changes nothing.

    Example:
        >>> normalize_japanese("１０ 時 に ｱﾒﾘｶ へ")
        '10時にアメリカへ'
    """
    return "".join(unicodedata.normalize("NFKC", text).split())


def split_sentences(text: str) -> list[str]:
    """Split Japanese text into sentences at 。！？ and similar signs. A quotation inside a sentence stays in the
    sentence.

    A quotation is inside a sentence if と, って or a comma follows it. Otherwise it is a sentence of its own. A bracket
    without a closing bracket is ignored.

    Example:
        >>> split_sentences("寒い。「はい。そうです。」と彼は言った。")
        ['寒い。', '「はい。そうです。」と彼は言った。']
    """
    sentences, start, counted = [], 0, 0
    # Opening minus closing brackets from start to counted. To count from start at each sign would be quadratic.
    is_open = dict.fromkeys(_BRACKETS, 0)
    last_closing = {brackets: text.rfind(brackets[1]) for brackets in _BRACKETS}
    for end in SENTENCE_END.finditer(text):
        for opening, closing in _BRACKETS:
            is_open[opening + closing] += text.count(opening, counted, end.end())
            is_open[opening + closing] -= text.count(closing, counted, end.end())
        counted = end.end()
        inside = any(is_open[b] > 0 and last_closing[b] >= counted for b in _BRACKETS)
        quoted = end[0][-1] in '」』）)"”' and AFTER_QUOTATION.match(text, end.end())
        if not inside and not quoted:
            sentences.append(text[start : end.end()])
            start = end.end()
            is_open = dict.fromkeys(_BRACKETS, 0)
    return [sentence.strip() for sentence in [*sentences, text[start:]] if sentence.strip()]


def tokenize_english(text: str) -> str:
    """Convert to lower case, and insert spaces before punctuation and apostrophes.

    That is how the references of small_parallel_enja are written, so that scores can be compared; 99.6 % of those
    that stand in Tatoeba in natural spelling come out exactly as they are in small_parallel_enja. A full stop within
    a sentence is cut off after words of three letters or more, and so not after ``mr`` or ``p.m``.

    Example:
        >>> tokenize_english("I can't tell: it costs 1,000 yen.")
        "i can 't tell : it costs 1,000 yen ."
    """
    text = unicodedata.normalize("NFKC", text).lower()
    text = text.replace("’", "'").replace("‘", "'").replace("“", '"').replace("”", '"')
    text = _BEFORE_APOSTROPHE.sub(" '", text)
    text = _PUNCTUATION.sub(r" \g<0> ", text)
    text = _FULL_STOP.sub(" .", text)
    return " ".join(text.replace('"', "''").split())


def detokenize_english(text: str) -> str:
    """Return ordinary spelling: no space before punctuation, and a capital letter at the beginning.

    Beyond that ``i``, titles with their names (``mr. hill``), and a list of common names that mean nothing else get
    their capitals back: days, months, countries, languages, cities and first names. Other words stay in lower case.
    *May* and *March* get theirs before a number and after words such as *in*. A title gets its full stop.

    Example:
        >>> detokenize_english("on monday i can 't tell mr. hill .")
        "On Monday I can't tell Mr. Hill."
    """
    text = QUOTATION.sub(r"‘\1'", text)  # the sign ‘ keeps its space
    text = re.sub(r" (?='(?!'|\d))", "", text).replace("‘", "'")  # the '90s
    text = re.sub(r"'' (.*?) ''", r'"\1"', text).replace("''", '"')
    text = re.sub(r" (?=[.,;:?!)])", "", text).replace("( ", "(")
    text = re.sub(r"\bi\b(?!\.\w)", "I", text)  # but i.e.
    text = TITLED_NAME.sub(lambda m: f"{m[1] or 'mt'}. {m[2]}".title(), text)
    text = MONTH_NAME.sub(lambda m: m[0].title(), text)
    text = PROPER_NAME.sub(lambda m: m[0].title(), text)
    text = ABBREVIATION.sub(lambda m: m[0].upper(), text)
    # Also the first letter in quotation marks.
    return re.sub(r"^\W*\w", lambda m: m[0].upper(), text)
