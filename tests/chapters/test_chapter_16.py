"""Chapter 16: what the notebook says about the cost of a token, paging and speculation, checked on other numbers."""

import math

import pytest
import torch
from read_chapters import code_cells, definitions, text
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from attn_course import LanguageModel
from attn_course.pretrained import Llama

B, H, S, D, V = 2, 3, 11, 4, 13


@pytest.fixture(autouse=True)
def no_gradients():
    """A cache keeps none."""
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def chapter():
    """The functions and constants of the notebook, on the CPU."""
    found = definitions("16", ("rule",))
    found |= {"FLOPS": 989e12, "BYTES": 4.8e12}
    found |= {"N8": 7.50e9, "L8": 32, "E8": 4096, "KV8": 2 * 32 * 8 * 128}  # Llama 3 8B
    found |= {"device": torch.device("cpu")}
    return found


def random_ids(*shape, seed=0):
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(seed))


def make_model(**changes):
    torch.manual_seed(0)
    sizes = {"d_model": H * D, "num_heads": H, "num_layers": 2, "d_ff": 24, "max_len": 60} | changes
    return LanguageModel(V, **sizes).double().eval()


# -- FLOPs and bytes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("new", "seen"), [(1, 1), (1, 17), (5, 17), (17, 17)])
def test_the_flops_of_a_call_are_those_of_the_formula(chapter, new, seen):
    E, L, G, d_ff = H * D, 3, 1, 40
    model = Llama(V, d_model=E, num_heads=H, num_kv_heads=G, num_layers=L, d_ff=d_ff, max_len=40, tie_weights=True)
    model, ids, cache = model.eval(), random_ids(1, seen), model.make_cache(1, 40)
    if seen > new:
        model(ids[:, : seen - new], cache=cache)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(ids[:, seen - new :], cache=cache)
    N = sum(p.numel() for p in model.parameters() if p.dim() == 2)
    chapter |= {"N": N, "L": L, "E": E, "G": G, "D": D}
    assert chapter["flops"](new, seen) == counter.get_total_flops()
    assert chapter["bytes_fetched"](40) == 4 * N + cache.num_bytes


def test_the_sizes_and_times_of_llama_3_follow_from_its_configuration():
    L, E, kept, feed_forward, vocabulary, said = 32, 4096, 8 * 128, 14_336, 128_256, text("16")
    weights, cached = L * (2 * E * E + 2 * E * kept + 3 * E * feed_forward) + vocabulary * E, 2 * L * kept * 2
    assert f"has {weights / 1e9:.2f} · 10⁹ weights of two bytes each, together {2 * weights / 1e9:.0f} GB" in said
    assert f"A step fetches them in {1e3 * 2 * weights / 4.8e12:.1f} ms" in said
    assert f"= {cached:,} bytes, so 8,192 tokens take {8192 * cached / 2**30:.0f} GiB" in said
    # exercise 16.4: 400 sequences of 500 tokens
    caches = 400 * 500 * cached
    assert f"FLOPs, which take {1e3 * 400 * 2 * weights / 989e12:.1f} ms" in said
    assert f"= {caches / 1e9:.0f} GB, and {(2 * weights + caches) / 1e9:.0f} GB take " in said
    assert f" GB take {1e3 * (2 * weights + caches) / 4.8e12:.1f} ms" in said


def test_the_roofline_draws_the_calls_where_their_flops_and_bytes_put_them():
    (cell,) = (cell for cell in code_cells("16") if "ax.axvline(FLOPS / BYTES" in cell.source)
    rows = [line.rsplit(maxsplit=2) for line in cell.outputs[0]["data"]["text/plain"].splitlines()[1:]]
    drawn = {name.strip(): (float(intensity), float(height)) for name, intensity, height in rows}
    N, kept = 7.50e9, 2 * 32 * 8 * 128  # Llama 3 8B: weights of matrices, numbers of a token in the cache
    for name, sequences, new, length in (
        ("step, 1 sequence of 1,024", 1, 1, 1024),
        ("step, 64 sequences of 8,192", 64, 1, 8192),
        ("step, 64 sequences of 1,024", 64, 1, 1024),
        ("chunk, 128 of 1,024", 1, 128, 1024),
        ("prompt of 1,024", 1, 1024, 1024),
    ):
        flops = sequences * new * (2 * N + 4 * 32 * 4096 * length)
        fetched = 2 * (N + sequences * kept * length)
        intensity, height = drawn.pop(name)
        assert intensity == pytest.approx(flops / fetched, abs=0.051)
        assert height == pytest.approx(min(989, 4.8 * flops / fetched), abs=0.051)
    assert drawn == {}


def test_a_found_half_of_a_prompt_saves_less_than_half(chapter):
    call_ms = chapter["call_ms"]
    whole, second = call_ms(0, 8192), call_ms(0, 4096, 4096)
    assert (round(whole), round(second), round(whole - second)) == (142, 75, 67)
    assert call_ms(0, 4096) == pytest.approx(whole - second)


