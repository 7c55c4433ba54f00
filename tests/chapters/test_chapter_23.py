"""Chapter 23: what the notebook says about pictures, checked again on other numbers and other seeds."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from read_chapters import definitions
from torch import nn

from attn_course import Rotation, make_rotation
from attn_course.data.digits import load_digits

SEEDS = range(5)
DIGITS = load_digits()


@pytest.fixture(scope="module")
def chapter():
    """The classes and functions of the notebook, on the CPU."""
    names = definitions("23", constants=("NUM_TRAIN",))  # which is where its functions look for what is global to them
    names.update(device=torch.device("cpu"), **DIGITS._asdict())
    names.update(Rotation=Rotation, make_rotation=make_rotation)  # which an optional section imports
    names["test_images"] = names["images"][names["NUM_TRAIN"] :]
    names["test_labels"] = names["labels"][names["NUM_TRAIN"] :]
    names["shifted_images"] = names["shift"](names["test_images"], generator(1))
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
    after = chapter["test_labels"][:30].tolist()
    assert after == [*range(10)] * 3


def test_a_shifted_digit_lies_up_to_a_pixel_away_and_what_leaves_the_frame_is_lost(chapter):
    images = torch.rand(300, 1, 8, 8, generator=generator()) + 1  # no pixel is 0
    found, places = chapter["shift"](images, generator(1)), set()
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
        x = model.embed(images)
        bare = x - model.position_embed
        assert_same(model.classify(bare[:, order])[0], model.classify(bare)[0])
        assert_same(model.classify(x)[0], model(images))
        assert (model.classify(bare[:, order] + model.position_embed)[0] - model(images)).abs().max() > 1e-3


def test_the_answer_comes_from_the_first_token_and_registers_are_read_like_any_other(chapter):
    model, images = make_model(chapter, num_extra=3), random_tensor(2, 1, 8, 8)
    with torch.no_grad():
        logits, x, weights = model.classify(model.embed(images), need_weights=True)
        assert_same(logits, model.to_logits(x[:, 0]))
        assert x.shape == (2, 3 + 16, 32)
        assert [w.shape for w in weights] == [(2, 4, 19, 19)] * 2
        model.extra_tokens[1, 0] += 1  # one number: a norm would take away what all columns share
        assert (model(images) - logits).abs().max() > 1e-6


def test_registers_that_are_left_alone_change_nothing_and_registers_left_out_are_not_read(chapter):
    torch.manual_seed(0)
    model, registers = chapter["with_registers"]().eval(), [1, 2, 3, 4]
    usual = chapter["accuracy"](model, chapter["test_images"], chapter["test_labels"])
    assert chapter["accuracy_after"](model, lambda x, chosen: x, registers) == pytest.approx(usual)
    same = chapter["set_to"](lambda old: old)
    assert chapter["accuracy_after"](model, same, registers) == pytest.approx(usual)
    x = random_tensor(2, 21, 3)
    assert torch.equal(chapter["leave_out"](x, registers), torch.cat([x[:, :1], x[:, 5:]], dim=1))
    zeros = chapter["set_to"](torch.zeros_like)(x, registers)
    assert zeros[:, registers].count_nonzero() == 0
    assert torch.equal(chapter["leave_out"](zeros, registers), chapter["leave_out"](x, registers))


def test_the_model_equals_the_vision_transformer_of_transformers(chapter):
    """Logits and gradients. Their table also has a row for the class token: a constant added to a constant."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 12, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
    pictures = {"image_size": 8, "patch_size": 2, "num_channels": 1, "num_labels": 10}
    torch.manual_seed(0)
    theirs = transformers.ViTForImageClassification(transformers.ViTConfig(**sizes, **pictures, layer_norm_eps=1e-5))
    theirs = theirs.double().eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    ours = chapter["VisionTransformer"](nn.Conv2d(1, 12, 2, stride=2), 12, 3).double()
    state, first, table = as_ours(theirs.state_dict().items())
    ours.load_state_dict(state | {"extra_tokens": first + table[:1], "position_embed": table[1:]})
    x, y = DIGITS.images[:7].double(), DIGITS.labels[:7]
    logits, expected = ours(x), theirs(x).logits
    assert_same(logits, expected)
    F.cross_entropy(logits, y).backward()
    F.cross_entropy(expected, y).backward()
    gradients, first, table = as_ours((name, p.grad) for name, p in theirs.named_parameters())
    gradients |= {"extra_tokens": first, "position_embed": table[1:]}
    found = {name: p.grad for name, p in ours.named_parameters()}
    assert found.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert_same(found[name], gradient)


