"""The translator in the page, in a browser: its pieces, sentences and weights are Python's; what a reader meets."""

import json
import random
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from attention_book import browser_translator
from test_pages import HTML, NARROW, ROOT, WIDE, Visit, built, new_tab, site, tab  # noqa: F401

from attn_course.data.everyday import load_handwritten, make_corpus
from attn_course.data.text import detokenize_english, normalize_japanese, split_sentences
from attn_course.translation.copy_numbers import find_numbers
from attn_course.translation.source_text import add_end_mark, replace_dates, spell_japanese
from attn_course.translation.translator import LENGTH_REWARD, Translator

PAGE = "book/try_the_translator.html"
ODD = [
    "", " ", "▁", "猫▁", "▁猫", "ﾈｺﾊ ﾈﾃｲﾙ｡", "１２３円", "猫😀😀犬👨\u200d👩\u200d👧", "𠮷野家", "か\u3099っこう",
    "㌔と①と…", "a\u0085b\ufeffc\x1cd",
    "<s>猫</s>", "「はい。」と言った。いいえ。", "5．5円。（本。", "いいい", "ますますます", "Hello, world!", "猫" * 40,
]  # fmt: skip
SENTENCES = [
    "猫は窓の前で寝ています。",
    "彼を彼女が助けた。",
    "雨が降っていたので、私たちは家にいました。",
    "母は台所で夕食を作っています。",
    "会議は１４時３０分に始まります。",
    "私は昨日、鰯を食べました。",
    "お風呂が沸いたから、冷めないうちに入ってね。",
    "目覚ましが鳴らなかったので、三十分も寝坊してしまった。",
    "この箱は3.25キログラムです。",
    "授業は9:30に終わります。",
    "彼は20歳で、11人の子供がいる。",
    "父は四十五歳で、十時半に寝ます",
    "10月12日に東京へ行きます",
    "2024年5月3日と六月四日は日曜日です。",
    "電子のスピンは外部磁場の方向に量子化される。",
]
# Float32 keeps 7 digits of sums of 512 numbers, five layers deep; the page computes in float64.
WITHIN = 1e-4


@pytest.fixture(scope="module")
def translator():
    return Translator.load()


@pytest.fixture(scope="module")
def scripts(tab, site):  # noqa: F811
    """Calls JavaScript with the page's translator, in a window of its own."""
    window = tab.context.new_page()
    window.goto(f"{site}{PAGE}")
    window.evaluate("""async () => {
      const { Translator } = await import(new URL("../translator/worker.js", location));
      const [about, weights] = await Promise.all(
        ["about.json", "best.safetensors"].map((name) => fetch(`../translator/${name}`)));
      window.translator = new Translator(await about.json(), await weights.arrayBuffer());
      window.text = await import(new URL("../translator/text.js", location));
      window.page = await import(new URL("../translator/page.js", location));
    }""")
    yield window.evaluate
    window.close()


@pytest.fixture(scope="module")
def ready(tab, site):  # noqa: F811
    """The page after a first translation, and all that was asked for."""
    with Visit(tab) as visit:
        visit.open(site + PAGE)
        before = set(visit.asked)
        translate(tab, SENTENCES[0])
        yield visit, before


def translate(tab, sentence):  # noqa: F811
    tab.fill("#try-sentence", sentence)
    tab.evaluate("document.querySelector('.try-result').replaceChildren()")
    tab.evaluate("document.querySelector('.try-status').textContent = ''")
    tab.click(".try-go")
    tab.locator(".try-go:not([aria-disabled])").wait_for()
    tab.locator(".try-status:not(:empty)").wait_for()
    return tab.inner_text(".try-status")


# ---------------------------------------------------------------- the same as in Python


def japanese():
    rng = random.Random(0)
    written = [ja for ja, _ in load_handwritten()]
    drawn = [pair.japanese for pair in make_corpus(700, num_dev=20, num_test=150).test]
    signs = "".join(written)
    mixed = ["".join(rng.choices(signs, k=rng.randint(1, 20))) for _ in range(100)]
    return [*written, *drawn, *mixed, *ODD]


def test_the_page_cuts_text_into_python_s_pieces(scripts, translator):
    sentences = japanese()
    theirs = scripts(
        "texts => texts.map((t) => translator.src.cut(text.normalizeJapanese(t)).map(({ id }) => id))", sentences
    )
    ours = [translator.src_subwords.encode([normalize_japanese(text)]) for text in sentences]
    assert len(sentences) > 500
    assert theirs == ours