def test_the_simulated_server_generates_every_token_in_each_of_the_three_ways(chapter):
    serve = chapter["serve"]
    chapter["requests"] = requests = torch.tensor([[5, 3], [40, 30], [17, 1], [100, 60], [3, 20], [30, 30]])
    steps = {}
    for paged, continuous in ((False, False), (False, True), (True, True)):
        row = serve(paged, continuous, room=2 * 2048 if not paged else 256).split()
        count, in_step, preempted, prefill = int(row[0]), float(row[1]), int(row[2]), int(row[3])
        assert count * in_step == pytest.approx(int(requests[:, 1].sum()), rel=0.05)
        assert prefill >= requests[:, 0].sum()
        assert preempted or prefill == requests[:, 0].sum()
        steps[paged, continuous] = count
    assert steps[False, True] < steps[False, False]


# -- Prefix caching ----------------------------------------------------------------------------------


def test_a_hash_of_a_block_knows_all_tokens_before_it(chapter):
    block_hashes, ids = chapter["block_hashes"], random_ids(50).tolist()
    hashes = block_hashes(ids)
    assert len(hashes) == 3
    assert block_hashes(ids[:40]) == hashes[:2]
    other = [(ids[0] + 1) % V, *ids[1:]]
    assert not set(block_hashes(other)) & set(hashes)
    assert block_hashes([*ids[:20], (ids[20] + 1) % V, *ids[21:]])[0] == hashes[0]


# -- Speculation -------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3, 7])
def test_speculative_decoding_writes_the_text_of_the_model(chapter, k):
    speculate, model = chapter["speculate"], make_model()
    for seed in range(3):
        ids = random_ids(5, seed=seed).tolist()
        plain = list(ids)
        for _ in range(20):
            plain.append(int(model(torch.tensor([plain]))[0, -1].argmax()))
        guesses = random_ids(99, seed=seed).tolist()
        for guess in (chapter["look_up"], lambda ids, k: guesses[len(ids) : len(ids) + k]):  # noqa: B023
            written, calls, guessing = speculate(model, ids, 20, -1, guess, k)
            assert written == plain[5:]
            assert guessing <= calls <= 20
        # If each guess is the model's own token, each call writes k + 1 tokens.
        known = [*plain, *([0] * k)]
        written, calls, _ = speculate(model, ids, 20, -1, lambda ids, k: known[len(ids) : len(ids) + k], k)  # noqa: B023
        assert (written, calls) == (plain[5:], math.ceil(20 / (k + 1)))
        end = plain[9]
        written, _, _ = speculate(model, ids, 20, end, chapter["look_up"], k)
        assert written == plain[5 : plain.index(end, 5) + 1]


def test_a_lookup_copies_what_followed_the_last_earlier_occurrence(chapter):
    look_up = chapter["look_up"]
    assert look_up([1, 2, 3, 1, 2, 4, 1, 2], 4) == [4, 1, 2]
    assert look_up([1, 2, 3, 1, 2, 4, 1, 2], 1) == [4]
    assert look_up([7, 7, 7], 4) == [7]
    assert look_up([1, 2, 3, 4], 4) == []


@pytest.mark.parametrize("seed", [0, 1])
def test_a_settled_guess_has_the_models_probabilities(chapter, seed):
    dice = torch.Generator().manual_seed(seed)
    p, q = torch.rand(2, 5, generator=dice, dtype=torch.float64)
    q[seed] = 0.0  # never guessed
    p, q = p / p.sum(), q / q.sum()
    guesses = q.multinomial(8000, replacement=True, generator=dice)
    written, accepted = chapter["settle"](guesses, p, q, dice)
    counts = written.bincount(minlength=5)
    assert ((counts - 8000 * p) ** 2 / (8000 * p)).sum() < 18.5  # one in a thousand is above it
    expected = torch.minimum(p, q).sum()
    assert accepted.double().mean() == pytest.approx(float(expected), abs=0.03)
    assert torch.equal(written[accepted], guesses[accepted])
    assert ((q - p)[written[~accepted]] < 0).all()


def test_equal_probabilities_accept_every_guess_and_a_sure_guess_is_accepted_with_its_own(chapter):
    dice = torch.Generator().manual_seed(0)
    p = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    guesses = p.multinomial(500, replacement=True, generator=dice)
    written, accepted = chapter["settle"](guesses, p, p, dice)
    assert accepted.all()
    assert torch.equal(written, guesses)
    sure = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)  # prompt lookup
    written, accepted = chapter["settle"](torch.ones(4000, dtype=torch.long), p, sure, dice)
    assert accepted.double().mean() == pytest.approx(0.5, abs=0.04)
    assert (written[~accepted] != 1).all()


def test_the_first_picture_has_the_flops_per_byte_that_the_chapter_computes():
    cells = code_cells("16")
    first = next(cell.source for cell in cells if "ratio = torch.tensor(" in cell.source)
    computed = next(cell.outputs[0].text for cell in cells if "def bytes_fetched(" in cell.source)
    step, prompt = (line.split()[-1] for line in computed.splitlines() if line.startswith(("step, 64", "prompt, 256")))
    assert f"ratio = torch.tensor([0.2, {step}, 5, {prompt}, 200])" in first
