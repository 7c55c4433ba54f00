"""Positions: four functions against hand-computed numbers, complex numbers, loops, and other libraries' formulas."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from shapes import leading_axes, lengths, seeds
from torch.testing import assert_close

from attn_course import (
    Yarn,
    attention,
    learned_positions,
    make_alibi_bias,
    make_causal_mask,
    make_rotation,
    make_sinusoidal_positions,
    rotate,
)

# -- Sinusoidal --------------------------------------------------------------------------------------


def test_the_sinusoidal_table_is_the_formula_of_the_paper():
    table = make_sinusoidal_positions(11, 6, dtype=torch.float64)
    for t in range(11):
        for i in range(3):
            angle = t / 10_000 ** (2 * i / 6)
            assert table[t, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-14)
            assert table[t, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-14)


def test_every_row_of_the_sinusoidal_table_is_equally_long():
    assert_close(make_sinusoidal_positions(50, 14).norm(dim=-1), torch.full((50,), math.sqrt(7)))


@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 500))
def test_the_product_of_two_rows_depends_on_their_distance_alone(t, s, shift):
    table = make_sinusoidal_positions(1001, 10, dtype=torch.float64)
    assert_close(table[t] @ table[s], table[t + shift] @ table[s + shift])
    speeds = 10_000.0 ** (-torch.arange(0, 10, 2, dtype=torch.float64) / 10)
    assert_close(table[t] @ table[s], (speeds * (t - s)).cos().sum())


def test_the_row_k_later_is_the_same_rotation_of_every_row():
    # Vaswani et al. 2017, section 3.5: PE(t + k) is a linear function of PE(t).
    table = make_sinusoidal_positions(40, 6, dtype=torch.float64)
    matrix = torch.linalg.lstsq(table[:20], table[7:27], driver="gelsd").solution
    assert_close(table[:33] @ matrix, table[7:40])
    assert_close(matrix @ matrix.T, torch.eye(6, dtype=torch.float64))


def test_another_base_slows_the_last_pair():
    slow, slower = (make_sinusoidal_positions(3, 4, base=base, dtype=torch.float64) for base in (100.0, 1e6))
    assert_close(slow[:, :2], slower[:, :2])
    assert slow[1, 2].item() == pytest.approx(math.sin(1 / 10))
    assert slower[1, 2].item() == pytest.approx(math.sin(1 / 1000))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_table_of_lower_precision_is_rounded_and_not_computed_in_it(dtype):
    exact = make_sinusoidal_positions(5000, 64, dtype=torch.float64)
    assert torch.equal(make_sinusoidal_positions(5000, 64, dtype=dtype), exact.to(dtype))


def test_a_table_has_the_default_type_and_may_be_empty():
    assert make_sinusoidal_positions(2, 4).dtype == torch.float32
    assert make_sinusoidal_positions(0, 4).shape == (0, 4)


# -- Learned -----------------------------------------------------------------------------------------


def test_learned_positions_are_the_first_rows_and_only_they_learn():
    table = torch.randn(7, 3, requires_grad=True)
    rows = learned_positions(table, 5)
    assert torch.equal(rows, table[:5])
    rows.sum().backward()
    assert torch.equal(table.grad, torch.ones(7, 3) * (torch.arange(7) < 5)[:, None])
    assert torch.equal(learned_positions(table, 7), table)
    assert learned_positions(table, 0).shape == (0, 3)


def test_learned_positions_equal_an_embedding_looked_up():
    embedding = torch.nn.Embedding(7, 3)
    assert torch.equal(learned_positions(embedding.weight, 5), embedding(torch.arange(5)))


# -- Rotary ------------------------------------------------------------------------------------------


def turned_by_complex_numbers(x, positions, base=10_000.0):
    """The pairs of columns as complex numbers, each times e to the i times its angle."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    speeds = torch.tensor([base ** (-2 * i / x.size(-1)) for i in range(x.size(-1) // 2)], dtype=torch.float64)
    angles = positions[..., None].double() * speeds
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def turned_in_halves(x, positions, base=10_000.0):
    """The other convention, as in GPT-NeoX: column i is paired with column i + D/2."""
    half = x.size(-1) // 2
    angles = positions[:, None] / base ** (torch.arange(half, dtype=torch.float64) / half)
    cos, sin = angles.cos(), angles.sin()
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