def test_the_page_cuts_text_into_python_s_sentences(scripts):
    sentences = ["".join(pair) for pair in pairwise(japanese())]
    theirs = scripts("texts => texts.map((t) => translator.spelling.splitSentences(t))", sentences)
    assert theirs == [split_sentences(text) for text in sentences]


def test_the_page_spells_pieces_as_python_does(scripts, translator):
    rng, size = random.Random(1), len(translator.tgt_subwords)
    ids = [rng.choices(range(3, size), k=rng.randint(1, 12)) for _ in range(300)]
    names = ["▁tom", "▁mr", "▁.", "▁tv", "▁i", "▁'", "s", "▁''", "▁new", "▁york", "▁("]
    known = [i for i in range(size) if translator.tgt_subwords.piece(i) in names]
    ids += [rng.choices(known, k=rng.randint(1, 8)) for _ in range(300)]
    theirs = scripts("lists => lists.map((ids) => translator.tgt.decode(ids))", ids)
    ours = [translator.tgt_subwords.decode(each) for each in ids]
    assert theirs == ours
    spelled = scripts("texts => texts.map((t) => translator.spelling.detokenizeEnglish(t))", ours)
    assert spelled == [detokenize_english(text) for text in ours]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_the_page_finds_python_s_translations_and_attention(scripts, translator, sentence):
    # As text: the browser's driver wraps every number of a list.
    theirs = json.loads(scripts("sentence => JSON.stringify(translator.translate(sentence))", sentence))
    ((greedy, *_),) = translator.translate_n_best([sentence], beam_size=1)
    (beam,) = translator.translate_n_best([sentence])
    for found, ours in zip([theirs["greedy"], theirs["beam"], *theirs["others"]], [greedy, *beam], strict=True):
        assert found["ids"] == ours.translation.ids
        assert found["text"] == ours.translation.text
        assert found["logProb"] == pytest.approx(ours.log_prob, abs=WITHIN * 10)
        assert found["score"] == pytest.approx(ours.score, abs=WITHIN * 10)
        assert found["unsure"] == ours.unsure
    says_it = any("unsure" in said for said in theirs["says"])
    assert says_it == beam[0].unsure
    assert [token["text"] for token in theirs["source"]] == [
        piece.removeprefix("·") for piece in translator.src_pieces(sentence)
    ]
    weights = translator.attend(sentence, beam[0].translation.ids)
    pieces = [piece or "␣" for piece in translator.tgt_pieces(beam[0].translation.ids, sentence)]
    assert [token["text"] for token in theirs["beam"]["tokens"]] == pieces
    for name, found in (("cross", theirs["beam"]["cross"]), ("encoder", theirs["encoder"])):
        for layer, numbers in zip(getattr(weights, name).flatten(1).tolist(), found, strict=True):
            np.testing.assert_allclose(numbers, layer, rtol=0, atol=WITHIN)
    for layer, numbers in zip(weights.decoder.flatten(1).tolist(), theirs["beam"]["decoder"], strict=True):
        # The future is -1 there, and 0 here.
        np.testing.assert_allclose(np.clip(numbers, 0, 1), layer, rtol=0, atol=WITHIN)


def test_the_page_finds_python_s_numbers(scripts):
    rng = random.Random(2)
    signs = "0123456789" * 2 + ".,:一二三十百千万億〇時分半年月日円前間代度と"
    texts = ["".join(rng.choices(signs, k=rng.randint(1, 10))) for _ in range(1000)]
    theirs = scripts(
        """texts => JSON.stringify(texts.map((text) => {
          const { spellings, required } = translator.copying.find(text);
          return [spellings.map(({ text, uses }) => [text, uses]), [...required]];
        }))""",
        texts,
    )
    for text, (spellings, required) in zip(texts, json.loads(theirs), strict=True):
        ours = find_numbers(text)
        assert [(s, frozenset(uses)) for s, uses in spellings] == ours.spellings, text
        assert {i: set(words) - {""} for i, words in required} == ours.required, text