OURS = {
    "vit.embeddings.patch_embeddings.projection": "stem",
    "vit.layernorm": "norm",
    "classifier": "to_logits",
}
PARTS = {
    "layernorm_before": "self_attention_norm",
    "layernorm_after": "feed_forward_norm",
    **{f"attention.{n}_proj": f"self_attention.{n}_proj" for n in "qkv"},
    "attention.o_proj": "self_attention.out_proj",
    "mlp.fc1": "feed_forward.up",
    "mlp.fc2": "feed_forward.down",
}
OURS |= {f"vit.layers.{i}.{their}": f"layers.{i}.{our}" for i in (0, 1) for their, our in PARTS.items()}


def as_ours(named):
    """Rename the tensors of the library, and return the class token and the table apart."""
    new, rest = {}, {}
    for name, values in named:
        module, _, kind = name.rpartition(".")
        if module in OURS:
            new[f"{OURS[module]}.{kind}"] = values
        else:
            rest[kind] = values[0]
    return new, rest["cls_token"], rest["position_embeddings"]


def test_scores_of_turned_rows_and_columns_depend_on_both_distances_and_on_nothing_else(chapter):
    turns = chapter["grid_rotation"](3, 5, head_dim=8).phases
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
    importance = torch.arange(16.0).expand(len(chapter["test_images"]), 16)
    without = chapter["accuracy_without"]
    plain = chapter["accuracy"](model, chapter["test_images"], chapter["test_labels"])
    assert without(model, importance, 0) == pytest.approx(plain)
    seen = []
    model.layers[0].register_forward_hook(lambda module, x, out: seen.append(x[0]))
    without(model, importance, 13)
    with torch.no_grad():
        expected = model.embed(chapter["test_images"])[:, :3]
    torch.testing.assert_close(seen[0][:, 1:], expected)


def test_the_damage_is_what_the_right_label_loses_when_a_token_is_left_out(chapter):
    torch.manual_seed(0)
    model = chapter["patches_only"]().eval()
    found, n = chapter["token_damage"](model), 5
    labels = chapter["test_labels"]
    with torch.no_grad():
        x = model.embed(chapter["test_images"])
        left = torch.cat([x[:, :n], x[:, n + 1 :]], dim=1)
        whole, less = (model.classify(y)[0].softmax(-1)[torch.arange(len(x)), labels] for y in (x, left))
    torch.testing.assert_close(found[:, n], whole - less)


def test_another_token_comes_in_at_its_own_place_and_nowhere_else(chapter):
    x, others = random_tensor(3, 16, 5), random_tensor(3, 16, 5, seed=1)
    chosen = torch.tensor([[2, 7], [0, 15], [8, 3]])
    found = chapter["replace_by"](others)(x, chosen)
    for before, new, after, places in zip(x, others, found, chosen.tolist(), strict=True):
        for n in range(16):
            assert torch.equal(after[n], new[n] if n in places else before[n])
    kept = chapter["remove"](x, chosen)
    assert torch.equal(kept[1], x[1, 1:15])


# -- What is said of trained models -------------------------------------------------------------------


@pytest.fixture(scope="module")
def found(chapter):
    return [run_of(chapter, seed) for seed in SEEDS]


