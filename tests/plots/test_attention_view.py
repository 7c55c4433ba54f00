"""The picture that answers: what it stores, and what a mouse, a finger, a keyboard or a screen reader gets from it."""

import base64
import gzip
import html
import io
import json
import re
import warnings
import xml.etree.ElementTree as ET
from urllib.parse import unquote

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from nbval_numbers import PACKED, Text, _unpack, difference
from PIL import Image

from attn_course import attention, make_causal_mask, make_padding_mask, plots
from attn_course.plots.colours import sequential
from attn_course.plots.fallback_image import as_units

ENGLISH = ["I", "bought", "a", "red", "book", "yesterday", "."]
JAPANESE = ["私", "は", "昨日", "赤い", "本", "を", "買った", "。", "</s>", "図書館", "<pad>"]
HOSTILE = [
    "<script>window.pwned = 1</script>",
    '"><img src=x onerror="window.pwned = 2">',
    "</script><script>window.pwned = 3</script>",
    "<!--",
    "-->",
    "&amp;",
    "&",
    "'single' \"double\"",
    "</svg>",
    "%3Cb%3E",
    "\\u003c",
    "${window.pwned = 4}",
    "#",
    "日本語",
    "👩‍👩‍👧",
    "é",
    " the",
    " ",
    "",
    "\n",
    "a\tb",
    "\u202eabc",
    "\ud83d",
]


def weights(*shape, seed=0):
    return torch.softmax(2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), -1)


W = weights(2, 3, 7, 11)


def big():
    return plots.attention_view(weights(12, 40, 40), [f"token{i}" for i in range(40)])


def data_of(view):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', view.html, re.DOTALL)[1])


def packed(view):
    """What the plugin that compares stored outputs reads: the pixels of the still image, and the weights."""
    pixels, numbers = _unpack(view.html)[1]
    return pixels, numbers


def still_svg(view):
    return ET.fromstring(unquote(re.search(r'src="data:image/svg\+xml;charset=utf-8,([^"]*)"', view.html)[1]))


# ---------------------------------------------------------------- what is stored


def test_a_view_is_html_an_image_and_text():
    mask = make_padding_mask([9], 11)[0]
    view = plots.attention_view(weights(3, 7, 11), ENGLISH, JAPANESE, mask=mask, label="share")
    data, metadata = view._repr_mimebundle_()
    assert set(data) == {"text/html", "image/png", "text/plain"}
    assert data["text/html"] == view.html == view._repr_html_()
    assert data["text/plain"] == repr(view) == view.text
    png = base64.b64decode(data["image/png"])
    assert len(png) <= 60_000
    assert png == view.png() == plots.heatmap(weights(3, 7, 11)[0], ENGLISH, JAPANESE, mask=mask, label="share").png()
    assert metadata["image/png"]["width"] == pytest.approx(Image.open(io.BytesIO(png)).width / 2, abs=1)


def test_a_sign_that_only_the_browser_can_draw_is_no_warning():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        odd = "a\n\U00012000\ud83d"  # a line end, a cuneiform sign, half a character
        view = plots.attention_view([[[1.0]]], [odd], names=[odd], label=odd, alt=odd)
        view._repr_mimebundle_()
    assert said == []
    assert data_of(view)["label"] == data_of(view)["name"] == "a⏎\U00012000\\ud83d"
    view.html.encode()


def test_a_view_can_be_saved_as_a_page(tmp_path):
    view = plots.attention_view(weights(3, 7, 11), ENGLISH, JAPANESE)
    view.save(tmp_path / "view.html")
    page = (tmp_path / "view.html").read_bytes().decode("utf-8")
    assert page.startswith('<!doctype html><html lang="en"><meta charset="utf-8"><title>Attention</title><div')
    assert page.removesuffix("</html>\n").endswith(view.html)


def test_the_script_reads_the_original_weights():
    words = {"label": "share", "alt": "Look.", "layers": ["low", "high"], "names": ["x", "y", "z"]}
    data = data_of(plots.attention_view(weights(2, 3, 7, 11), ENGLISH, JAPANESE, **words))
    assert data.pop("colors") == "".join(to_hex(sequential()(i / 16))[1:] for i in range(17))
    assert data.pop("weights").startswith("3:")
    named = {"name": "Look.", "label": "share", "layers": ["low", "high"], "heads": ["x", "y", "z"]}
    assert data == {**named, "queries": ENGLISH, "keys": JAPANESE}
    same = data_of(plots.attention_view(weights(3, 7, 7), ENGLISH))
    assert "keys" not in same
    assert (same["layers"], same["heads"]) == (["layer 1"], ["head 1", "head 2", "head 3"])


def test_forty_tokens_and_twelve_heads_stay_under_60_kb():
    view = big()
    assert len(without_scripts(view).encode()) < 60_000
    assert len(json.dumps(view._repr_mimebundle_()[0]).encode()) < 220_000  # with the image and the text
    japanese = plots.attention_view(weights(12, 40, 40), ["図書館"] * 40)
    assert len(without_scripts(japanese).encode()) < 60_000


def without_scripts(view):
    """A view as the second one on a page: the scripts are there already."""
    return re.sub(r"<script data-explore>.*?</script>", "", view.html, flags=re.DOTALL)


def test_the_scripts_come_once_a_page_and_are_small():
    first, second = (plots.attention_view(weights(size, size), ["x"] * size).html for size in (3, 4))
    scripts = re.findall(r"<script data-explore>.*?</script>", first, re.DOTALL)
    assert scripts == re.findall(r"<script data-explore>.*?</script>", second, re.DOTALL)
    assert len(gzip.compress("".join(scripts).encode())) < 20_000


def test_the_same_weights_give_the_same_bytes():
    assert big()._repr_mimebundle_() == big()._repr_mimebundle_()


def test_only_numbers_depend_on_the_last_digits_of_the_weights():
    on_the_edge = (torch.arange(2 * 6 * 6).reshape(2, 6, 6) + 0.5) / 1000  # each rounds up or down at a whim
    noise = 1e-7 * (2 * torch.rand(2, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) - 1)
    tokens = [f"t{i}" for i in range(6)]
    for precision in (1, 2, 3, 4):
        one, other = (plots.attention_view(on_the_edge + n, tokens, precision=precision) for n in (0 * noise, noise))
        assert PACKED.sub("", one.html) == PACKED.sub("", other.html)
        assert difference(one.html, other.html) is None
        assert difference(one.text, other.text) is None
        if precision == 3:
            assert one.html != other.html


def test_a_weight_that_differs_by_two_units_is_seen_wherever_it_is():
    w = weights(2, 3, 5, 5)
    stored = plots.attention_view(w, list("abcde"), precision=2)
    for index in ((0, 0, 0, 0), (0, 2, 4, 4), (1, 1, 3, 2)):
        changed = w.clone()
        changed[index] = (changed[index] + 0.03) % 1
        assert Text(stored.html) != Text(plots.attention_view(changed, list("abcde"), precision=2).html)
    assert Text(stored.html) != Text(plots.attention_view(w, list("abcdx"), precision=2).html)
    assert Text(stored.html) != Text(plots.attention_view(w, list("abcde"), precision=3).html)