def test_the_page_rewrites_numbers_and_dates_as_python_does(scripts):
    rng = random.Random(3)
    signs = "0123456789.,:一二三四五六七八九十百千万億〇時分半年月日円人歳間前代度と午後数何、本のか"
    texts = ["".join(rng.choices(signs, k=rng.randint(1, 12))) for _ in range(2000)]
    theirs = scripts(
        """texts => texts.map((text) => {
          const spelled = translator.sourceText.spell(text);
          const read = translator.sourceText.replaceDates(translator.sourceText.addEndMark(spelled));
          return [spelled, read.text, read.dates.map(({ english }) => english).join()];
        })""",
        texts,
    )
    for text, found in zip(texts, theirs, strict=True):
        spelled = spell_japanese(text)
        read, dates = replace_dates(add_end_mark(spelled))
        assert found == [spelled, read, ",".join(date.english for date in dates)], text


def test_an_end_counts_only_if_it_is_among_the_best(scripts):
    written = scripts("""async () => {
      const { search } = await import(new URL("../translator/search.js", location));
      const scores = { 0: [0, 0, -1, -0.5], 1: [0, 0, -1, -0.5], 2: [0, 0, -0.5, -1] };  // the end is 2, a word 3
      const model = { decode: (beginnings) => beginnings.map(({ length }) => Float64Array.from(scores[length])) };
      const steps = search(model, null, { size: 1, patience: 1, lengthReward: 0, maxLen: 5 });
      for (;;) {
        const { value, done } = steps.next();
        if (done) return value.map(({ id, length, logProb }) => [id, length, logProb]);
      }
    }""")
    assert written == [[2, 3, -1.5]]


def test_the_tree_s_best_branch_spells_the_translation_and_each_piece_costs_probability(scripts):
    found = json.loads(scripts("sentence => JSON.stringify(translator.translate(sentence))", SENTENCES[2]))
    nodes, at, pieces = found["nodes"], found["best"], []
    while at:
        node = nodes[at]
        assert node["logProb"] <= nodes[node["parent"]]["logProb"]
        assert node["step"] == nodes[node["parent"]]["step"] + 1
        pieces.insert(0, node["text"])
        at = node["parent"]
    assert pieces == [token["text"] for token in found["beam"]["tokens"]]
    assert nodes[found["best"]]["logProb"] == found["beam"]["logProb"]
    assert sum(node["ended"] for node in nodes) >= 10  # twice the beam


# ---------------------------------------------------------------- what the page says of it


def test_the_experiments_of_the_translator_page_have_the_described_results(scripts):
    def found(sentence):
        answer = json.loads(scripts("sentence => JSON.stringify(translator.translate(sentence))", sentence))
        return answer["beam"], answer["greedy"]

    assert found("彼を彼女が助けた。")[0]["text"] == "She helped him."
    assert found("彼女を彼が助けた。")[0]["text"] == "She helped him."  # it is the other way round
    assert found("彼が彼女を助けた。")[0]["text"] == "He helped her."
    beam, greedy = found("母は台所で夕食を作っています。")
    assert "having dinner" in beam["text"]
    assert "cooking dinner" in greedy["text"]
    assert beam["logProb"] > greedy["logProb"]
    beam, greedy = found("雨が降っていたので、私たちは家にいました。")
    assert beam["logProb"] < greedy["logProb"]
    assert beam["score"] > greedy["score"]
    assert f"a reward, {LENGTH_REWARD} in the score" in (ROOT / "book" / "try_the_translator.md").read_text("utf-8")
    fish = [found(f"私は昨日、{sign}を食べました。") for sign in ("鰯", "鱧", "😀")]
    assert fish[0] == fish[1] == fish[2]


def test_him_looks_at_its_word_and_she_nowhere_in_particular(translator):
    sentence = "彼を彼女が助けた。"
    ((best, *_),) = translator.translate_n_best([sentence])
    looks = translator.attend(sentence, best.translation.ids).cross[-1].mean(dim=0)  # as the page marks them
    she, him = looks[0], looks[2]
    assert him.argmax() == 0  # 彼
    assert him.max() > 0.5
    assert she.argmax() == len(she) - 1  # ■
    assert she.max() < 0.4


