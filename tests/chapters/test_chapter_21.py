"""Chapter 21: what the notebook says about heads, checked again on other numbers and other seeds."""

import inspect
import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from read_chapters import definitions

from attn_course.pretrained import Llama, load_smollm2

B, H, T, E = 2, 4, 48, 64  # T is the notebook's
SEEDS = range(5)


@pytest.fixture(scope="module")
def chapter():
    """The classes and functions of the notebook, on the CPU."""
    return definitions("21", constants=("T", "LETTERS")) | {"device": torch.device("cpu")}


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


def test_a_hook_changes_what_its_module_gets_and_is_gone_afterwards_even_after_an_error(chapter):
    layer, x = torch.nn.Linear(3, 2), torch.randn(5, 3)
    expected = layer(x)
    with chapter["hooked"]({layer: lambda x: 2 * x}):
        torch.testing.assert_close(layer(x), layer.forward(2 * x))
    assert torch.equal(layer(x), expected)
    with pytest.raises(ZeroDivisionError), chapter["hooked"]({layer: lambda x: 1 / 0}):
        layer(x)
    assert torch.equal(layer(x), expected)


def test_the_outputs_of_the_heads_are_what_the_output_projections_get(chapter):
    model = make_model(chapter)
    ids = torch.randint(32, (B, T), generator=generator())
    with torch.no_grad():
        expected, _ = model(ids)
        outputs = chapter["outputs_of"](model, ids)
        x = model.embed(ids) + model.position_embed.weight
        for i, layer in enumerate(model.layers):
            x = x + layer.out_proj(outputs[i])
        assert_same(model.to_logits(model.norm(x)), expected)
    means = chapter["means_of"](outputs)
    assert_same(means[1], outputs[1].flatten(0, 1).mean(0))


def test_a_head_without_an_output_is_a_head_whose_columns_of_the_projection_are_0(chapter):
    ids = torch.randint(32, (B, 9), generator=generator())
    llama = Llama(32, d_model=24, num_heads=6, num_kv_heads=2, num_layers=3, d_ff=8, max_len=20).double().eval()
    for model, heads in ((make_model(chapter), [(0, 2), (1, 0), (1, 3)]), (llama, [(2, 5), (0, 0)])):
        with torch.no_grad():
            before = model(ids)
            with chapter["replaced"](model, heads):
                found = model(ids)
            assert_same(logits_of(model(ids)), logits_of(before))  # nothing was written into
            for layer, head in heads:
                attention = chapter["attentions"](model)[layer]
                D = attention.head_dim
                attention.out_proj.weight[:, D * head : D * (head + 1)] = 0
            assert_same(logits_of(found), logits_of(model(ids)))
            assert not torch.equal(logits_of(found), logits_of(before))


def test_only_the_named_heads_get_the_outputs_of_another_text(chapter):
    model = make_model(chapter)
    ids, others = torch.randint(32, (2, B, T), generator=generator())
    own, foreign = chapter["outputs_of"](model, ids), chapter["outputs_of"](model, others)
    with chapter["replaced"](model, [(1, 2)], foreign):
        found = chapter["outputs_of"](model, ids)
    # the hook of outputs_of comes after the one that replaces, so it sees what the projection gets
    expected = own[1].clone()
    expected[..., 32:48] = foreign[1][..., 32:48]
    assert torch.equal(found[0], own[0])
    assert torch.equal(found[1], expected)


def logits_of(result):
    return result[0] if isinstance(result, tuple) else result


def test_a_stream_that_was_not_spoiled_can_be_given_to_any_reader_at_no_damage(chapter):
    model = make_model(chapter)
    ids, known, _ = chapter["draw_strings"](8, 24, 4, generator())
    through = _with_globals(chapter["damage_through"], chapter | {"ids": ids, "other_ids": ids})
    for reader in "qkv":
        assert through(reader, model, known) == pytest.approx(0, abs=1e-9)


# -- Reading real models -----------------------------------------------------------------------------