@pytest.mark.parametrize("precision", [1, 4])
def test_every_weight_is_in_the_html(precision):
    w = weights(2, 3, 5, 7)
    w[0, 0, 0, :2] = torch.tensor([0.0, 1.0])
    mask = torch.rand(2, 3, 5, 7, generator=torch.Generator().manual_seed(1)) < 0.8
    mask[0, 0, 0, :2] = True
    _, numbers = packed(plots.attention_view(w, list("abcde"), list("tuvwxyz"), mask=mask, precision=precision))
    read = torch.tensor(numbers[3][: w.numel()]).reshape(w.shape)
    torch.testing.assert_close(read[mask] / 10**precision, w[mask], atol=0.501 * 10**-precision, rtol=0)
    assert (read[~mask] > 10**precision).all()


@pytest.mark.cpu_only("NumPy reads what is expected")
@pytest.mark.parametrize("precision", [1, 3])
def test_the_still_image_shows_the_first_head_in_the_colours_of_a_heatmap(precision):
    w, mask = weights(3, 7, 11), make_padding_mask([9], 11)[0]
    view = plots.attention_view(w, ENGLISH, JAPANESE, mask=mask, precision=precision)
    bitmap = re.search(r"data:image/bmp;base64,([\w+/=]+)", view.html)[1]
    colors = np.asarray(Image.open(io.BytesIO(base64.b64decode(bitmap))).convert("RGB"))
    assert colors.shape == (7, 11, 3)
    unit = 10 ** min(precision, 2)
    expected = np.asarray(sequential()(np.rint(w[0].numpy() * unit) / unit))[..., :3] * 255
    np.testing.assert_allclose(colors[:, :9], expected[:, :9], atol=1)
    assert (colors[:, 9:] == 0xE9).all()


@pytest.mark.parametrize(
    ("token", "short"),
    [
        ("Donaudampfschiffe", "Donauda…iffe"),
        ("図書館情報学会誌編集", "図書館…編集"),
    ],
)
def test_a_long_token_loses_its_middle_in_the_still_image(token, short):
    view = plots.attention_view(weights(1, 2), [token], ["a", f"b{token}"])
    words = [e.text for e in still_svg(view).iter() if e.text]
    assert words[0] == short
    assert data_of(view)["queries"] == [token]


def test_the_still_image_says_in_words_what_it_is():
    view = plots.attention_view(weights(2, 5, 5), list("abcde"), label="share")
    assert '<img alt="share: queries down, keys across; head 1 of 2" ' in view.html
    told = plots.attention_view(weights(2, 5, 5), list("abcde"), alt='Head 2 looks "back" & forth.')
    assert f'<img alt="{html.escape("Head 2 looks " + chr(34) + "back" + chr(34) + " & forth.")}" ' in told.html


def test_the_text_names_every_head_token_and_weight():
    mask = torch.rand(2, 3, 7, 11, generator=torch.Generator().manual_seed(1)) < 0.8
    lines = plots.attention_view(W, ENGLISH, JAPANESE, mask=mask, label="share", precision=2).text.splitlines()
    assert lines[0] == "share: queries down, keys across"
    for i, (layer, head) in enumerate((layer, head) for layer in range(2) for head in range(3)):
        assert lines[1 + 9 * i] == f"layer {layer + 1}, head {head + 1}"
        assert lines[2 + 9 * i].split() == JAPANESE
        for query, line in enumerate(lines[3 + 9 * i : 10 + 9 * i]):
            may = mask[layer, head, query]
            numbers = [f"{w:.2f}" if ok else "-" for w, ok in zip(W[layer, head, query], may, strict=True)]
            assert line.split() == [ENGLISH[query], *numbers]
    assert len(lines) == 1 + 6 * 9


def test_as_many_numbers_stand_in_the_text_as_the_module_says_and_not_one_more():
    two = plots.attention_view(weights(2, 50, 50), ["x"] * 50).text  # 5,000 numbers
    assert "head 2\n" in two
    one = plots.attention_view(weights(2, 50, 51), ["x"] * 50, ["x"] * 51).text  # 5,100
    assert "head 2\n" not in one
    assert one.splitlines()[-1] == "and 1 more of the same size, to head 2; their numbers are in the HTML"
    most = plots.attention_view(weights(100, 200), ["x"] * 100, ["x"] * 200).text  # 20,000
    assert len(most.splitlines()) == 102


def test_a_head_too_large_for_a_browser_is_a_still_picture_that_says_so(shown):
    queries, keys = [f"q{i}" for i in range(177)], [f"k{i}" for i in range(113)]  # 20,001 weights
    view = plots.attention_view(weights(3, 177, 113), queries, keys)
    why = (
        "The interactive view shows at most 20,000 weights of a head, and 177 queries and 113 keys are 20,001. "
        "This is a still picture of the first of 3 heads."
    )
    assert view.text.splitlines() == ["weight: queries down, keys across", why]
    assert "<script" not in view.html
    assert shown(view).locator("p").inner_text() == why
    tab = shown(unquote(re.search(r'src="data:image/svg\+xml;charset=utf-8,([^"]*)"', view.html)[1]))
    grid = tab.locator("svg image").bounding_box()
    size = grid["width"] / 113, grid["height"] / 177
    texts = tab.evaluate(PLACES)
    assert [text for text, *_ in texts] == [*queries[::2], *keys[::2], "0", "1 weight", "head 1"]
    for text, x, y, right, bottom in texts[:-3]:
        place = (y + bottom) / 2 - grid["y"] if text[0] == "q" else (x + right) / 2 - grid["x"]
        assert place == pytest.approx((int(text[1:]) + 0.5) * size[text[0] == "q"], abs=3)


def test_heads_and_layers_may_have_names():
    w = weights(2, 3, 4, 4)
    named = plots.attention_view(w, list("abcd"), layers=["low", "high"], names=list("xyz"))
    assert data_of(named)["layers"] == ["low", "high"]
    assert data_of(named)["heads"] == ["x", "y", "z"]
    assert (
        named.html
        == plots.attention_view(dict(zip(["low", "high"], w, strict=True)), list("abcd"), names=["x", "y", "z"]).html
    )
    two = plots.attention_view({"scaled": w[0, 0], "not scaled": w[0, 1]}, list("abcd"))
    assert two.text.splitlines()[1::6] == ["scaled", "not scaled"]
    assert two.html == plots.attention_view([w[0, 0], w[0, 1]], list("abcd"), names=["scaled", "not scaled"]).html
    assert plots.attention_view(w[:1], list("abcd"), layers=["layer 1"]).text.splitlines()[1] == "head 1"


def test_tokens_without_a_shape_get_one():
    tokens = [" the", "cat ", " ", "  ", "", "\n", "a\tb", "New York", "\u202e", "👩‍👩‍👧", "\ud83d", "é"]
    view = plots.attention_view(torch.eye(len(tokens)), tokens)
    assert data_of(view)["queries"] == [
        "␣the", "cat␣", "␣", "␣␣", "∅", "⏎", "a⇥b", "New York", "\\u202e", "👩‍👩‍👧", "\\ud83d", "é"
    ]  # fmt: skip
    view.html.encode()
    view.text.encode()


def test_a_view_leaves_tensors_as_they_were_and_takes_what_numpy_takes():
    w = weights(2, 3, 3).requires_grad_()
    assert plots.attention_view(w, list("abc")).html == plots.attention_view(w.tolist(), list("abc")).html
    assert plots.attention_view(w.half(), list("abc"), precision=2).text
    assert w.requires_grad


def test_weights_rounded_a_little_outside_are_weights():
    assert "1.000" in plots.attention_view(torch.eye(2) * (1 + 1e-6), list("ab")).text
    assert "-0.0" not in plots.attention_view(torch.eye(2) - 1e-8, list("ab")).text


