"""Chapter 15: its cache and its loop equal the package, and its breaks show where the chapter says they show."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from read_chapters import definitions

import attn_course
from attn_course.functional.positions import Rope
from attn_course.pretrained import Llama

B, H, G, S, D, V = 2, 6, 2, 11, 4, 50
few = settings(max_examples=25)
sizes_of_chunks = st.lists(st.integers(1, 5), min_size=1, max_size=6)


@pytest.fixture(autouse=True)
def no_gradients():
    """A cache keeps none."""
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def chapter():
    """The classes and functions of the notebook, with a small model in the place of SmolLM2."""
    torch.manual_seed(0)
    sizes = {"d_model": H * D, "num_heads": H, "num_kv_heads": G, "num_layers": 3, "d_ff": 40, "max_len": 60}
    model = Llama(V, **sizes, rope=Rope(base=1e5), tie_weights=True).eval()
    namespace = definitions("15")
    namespace |= {"device": torch.device("cpu"), "model": model, "H": H, "G": G, "D": D}
    namespace["tokenizer"] = SimpleNamespace(eos_id=-1, decode=list)
    return namespace


def random_tensor(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def random_ids(*shape, seed=0):
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(seed))


def chunks(x, sizes, axis=1):
    """``x`` cut into pieces of these sizes, and what is left."""
    ends = [min(end, x.size(axis)) for end in itertools.accumulate(sizes)]
    ends = sorted({0, *ends, x.size(axis)})
    return [x.narrow(axis, a, b - a) for a, b in itertools.pairwise(ends)]


# -- The cache and the loop over the layers ----------------------------------------------------------


@few
@given(sizes_of_chunks)
def test_the_cache_of_the_notebook_keeps_what_that_of_the_package_keeps(chapter, sizes):
    k, v = random_tensor(2, B, H, S, D)
    mine = chapter["KeyValueCache"](B, H, S, D, dtype=torch.float64)
    theirs = attn_course.KeyValueCache(B, H, S, D, dtype=torch.float64)
    for new_k, new_v in zip(chunks(k, sizes, 2), chunks(v, sizes, 2), strict=True):
        for found, expected in zip(mine.append(new_k, new_v), theirs.append(new_k, new_v), strict=True):
            assert torch.equal(found, expected)
    assert mine.length == theirs.length == S


def test_a_full_cache_refuses_and_is_unharmed(chapter):
    cache = chapter["KeyValueCache"](1, 1, 3, D, dtype=torch.float64)
    x = random_tensor(1, 1, 4, D)
    cache.append(x[:, :, :2], x[:, :, :2])
    with pytest.raises(ValueError, match="4 tokens do not fit into 3 places"):
        cache.append(x[:, :, 2:], x[:, :, 2:])
    k, v = cache.append(x[:, :, 2:3], x[:, :, 2:3])
    assert torch.equal(k, x[:, :, :3])
    assert torch.equal(v, x[:, :, :3])


@few
@given(sizes_of_chunks)
def test_the_loop_of_the_notebook_gives_the_logits_of_the_package_in_chunks(chapter, sizes):
    ids, reader = random_ids(1, S), chapter["ChunkedModel"]()
    found = [reader.read(part, caches) for caches in [reader.make_caches(S)] for part in chunks(ids, sizes)]
    torch.testing.assert_close(torch.cat(found, dim=1), chapter["model"](ids))


def test_the_mask_of_15_4_serves_a_prefill_and_steps_and_refuses_a_chunk(chapter):
    ids, reader = random_ids(1, S), chapter["CachedModel"]()
    caches = reader.make_caches(S)
    found = chapter["in_parts"](reader, ids[:, :6], [4, 1, 1], caches)
    torch.testing.assert_close(found, chapter["model"](ids[:, :6]))
    with pytest.raises(RuntimeError):
        reader.read(ids[:, 6:9], caches)


def test_an_answer_is_the_same_with_the_cache_and_reads_each_token_once(chapter):
    reader, ids = chapter["CachedModel"](), random_ids(1, 5)
    once, read = chapter["answer"](reader, ids, reader.make_caches(20), most=7)
    again, all_read = chapter["answer"](reader, ids, reader.make_caches(20), most=7, again=True)
    assert once == again
    assert (read, all_read) == (5 + 6, sum(range(5, 12)))


# -- Broken caches -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "first_wrong"), [("FromZero", 5), ("WithGap", 5), ("TopLeft", 5), ("Overwritten", 10), ("NotReset", 0)]
)
def test_a_break_shows_in_the_logits_and_only_from_this_token_on(chapter, kind, first_wrong):
    chapter["ask"] = lambda question: random_ids(1, 9, seed=3)
    ids, reader = random_ids(1, 12), chapter[kind]()
    found = chapter["in_parts"](reader, ids, [5, 4, 1, 1, 1], reader.make_caches(30))
    error = (found - chapter["model"](ids)).abs().amax(dim=-1)[0]
    assert (error[:first_wrong] < 1e-5).all()
    assert (error[first_wrong:] > 1e-3).all()


# -- Exercises ---------------------------------------------------------------------------------------


def test_as_15_4_says_another_word_changes_later_places_in_all_layers_but_the_first(chapter):
    reader, ids, place = chapter["ChunkedModel"](), random_ids(1, S), 4
    other = ids.clone()
    other[0, place] = (ids[0, place] + 1) % V
    caches = [reader.make_caches(S) for _ in range(2)]
    for text, filled in zip((ids, other), caches, strict=True):
        reader.read(text, filled)
    for number, (a, b) in enumerate(zip(*caches, strict=True)):
        for old, new in ((a.k, b.k), (a.v, b.v)):
            changed = (old - new).abs().amax(dim=(0, 1, 3)) > 1e-5
            expected = [place] if number == 0 else list(range(place, S))
            assert changed.nonzero().flatten().tolist() == expected
