"""Chapter 19: what the notebook says about pictures, checked again on other numbers and other seeds."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from read_chapters import definitions, solution
from torch import nn

from attn_course.data.digits import load_digits

SEEDS = range(5)
DIGITS = load_digits()


@pytest.fixture(scope="module")
def chapter():
    """The classes and functions of the notebook, on the CPU."""
    names = definitions("19", constants=("CUT",))  # which is where its functions look for what is global to them
    names.update(device=torch.device("cpu"), **DIGITS._asdict())
    names["standing"] = names["images"][names["CUT"] :]
    names["displaced"] = names["moved"](names["standing"], generator(1))
    return names


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def random_tensor(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=generator(seed))


def assert_same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


def make_model(chapter, **options):
    torch.manual_seed(0)
    return chapter["VisionTransformer"](nn.Conv2d(1, 32, 2, stride=2), **options).double().eval()


# -- Patches -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("channels", "height", "width", "size"), [(1, 4, 6, 2), (3, 10, 15, 5), (2, 7, 3, 1)])
def test_moving_axes_cuts_as_unfolding_does(chapter, channels, height, width, size):
    images = random_tensor(2, channels, height, width)
    assert torch.equal(chapter["to_patches"](images, size), F.unfold(images, size, stride=size).mT)


def test_a_linear_map_of_patches_is_a_convolution_with_a_stride_as_long_as_its_side(chapter):
    images, project = random_tensor(2, 3, 10, 15), nn.Conv2d(3, 7, 5, stride=5).double()
    by_hand = chapter["to_patches"](images, 5) @ project.weight.flatten(1).T + project.bias
    assert_same(project(images).flatten(2).mT, by_hand)


# -- Data --------------------------------------------------------------------------------------------


def test_the_training_digits_end_where_a_form_ends(chapter):
    after = DIGITS.labels[chapter["CUT"] :][:30].tolist()
    assert after == [*range(10)] * 3


def test_a_moved_digit_lies_up_to_a_pixel_away_and_what_leaves_the_frame_is_lost(chapter):
    images = torch.rand(300, 1, 8, 8, generator=generator()) + 1  # no pixel is 0
    found, places = chapter["moved"](images, generator(1)), set()
    for before, after in zip(images[:, 0], found[:, 0], strict=True):
        wide = F.pad(before, (1, 1, 1, 1))
        fits = [(r, c) for r in range(3) for c in range(3) if torch.equal(wide[r : r + 8, c : c + 8], after)]
        assert len(fits) == 1
        places.update(fits)
    assert found.shape == images.shape
    assert len(places) == 9


# -- The model ---------------------------------------------------------------------------------------


def test_the_order_of_the_patches_does_not_matter_where_they_have_no_places(chapter):
    model, images = make_model(chapter), random_tensor(3, 1, 8, 8)
    order = torch.randperm(16, generator=generator())
    with torch.no_grad():
        x = model.tokens(images)
        bare = x - model.places
        assert_same(model.read(bare[:, order])[0], model.read(bare)[0])
        assert_same(model.read(x)[0], model(images))
        assert (model.read(bare[:, order] + model.places)[0] - model(images)).abs().max() > 1e-3


def test_the_answer_comes_from_the_first_token_and_registers_are_read_like_any_other(chapter):
    model, images = make_model(chapter, num_extra=3), random_tensor(2, 1, 8, 8)
    with torch.no_grad():
        logits, x, weights = model.read(model.tokens(images), need_weights=True)
        assert_same(logits, model.to_logits(x[:, 0]))
        assert x.shape == (2, 3 + 16, 32)
        assert [w.shape for w in weights] == [(2, 4, 19, 19)] * 2
        model.extra[1, 0] += 1  # one number: a norm would take away what all columns share
        assert (model(images) - logits).abs().max() > 1e-6


def test_the_mean_leaves_the_class_token_out(chapter):
    torch.manual_seed(0)
    model = chapter["Mean"](nn.Conv2d(1, 32, 2, stride=2)).double()
    x = model.tokens(random_tensor(2, 1, 8, 8))
    logits, after, _ = model.read(x)
    assert_same(logits, model.to_logits(after[:, 1:].mean(dim=1)))


def test_scores_of_turned_rows_and_columns_depend_on_both_distances_and_on_nothing_else(chapter):
    turns = chapter["grid_rotation"](3, 5, head_dim=8).turns
    assert torch.equal(turns[0], torch.ones_like(turns[0]))
    q, k = (torch.view_as_complex(random_tensor(4, 2, seed=seed)) for seed in (0, 1))
    grid = turns[1:].to(torch.complex128)
    scores = torch.einsum("np,mp->nm", q * grid, (k * grid).conj()).real.unflatten(0, (3, 5)).unflatten(2, (3, 5))
    at = {}
    for r, c, s, d in torch.cartesian_prod(*(torch.arange(n) for n in (3, 5, 3, 5))).tolist():
        at.setdefault((r - s, c - d), []).append(scores[r, c, s, d].item())
    assert max(max(found) - min(found) for found in at.values()) < 1e-5  # the angles are float32
    assert len({round(found[0], 3) for found in at.values()}) > 40


def test_leaving_out_nothing_changes_nothing_and_the_most_important_go_first(chapter):
    torch.manual_seed(0)
    model = chapter["patches_only"]().eval()
    importance = torch.arange(16.0).expand(len(chapter["standing"]), 16)
    without = chapter["right_without"]
    plain = chapter["share_right"](model, chapter["standing"], DIGITS.labels[chapter["CUT"] :])
    assert without(model, importance, 0) == pytest.approx(plain)
    seen = []
    model.layers[0].register_forward_hook(lambda module, x, out: seen.append(x[0]))
    without(model, importance, 13)
    with torch.no_grad():
        expected = model.tokens(chapter["standing"])[:, :3]
    torch.testing.assert_close(seen[0][:, 1:], expected)


def test_the_damage_is_what_the_right_label_loses_when_a_token_is_left_out(chapter):
    torch.manual_seed(0)
    model = chapter["patches_only"]().eval()
    found, n = chapter["damages"](model), 5
    labels = DIGITS.labels[chapter["CUT"] :]
    with torch.no_grad():
        x = model.tokens(chapter["standing"])
        left = torch.cat([x[:, :n], x[:, n + 1 :]], dim=1)
        whole, less = (model.read(y)[0].softmax(-1)[torch.arange(len(x)), labels] for y in (x, left))
    torch.testing.assert_close(found[:, n], whole - less)


# -- What is said of trained models -------------------------------------------------------------------


@pytest.fixture(scope="module")
def found(chapter):
    return [run_of(chapter, seed) for seed in SEEDS]


def run_of(chapter, seed):
    """What the notebook measures, from another seed."""
    labels = DIGITS.labels[chapter["CUT"] :]

    def share(model, images=chapter["standing"]):
        return chapter["share_right"](model, images, labels)

    def trained(make, steps, change=None, rate=5e-3):
        torch.manual_seed(seed)
        return chapter["train"](make(), steps, change, seed, rate)

    def both(model):
        return share(model), share(model, chapter["displaced"])

    def of_patches(kind="VisionTransformer", **options):
        return chapter[kind](nn.Conv2d(1, 32, 2, stride=2), **options)

    def of_strips():
        return chapter["VisionTransformer"](chapter["Strips"]())

    def longest(model):
        lengths = chapter["patch_lengths"](model)
        return (lengths.max() / lengths.median()).item()

    moved, model_of = chapter["moved"], chapter["patches_only"]
    plain, moves = trained(model_of, 300), trained(model_of, 500, moved)
    order = torch.randperm(16, generator=generator(seed))
    with torch.no_grad():
        x = moves.tokens(chapter["standing"]) - moves.places
        dealt = moves.read(x[:, order] + moves.places)[0].argmax(dim=-1) == labels
    importance = {
        "damage": chapter["damages"](moves),
        "attention": chapter["looks"](moves, chapter["standing"]),
        "ink": chapter["to_patches"](chapter["standing"], 2).mean(dim=-1),
        "lot": torch.rand(len(labels), 16, generator=generator(seed)),
    }
    return SimpleNamespace(
        linear=both(trained(chapter["linear"], 600, rate=3e-2)),
        patches=both(plain),
        fitted=chapter["share_right"](plain, DIGITS.images[: chapter["CUT"]], DIGITS.labels[: chapter["CUT"]]),
        linear_moves=both(trained(chapter["linear"], 600, moved, rate=3e-2)),
        moves=both(moves),
        stem=both(trained(chapter["stem_of_convolutions"], 600, moved)),
        bag=share(trained(chapter["without_places"], 300)),
        dealt=dealt.float().mean().item(),
        area={
            name: sum(chapter["right_without"](moves, of, k) for k in range(13)) / 13 for name, of in importance.items()
        },
        first_damage=chapter["right_without"](moves, importance["damage"], 1),
        strips=share(trained(of_strips, 200)),
        longest=max(longest(plain), longest(moves)),
        mean=share(trained(lambda: of_patches("Mean"), 300)),
        registers=share(trained(lambda: of_patches(num_extra=5), 300)),
    )


CLAIMS = {
    "the linear classifier gets nine in ten": lambda n: 0.85 < n.linear[0] < 0.95,
    "the Transformer ties with it": lambda n: abs(n.patches[0] - n.linear[0]) < 0.04,
    "and knows its training digits by heart": lambda n: n.fitted > 0.98,
    "both lose more than half of the moved digits": lambda n: max(n.patches[1], n.linear[1]) < 0.5,
    "moves make the linear classifier worse": lambda n: n.linear_moves[0] < n.linear[0] - 0.08,
    "and leave it below seven in ten": lambda n: n.linear_moves[1] < 0.7,
    "the Transformer learns from them": lambda n: n.moves[1] > n.patches[1] + 0.3,
    "with a stem it is right on both tests": lambda n: min(n.stem) > 0.86,
    "without places more than a third is right": lambda n: 0.35 < n.bag < 0.75,
    "patches dealt anew are not recognised": lambda n: n.dealt < 0.3,
    "damage tells more than attention": lambda n: n.area["damage"] < n.area["attention"] - 0.05,
    "attention more than ink and than a lot": lambda n: n.area["attention"] < min(n.area["ink"], n.area["lot"]) - 0.05,
    "most digits hang on one token": lambda n: n.first_damage < 0.5,
    "ink is no better than a lot": lambda n: abs(n.area["ink"] - n.area["lot"]) < 0.1,
    "strips train": lambda n: n.strips > 0.8,
    "no patch has a vector three times as long as a middle one": lambda n: n.longest < 3,
    "so do a mean and registers": lambda n: min(n.mean, n.registers) > 0.8,
}


@pytest.mark.trains
@pytest.mark.parametrize("claim", CLAIMS)
def test_what_is_said_of_trained_models_holds_for_four_seeds_of_five(found, claim):
    holds = [bool(CLAIMS[claim](numbers)) for numbers in found]
    assert sum(holds) >= 4, holds


# -- Exercises ---------------------------------------------------------------------------------------


def test_19_1_puts_together_what_the_notebook_cuts(chapter):
    images = random_tensor(2, 3, 10, 15)
    assert torch.equal(solution("19", 1)["from_patches"](chapter["to_patches"](images, 5), 5, 10, 15), images)


def test_19_2_begins_with_the_whole_picture_and_ends_with_blank_paper():
    weight, images = random_tensor(24, 5), random_tensor(3, 1, 4, 6).sigmoid()
    labels = torch.tensor([4, 0, 2])

    def model(x):
        return x.flatten(1) @ weight + 1

    curve = solution("19", 2)["deletion_curve"](model, images, labels, random_tensor(3, 6, seed=1), 2)
    whole = model(images).softmax(-1)[torch.arange(3), labels].mean()
    assert_same(curve[0], whole)
    assert curve.shape == (7,)
    assert curve[-1].item() == pytest.approx(0.2)  # all five alike


def test_19_3_keeps_a_table_that_rises_evenly_even_inside_the_old_grid():
    row = torch.arange(4.0).repeat_interleave(4)
    table = torch.cat([torch.tensor([[9.0, 9.0]]), torch.stack([row, row.view(4, 4).T.flatten()], dim=1)])
    new = solution("19", 3)["resize_table"](table, 8)
    assert new[0].tolist() == [9.0, 9.0]
    middles = ((torch.arange(8) + 0.5) / 2 - 0.5).clamp(0, 3)
    torch.testing.assert_close(new[1:, 0].view(8, 8), middles[:, None].expand(8, 8))
    torch.testing.assert_close(new[1:, 1].view(8, 8), middles.expand(8, 8))


def test_19_4_tells_the_two_cuts_of_the_notebook_apart(chapter):
    cuts_squares = solution("19", 4)["cuts_squares"]
    assert cuts_squares(chapter["to_patches"]) is True
    assert cuts_squares(lambda images, size: images.reshape(len(images), -1, images.size(1) * size * size)) is False