def test_the_three_scores_read_the_token_after_the_copy_the_token_before_and_the_first_one(chapter):
    ids = chapter["write_twice"](0)
    assert torch.equal(ids[:, :30], ids[:, 30:])
    t = torch.arange(60)
    looks = {"copy": (t - 29).clamp(min=0), "before": (t - 1).clamp(min=0), "first": torch.zeros_like(t)}
    weights = torch.stack([F.one_hot(at, 60).float() for at in looks.values()])[None, None]  # (L, B, H, T, T)
    smol = SimpleNamespace(read=lambda ids, need_weights: SimpleNamespace(weights=weights))
    found, previous, first = _with_globals(chapter["read"], chapter | {"smol": smol})(ids)
    assert found.tolist() == [[1, 0, 0]]
    assert previous.tolist()[0][:2] == pytest.approx([0, 1], abs=0.02)
    assert first.tolist() == [[0, 0, 1]]
    assert chapter["best_of"](torch.eye(9)[:2].repeat(1, 1) + torch.arange(9) / 100, 2) == [(1, 1), (0, 0)]


def _with_globals(function, names):
    """A function of the notebook that finds other things under the names of the notebook."""
    function = inspect.unwrap(function)  # no_grad wraps it
    return type(function)(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)


def test_a_shuffled_row_has_the_same_weights_and_pads_get_none(chapter):
    mask = torch.arange(7) < torch.tensor([[7], [4]])[:, None]  # (B, 1, S)
    space = chapter | {"text_mask": mask, "lots_of": generator(1)}
    pattern = random_tensor(B, 3, 7, 7).masked_fill(~mask[:, None], -math.inf).softmax(-1)
    before = pattern.clone()
    found = _with_globals(chapter["shuffled"], space)([1])(pattern)
    assert torch.equal(pattern, before)
    assert torch.equal(found[:, [0, 2]], pattern[:, [0, 2]])
    assert torch.equal(found[:, 1].sort(-1).values, pattern[:, 1].sort(-1).values)
    assert (found[1, :, :, 4:] == 0).all()
    assert not torch.equal(found[:, 1], pattern[:, 1])
    kept = _with_globals(chapter["shuffled"], space)([1], keep_cls=True)(pattern)
    assert torch.equal(kept[..., 0], pattern[..., 0])
    assert torch.equal(kept[:, 1].sort(-1).values, pattern[:, 1].sort(-1).values)
    assert (kept[1, :, :, 4:] == 0).all()
    assert not torch.equal(kept[:, 1], pattern[:, 1])
    out = chapter["left_out"]([1])(pattern)
    assert not out[:, 1].any()
    assert torch.equal(out[:, [0, 2]], before[:, [0, 2]])


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
    train, examine = chapter["train"], chapter["examine"]
    counts, _, _ = train(1, 16, 16, steps=200, seed=seed)
    one, _, _ = train(1, 8, 24, steps=600, seed=seed)
    two, losses, copies = train(2, 8, 24, steps=600, seed=seed)
    ids, known, periods = chapter["draw_strings"](8, 24, 256, generator(9))
    others = chapter["draw_strings"](8, 24, 256, generator(10))[0]
    several = _several(ids, known, periods)
    space = chapter | {"ids": ids, "known": known, "other_ids": others}
    space["loss_without"] = _with_globals(chapter["loss_without"], space)

    def scores_of(model):
        with torch.no_grad():
            _, weights = model(ids, need_weights=True)
        previous = torch.stack([chapter["previous_scores"](w) for w in weights])
        return previous, torch.stack([chapter["induction_scores"](w, known, periods) for w in weights])

    @torch.no_grad()
    def losses_of(model):
        logits, _ = model(ids)
        return [chapter["loss_of"](logits, ids, of).item() for of in (known & ~several, several)]

    previous, scores = scores_of(two)
    outputs = chapter["outputs_of"](two, ids)
    damages = _with_globals(chapter["damages"], space)
    through = _with_globals(chapter["damage_through"], space)
    base_rate = chapter["share_right"](F.one_hot(ids, 32).cumsum(dim=1).float(), ids, known)
    return SimpleNamespace(
        counts=[examine(counts, period, period) for period in (16, 15)],
        right=(examine(one, 8, 24)[0], examine(two, 8, 24)[0]),
        base_rate=base_rate,
        steepest=max(a - b for a, b in zip(losses[:-50], losses[50:], strict=True)),
        previous=previous,
        scores=scores,
        early=[(after[0].max().item(), found[1].max().item()) for after, found in map(scores_of, copies[2:6:3])],
        zero=damages(two, None),
        mean=damages(two, chapter["means_of"](outputs)),
        resample=damages(two, chapter["outputs_of"](two, others)),
        readers={reader: through(reader, two, known) for reader in "qkv"},
        queries=[through("q", two, of) for of in (known & ~several, several)],
        halfway=losses_of(copies[15]),
        after=losses_of(two),
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
    "one layer does not search, but does better than the base rate": lambda n: n.base_rate + 0.05 < n.right[0] < 0.4,
    "two layers do": lambda n: n.right[1] > 0.95,
    "the loss falls by more than a nat within 50 steps": lambda n: n.steepest > 1,
    "layer 1 has a previous-token head": lambda n: n.previous[0].max() > 0.6 and n.previous[1].max() < 0.1,
    "layer 2 is made of induction heads": lambda n: n.scores[1].min() > 0.3 and n.scores[0].max() < 0.1,
    "the previous-token head is worth ten induction heads": lambda n: n.mean[0] > 10 * n.mean[1],
    "and without it the model is worse than blind": lambda n: n.mean[0] > math.log(32),
    "together they are needed": lambda n: n.mean[4] > 10 * n.mean[1],
    "any two do most of what four do": lambda n: n.mean[2] < 0.2 * n.mean[4],
    "zero is like the mean": lambda n: all(abs(z - m) < 0.3 * m for z, m in zip(n.zero, n.mean, strict=True)),
    "another text does more harm in layer 2": lambda n: (
        n.resample[1] > 1.5 * n.mean[1] and n.resample[4] > 1.5 * n.mean[4]
    ),
    "the first fall brings induction before a sharp previous-token head": lambda n: (
        n.early[0][1] < 0.15 and n.early[1][1] > 0.5 and n.early[1][0] < 0.5
    ),
    "between the falls one next letter is certain and several are not": lambda n: (
        n.halfway[0] < 0.05 and n.halfway[1] > 0.6
    ),
    "after the second fall they are": lambda n: n.after[1] < 0.2,
    "the keys read layer 1, and the values do not": lambda n: n.readers["k"] > 2 * n.readers["q"] > 20 * n.readers["v"],
    "the queries read it most where several letters can follow": lambda n: n.queries[1] > 2 * n.queries[0] > 0.2,
}