def test_two_searches_are_compared_in_a_sentence(scripts):
    def said(beam, greedy, ids=([5], [6])):
        beam, greedy = ({"logProb": p, "score": s, "ids": i} for (p, s), i in zip((beam, greedy), ids, strict=True))
        return scripts("([beam, greedy]) => page.compare(beam, greedy)", [beam, greedy])

    assert said((-1, 2), (-1, 2), ([5], [5])) == "Both searches find the same translation."
    assert "has found a more probable sentence" in said((-1, 2), (-3, 1))
    assert "adds a reward for each token" in said((-3, 2), (-1, 1))
    assert "fell out of the beam" in said((-3, 1), (-1, 2))
    assert "−3.00" in said((-3, 1), (-1, 2))


# ---------------------------------------------------------------- the page


def test_another_kind_of_transformer_is_refused_before_a_page_could_compute_nonsense(monkeypatch):
    post_norm = SimpleNamespace(norm_first=False, tie_weights=True, src_words=False)
    monkeypatch.setattr(browser_translator, "Settings", SimpleNamespace(load=lambda path: post_norm))
    message = r"norm_first \(False\) and tie_weights \(True\) must be true and src_words \(False\) false"
    with pytest.raises(ValueError, match=message):
        browser_translator.files.__wrapped__()


@pytest.mark.parametrize("size", [NARROW, WIDE])
def test_the_form_causes_no_layout_shift(tab, site, size):  # noqa: F811
    window = tab.context.new_page()
    window.set_viewport_size(size)
    # Held back until the page has been drawn without it.
    window.route("**/page.js", lambda route: (window.wait_for_timeout(300), route.continue_()))
    window.goto(f"{site}{PAGE}")
    window.locator("#try form").wait_for()
    moved = window.evaluate("""() => new Promise((seen) => {
      let sum = 0;
      const watch = (list) => list.getEntries().forEach((entry) => { sum += entry.value; });
      new PerformanceObserver(watch).observe({ type: "layout-shift", buffered: true });
      setTimeout(() => seen(sum), 300);
    })""")
    window.close()
    assert moved < 0.02


def test_the_translator_loads_the_announced_size_after_the_click_only(ready, tab):  # noqa: F811
    visit, before = ready
    assert not [url for url in before if "translator/" in url and not url.endswith(("page.js", "page.css"))]
    files = {path.name: path.stat().st_size for path in (HTML / "translator").iterdir()}
    loaded = {url.rsplit("/", 1)[1] for url in visit.asked if "/translator/" in url}
    assert loaded == set(files)
    said = float(tab.get_attribute("#try", "data-megabytes"))
    assert said == pytest.approx(sum(files.values()) / 1e6, abs=0.051)
    assert said <= 15
    assert not visit.found  # no error, and no other host


def test_the_translation_is_shown_and_announced(ready, tab, translator):  # noqa: F811
    assert translate(tab, SENTENCES[0]) == "“The cat is sleeping in front of the window.”"
    assert tab.locator(".try-english").all_inner_texts() == ["The cat is sleeping in front of the window."] * 2
    ((best, *_),) = translator.translate_n_best([SENTENCES[0]])
    rows = tab.locator(".try-row")
    assert rows.nth(1).locator("button").all_inner_texts() == translator.tgt_pieces(best.translation.ids)
    assert len(tab.workers) == 1  # the page's own thread has nothing to do


def test_the_loaded_translator_works_without_a_network(ready, tab):  # noqa: F811
    tab.context.set_offline(True)
    try:
        assert translate(tab, "これは私の本です。") == "“This is my book.”"
        tab.check("text=Japanese attends to Japanese")
        assert tab.locator(".attn-view").evaluate("view => !!view.shadowRoot")
    finally:
        tab.context.set_offline(False)


@pytest.mark.parametrize(
    ("text", "help"),
    [
        ("", "There is nothing to translate yet. Type a Japanese sentence, or choose one."),
        ("　 ", "There is nothing to translate yet. Type a Japanese sentence, or choose one."),
        ("Where is the station?", "There is no Japanese in “Where is the station”."),
        ("😀🎉", "There is no Japanese in “😀🎉”. The translator reads only Japanese."),
        ("猫" * 501, "The text has 501 characters, but the page reads at most 500. Try a single sentence."),
        ("鰻と猫" * 166, "This sentence has 498 tokens, but the page reads at most 60."),
        ("ｺﾚﾊ ﾎﾝ ﾃﾞｽ｡", "“"),
        ("猫です。犬です。", "The page translates one sentence at a time. This is the first of 2."),
        ("これは😀です。", "The vocabulary does not contain 😀."),
        ("日本", "its translation of a single word is often wrong."),
    ],
)  # fmt: skip
def test_whatever_is_typed_gets_a_sentence(ready, tab, text, help):  # noqa: F811
    assert help in translate(tab, text)