def test_hidden_weights_may_be_anything():
    w = torch.eye(2).masked_fill(~make_causal_mask(2), float("nan"))
    assert plots.attention_view(w, list("ab"), mask=make_causal_mask(2)).text.splitlines()[-2].split() == [
        "a",
        "1.000",
        "-",
    ]


def test_the_html_needs_nothing_from_outside():
    addresses = set(re.findall(r"\b\w+:(?://|image)[^'\"\s,;]*", unquote(big().html)))
    assert addresses == {"http://www.w3.org/2000/svg", "data:image/svg+xml", "data:image/bmp"}


def test_a_signless_number_never_spells_a_word_that_outputs_may_not_hold():
    assert "u" not in re.search(r'"weights":"3:([^"]*)"', big().html)[1]  # so not "cuda" either


AB, ABC = ["a", "b"], ["a", "b", "c"]
MISTAKES = [
    ((weights(3, 3), AB), {}, r"queries \(2 tokens\) must match the rows of weights \(3\)"),
    ((weights(2, 3, 4), ABC, ["x"]), {}, r"keys \(1 tokens\) must match the columns of weights \(4\)"),
    ((weights(2, 3, 4), ABC), {}, r"keys must be given"),
    ((weights(3, 3), "abc"), {}, r"queries must be a list of tokens, not one string 'abc'"),
    ((weights(3), ["a"]), {}, r"must have axes \(T, S\), \(H, T, S\) or \(L, H, T, S\)$"),
    ((weights(2, 1, 2, 3, 3), ABC), {}, r"take one sentence of the batch, for instance weights\[:, 0\]"),
    ((weights(1, 2, 3, 3), ABC), {}, r"looks like a batch of one sentence: hand in weights\[0\]"),
    ((weights(0, 3, 3), ABC), {}, r"weights of shape \(0, 3, 3\) has nothing to draw"),
    (([], []), {}, r"weights of shape \(0,\) must have axes"),
    (([weights(2, 2), weights(3, 3)], AB), {}, r"shapes \(2, 2\) and \(3, 3\) must have one shape"),
    ((2 * torch.eye(2), AB), {}, r"weight runs from 0 to 2, outside 0 to 1.* heatmap draws other numbers"),
    ((-torch.eye(2), AB), {"label": "score"}, r"score runs from -1 to 0, outside 0 to 1"),
    ((torch.eye(2) / 0, AB), {}, r"weight \[0, 1\] is NaN"),
    (([[float("inf")]], ["a"]), {}, r"weight runs from 0 to inf"),
    ((weights(2, 2, 2), AB), {"names": ["x"]}, r"names \(1\) must match the heads \(2\)"),
    ((weights(2, 2, 2, 2), AB), {"layers": ["x"]}, r"layers \(1\) must match the layers \(2\)"),
    ((weights(2, 2, 2), AB), {"names": "xy"}, r"names must be a list of names, not one string 'xy'"),
    ((weights(2, 2), AB), {"precision": 5}, r"precision \(5\) must be 1, 2, 3 or 4 digits"),
    ((weights(2, 2), AB), {"mask": torch.zeros(2, 2)}, r"mask must be boolean"),
    ((weights(2, 2), AB), {"q": torch.ones(2, 3)}, r"q and k must be handed in together"),
    (
        (weights(4, 2, 2), AB),
        {"q": torch.ones(2, 3), "k": torch.ones(2, 3)},
        r"q of shape \(2, 3\) must be \(4, 2, D\): the weights' axes, of shape \(4, 2, 2\)",
    ),
    ((weights(2, 3), AB, ABC), {"q": torch.ones(2, 5), "k": torch.ones(2, 5)}, r"k of shape \(2, 5\) must be \(3, D\)"),
    ((weights(2, 2), AB), {"q": torch.ones(2, 3), "k": torch.ones(2, 5)}, r"q \(3 parts\) and k \(5\)"),
    (
        ([[1.0, 0.0], [0.0, 1.0]], AB),
        {"q": torch.eye(2), "k": torch.eye(2)},
        r"softmax\(q @ k.mT / √2\) differs from the weights by up to 0.33: .* the mask, and weights before dropout",
    ),
    (
        (torch.full((30, 2, 2), 0.5), AB),
        {"q": torch.zeros(30, 2, 200), "k": torch.zeros(30, 2, 200)},
        r"q, k and v hold 24,000 numbers, more than the 20,000 .* fewer heads or layers",
    ),
    ((weights(2, 2), AB), {"mask": torch.ones(3, 3).bool()}, r"mask of shape \(3, 3\) must broadcast"),
]