@pytest.mark.trains
@pytest.mark.parametrize("claim", CLAIMS)
def test_the_claims_about_trained_heads_hold_for_four_seeds_of_five(found, claim):
    holds = [bool(CLAIMS[claim](numbers)) for numbers in found]
    assert sum(holds) >= 4, holds


@pytest.mark.trains
def test_the_claims_about_smollm2_hold_on_strings_that_the_chapter_does_not_use(chapter):
    smol, _ = load_smollm2()
    space = chapter | {"smol": smol}
    read, copy_loss = (_with_globals(chapter[name], space) for name in ("read", "copy_loss"))
    choose, test = chapter["write_twice"](400), chapter["write_twice"](401)
    induction, previous, _ = read(choose)
    copiers = chapter["best_of"](induction, 8)
    assert copiers[0] == (18, 6)
    whole = copy_loss(test)
    rest = [(i, h) for i in sorted({i for i, _ in copiers}) for h in range(9) if (i, h) not in copiers]
    together = copy_loss(test, copiers) - whole
    assert together > 5
    for seed in (5, 6):
        order = torch.randperm(len(rest), generator=generator(seed))
        assert copy_loss(test, [rest[i] for i in order[:8]]) - whole < 0.3 * together
    before = chapter["best_of"](previous, 5)
    assert before[0] == (16, 0)
    damage = [copy_loss(test, [head]) - whole for head in before]
    assert damage[0] > 2
    assert damage[0] > 4 * max(damage[1:])
    with chapter["replaced"](smol, [(16, 0)]):
        lost = read(test)[0]
    assert lost[17, 4] < 0.2 < 0.5 < read(test)[0][17, 4]