def run_of(chapter, seed):
    """What the notebook measures, from another seed."""
    labels = chapter["test_labels"]

    def share(model, images=chapter["test_images"]):
        return chapter["accuracy"](model, images, labels)

    def trained(make, change=None, rate=5e-3):
        torch.manual_seed(seed)
        return chapter["train"](make(), change, seed, rate)

    def both(model):
        return share(model), share(model, chapter["shifted_images"])

    shift, model_of = chapter["shift"], chapter["patches_only"]
    plain, shifts = trained(model_of), trained(model_of, shift)
    order = torch.randperm(16, generator=generator(seed))
    with torch.no_grad():
        x = plain.embed(chapter["test_images"]) - plain.position_embed
        permuted = plain.classify(x[:, order] + plain.position_embed)[0].argmax(dim=-1) == labels
    ink = chapter["to_patches"](chapter["test_images"], 2).mean(dim=-1)
    importance = {
        "damage": chapter["token_damage"](shifts),
        "attention": chapter["class_attention"](shifts, chapter["test_images"]),
        "ink": ink,
        "random": torch.rand(len(labels), 16, generator=generator(seed)),
    }
    registered = trained(chapter["with_registers"], shift)
    gappy, empty = trained(chapter["with_gaps"], shift), ink < 0.1

    def share_of_empty(model, way):
        most = chapter["token_damage"](model, chapter["ways_to_remove"](model)[way]).argmax(dim=1, keepdim=True)
        return empty.gather(1, most).float().mean().item()

    return SimpleNamespace(
        linear=both(trained(chapter["linear"], rate=3e-2)),
        patches=both(plain),
        fitted=chapter["accuracy"](plain, DIGITS.images[: chapter["NUM_TRAIN"]], DIGITS.labels[: chapter["NUM_TRAIN"]]),
        stem=both(trained(chapter["with_stem"])),
        convolutions=both(trained(chapter["convolutions"])),
        convolutions_shifts=both(trained(chapter["convolutions"], shift)),
        linear_shifts=both(trained(chapter["linear"], shift, rate=3e-2)),
        shifts=both(shifts),
        stem_shifts=both(trained(chapter["with_stem"], shift)),
        bag=share(trained(chapter["without_positions"])),
        permuted=permuted.float().mean().item(),
        area={
            name: sum(chapter["accuracy_without"](shifts, of, k) for k in range(13)) / 13
            for name, of in importance.items()
        },
        empty=empty.float().mean().item(),
        empty_first={way: share_of_empty(shifts, way) for way in ("left out", "mean", "another digit")},
        empty_first_gappy=share_of_empty(gappy, "left out"),
        reshaped=share(trained(chapter["reshaped_patches"])),
        registers=[
            chapter["accuracy_after"](registered, change, [1, 2, 3, 4])
            for change in (
                lambda x, chosen: x,
                chapter["set_to"](lambda old: old.mean(dim=0)),
                chapter["set_to"](lambda old: old.roll(1, dims=0)),
            )
        ],
    )


CLAIMS = {
    "the linear classifier gets nine in ten": lambda n: 0.85 < n.linear[0] < 0.95,
    "the Transformer ties with it": lambda n: abs(n.patches[0] - n.linear[0]) < 0.04,
    "and makes no mistake on its training digits": lambda n: n.fitted > 0.98,
    "both lose more than half of the shifted digits": lambda n: max(n.patches[1], n.linear[1]) < 0.5,
    "a stem alone does not help on shifted digits": lambda n: n.stem[1] < 0.55,
    "shifts make the linear classifier worse": lambda n: n.linear_shifts[0] < n.linear[0] - 0.08,
    "and leave it below seven in ten": lambda n: n.linear_shifts[1] < 0.7,
    "the Transformer learns from them": lambda n: n.shifts[1] > n.patches[1] + 0.3,
    "with a stem it is right on both tests": lambda n: min(n.stem_shifts) > 0.86,
    "and better than without": lambda n: all(a > b for a, b in zip(n.stem_shifts, n.shifts, strict=True)),
    "without positions more than a third is right": lambda n: 0.35 < n.bag < 0.75,
    "permuted patches are not recognised": lambda n: n.permuted < 0.3,
    "damage tells more than attention": lambda n: n.area["damage"] < n.area["attention"] - 0.05,
    "attention tells more than ink and than random numbers": (
        lambda n: n.area["attention"] < min(n.area["ink"], n.area["random"]) - 0.05
    ),
    "a list without one token makes empty patches look important": lambda n: n.empty_first["left out"] > n.empty + 0.05,
    "with their content hidden, they are less important than others": (
        lambda n: max(n.empty_first["mean"], n.empty_first["another digit"]) < n.empty - 0.05
    ),
    "a model that knows gaps finds them less important": (
        lambda n: n.empty_first_gappy < n.empty_first["left out"] - 0.05
    ),
    "no convolution recognises shifts that it has not seen": lambda n: n.convolutions[1] < 0.7,
    "with shifts, convolutions are better than attention": (
        lambda n: all(a > b for a, b in zip(n.convolutions_shifts, n.stem_shifts, strict=True))
    ),
    "reshaped patches train as well as squares": lambda n: abs(n.reshaped - n.patches[0]) < 0.04,
    "the content of registers is not needed": lambda n: max(n.registers) - min(n.registers) < 0.02,
}


@pytest.mark.trains
@pytest.mark.parametrize("claim", CLAIMS)
def test_the_claims_about_trained_models_hold_for_four_seeds_of_five(found, claim):
    holds = [bool(CLAIMS[claim](numbers)) for numbers in found]
    assert sum(holds) >= 4, holds