@pytest.mark.bad_input
@pytest.mark.parametrize(("given", "options", "message"), MISTAKES)
def test_an_error_finishes_the_sentence(given, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        plots.attention_view(*given, **options)


# ---------------------------------------------------------------- in a browser


def cell(tab, query, key, view=0):
    """The cell of a query and a key, by their places."""
    keys = tab.locator(".attn-view").nth(view).locator("[role=columnheader]").count() - 1
    return tab.locator(".attn-view").nth(view).locator("[role=gridcell]").nth(query * keys + key)


def answer(tab, view=0):
    return tab.locator(".attn-view .selection").nth(view).inner_text()


def marked(tab):
    """The tokens that stand out."""
    return tab.locator(".attn-view .on").all_inner_texts()


def color_at(tab, query, key):
    """The colour that is on the screen in a cell's corner, beside its number."""
    box = cell(tab, query, key).bounding_box()
    clip = {"x": box["x"] + 4, "y": box["y"] + 4, "width": 2, "height": 2}
    return np.asarray(Image.open(io.BytesIO(tab.screenshot(clip=clip))).convert("RGB"))[0, 0]


@pytest.fixture
def cross():
    return plots.attention_view(W, ENGLISH, JAPANESE)


def test_the_pointer_reads_a_cell(shown, cross):
    tab = shown(cross)
    assert answer(tab) == "Point at a cell or a token, tap it, or press the arrow keys."
    cell(tab, 3, 6).hover()
    assert answer(tab) == f"query red, key 買った: weight {W[0, 0, 3, 6]:.3f}"
    assert marked(tab) == ["red", "買った"] or marked(tab) == ["買った", "red"]
    cell(tab, 6, 10).hover()
    assert answer(tab) == f"query ., key <pad>: weight {W[0, 0, 6, 10]:.3f}"
    tab.mouse.move(0, 0)
    assert marked(tab) == []
    assert answer(tab).startswith("Point at")


def test_highlighting_a_cell_moves_nothing(shown, cross):
    tab = shown(cross)
    places = "(es) => es.map((e) => Object.values(e.getBoundingClientRect().toJSON())).flat()"
    cells = tab.locator(".grid [role], .key")
    before = cells.evaluate_all(places)
    tab.locator("[role=rowheader]").nth(ENGLISH.index("yesterday")).hover()  # the widest, as wide as its column
    assert marked(tab) == ["yesterday"]
    assert cells.evaluate_all(places) == before


def test_the_pointer_on_a_token_shows_where_it_looks(shown, cross):
    tab = shown(cross)
    tab.locator("[role=rowheader]").nth(1).hover()
    top = W[0, 0, 1].topk(3)
    told = ", ".join(f"{JAPANESE[i]} {value:.3f}" for value, i in zip(top.values, top.indices, strict=True))
    assert answer(tab) == f"query bought attends most to {told}"
    assert marked(tab) == ["bought"]
    tab.locator("[role=columnheader]").nth(1 + 4).hover()
    top = W[0, 0, :, 4].topk(3)
    told = ", ".join(f"{ENGLISH[i]} {value:.3f}" for value, i in zip(top.values, top.indices, strict=True))
    assert answer(tab) == f"key 本 gets most weight from {told}"


MASK = torch.rand(2, 3, 7, 11, generator=torch.Generator().manual_seed(1)) < 0.8
READ = """() => {
  const root = document.querySelector(".attn-view").shadowRoot;
  const all = (what, read) => [...root.querySelectorAll(what)].map(read);
  const pixels = (e) => e.toDataURL();
  const place = (e) => { const box = e.getBoundingClientRect(); return [box.left, box.top, box.right, box.bottom]; };
  return {
    small: all("label:not(:has(.mean)) canvas", pixels), chosen: all(".cells", pixels),
    cells: all("[role=gridcell]", (e) =>
      [e.textContent, e.ariaLabel, e.className, getComputedStyle(e).color, place(e)]),
    rows: all("[role=rowheader]", (e) => [e.textContent, place(e)]),
    columns: all("[role=columnheader]", (e) => [e.textContent, place(e)]),
    grid: all(".grid", (e) => [e.ariaLabel, e.ariaRowCount, e.ariaColCount])[0], picture: all(".cells", place)[0],
    lines: all(".lines", place)[0],
  };
}"""


def pixels_of(w):
    return np.asarray(sequential()(np.rint(w.numpy() * 1000) / 1000))[..., :3] * 255


@pytest.mark.cpu_only("NumPy reads what is expected")
def test_every_cell_of_every_head_has_its_colour_its_number_and_its_place(shown):
    tab = shown(plots.attention_view(W, ENGLISH, JAPANESE, mask=MASK, label="share"))
    for layer, head in ((0, 0), (1, 1)):
        tab.get_by_role("radio", name=f"layer {layer + 1}, head {head + 1}").check(force=True)
        read = tab.evaluate(READ)
        w, may = W[layer, head], MASK[layer, head]
        for drawn, (grid, allowed) in [
            *zip(read["small"], zip(W.flatten(0, 1), MASK.flatten(0, 1), strict=True), strict=True),
            (read["chosen"][0], (w, may)),
        ]:
            image = Image.open(io.BytesIO(base64.b64decode(drawn.split(",")[1])))
            drawn = np.asarray(image.convert("RGBA"))
            np.testing.assert_array_equal(drawn[..., 3], 255 * allowed)  # what is hidden shows the hatch below
            np.testing.assert_allclose(drawn[allowed][:, :3], pixels_of(grid)[allowed], atol=4)
        for i, (text, said, names, color, _) in enumerate(read["cells"]):
            value, ok = float(w.flatten()[i]), bool(may.flatten()[i])
            assert said == (f"{value:.3f}" if ok else "not allowed")
            assert re.fullmatch(r"[01]\.\d\d" if ok else "", text)
            assert not ok or abs(float(text) - float(said)) < 0.00501
            assert ("no" in names.split()) == (not ok)
            if ok:
                back = pixels_of(w).reshape(-1, 3)[i]
                assert contrast(np.array(re.findall(r"\d+", color), float), back) > 4.4
        assert read["grid"] == [f"layer {layer + 1}, head {head + 1} · share: queries down, keys across", "8", "12"]
    assert [text for text, _ in read["rows"]] == ENGLISH
    assert [text for text, _ in read["columns"]] == ["key →query ↓", *JAPANESE]
    places = np.reshape([place for *_, place in read["cells"]], (7, 11, 4))
    rows, columns = (
        np.array([place for _, place in read[side]][skip:]) for side, skip in (("rows", 0), ("columns", 1))
    )
    np.testing.assert_allclose(places[:, :, [1, 3]], np.broadcast_to(rows[:, None, [1, 3]], (7, 11, 2)), atol=1)
    np.testing.assert_allclose(places[:, :, [0, 2]], np.broadcast_to(columns[None, :, [0, 2]], (7, 11, 2)), atol=1)
    assert (rows[:, 2] <= places[:, 0, 0] + 1).all()  # on the left
    assert (columns[:, 3] <= places[0, :, 1] + 1).all()  # on top
    whole = [*places[0, 0, :2], *places[-1, -1, 2:]]
    np.testing.assert_allclose([read["picture"], read["lines"]], [whole, whole], atol=1)
    assert np.ptp(places[..., 2] - places[..., 0]) < 1
    assert places[0, 0, 3] - places[0, 0, 1] == pytest.approx(places[0, 0, 2] - places[0, 0, 0], abs=1)


def contrast(one, other):
    """As WCAG 2 defines it, of colours from 0 to 255."""
    parts = np.array([one, other]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    low, high = sorted(linear @ [0.2126, 0.7152, 0.0722])
    return (high + 0.05) / (low + 0.05)


def test_long_keys_stand_upright_and_read_upwards_or_downwards_as_their_script_does(shown):
    keys = ["Donaudampfschiff", "図書館", "a"]
    tab = shown(plots.attention_view(weights(2, 3), list("ab"), keys), width=390)
    heads = tab.locator("[role=columnheader] bdi")
    read = """(es) => es.map((e) => {
      const { writingMode, transform, height, width } = getComputedStyle(e);
      return [writingMode, transform, parseFloat(height) > parseFloat(width)];
    })"""
    turned = "matrix(-1, 0, 0, -1, 0, 0)"
    styles = heads.evaluate_all(read)
    assert [style[0] for style in styles] == ["vertical-rl"] * 3
    assert [style[1] for style in styles] == [turned, "none", turned]
    assert [style[2] for style in styles[:2]] == [True, True]
    short = shown(plots.attention_view(weights(2, 3), list("ab"), ["an", "図", "a"])).locator("[role=columnheader] bdi")
    assert [style[:2] for style in short.evaluate_all(read)] == [["horizontal-tb", "none"]] * 3


def test_tokens_stay_in_sight_while_the_grid_is_scrolled(shown):
    tab = shown(
        plots.attention_view(weights(70, 80), [f"q{i}" for i in range(70)], [f"k{i}" for i in range(80)]), width=500
    )
    box = tab.locator(".box").bounding_box()
    before = cell(tab, 60, 40).bounding_box()
    tab.locator(".box").evaluate("(e) => e.scrollTo(200, 100)")
    after = cell(tab, 60, 40).bounding_box()
    assert (before["x"] - after["x"], before["y"] - after["y"]) == pytest.approx((200, 100), abs=1)
    assert tab.locator("[role=rowheader]").nth(60).bounding_box()["x"] == pytest.approx(box["x"], abs=1)
    assert tab.locator("[role=columnheader]").nth(1 + 40).bounding_box()["y"] == pytest.approx(box["y"], abs=1)
    corner = tab.locator(".corner").bounding_box()
    assert (corner["x"], corner["y"]) == pytest.approx((box["x"], box["y"]), abs=1)


def test_everything_can_be_done_from_the_keyboard(shown, cross):
    tab = shown(cross)
    press = tab.keyboard.press
    press("Tab")  # the heads are one stop, the grid is one, the table is one
    press("ArrowRight")
    assert "layer 1, head 2" in tab.locator(".title").first.inner_text()
    for _ in ("Heads", "Draw", "Special tokens", "the grid"):
        press("Tab")
    assert answer(tab) == f"query I, key 私: weight {W[0, 1, 0, 0]:.3f}"
    press("ArrowDown")
    press("ArrowRight")
    assert answer(tab) == f"query bought, key は: weight {W[0, 1, 1, 1]:.3f}"
    press("End")
    press("ArrowRight")  # the edge holds
    assert answer(tab) == f"query bought, key <pad>: weight {W[0, 1, 1, 10]:.3f}"
    press("Home")
    press("ArrowLeft")
    assert answer(tab).startswith("query bought attends most to ")
    press("Control+End")
    assert answer(tab) == f"query ., key <pad>: weight {W[0, 1, 6, 10]:.3f}"
    press("Control+Home")
    press("ArrowUp")
    assert answer(tab).startswith("key 私 gets most weight from ")
    press("Escape")
    assert marked(tab) == []
    press("ArrowDown")
    press("Alt+ArrowRight")  # the browser's own
    assert answer(tab) == f"query I, key 私: weight {W[0, 1, 0, 0]:.3f}"
    press("ArrowUp")
    press("Tab")
    press("Enter")
    tab.locator("table").wait_for()
    press("Shift+Tab")
    focused = "document.querySelector('.attn-view').shadowRoot.activeElement"
    assert tab.evaluate(f"{focused}.innerText") == "私"
    assert tab.evaluate(f"getComputedStyle({focused}).outlineStyle") == "solid"


def test_a_finger_reads_cells_that_are_large_enough(shown):
    tab = shown(big(), width=390, height=844, has_touch=True, is_mobile=True)
    box = cell(tab, 2, 3).bounding_box()
    assert min(box["width"], box["height"]) >= 24
    cell(tab, 2, 3).tap()
    assert answer(tab).startswith("query token2, key token3: weight 0.")
    cell(tab, 39, 39).tap()  # it scrolls there, inside its own box
    assert answer(tab).startswith("query token39, key token39: weight 0.")
    assert tab.evaluate("document.scrollingElement.scrollWidth") == 390
    tab.get_by_label("head 7").tap(force=True)
    assert tab.locator(".title").first.inner_text().startswith("head 7 ")


def test_the_page_never_scrolls_sideways(shown, cross):
    tab = shown(cross, big(), plots.attention_view(torch.eye(len(HOSTILE)), HOSTILE), width=390)
    assert tab.evaluate("document.scrollingElement.scrollWidth") == 390


def test_a_screen_reader_gets_a_grid_and_a_table(shown, cross):
    tab = shown(cross)
    assert tab.get_by_role("group", name="weight: queries down, keys across; layer 1, head 1 of 6").count() == 1
    assert tab.get_by_role("grid", name="layer 1, head 1 · weight: queries down, keys across").count() == 1
    assert tab.get_by_role("radio", name="layer 2, head 1").count() == 1
    assert tab.get_by_role("gridcell", name=f"{W[0, 0, 2, 2]:.3f}", exact=True).count() >= 1
    assert tab.locator("table").count() == 0  # only on request
    tab.get_by_text("Show the numbers as a table").click()
    assert tab.locator("table thead th").all_inner_texts() == JAPANESE
    assert tab.locator("table tbody th[scope=row]").all_inner_texts() == ENGLISH
    assert tab.locator("table tbody td").all_inner_texts() == [f"{w:.3f}" for w in W[0, 0].flatten()]
    assert tab.locator("table thead td").inner_text() == "query ↓ key →"
    assert tab.locator("caption").inner_text() == "layer 1, head 1 · weight: queries down, keys across"
    assert tab.get_by_role("region", name="Table of layer 1, head 1 · weight").count() == 1
    tab.get_by_label("layer 2, head 2").check(force=True)
    assert tab.locator("caption").inner_text().startswith("layer 2, head 2")
    assert tab.locator("table tbody td").all_inner_texts() == [f"{w:.3f}" for w in W[1, 1].flatten()]


def test_axe_finds_nothing_to_say(shown, cross):
    pages = pytest.importorskip("test_pages")
    masked = plots.attention_view(weights(7, 7), ENGLISH, mask=make_causal_mask(7))
    tab = shown(cross, masked, width=390, height=844)
    for summary in tab.locator("summary").all():
        summary.click()
    tab.locator("[role=rowheader]").nth(1).click()
    found = ask_axe(pages, tab)
    tab.emulate_media(color_scheme="dark")
    assert found + ask_axe(pages, tab, runOnly=pages.COLOURS) == []


def test_axe_finds_nothing_in_steps_and_lines(shown):
    pages = pytest.importorskip("test_pages")
    tab = shown(steps()[0], width=390, height=844, color_scheme="dark")
    pick(tab, "1 scores")
    cell(tab, 3, 2).click()
    assert ask_axe(pages, tab) == []
    pick(tab, "3 softmax")
    pick(tab, "overlaid")
    pick(tab, "lines")
    assert ask_axe(pages, tab) == []


def ask_axe(pages, tab, **options):
    found = pages.axe_playwright.Axe().run(tab, options={**pages.AXE, **options}).response["violations"]
    return [(problem["id"], [node["target"] for node in problem["nodes"]]) for problem in found]


def test_a_masked_cell_is_hatched_and_said(shown):
    tab = shown(plots.attention_view(weights(2, 7, 7), ENGLISH, mask=make_causal_mask(7)))
    cell(tab, 2, 5).hover()
    assert answer(tab) == "query a, key yesterday: not allowed"
    assert "gradient" in cell(tab, 2, 5).evaluate("(e) => getComputedStyle(e).backgroundImage")
    assert cell(tab, 2, 5).inner_text() == ""
    assert tab.locator(".key").inner_text().endswith("not allowed")
    tab.locator("[role=columnheader]").nth(1 + 6).hover()
    assert answer(tab).startswith("key . gets most weight from . 0.")  # one query only may look there
    assert "," not in answer(tab)


def test_tokens_are_text_and_never_markup(shown):
    size = len(HOSTILE)
    view = plots.attention_view(
        torch.eye(size).repeat(2, 1, 1), HOSTILE, names=HOSTILE[:2], label="<b>", alt=HOSTILE[1]
    )
    expected = data_of(view)["queries"]
    assert expected[:5] == HOSTILE[:5]
    tab = shown(view)
    assert tab.locator("[role=rowheader]").evaluate_all("(es) => es.map((e) => e.textContent)") == expected
    assert tab.locator("[role=columnheader] bdi").evaluate_all("(es) => es.map((e) => e.textContent)") == expected
    for i in (0, 1, 2, 14):
        cell(tab, i, i).hover()
        assert (
            tab.locator(".selection").evaluate("(e) => e.textContent")
            == f"query {expected[i]}, key {expected[i]}: <b> 1.000"
        )
    tab.get_by_text("Show the numbers as a table").click()
    tab.locator("tbody th").first.wait_for()  # the table is made when it is opened
    assert tab.locator("tbody th").evaluate_all("(es) => es.map((e) => e.textContent)") == expected
    assert tab.locator(".layer label span").all_inner_texts() == HOSTILE[:2]
    assert tab.evaluate("window.pwned") is None
    assert tab.evaluate("document.querySelectorAll('main *').length") == 11  # the heading, the view and its parts
    assert (
        tab.evaluate("document.querySelector('.attn-view').shadowRoot.querySelectorAll('img, script, b b').length") == 0
    )


def test_hostile_tokens_are_text_in_the_still_image_too(shown):
    view = plots.attention_view(torch.eye(len(HOSTILE)), HOSTILE)
    words = [e.text for e in still_svg(view).iter() if e.text]
    assert "&amp;" in words
    assert "</svg>" in words
    tab = shown(view, java_script_enabled=False)
    assert tab.locator("main *").count() >= 3
    assert tab.locator("script").count() == 8


PLACES = """() => [...document.querySelectorAll("svg text, svg tspan")].filter((e) => !e.children.length).map((e) => {
  const { left, top, right, bottom } = e.getBoundingClientRect();
  return [e.textContent, left, top, right, bottom];
})"""


def pick(tab, name, view=0):
    """Press a button of the view by its words, or a head by its name."""
    tab.locator(".attn-view").nth(view).get_by_role("radio", name=name, exact=True).check(force=True)


def labels(tab, panel=0):
    """What a screen reader gets of the cells."""
    cells = tab.locator(".panel").nth(panel).locator("[role=gridcell]")
    return cells.evaluate_all("(es) => es.map((e) => e.getAttribute('aria-label'))")


def as_tensor(said, *shape):
    return torch.tensor([float(text.replace("−", "-")) for text in said]).reshape(shape)


def test_the_means_are_those_of_all_heads(shown, cross):
    tab = shown(cross)
    for name, mean in (("layer 2, mean of the heads", W[1].mean(0)), ("mean of all layers", W.mean((0, 1)))):
        pick(tab, name)
        # The mean of numbers with three digits is half a unit off, and half a unit more when it is rounded.
        torch.testing.assert_close(as_tensor(labels(tab), 7, 11), mean, atol=0.00101, rtol=0)


def test_a_hidden_cell_counts_as_nothing_in_a_mean(shown):
    mask = torch.tensor([[[True, False], [True, False]], [[True, False], [False, True]]])
    tab = shown(plots.attention_view([[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]], AB, mask=mask))
    pick(tab, "mean of the heads")
    assert labels(tab) == ["1.000", "not allowed", "0.500", "0.500"]


def test_an_empty_row_looks_at_nothing_and_of_equal_weights_the_first_is_named(shown):
    w = torch.tensor([[0.0, 0.25, 0.75, 0.0], [0.0, 0.0, 0.0, 0.0], [0.125, 0.5, 0.125, 0.25]])
    tab = shown(plots.attention_view(w, ["a", "b", "c"], ["w", "x", "y", "z"], precision=3))
    said = []
    for row in range(3):
        tab.locator("[role=rowheader]").nth(row).hover()
        said.append(answer(tab))
    assert said[:2] == ["query a attends most to y 0.750, x 0.250", "query b attends most to nothing"]
    assert said[2] == "query c attends most to x 0.500, z 0.250, w 0.125"  # the first of equals


def test_panels_that_are_no_heads_have_no_mean(shown):
    tab = shown(plots.attention_view({"causal": weights(3, 3), "window": weights(3, 3, seed=1)}, list("abc")))
    assert tab.locator(".layer label").all_inner_texts() == ["causal", "window"]


def test_two_heads_stand_beside_each_other_and_answer_together(shown, cross):
    tab = shown(cross)
    pick(tab, "side by side")
    pick(tab, "second")
    pick(tab, "layer 2, head 3")
    titles = tab.locator(".title").all_inner_texts()
    assert [title.split(" · ")[0] for title in titles] == ["layer 1, head 1", "layer 2, head 3"]
    for panel, w in ((0, W[0, 0]), (1, W[1, 2])):
        assert labels(tab, panel) == [f"{x:.3f}" for x in w.flatten()]
    tab.locator(".panel").nth(1).locator("[role=gridcell]").nth(3 * 11 + 6).hover()
    both = f"layer 1, head 1: weight {W[0, 0, 3, 6]:.3f}; layer 2, head 3: weight {W[1, 2, 3, 6]:.3f}"
    assert answer(tab) == f"query red, key 買った: {both}"
    assert sorted(marked(tab)) == ["red", "red", "買った", "買った"]
    boxes = [panel.bounding_box() for panel in tab.locator(".panel").all()]
    assert boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"]
    assert boxes[0]["y"] == boxes[1]["y"]


def test_two_heads_in_one_grid_mix_their_colours(shown):
    tab = shown(plots.attention_view([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]], AB))
    pick(tab, "overlaid")
    orange, blue = np.array([213, 94, 0]), np.array([0, 114, 178])
    half = [255 * (1 - 0.5 * (1 - orange / 255)) * (1 - 0.5 * (1 - blue / 255))] * 2
    for (query, key), expected in zip(((0, 0), (0, 1), (1, 0), (1, 1)), [orange, blue, *half], strict=True):
        np.testing.assert_allclose(color_at(tab, query, key), expected, atol=2)
    assert labels(tab)[:2] == ["1.000 and 0.000", "0.000 and 1.000"]
    assert tab.locator(".key").inner_text().split("\n") == ["head 1", "head 2", "both"]


def test_lines_are_as_thick_as_the_weights(shown, cross):
    tab = shown(cross)
    pick(tab, "lines")
    assert tab.get_by_role("listbox", name="queries").get_by_role("option").all_inner_texts() == ENGLISH
    drawn = tab.locator(".loom path").evaluate_all("(es) => es.map((e) => +e.style.getPropertyValue('--w'))")
    rounded = W[0, 0].double().mul(1000).round().div(1000)
    assert drawn == pytest.approx(rounded[rounded >= 0.02].tolist())
    option = tab.get_by_role("option", name="bought")
    option.click()
    told = ", ".join(f"{JAPANESE[i]} {W[0, 0, 1, i]:.3f}" for i in W[0, 0, 1].topk(3).indices)
    assert answer(tab) == f"query bought attends most to {told}"
    beside = tab.get_by_role("listbox", name="keys").locator("i").all_inner_texts()
    assert beside == [f"{w:.3f}" for w in W[0, 0, 1]]
    seen = tab.locator(".loom path:not(.off)").evaluate_all("(es) => es.map((e) => +e.style.getPropertyValue('--w'))")
    assert seen == pytest.approx(rounded[1][rounded[1] >= 0.02].tolist())
    tab.keyboard.press("ArrowRight")
    assert answer(tab).startswith("key は gets most weight from ")
    tab.keyboard.press("ArrowDown")
    assert answer(tab).startswith("key 昨日 gets most weight from ")
    assert tab.get_by_role("option", selected=True).all_inner_texts() == ["昨日"]


def test_special_tokens_can_be_hidden_and_what_they_took_is_said(shown, cross):
    tab = shown(cross)
    pick(tab, "hidden")
    left = [i for i, key in enumerate(JAPANESE) if key not in ("</s>", "<pad>")]
    assert tab.locator("[role=columnheader] bdi").all_inner_texts() == [JAPANESE[i] for i in left]
    assert labels(tab) == [f"{w:.3f}" for w in W[0, 0][:, left].flatten()]
    tab.locator("[role=rowheader]").nth(4).hover()
    took = W[0, 0, 4].double().mul(1000).round()[[8, 10]].sum() / 1000
    assert answer(tab).endswith(f"; hidden tokens take {took:.3f}")
    plain = shown(plots.attention_view(weights(2, 2), AB))
    assert plain.get_by_role("radio", name="hidden").count() == 0


G = torch.Generator().manual_seed(3)
Q, K, V = (torch.randn(2, 5, size, generator=G) for size in (16, 16, 3))
CAUSAL = make_causal_mask(5)


def steps():
    context, made = attention(Q, K, V, CAUSAL)
    view = plots.attention_view(made, list("abcde"), mask=CAUSAL, q=Q, k=K, v=V)
    return view, made, context


def test_scores_mask_softmax_and_values_follow_step_by_step(shown):
    view, made, context = steps()
    tab = shown(view)
    scores = Q[1] @ K[1].mT / 4
    pick(tab, "head 2")
    assert labels(tab)[0] == f"{made[1, 0, 0]:.3f}"
    pick(tab, "1 scores")
    # Two digits are shown; 16 products of numbers with three digits add up to less than half a unit more.
    torch.testing.assert_close(as_tensor(labels(tab), 5, 5), scores, atol=0.0101, rtol=0)
    pick(tab, "2 mask")
    said = np.reshape(labels(tab), (5, 5))
    assert (said[~CAUSAL.numpy()] == "−∞, not allowed").all()
    torch.testing.assert_close(as_tensor(said[CAUSAL.numpy()].tolist(), -1), scores[CAUSAL], atol=0.0101, rtol=0)
    pick(tab, "4 values")
    assert tab.locator(".title").inner_text() == "head 2 · context: queries down, parts of the context across"
    torch.testing.assert_close(as_tensor(labels(tab), 5, 3), context[1], atol=0.0101, rtol=0)
    pick(tab, "mean of the heads")  # has no scores of its own
    assert tab.get_by_role("radio", name="4 values").is_disabled()
    assert tab.locator(".title").inner_text().startswith("mean of the heads · weight")


def rows_of(tab):
    rows = tab.locator(".sum tbody tr").evaluate_all("(es) => es.map((e) => [...e.cells].map((c) => c.textContent))")
    return [[cell.replace("−", "-") for cell in row] for row in rows]


def test_a_score_a_weight_and_a_part_of_the_context_are_taken_apart(shown):
    view, made, context = steps()
    tab = shown(view)
    cell(tab, 3, 2).click()
    *terms, total, share = rows_of(tab)
    assert share[0] == "share of c"
    assert float(share[1]) == pytest.approx(float(made[0, 3, 2]), abs=0.0011)
    assert float(total[1]) == pytest.approx(sum(float(row[-1]) for row in terms), abs=0.0026)  # five terms, half a unit
    pick(tab, "1 scores")
    *terms, others, total, score = rows_of(tab)
    products = Q[0, 3] * K[0, 2]
    order = products.abs().argsort(descending=True)
    assert [int(row[0]) for row in terms] == order[:8].tolist()
    assert [float(row[3]) for row in terms] == pytest.approx(products[order[:8]].tolist(), abs=0.004)
    assert others[0] == "the other 8"
    assert float(others[1]) == pytest.approx(float(products[order[8:]].sum()), abs=0.01)
    assert float(total[1]) == pytest.approx(float(products.sum()), abs=0.01)
    assert score[0] == "divided by √16: the score"
    assert float(score[1]) == pytest.approx(float(products.sum()) / 4, abs=0.003)
    pick(tab, "4 values")
    assert rows_of(tab) == []  # a key is no part
    tab.locator("[role=gridcell]").nth(3 * 3 + 1).click()
    *terms, hidden, total = rows_of(tab)
    assert hidden == ["the other 1", "0.000"]
    assert total[0] == "context"
    assert float(total[1]) == pytest.approx(float(context[0, 3, 1]), abs=0.004)
    expected = made[0, 3] * V[0, :, 1]
    assert {row[0]: float(row[3]) for row in terms} == pytest.approx(
        dict(zip("abcd", expected.tolist(), strict=False)), abs=0.004
    )


WEBSITE = '<script>document.documentElement.dataset.content_root = "../"</script>'


def test_the_website_keeps_what_is_shown_in_its_address(shown, cross):
    tab = shown(WEBSITE, f'<details><summary>A detail</summary><figure id="fig-look">{cross.html}</figure></details>')
    tab.locator("summary").first.click()
    pick(tab, "layer 2, head 2")
    pick(tab, "side by side")
    tab.locator(".panel").first.locator("[role=gridcell]").nth(3 * 11 + 6).click()
    tab.wait_for_url("**#fig-look?head=4&heads=beside&at=3_6")
    address = tab.url
    tab.goto("about:blank")
    tab.goto(address)
    assert tab.locator(".title").first.inner_text().startswith("layer 2, head 2 · ")
    assert answer(tab).startswith(f"query red, key 買った: layer 2, head 2: weight {W[1, 1, 3, 6]:.3f}; ")
    tab.evaluate("location.hash = 'fig-look?head=99&at=1_nonsense&draw=crayon&special=hidden&heads=one'")
    tab.wait_for_function("document.querySelector('.attn-view').shadowRoot.querySelectorAll('.panel').length == 1")
    assert tab.locator(".title").inner_text().startswith("layer 2, head 2 · ")  # what does not fit is left as it is
    assert tab.locator("[role=columnheader] bdi").count() == 9


def test_elsewhere_the_address_is_left_alone(shown, cross):
    tab = shown(cross)
    pick(tab, "layer 2, head 2")
    cell(tab, 3, 6).click()
    tab.wait_for_timeout(300)
    assert "#" not in tab.url


def test_a_screen_reader_is_told_once(shown, cross):
    tab = shown(cross)
    live = tab.locator("[aria-live]")
    assert live.count() == 1
    cell(tab, 1, 3).click()  # has the focus: its row, its column and its label are read
    tab.wait_for_timeout(300)
    assert live.text_content() == ""
    pick(tab, "layer 1, head 2")  # what was read is another number now
    tab.wait_for_timeout(300)
    assert live.text_content() == f"query bought, key 赤い: weight {W[0, 1, 1, 3]:.3f}"
    tab.locator("[role=rowheader]").nth(1).click()  # its label is the token alone
    tab.wait_for_timeout(300)
    assert live.text_content() == answer(tab)


def test_up_and_down_change_the_layer_and_left_and_right_the_head(shown, cross):
    tab = shown(cross)
    tab.keyboard.press("Tab")
    said = []
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowDown"):
        tab.keyboard.press(key)
        said.append(tab.locator(".title").inner_text().split(" · ")[0])
    assert said == ["layer 1, head 2", "layer 2, head 2", "mean of all layers", "layer 1, head 1"]


def test_twelve_heads_and_their_mean_stand_in_one_row_on_a_telephone(shown):
    tab = shown(plots.attention_view(weights(6, 12, 5, 5), list("abcde")), width=390, height=844)
    tops = [e.bounding_box()["y"] for e in tab.locator(".layer").nth(2).locator("canvas").all()]
    assert len(tops) == 13
    assert max(tops) == min(tops)
    whole = "(e) => e.scrollWidth <= e.clientWidth && e.scrollHeight <= e.clientHeight"
    assert tab.locator(".heads").evaluate(whole)


def test_a_hidden_cell_is_dark_by_night_and_numbers_stay_readable(shown):
    by_day, by_night = [], []
    ramp = torch.stack([torch.linspace(0, 1, 12), 1 - torch.linspace(0, 1, 12)])
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[0, 0] = False
    for scheme, seen in (("light", by_day), ("dark", by_night)):
        tab = shown(plots.attention_view(ramp, AB, [str(i) for i in range(12)], mask=mask), color_scheme=scheme)
        box = cell(tab, 0, 0).bounding_box()
        clip = {"x": box["x"] + 3, "y": box["y"] + 3, "width": box["width"] - 6, "height": box["height"] - 6}
        seen.append(np.asarray(Image.open(io.BytesIO(tab.screenshot(clip=clip))).convert("L")))
        assert np.ptp(seen[0].astype(int)) > 40  # the hatch can be seen
        for i in range(1, 12):
            ink = cell(tab, 0, i).evaluate("(e) => getComputedStyle(e).color")
            assert contrast(np.array(re.findall(r"\d+", ink), float), color_at(tab, 0, i).astype(float)) > 4.4
    assert by_day[0].mean() > 200
    assert by_night[0].mean() < 80


@pytest.mark.parametrize("how", ["switched off", "stripped"])
def test_without_scripts_the_first_head_is_drawn(shown, cross, how):
    tab = shown(cross, scripts=how != "stripped", java_script_enabled=how != "switched off")
    picture = tab.locator("img")
    assert picture.is_visible()
    shot = np.asarray(Image.open(io.BytesIO(picture.screenshot())).convert("RGB")).astype(int)
    group = re.search(r"translate\((\d+) (\d+)\)scale\((\d+)\)", ET.tostring(still_svg(cross)).decode())
    left, top, size = map(int, group.groups())
    for query, key in ((0, 0), (1, 4), (6, 10), (3, 7)):
        expected = np.array(sequential()(round(float(W[0, 0, query, key]), 2))[:3]) * 255
        drawn = shot[top + query * size + size // 2, left + key * size + size // 2]
        np.testing.assert_allclose(drawn, expected, atol=3)
    assert (shot[top : top + size, : left - 5] < 128).any()  # the first query's letters
    assert (shot[: top - 4, left : left + size] < 128).any()  # the first key's


RERUN = """(html) => {
  const place = document.querySelector("main");
  place.innerHTML = html;
  for (const old of place.querySelectorAll("script")) {
    const script = document.createElement("script");
    for (const { name, value } of old.attributes) script.setAttribute(name, value);
    script.textContent = old.textContent;
    old.replaceWith(script);
  }
  return [...place.querySelectorAll(".attn-view")].map((e) => !!e.shadowRoot);
}"""


def test_the_view_starts_when_its_scripts_run_after_its_html(shown, cross):
    tab = shown("<p></p>")
    for _ in range(2):  # JupyterLab does so, and again when a cell runs again
        assert tab.evaluate(RERUN, cross.html + cross.html) == [True, True]
        assert tab.locator(".view").count() == 2
    cell(tab, 3, 6, view=1).hover()
    assert answer(tab, view=1) == f"query red, key 買った: weight {W[0, 0, 3, 6]:.3f}"


def test_two_views_on_a_page_do_not_know_each_other(shown, cross):
    tab = shown(cross, cross, plots.attention_view(weights(3, 3), list("abc")))
    tab.locator(".attn-view").nth(1).get_by_label("layer 2, head 3").check(force=True)
    assert tab.locator(".layer input:checked").evaluate_all("(es) => es.map((e) => e.value)") == ["0", "5"]
    cell(tab, 1, 1, view=1).click()
    cell(tab, 0, 2, view=2).hover()
    assert answer(tab, 0).startswith("Point at")
    assert answer(tab, 1) == f"query bought, key は: weight {W[1, 2, 1, 1]:.3f}"
    assert answer(tab, 2).startswith("query a, key c: ")
    ids = (
        "[...document.querySelectorAll('.attn-view')].flatMap((e) => [...e.shadowRoot.querySelectorAll('[id]')]).length"
    )
    assert tab.evaluate(ids) == 0


def test_the_view_adds_no_global_name_and_inherits_no_style(shown, cross):
    names = "Object.getOwnPropertyNames(window).filter((name) => !/^\\d+$/.test(name)).sort()"
    rude = "* { font-size: 40px !important } p, table, label, canvas { display: none } .row { color: red }"
    bare, tab = shown("<p></p>"), shown(cross, style=rude)
    assert tab.evaluate(names) == sorted(
        [*bare.evaluate(names), "attnExplore"]
    )  # where all figures find what they share
    assert tab.locator("[role=rowheader]").first.evaluate("(e) => getComputedStyle(e).fontSize") == "12px"
    assert tab.locator("canvas").first.is_visible()


NIGHT = "html[data-theme=dark] { color: #ddd; background: #111 }"


def test_the_view_is_dark_on_a_dark_page(shown, cross):
    dark = "document.querySelector('.attn-view').hasAttribute('data-dark')"
    assert shown(cross, color_scheme="light").evaluate(dark) is False
    shown(cross, color_scheme="dark").wait_for_function(dark)  # the view looks in its first frame
    assert shown(cross, color_scheme="dark", plain=True).evaluate(dark) is False  # black on white all the same
    tab = shown(cross, style=NIGHT, plain=True)
    assert tab.evaluate(dark) is False
    tab.evaluate("document.documentElement.dataset.theme = 'dark'")
    tab.wait_for_function(dark)
    background = (
        "getComputedStyle(document.querySelector('.attn-view').shadowRoot.querySelector('.view')).backgroundColor"
    )
    assert tab.evaluate(background) == "rgb(20, 24, 29)"
    tab.evaluate("document.documentElement.dataset.theme = 'light'")
    tab.wait_for_function(f"!{dark}")
    tab.evaluate("document.documentElement.setAttribute('theme', 'dark')")  # as Colab does
    tab.wait_for_function(dark)


def test_paper_gets_the_still_picture(shown):
    tab = shown(big(), height=500, color_scheme="dark")
    picture = tab.locator(".attn-view > img").first
    assert tab.locator(".view").first.is_visible()
    assert not picture.is_visible()
    tab.emulate_media(media="print")
    assert not tab.locator(".view").first.is_visible()
    assert picture.is_visible()


def test_a_reader_who_wants_no_motion_gets_none(shown, cross):
    moving = "(e) => getComputedStyle(e).transitionDuration"
    assert shown(cross).locator(".veil").evaluate(moving) == "0s"
    assert shown(cross, reduced_motion="no-preference").locator(".veil").evaluate(moving) != "0s"


MEASURE = """() => {
  const root = document.querySelector(".attn-view").shadowRoot, grid = root.querySelector(".grid");
  const touched = new Set();
  new MutationObserver((records) => records.forEach((record) => touched.add(record.target)))
    .observe(root, { subtree: true, childList: true, attributes: true, characterData: true });
  const time = (act) => {
    const start = performance.now();
    act();
    grid.offsetHeight;
    return performance.now() - start;
  };
  const heads = [...root.querySelectorAll(".layer input")].slice(1).map((input) => time(() => input.click()));
  const cells = [...root.querySelectorAll("[role=gridcell]")];
  touched.clear();
  return new Promise((done) => setTimeout(() => {
    touched.clear();
    const over = () => new PointerEvent("pointerover", { bubbles: true, composed: true, pointerType: "mouse" });
    const hovers = [...Array(20).keys()].map((i) => time(() => cells[61 * i].dispatchEvent(over())));
    setTimeout(() => done({ heads, hovers, touched: touched.size, cells: cells.length }), 50);
  }, 50));
}"""


def test_forty_tokens_and_twelve_heads_feel_instant(shown):
    measured = shown(big()).evaluate(MEASURE)
    assert measured["cells"] == 1600
    assert measured["touched"] < 100  # twenty cells, and of each only what stands out
    # Milliseconds, the fastest of several: whatever else the machine does can only add to it.
    assert min(measured["heads"]) < 50
    assert min(measured["hovers"]) < 16


def test_as_units_stays_between_zero_and_unit():
    numbers = np.array([-0.3, 0, 0.5, 1, 1.7, np.nan, -np.inf, np.inf])
    assert as_units(numbers, 10).tolist() == [0, 0, 5, 10, 10, 0, 0, 10]