@st.composite
def queries(draw):
    """Anything to be turned, with positions of its own."""
    axes, length, pairs = draw(leading_axes), draw(lengths), draw(st.integers(1, 5))
    rng = torch.Generator().manual_seed(draw(seeds))
    x = torch.randn(*axes, length, 2 * pairs, generator=rng, dtype=torch.float64)
    shape = (length,) if draw(st.booleans()) else (*(draw(st.sampled_from([1, n])) for n in axes), length)
    return x, torch.randint(-50, 1000, shape, generator=rng)


@given(queries(), st.sampled_from([100.0, 10_000.0, 500_000.0]))
def test_turning_is_multiplying_by_complex_numbers_of_length_one(case, base):
    x, positions = case
    assert_close(rotate(x, positions, base=base), turned_by_complex_numbers(x, positions, base))


@given(queries())
def test_turning_keeps_the_length_of_every_pair(case):
    x, positions = case
    before, after = (y.unflatten(-1, (-1, 2)).norm(dim=-1) for y in (x, rotate(x, positions)))
    assert_close(before, after)


@given(queries(), st.integers(-1000, 1000))
def test_scores_depend_on_the_distance_alone(case, shift):
    q, positions = case
    k = q.flip(-2).contiguous()
    here = rotate(q, positions) @ rotate(k, positions).mT
    there = rotate(q, positions + shift) @ rotate(k, positions + shift).mT
    assert_close(here, there, atol=1e-9, rtol=1e-9)


@given(queries(), st.integers(0, 100), st.integers(0, 100))
def test_rotating_twice_rotates_by_the_sum_of_the_positions(case, first, second):
    x, positions = case
    assert_close(
        rotate(rotate(x, positions * 0 + first), positions * 0 + second), rotate(x, positions * 0 + first + second)
    )


@given(queries())
def test_a_score_is_the_dot_product_of_query_and_key_turned_by_the_difference(case):
    q, _ = case
    k = q.flip(-2).contiguous()
    scores = rotate(q) @ rotate(k).mT
    length = q.size(-2)
    for t in range(length):
        for s in range(length):
            turned = rotate(q[..., t : t + 1, :], torch.tensor([t - s]))
            assert_close(scores[..., t, s], (turned * k[..., s : s + 1, :]).sum(-1)[..., 0])


@given(queries())
def test_columns_in_the_other_order_give_the_other_convention(case):
    x, positions = case
    positions = positions.flatten()[: x.size(-2)]
    order = torch.cat([torch.arange(0, x.size(-1), 2), torch.arange(1, x.size(-1), 2)])
    assert_close(rotate(x, positions)[..., order], turned_in_halves(x[..., order], positions))


def test_positions_count_from_zero_when_not_given():
    x = torch.randn(2, 3, 5, 8)
    assert torch.equal(rotate(x), rotate(x, torch.arange(5)))
    assert torch.equal(rotate(x)[..., 0, :], x[..., 0, :])


