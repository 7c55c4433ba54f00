"""The baseline that copies a translation, against its definition written out."""

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_course.translation.nearest_neighbor import CopyNearest


def nearest_by_definition(sources, query, orders):
    def count(text):
        text = "".join(text.split())
        return Counter(text[i : i + n] for n in orders for i in range(len(text) - n + 1))

    having = Counter(itertools.chain.from_iterable(count(source).keys() for source in sources))
    rarity = {ngram: math.log((1 + len(sources)) / n) for ngram, n in having.items()}

    def similarity(source):
        mine = {g: n * rarity[g] for g, n in count(source).items()}
        asked = {g: n * rarity.get(g, 0.0) for g, n in count(query).items()}
        size = math.sqrt(sum(w * w for w in mine.values()))
        return sum(mine.get(g, 0.0) * w for g, w in asked.items()) / (size or 1e-12)

    return [similarity(source) for source in sources]


japanese = st.text("犬猫がをに見たる ", max_size=9)


@given(st.lists(japanese, min_size=1, max_size=7), japanese, st.sampled_from([(1, 2, 3), (2,), (1, 4)]))
def test_the_most_similar_source_has_the_largest_cosine_of_weighted_counts(sources, query, orders):
    found = CopyNearest(sources, [str(i) for i in range(len(sources))], orders=orders).nearest(query)
    similar = nearest_by_definition(sources, query, orders)
    assert similar[found] == pytest.approx(max(similar), abs=1e-9)


def test_copying_gives_a_known_sentence_its_own_translation_and_spaces_do_not_count():
    sources = ["犬が好きだ", "猫を見た", "猫が好きだ", "雨だ"]
    copy = CopyNearest(sources, ["dogs", "saw", "cats", "rain"])
    assert [copy(source) for source in sources] == ["dogs", "saw", "cats", "rain"]
    assert copy("猫 が 好き だ") == "cats"
    assert copy("犬を見た") == "saw"
    assert copy("xyz") == copy("") == "dogs"  # nothing in common: the first


@pytest.mark.bad_input
def test_a_memory_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"as many sources \(2\) as targets \(1\)"):
        CopyNearest(["a", "b"], ["c"])
    with pytest.raises(ValueError, match="at least one"):
        CopyNearest([], [])
