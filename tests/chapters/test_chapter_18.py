"""Chapter 18: what the notebook says about heads, checked again on other numbers and other seeds."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from read_chapters import definitions, solution

from attn_course import MultiHeadAttention, make_causal_mask

B, H, T, E = 2, 4, 48, 64  # T is the notebook's
SEEDS = range(5)


@pytest.fixture(scope="module")
def chapter():
    """The classes and functions of the notebook, on the CPU."""
    return definitions("18", constants=("T", "LETTERS")) | {"device": torch.device("cpu")}


def random_tensor(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def assert_same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


def make_model(chapter, num_layers=2):
    torch.manual_seed(0)
    return chapter["AttentionOnly"](num_layers).double().eval()


def places(periods, moved=0):
    """Weights (B, 1, T, T) that lie on the place after the last earlier occurrence, or so far from it."""
    t = torch.arange(T)
    at = (t - periods[:, None] + 1 + moved).clamp(min=0)
    return F.one_hot(at, T)[:, None].double()


# -- Score a head that counts ------------------------------------------------------------------------


def test_every_string_repeats_with_its_own_period(chapter):
    periods = torch.tensor([3, 5, 11])
    ids = chapter["repeat_blocks"](periods, 24, generator())
    for row, period in zip(ids, periods.tolist(), strict=True):
        assert torch.equal(row[period:], row[:-period])
    assert 0 <= ids.min() <= ids.max() < 32
    assert len(chapter["LETTERS"]) == 32


def test_a_letter_is_known_from_the_end_of_the_first_block_on(chapter):
    ids, known, periods = chapter["draw_strings"](8, 24, 50, generator())
    assert set(periods.tolist()) <= set(range(8, 25))
    for row, is_known, period in zip(ids, known, periods.tolist(), strict=True):
        assert is_known.tolist() == [t >= period for t in range(T - 1)]
        for t in is_known.nonzero()[:, 0].tolist():
            assert row[t + 1] == row[t + 1 - period]


def test_weights_set_by_hand_to_the_right_places_score_1_and_one_column_beside_them_0(chapter):
    _, known, periods = chapter["draw_strings"](8, 24, 50, generator())
    # where the copy is the last letter of the second block, the place after it is the first of this block
    score = chapter["induction_scores"]
    torch.testing.assert_close(score(places(periods), known, periods).item(), 1.0)
    for moved in (-1, 1):
        assert score(places(periods, moved), known, periods) == 0


def test_a_head_that_counts_scores_as_one_that_searches_until_the_period_changes(chapter):
    score = chapter["induction_scores"]
    counts = places(torch.full((7,), 16))
    for period, expected in ((16, 1.0), (15, 0.0)):
        _, known, periods = chapter["draw_strings"](period, period, 7, generator())
        assert score(counts, known, periods).item() == expected


# -- Hooks -------------------------------------------------------------------------------------------


def test_without_hooks_the_model_computes_what_its_layers_compute(chapter):
    model = make_model(chapter)
    ids = torch.randint(32, (B, T), generator=generator())
    with torch.no_grad():
        expected, weights = model(ids, need_weights=True)
    kept = {}
    hooks = {(i, "pattern"): chapter["keep"](kept, i) for i in (0, 1)}
    assert_same(chapter["run"](model, ids, hooks), expected)
    for i, w in enumerate(weights):
        assert_same(kept[i], w)


def test_a_hook_hears_what_it_was_asked_for_and_what_it_returns_goes_on(chapter):
    layer = MultiHeadAttention(12, 3).double()
    x, mask = random_tensor(B, 5, 12), make_causal_mask(5)
    kept = {}
    hooks = {name: chapter["keep"](kept, name) for name in ("q_input", "k_input", "v_input", "pattern", "z")}
    with torch.no_grad():
        assert_same(chapter["attend"](layer, x, mask, hooks), layer(x, is_causal=True)[0])
        for name in ("q_input", "k_input", "v_input"):
            assert torch.equal(kept[name], x)
        assert kept["z"].shape == (B, 3, 5, 4)
        silent = chapter["attend"](layer, x, mask, {"z": torch.zeros_like})
        assert_same(silent, layer.out_proj.bias.expand_as(x))
        other = random_tensor(B, 5, 12, seed=1)
        moved = chapter["attend"](layer, x, mask, {"v_input": lambda value: other})
        v = layer.v_proj(other).unflatten(-1, (3, -1)).transpose(1, 2)
        assert_same(moved, layer.out_proj((kept["pattern"] @ v).transpose(1, 2).flatten(2)))


def test_hooks_are_sorted_by_layer(chapter):
    hooks = {(0, "z"): "a", (1, "z"): "b", (1, "pattern"): "c"}
    assert chapter["hooks_of"](1, hooks) == {"z": "b", "pattern": "c"}
    assert chapter["hooks_of"](2, hooks) == {}


def test_only_the_named_heads_are_replaced_and_nothing_is_written_into(chapter):
    z, outputs = random_tensor(B, H, 5, 3), random_tensor(1, H, 1, 3, seed=1)
    before = z.clone()
    found = chapter["replaced"]([0, 2], outputs)(z)
    assert torch.equal(z, before)
    assert torch.equal(found[:, [1, 3]], z[:, [1, 3]])
    assert torch.equal(found[:, [0, 2]], outputs.expand_as(z)[:, [0, 2]])


def test_a_stream_that_was_not_spoiled_can_be_given_to_any_reader_at_no_damage(chapter):
    model = make_model(chapter)
    ids = torch.randint(32, (B, T), generator=generator())
    kept = {}
    expected = chapter["run"](model, ids, {(1, "q_input"): chapter["keep"](kept, "x")})
    for reader in "qkv":
        patched = chapter["run"](model, ids, {(1, f"{reader}_input"): lambda x: kept["x"]})
        assert torch.equal(patched, expected)


def test_the_output_of_a_head_is_its_share_of_the_logits(chapter):
    model = make_model(chapter)
    layer = model.layers[1]
    with torch.no_grad():
        model.norm.weight.copy_(random_tensor(64))
        table = chapter["what_heads_write"](model)
        for letter in (0, 17, 31):
            x = model.norms[1](model.embed.weight[letter])[None, None]  # one token: its own value with weight 1
            out = (layer(x, is_causal=True)[0] - layer.out_proj.bias)[0, 0]
            logits = (out - out.mean()) * model.norm.weight @ model.to_logits.weight.T
            assert_same(table.sum(0)[letter], logits - logits.mean())


def test_blocks_without_a_repetition_have_none(chapter):
    ids, known = chapter["no_letter_twice"](generator())
    for row, is_known in zip(ids, known, strict=True):
        period = int(is_known.int().argmax())
        assert len(set(row[:period].tolist())) == period
        assert torch.equal(row[period:], row[:-period])


# -- Reading MiniLM ----------------------------------------------------------------------------------


def test_norms_are_the_lengths_of_what_arrives_and_what_arrives_adds_up_to_the_output(chapter):
    layer = MultiHeadAttention(36, 12).double()
    x = random_tensor(B, 5, 36)
    with torch.no_grad():
        out, weights = layer(x, need_weights=True)
        space = chapter | {"bert": SimpleNamespace(layers=[SimpleNamespace(self_attention=layer)])}
        space["text_kept"] = {(0, "v_input"): x, (0, "pattern"): weights}
        norms = _with_globals(chapter["norms_of"], space)(0)
        v = layer.v_proj(x).unflatten(-1, (12, -1))  # (B, S, H, D)
        arrives = torch.zeros(B, 5, 5, 36, dtype=x.dtype)
        for head in range(12):
            columns = layer.out_proj.weight[:, 3 * head : 3 * head + 3]
            arrives += weights[:, head, :, :, None] * (v[:, :, head] @ columns.T)[:, None]
    assert_same(arrives.sum(dim=2) + layer.out_proj.bias, out)
    assert_same(norms, arrives.norm(dim=-1))


def _with_globals(function, names):
    """A function of the notebook that finds other things under the names of the notebook."""
    return type(function)(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)


def test_rollout_hands_on_what_earlier_layers_fetched_and_its_rows_sum_to_1(chapter):
    maps = random_tensor(3, B, 5, 5).float().softmax(-1)
    first, second, third = (0.5 * torch.eye(5) + 0.5 * one for one in maps)
    found = chapter["roll_out"](maps)
    torch.testing.assert_close(found, third @ second @ first)
    torch.testing.assert_close(found.sum(-1), torch.ones(B, 5))
    torch.testing.assert_close(chapter["roll_out"](maps, residual=0.0), maps[2] @ maps[1] @ maps[0])


def test_the_rank_correlation_is_that_of_the_textbook(chapter):
    a, b = random_tensor(11), random_tensor(11, seed=1)
    ranks = [sorted(x.tolist()).index(v) for x in (a, b) for v in x.tolist()]
    distance = sum((ranks[i] - ranks[11 + i]) ** 2 for i in range(11))
    expected = 1 - 6 * distance / (11 * (11**2 - 1))
    assert chapter["rank_correlation"](a, b) == pytest.approx(expected)
    assert chapter["rank_correlation"](a, a.exp()) == pytest.approx(1)
    assert chapter["rank_correlation"](a, -a) == pytest.approx(-1)


def test_a_shuffled_row_has_the_same_weights_and_pads_get_none(chapter):
    mask = torch.arange(7) < torch.tensor([[7], [4]])[:, None]  # (B, 1, S)
    space = chapter | {"text_mask": mask, "rng": generator(1)}
    pattern = random_tensor(B, 3, 7, 7).masked_fill(~mask[:, None], -math.inf).softmax(-1)
    before = pattern.clone()
    found = _with_globals(chapter["shuffled"], space)([1])(pattern)
    assert torch.equal(pattern, before)
    assert torch.equal(found[:, [0, 2]], pattern[:, [0, 2]])
    assert torch.equal(found[:, 1].sort(-1).values, pattern[:, 1].sort(-1).values)
    assert (found[1, :, :, 4:] == 0).all()
    assert not torch.equal(found[:, 1], pattern[:, 1])
    pattern = pattern.float()
    before = pattern.clone()
    even = _with_globals(chapter["uniform"], space)([0, 2])(pattern)
    assert torch.equal(pattern, before)
    torch.testing.assert_close(even[0, [0, 2]], torch.full((2, 7, 7), 1 / 7))
    assert (even[1, [0, 2], :, :4] == 0.25).all()
    assert (even[1, [0, 2], :, 4:] == 0).all()
    assert torch.equal(even[:, 1], pattern[:, 1])


def test_dropping_takes_weight_away_and_hiding_hands_it_to_the_others(chapter):
    pattern = random_tensor(B, 3, 5, 5).softmax(-1)
    dropped, hidden = chapter["dropped"](2)(pattern), chapter["hidden"](2)(pattern)
    assert (dropped[..., 2] == 0).all()
    assert torch.equal(dropped[..., [0, 1, 3, 4]], pattern[..., [0, 1, 3, 4]])
    scores = pattern.log()
    scores[..., 2] = -math.inf
    assert_same(hidden, scores.softmax(-1))


# -- What training finds, over five seeds ------------------------------------------------------------


@pytest.fixture(scope="module")
def found(chapter):
    """For each seed, the numbers of the notebook."""
    return [_numbers(chapter, seed) for seed in SEEDS]


def _numbers(chapter, seed):
    train, examine, run = chapter["train"], chapter["examine"], chapter["run"]
    outputs_of, mean_of = chapter["outputs_of"], chapter["mean_of"]
    counts, _, _ = train(1, 16, 16, steps=200, seed=seed)
    one, _, _ = train(1, 8, 24, steps=600, seed=seed)
    two, losses, copies = train(2, 8, 24, steps=600, seed=seed)
    ids, known, periods = chapter["draw_strings"](8, 24, 256, generator(9))
    others = chapter["draw_strings"](8, 24, 256, generator(10))[0]
    several = _several(ids, known, periods)

    def scores_of(model):
        with torch.no_grad():
            _, weights = model(ids, need_weights=True)
        previous = torch.stack([chapter["previous_scores"](w) for w in weights])
        return weights, previous, torch.stack([chapter["induction_scores"](w, known, periods) for w in weights])

    weights, previous, scores = scores_of(two)
    p = previous[0].argmax().item()
    outputs, other = outputs_of(two, ids), outputs_of(two, others)
    means = [mean_of(z) for z in outputs]

    def without(layer, heads, new):
        return chapter["damage"](two, {(layer, "z"): chapter["replaced"](heads, new)}, ids, known)

    def groups(new, n):
        hits = [without(1, group, new) for group in itertools.combinations(range(4), n)]
        return sum(hits) / len(hits)

    def at(model, letters):
        loss = chapter["loss_of"](run(model, ids, {}), ids, letters).item()
        return loss, through("q", model, ids, letters, others)

    through = chapter["damage_through"]
    plain, is_known = chapter["no_letter_twice"](generator(9))
    plain_others, _ = chapter["no_letter_twice"](generator(10))
    copying = (chapter["what_heads_write"](two).argmax(-1) == torch.arange(32)).float().mean(-1)
    return SimpleNamespace(
        queries=(through("q", two, ids, known, others), through("q", two, plain, is_known, plain_others)),
        keys=(through("k", two, ids, known, others), through("k", two, plain, is_known, plain_others)),
        counts=[examine(counts, period, period) for period in (16, 15)],
        right=(examine(one, 8, 24)[0], examine(two, 8, 24)[0]),
        steepest=max(a - b for a, b in zip(losses[:-50], losses[50:], strict=True)),
        previous=previous,
        scores=scores,
        early=[(after[0].max().item(), found[1].max().item()) for _, after, found in map(scores_of, copies[2:6:3])],
        p=without(0, [p], means[0]),
        alone=[without(1, [head], means[1]) for head in range(4)],
        mean=[groups(means[1], n) for n in (1, 2, 4)],
        zero=[groups(torch.zeros_like(means[1]), n) for n in (1, 2, 4)],
        resample=[groups(other[1], n) for n in (1, 2, 4)],
        readers={reader: through(reader, two, ids, known, others) for reader in "qkv"},
        halfway=[at(copies[15], letters) for letters in (known & ~several, several)],
        after=[at(two, letters) for letters in (known & ~several, several)],
        copying=copying,
        slipped=max(chapter["induction_scores"](w.roll(1, -1), known, periods).max() for w in weights),
    )


def _several(ids, known, periods):
    """Where the newest letter has more than one next letter in its block."""
    found = torch.zeros_like(known)
    for row, is_known, out, period in zip(ids.tolist(), known, found, periods.tolist(), strict=True):
        for t in is_known.nonzero()[:, 0].tolist():
            out[t] = len({row[s + 1] for s in range(period) if row[s] == row[t]}) > 1
    return found


CLAIMS = {
    "one layer counts with a fixed period": lambda n: n.counts[0][0] > 0.99 and n.counts[0][1].max() > 0.9,
    "and fails with another": lambda n: n.counts[1][0] < 0.2 and n.counts[1][1].max() < 0.1,
    "one layer does not search": lambda n: n.right[0] < 0.4,
    "two layers do": lambda n: n.right[1] > 0.95,
    "the loss falls by more than a nat within 50 steps": lambda n: n.steepest > 1,
    "layer 1 has a previous-token head": lambda n: n.previous[0].max() > 0.6 and n.previous[1].max() < 0.1,
    "layer 2 is made of induction heads": lambda n: n.scores[1].min() > 0.3 and n.scores[0].max() < 0.1,
    "the previous-token head is worth ten induction heads": lambda n: n.p > 10 * max(n.alone),
    "together they are needed": lambda n: n.mean[2] > 10 * n.mean[0],
    "any two do most of what four do": lambda n: n.mean[1] < 0.2 * n.mean[2],
    "zero is like the mean": lambda n: all(abs(z - m) < 0.3 * m for z, m in zip(n.zero, n.mean, strict=True)),
    "another text does more harm": lambda n: n.resample[0] > 1.5 * n.mean[0] and n.resample[2] > 1.5 * n.mean[2],
    "the first fall brings induction before a sharp previous-token head": lambda n: (
        n.early[0][1] < 0.15 and n.early[1][1] > 0.5 and n.early[1][0] < 0.5
    ),
    "between the falls one next letter is certain and several are not": lambda n: (
        n.halfway[0][0] < 0.05 and n.halfway[1][0] > 0.6
    ),
    "then the queries hardly need layer 1": lambda n: n.halfway[1][1] < 0.3,
    "after the second fall they do, most where several letters can follow": lambda n: (
        n.after[1][0] < 0.2 and n.after[1][1] > 2 * n.after[0][1] and n.after[1][1] > 5 * n.halfway[1][1]
    ),
    "the heads of layer 2 copy": lambda n: n.copying.min() > 0.9,
    "the keys read layer 1, and the values do not": lambda n: n.readers["k"] > 2 * n.readers["q"] > 20 * n.readers["v"],
    "without repetitions the queries need layer 1 less": lambda n: n.queries[1] < 0.7 * n.queries[0],
    "and the keys as much as before": lambda n: n.keys[1] > 0.9 * n.keys[0],
    "one column beside the right one finds nothing": lambda n: n.slipped < 0.2,
}


@pytest.mark.trains
@pytest.mark.parametrize("claim", CLAIMS)
def test_the_claims_about_trained_heads_hold_for_four_seeds_of_five(found, claim):
    holds = [bool(CLAIMS[claim](numbers)) for numbers in found]
    assert sum(holds) >= 4, holds


# -- Exercises ---------------------------------------------------------------------------------------


def test_18_1_gives_the_score_of_the_notebook_where_no_block_holds_a_letter_twice(chapter):
    score = solution("18", 1)["induction_score"]
    periods = torch.tensor([8, 11, 24])
    blocks = torch.stack([torch.randperm(32, generator=generator(n)) for n in range(3)])
    ids = blocks.gather(1, torch.arange(T) % periods[:, None])
    weights = random_tensor(3, H, T, T).masked_fill(~make_causal_mask(T), -math.inf).softmax(-1)
    known = torch.arange(T - 1) >= periods[:, None]
    # the last query is no question of the notebook's: nothing comes after it
    last = score(weights, ids) * (known.sum() + 3)
    place = torch.arange(T)
    after = (T - place) % periods[:, None] == 0
    after[:, 0] = False
    looks = (weights[:, :, -1] * after[:, None]).sum(dim=(0, 2))
    assert_same((last - looks) / known.sum(), chapter["induction_scores"](weights, known, periods))


def test_18_2_replaces_what_the_hook_of_the_notebook_replaces(chapter):
    ablate = solution("18", 2)["ablate_heads"]
    z = random_tensor(B, H, 5, 3)
    expected = chapter["replaced"]([0, 3], z.mean(dim=(0, 2), keepdim=True))(z)
    found = ablate(z.transpose(1, 2).flatten(2), H, [0, 3], torch.ones(B, 5, dtype=torch.bool))
    assert_same(found, expected.transpose(1, 2).flatten(2))


def test_18_3_hides_a_stretch_twice_at_many_distances():
    ids, known = solution("18", 3)["hide_copy"](200, 5, 23, 11, generator())
    distances = set()
    for row, is_known in zip(ids.tolist(), known, strict=True):
        second, *_, last = is_known.nonzero()[:, 0].tolist()
        assert last == second + 3
        stretch = row[second : second + 5]
        first = next(s for s in range(second - 4) if row[s : s + 5] == stretch)
        distances.add(second - first)
    assert distances >= set(range(5, 15))


def test_18_4_ends_with_the_rollout_of_the_notebook(chapter):
    weights = random_tensor(3, B, H, 5, 5).float().softmax(-1)
    found = solution("18", 4)["rollout"](weights, torch.full((3,), 0.5))
    for layers in (1, 2, 3):
        torch.testing.assert_close(found[layers - 1], chapter["roll_out"](weights[:layers].mean(dim=2)))