def test_new_queries_count_on_from_cached_keys():
    q, k = torch.randn(7, 4, dtype=torch.float64), torch.randn(7, 4, dtype=torch.float64)
    at_once = rotate(q) @ rotate(k).mT
    newest = rotate(q[-1:], torch.tensor([6])) @ rotate(k).mT
    assert_close(newest, at_once[-1:])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_angles_are_not_computed_in_half_precision(dtype):
    x = torch.randn(4000, 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    turned = rotate(x)
    assert turned.dtype == dtype
    exact = turned_by_complex_numbers(x.double(), torch.arange(4000))
    assert (turned - exact).abs().max() < 5 * torch.finfo(dtype).eps


# torch.compile cannot read the run-time check of shapes, so this runs without it.
@pytest.mark.bad_input
@pytest.mark.cpu_only("torch.compile knows no device that is written in Python")
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler's own code
def test_rotate_compiles_without_graph_breaks(shared):
    x = torch.randn(2, 3, 5, 8, generator=torch.Generator().manual_seed(0))

    def turn(x):
        return rotate(x, make_rotation(torch.arange(5), 8) if shared else None)

    assert_close(torch.compile(turn, backend="eager", fullgraph=True)(x), rotate(x))


def test_the_gradient_of_turning_turns_back():
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(2, 3, 4, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(rotate(x), x, upstream)
    assert_close(gradient, rotate(upstream, -torch.arange(3)))
    assert torch.autograd.gradcheck(rotate, x)


def test_the_input_is_left_as_it_was():
    x, positions = torch.randn(3, 4), torch.arange(3)
    before = x.clone(), positions.clone()
    rotate(x, positions)
    assert torch.equal(x, before[0])
    assert torch.equal(positions, before[1])


# -- ALiBi -------------------------------------------------------------------------------------------


def slopes_of(num_heads):
    return -make_alibi_bias(num_heads, 2, dtype=torch.float64)[:, 1, 0]


def test_the_slopes_of_the_paper():
    # Press et al. 2021, section 3: for 8 heads 1/2, 1/4, ... 1/256; for 16 heads 2 to the -0.5, -1, ... -8.
    assert_close(slopes_of(8), torch.tensor([1 / 2**h for h in range(1, 9)], dtype=torch.float64))
    assert_close(slopes_of(16), torch.tensor([2 ** (-h / 2) for h in range(1, 17)], dtype=torch.float64))
    assert slopes_of(1).tolist() == [1 / 256]


def slopes_of_the_authors_code(num_heads):
    """How the authors' code, and BLOOM after it, chooses slopes."""
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    if power < num_heads:
        slopes += slopes_of_the_authors_code(2 * power)[0::2][: num_heads - power]
    return slopes


def test_for_powers_of_two_the_slopes_are_those_of_the_authors_code_and_for_others_not():
    for num_heads in (1, 2, 4, 8, 16, 32, 64, 128):
        theirs = torch.tensor(slopes_of_the_authors_code(num_heads), dtype=torch.float64)
        assert_close(slopes_of(num_heads), theirs)
    for num_heads in (3, 12, 112):
        theirs = torch.tensor(slopes_of_the_authors_code(num_heads), dtype=torch.float64)
        assert not torch.allclose(slopes_of(num_heads), theirs)


@given(st.integers(1, 7), st.integers(0, 7), st.integers(0, 7))
def test_the_bias_is_the_distance_times_the_slope_aligned_bottom_right(num_heads, num_queries, num_keys):
    bias = make_alibi_bias(num_heads, num_queries, num_keys, dtype=torch.float64)
    assert bias.shape == (num_heads, num_queries, num_keys)
    for h in range(num_heads):
        for t in range(num_queries):
            for s in range(num_keys):
                distance = abs(t + num_keys - num_queries - s)
                assert bias[h, t, s].item() == pytest.approx(-distance * 2 ** (-8 * (h + 1) / num_heads))


def test_the_bias_of_new_queries_is_the_end_of_the_whole_bias():
    assert torch.equal(make_alibi_bias(3, 2, 7), make_alibi_bias(3, 7)[:, -2:])
    assert make_alibi_bias(3, 5).shape == (3, 5, 5)


def test_under_a_causal_mask_only_differences_count_so_distances_may_be_counted_from_the_start():
    # BLOOM and Falcon add slope * s instead of -slope * (t - s): the same for every key of a query, so it cancels.
    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(3, 7, 5, generator=rng, dtype=torch.float64) for _ in range(3))
    bias, causal = make_alibi_bias(3, 7, dtype=torch.float64), make_causal_mask(7)
    from_the_start = slopes_of(3)[:, None, None] * torch.arange(7)
    assert_close(attention(q, k, v, causal, bias=bias), attention(q, k, v, causal, bias=from_the_start))
    assert not torch.allclose(attention(q, k, v, bias=bias)[0], attention(q, k, v, bias=from_the_start)[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_bias_of_lower_precision_is_rounded_once(dtype):
    exact = make_alibi_bias(12, 600, dtype=torch.float64)
    assert torch.equal(make_alibi_bias(12, 600, dtype=dtype), exact.to(dtype))


# -- Stretched ---------------------------------------------------------------------------------------


def frequencies_and_length(width, base, yarn):
    """How far each pair is turned by one step, and how long what was 1 long becomes."""
    turns = make_rotation(torch.tensor([0, 1]), width, base=base, yarn=yarn, dtype=torch.float64).phases
    return turns[1].angle(), turns.abs()


def test_yarn_keeps_fast_pairs_divides_slow_ones_and_interpolates_between():
    # With base 2 ** 12 and 24 columns each pair is half as fast as the one before: pair i turns 2 ** (10 - i) times
    # within a text of 2 pi * 2 ** 10, which is 6434 tokens, but for a thousandth of a pair.
    yarn = Yarn(factor=8.0, original_max_len=6434, beta_fast=64.0, beta_slow=4.0, truncate=False)
    speeds, lengths = frequencies_and_length(24, 2.0**12, yarn)
    slowed = torch.tensor([1, 1, 1, 1, 1, 1 - 0.875 / 4, 1 - 0.875 / 2, 1 - 0.875 * 0.75, *[0.125] * 4]).double()
    assert_close(speeds, 0.5 ** torch.arange(12).double() * slowed, rtol=1e-3, atol=0)
    assert_close(speeds[:5], 0.5 ** torch.arange(5).double())
    assert_close(lengths, torch.full((2, 12), 0.1 * math.log(8) + 1, dtype=torch.float64))


@pytest.mark.parametrize("factor", [1.0, 32.0])
@pytest.mark.parametrize("original_max_len", [20, 4096])
@pytest.mark.parametrize("truncate", [True, False])
def test_yarn_equals_transformers(factor, original_max_len, truncate):
    transformers = pytest.importorskip("transformers")
    rope = {
        "rope_type": "yarn",
        "rope_theta": 150.0,
        "factor": factor,
        "original_max_position_embeddings": original_max_len,
        "truncate": truncate,
        "beta_fast": 20.0,
        "beta_slow": 2.0,
    }
    config = transformers.Qwen3Config(
        head_dim=34, rope_parameters=rope, max_position_embeddings=round(factor * original_max_len)
    )
    theirs, size = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["yarn"](config)
    ours, lengths = frequencies_and_length(34, 150.0, Yarn(factor, original_max_len, 20.0, 2.0, truncate))
    assert_close(ours.float(), theirs.to(ours.device), rtol=1e-5, atol=1e-7)  # theirs are computed in 32 bits
    assert_close(lengths, torch.full((2, 17), size, dtype=torch.float64))


def test_yarn_with_default_betas_equals_transformers():
    transformers = pytest.importorskip("transformers")
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 4096}
    for truncate in (True, False):
        config = transformers.Qwen3Config(
            head_dim=128, rope_parameters=rope | {"truncate": truncate}, max_position_embeddings=4 * 4096
        )
        theirs, _ = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["yarn"](config)
        ours, _ = frequencies_and_length(128, 1e4, Yarn(4.0, 4096, truncate=truncate))
        assert_close(ours.float(), theirs.to(ours.device), rtol=1e-5, atol=1e-9)


def test_only_yarn_changes_lengths_by_attention_factor():
    plain = frequencies_and_length(8, 100.0, None)
    for a, b in zip(frequencies_and_length(8, 100.0, Yarn(1.0, 50)), plain, strict=True):
        assert_close(a, b)
    _, lengths = frequencies_and_length(8, 100.0, Yarn(4.0, 50, attention_factor=3.0))
    assert_close(lengths, torch.full((2, 4), 3.0, dtype=torch.float64))


# -- Bad input ---------------------------------------------------------------------------------------


def rotate_with_yarn(*yarn):
    return make_rotation(torch.arange(3), 4, yarn=Yarn(*yarn))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: make_sinusoidal_positions(3, 7),
            ValueError,
            r"d_model \(7\) must be even and at least 2: each frequency takes two columns, a sine and a cosine",
        ),
        (lambda: make_sinusoidal_positions(3, 0), ValueError, r"d_model \(0\) must be even and at least 2"),
        (lambda: make_sinusoidal_positions(-1, 4), ValueError, r"num_positions \(-1\) must not be negative"),
        (lambda: make_sinusoidal_positions(3, 4, base=0.0), ValueError, r"base \(0.0\) must be positive"),
        (
            lambda: learned_positions(torch.zeros(7, 3), 8),
            ValueError,
            r"num_positions \(8\) must not be above max_len \(7\): the table has no row for position 7 and beyond",
        ),
        (lambda: learned_positions(torch.zeros(7, 3), -1), ValueError, r"num_positions \(-1\) must not be negative"),
        (lambda: rotate(torch.zeros(5, 3)), ValueError, r"the width of x \(3\) must be even and at least 2"),
        (lambda: rotate(torch.ones(5, 4).long()), TypeError, r"x must be floating-point, not torch.int64"),
        (lambda: rotate(torch.zeros(5, 4), base=-1.0), ValueError, r"base \(-1.0\) must be positive"),
        (
            lambda: rotate(torch.zeros(5, 4), torch.arange(4)),
            ValueError,
            r"positions of shape \(4,\) must be \(T,\) or have as many axes as the rows of x \(5,\), and broadcast",
        ),
        (
            lambda: rotate(torch.zeros(2, 2, 5, 4), torch.zeros(2, 5).long()),
            ValueError,
            r"positions of shape \(2, 5\) must be \(T,\) or have as many axes as the rows of x \(2, 2, 5\)",
        ),
        (
            lambda: rotate(torch.zeros(5, 4), torch.tensor([1])),
            ValueError,
            r"positions of shape \(1,\) must be \(T,\)",
        ),
        (
            lambda: rotate(torch.zeros(5, 4), torch.arange(5.0)),
            TypeError,
            r"positions must be integers, not torch.float32",
        ),
        (lambda: rotate_with_yarn(0.5, 9), ValueError, r"factor \(0.5\) and original_max_len \(9\) must be at least 1"),
        (lambda: rotate_with_yarn(2.0, 0), ValueError, r"factor \(2.0\) and original_max_len \(0\) must be at least 1"),
        (
            lambda: rotate_with_yarn(2.0, 9, 3.0, 3.0),
            ValueError,
            r"beta_fast \(3.0\) must be above beta_slow \(3.0\), which must be above 0",
        ),
        (lambda: rotate_with_yarn(2.0, 9, 3.0, 0.0), ValueError, r"above beta_slow \(0.0\), which must be above 0"),
        (
            lambda: make_rotation(torch.arange(3), 4, base=1.0, yarn=Yarn(2.0, 9)),
            ValueError,
            r"base \(1.0\) must be above 1, because YaRN needs pairs",
        ),
        (lambda: make_alibi_bias(0, 3), ValueError, r"num_heads \(0\) must be at least 1"),
        (lambda: make_alibi_bias(2, -3), ValueError, r"num_queries \(-3\) must not be negative"),
        (lambda: make_alibi_bias(2, 3, -1), ValueError, r"num_keys \(-1\) must not be negative"),
    ],
)
def test_bad_input_is_refused_with_the_values_and_the_rule(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_rotate_accepts_any_memory_layout():
    wide = torch.randn(2, 3, 5, 9)
    one_for_all = torch.randn(2, 1, 5, 6).expand(2, 3, 5, 6)
    every_second = torch.randn(2, 3, 5, 12)[..., ::2]
    cut = (wide[..., 1:7], wide[:1, :1, :1, 3:9], wide.mT[..., :4], wide.transpose(1, 2)[..., :6])
    for x in (*cut, one_for_all, every_second):
        assert torch.equal(rotate(x), rotate(x.clone(memory_format=torch.contiguous_format)))