def test_pieces_views_and_tree_answer_to_the_keyboard(ready, tab):  # noqa: F811
    translate(tab, SENTENCES[0])
    tab.locator(".try-row button").first.focus()
    tab.keyboard.press("ArrowRight")
    attends = "To write cat, the decoder attends most to 猫. The weight is 0."
    assert tab.inner_text(".try-pieces .try-about").startswith(attends)
    tab.keyboard.press("End")
    assert tab.evaluate("document.activeElement.textContent") == "■"
    tab.locator(".try-node").first.focus()
    for piece in ("the", "cat", "is"):
        tab.keyboard.press("ArrowRight")
        assert tab.evaluate("document.activeElement.textContent") == piece
    assert "It is on the way to the best translation." in tab.inner_text(".try-result > .try-about")
    tab.keyboard.press("ArrowDown")
    assert "place 2 of step 3" in tab.inner_text(".try-result > .try-about")
    tab.keyboard.press("End")
    tab.wait_for_selector(".try-result > .try-about:has-text('It is the best translation.')")
    assert "book/try_the_translator" in tab.url  # the theme turns pages with the arrow keys


def test_the_views_show_python_s_weights(ready, tab, translator):  # noqa: F811
    translate(tab, SENTENCES[0])
    ((best, *_),) = translator.translate_n_best([SENTENCES[0]])
    weights = translator.attend(SENTENCES[0], best.translation.ids)
    read = """view => [...view.shadowRoot.querySelectorAll("[role=gridcell]")]
      .map((cell) => cell.getAttribute("aria-label"))"""
    for kind, layers in (
        ("English attends to Japanese", weights.cross),
        ("Japanese attends to Japanese", weights.encoder),
        ("English attends to English", weights.decoder),
    ):
        tab.check(f"text={kind}")
        view = tab.locator(".attn-view")
        for index, head in ((0, layers[-1].mean(dim=0)), (-1, layers[0, -1])):
            view.locator("input[name=head]").nth(index).check()
            shown = [0.0 if label == "not allowed" else float(label) for label in view.evaluate(read)]
            np.testing.assert_allclose(shown, head.flatten(), rtol=0, atol=0.0006)  # three digits


def test_the_other_search_shows_its_own_pieces(ready, tab):  # noqa: F811
    translate(tab, SENTENCES[3])
    assert "having" in tab.locator(".try-row").nth(1).inner_text()
    tab.locator(".try-found input").nth(1).check()
    assert "cooking" in tab.locator(".try-row").nth(1).inner_text()


@pytest.mark.parametrize("width", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_translator_page_has_no_fault_after_a_translation(ready, tab, width, scheme):  # noqa: F811
    visit, _ = ready
    visit.set(width, scheme)
    translate(tab, SENTENCES[5])
    assert "try-unknown" in tab.locator(".try-row >> text=鰯").get_attribute("class")
    found = [complaint for axe in ("all", "colours") for complaint in visit.look(width=width, scheme=scheme, axe=axe)]
    assert not found, "\n".join(["", *found])


def test_pieces_appear_one_after_the_other_unless_motion_is_unwelcome(ready, tab):  # noqa: F811
    later = ".try-row .try-later"
    translate(tab, SENTENCES[0])
    tab.wait_for_timeout(50)
    assert tab.locator(later).count() == 0
    tab.emulate_media(reduced_motion="no-preference")
    translate(tab, SENTENCES[0])
    tab.locator(f"{later} >> nth=-1").wait_for(state="attached")
    tab.wait_for_function("() => !document.querySelector('.try-row .try-later')")
    tab.emulate_media(reduced_motion="reduce")


def test_the_form_of_the_start_page_translates_its_sentence(tab, site):  # noqa: F811
    window = tab.context.new_page()
    window.set_viewport_size(WIDE)
    window.goto(f"{site}index.html")
    form = window.locator(".course-translate")
    assert form.bounding_box()["y"] < 600  # on the first screen
    form.locator("button").click()
    window.locator(".try-status:not(:empty) >> text=“She bought three books at the station yesterday.”").wait_for()
    window.close()
