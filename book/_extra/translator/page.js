// The form, the pieces, the views and the tree of book/try_the_translator.

/** @typedef {import("./worker.js").Token} Token */
/** @typedef {import("./worker.js").Found} Found */
/** @typedef {import("./worker.js").Node} Node */
/** @typedef {ReturnType<import("./worker.js").Translator["translate"]>} Translation */

// Each example with its meaning.
const SENTENCES = [
  ["猫は窓の前で寝ています。", "The cat is sleeping in front of the window."],
  ["彼を彼女が助けた。", "She helped him."],
  ["雨が降っていたので、私たちは家にいました。", "It was raining, so we stayed at home."],
  ["母は台所で夕食を作っています。", "My mother is cooking dinner in the kitchen."],
  ["会議は１４時３０分に始まります。", "The meeting begins at 2:30 p.m."],
  ["私は昨日、鰯を食べました。", "I ate sardines yesterday."],
];

/**
 * @param {string} tag
 * @param {Record<string, string | number | boolean>} attributes true for one without a value, false for none
 * @param {(Node_ | string)[]} children
 * @returns {any}
 * @typedef {globalThis.Node} Node_
 */
function make(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (value !== false) e.setAttribute(name, value === true ? "" : String(value));
  e.append(...children);
  return e;
}

/** @param {number} n */
const said = (n) => n.toFixed(2).replace("-", "−");
/** @param {Token[]} tokens */
const texts = (tokens) => tokens.map(({ text }) => text);
/** @param {Token} token */
const look = ({ known }) => ({
  class: known ? "try-piece" : "try-piece try-unknown",
  ...(known ? {} : { title: "not in the vocabulary" }),
});

// ---------------------------------------------------------------- weights, as attention_view reads them

const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstvwxyz-_.";

/**
 * Numbers from 0 to 1 with three digits, ten bits each, six bits to a sign; below 0 is "not allowed".
 * @param {number[]} numbers
 */
export function pack(numbers) {
  let text = "",
    held = 0,
    bits = 0;
  for (const number of numbers) {
    held = (held << 10) | (number < 0 ? 1023 : Math.round(1000 * number));
    for (bits += 10; bits >= 6; bits -= 6) {
      text += DIGITS[(held >> (bits - 6)) & 63];
      held &= (1 << (bits - 6)) - 1;
    }
  }
  return `3:${text}${bits ? DIGITS[(held << (6 - bits)) & 63] : ""}`;
}

/**
 * The mean of the heads of a layer, and then the heads.
 * @param {number[]} weights
 * @param {number} numHeads
 */
export function withMean(weights, numHeads) {
  const size = weights.length / numHeads;
  const mean = Array.from({ length: size }, (_, i) => {
    let sum = 0;
    for (let h = 0; h < numHeads; h++) sum += weights[h * size + i];
    return sum / numHeads;
  });
  return [...mean, ...weights];
}

/**
 * @param {{ script: string, data: object }} template
 * @param {string} name
 * @param {number[][]} layers
 * @param {string[]} queries
 * @param {string[]} keys
 */
function makeView(template, name, layers, queries, keys) {
  const numHeads = layers[0].length / queries.length / keys.length;
  const data = {
    ...template.data,
    name,
    label: "weight",
    // The view opens with the first layer and head: with the mean that the text above it describes.
    layers: layers.map((_, l) => `layer ${l + 1}`).reverse(),
    heads: ["mean", ...Array.from({ length: numHeads }, (_, h) => `head ${h + 1}`)],
    queries,
    keys,
    weights: pack(
      layers
        .map((weights) => withMean(weights, numHeads))
        .reverse()
        .flat(),
    ),
  };
  const numbers = make("script", { type: "application/json" }),
    script = make("script");
  numbers.textContent = JSON.stringify(data);
  script.textContent = template.script;
  return make("div", { class: "attn-view" }, numbers, script);
}

/**
 * @param {Found} beam
 * @param {Found} greedy
 */
export function compare(beam, greedy) {
  if (String(beam.ids) === String(greedy.ids)) return "Both searches find the same translation.";
  const both = `The log-probability is ${said(beam.logProb)} for beam search and ${said(greedy.logProb)} for greedy search.`;
  if (beam.logProb > greedy.logProb) return `${both} Beam search has found a more probable sentence.`;
  if (beam.score > greedy.score)
    return `${both} The sentence of beam search is less probable, but it has a higher score, because the score adds a reward for each token and subtracts points for each missing number.`;
  return `${both} The beginning of the greedy sentence fell out of the beam, so beam search has found a sentence with a lower score.`;
}

// ---------------------------------------------------------------- the beam as a tree

/**
 * @param {Node[]} nodes
 * @param {number} best
 * @param {number} size
 * @param {number} room the width that the page has for it
 */
function makeTree(nodes, best, size, room) {
  const GAP = 16,
    TALL = 30,
    LOW = 24;
  /** @param {number} i @returns {number[]} */
  const path = (i) => (i < 0 ? [] : [...path(nodes[i].parent), i]);
  const winning = new Set(path(best));
  const living = new Set(
    nodes.flatMap((node, i) => (node.ended || node.step === nodes[nodes.length - 1].step ? path(i) : [])),
  );
  // Each step is as wide as its longest token.
  const pen = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
  pen.font = `700 13px ${getComputedStyle(document.body).fontFamily}`; // as .try-node in page.css
  /** @type {number[]} */
  const wide = [];
  for (const { step, text } of nodes)
    wide[step] = Math.max(wide[step] ?? 26, Math.min(110, Math.ceil(pen.measureText(text).width) + 12));
  // Steps that do not fit side by side go on below, after the last step of the row above, which is shown once more.
  /** @type {{ first: number, width: number, top: number }[]} */
  const rows = [];
  /** @type {number[]} */
  const left = [];
  let height = 0;
  wide.forEach((one, step) => {
    const row = rows[rows.length - 1];
    if (row && row.width + GAP + one <= room) {
      left[step] = row.width + GAP;
      row.width += GAP + one;
    } else {
      left[step] = step ? wide[step - 1] + GAP : 0;
      rows.push({ first: step, width: left[step] + one, top: 0 });
    }
  });
  rows.forEach((row, i) => {
    const last = rows[i + 1]?.first ?? wide.length;
    const places = nodes.filter(({ step }) => step >= row.first - 1 && step < last).map(({ place }) => place);
    row.top = height;
    height += (Math.max(...places) + 1) * TALL + (last < wide.length ? 12 : 0);
  });
  /** @param {number} step */
  const rowOf = (step) => [...rows].reverse().find(({ first }) => first <= step) ?? rows[0];
  const width = Math.max(...rows.map((row) => row.width)) + 2;
  const lines = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [name, value] of Object.entries({ width, height, "aria-hidden": "true" }))
    lines.setAttribute(name, String(value));
  const box = make("div", { class: "try-nodes", style: `width: ${width}px; height: ${height}px` }, lines);
  const about = make("p", { class: "try-about" }, "Point at a token, tap it, or move to it with the arrow keys.");
  /** @param {number} i */
  const sentence = (i) =>
    path(i)
      .slice(1)
      .map((at) => nodes[at].text)
      .join(" ")
      .replaceAll(" ·", "");
  /** @param {number} i */
  const describe = (i) => {
    const { ended, logProb, score, place, step } = nodes[i];
    if (!step) return "This is the start of the search. No token has been written yet.";
    const state = ended
      ? `The sentence is complete, and its score is ${said(score)}.`
      : living.has(i)
        ? "The search kept it in the beam."
        : "All its continuations fell out of the beam.";
    const role =
      i === best ? " It is the best translation." : winning.has(i) ? " It is on the way to the best translation." : "";
    return `“${sentence(i)}” has a log-probability of ${said(logProb)} and is in place ${place + 1} of step ${step}. ${state}${role}`;
  };
  /** @type {Map<number, HTMLElement>} */
  const again = new Map();
  /** @type {HTMLElement[]} */
  const spots = nodes.map((node, i) => {
    const kind = winning.has(i) ? " try-best" : living.has(i) ? "" : " try-lost";
    const row = rowOf(node.step);
    const [x, y] = [left[node.step], row.top + node.place * TALL];
    if (i) {
      const from = nodes[node.parent],
        line = document.createElementNS("http://www.w3.org/2000/svg", "path");
      const above = from.step < row.first;
      const [fx, fy] = [(above ? 0 : left[from.step]) + wide[from.step], row.top + from.place * TALL + LOW / 2];
      if (above && !again.has(node.parent))
        again.set(
          node.parent,
          make(
            "span",
            {
              class: `try-node try-again${winning.has(node.parent) ? " try-best" : ""}`,
              "aria-hidden": "true",
              style: `left: 0; top: ${row.top + from.place * TALL}px; width: ${wide[from.step]}px; height: ${LOW}px`,
            },
            from.text,
          ),
        );
      line.setAttribute("d", `M${fx} ${fy}C${fx + 11} ${fy} ${x - 11} ${y + LOW / 2} ${x} ${y + LOW / 2}`);
      line.setAttribute("class", kind.trim());
      if (winning.has(i)) lines.append(line);
      else lines.prepend(line);
    }
    const spot = make(
      "button",
      {
        type: "button",
        class: `try-node${kind}`,
        tabindex: i ? -1 : 0,
        "aria-label": describe(i),
        style: `left: ${x}px; top: ${y}px; width: ${wide[node.step]}px; height: ${LOW}px`,
      },
      node.text,
    );
    const tell = () => about.replaceChildren(describe(i));
    spot.addEventListener("pointerenter", tell);
    spot.addEventListener("focus", tell);
    spot.addEventListener("click", tell);
    return spot;
  });
  box.append(...spots, ...again.values());
  box.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const i = spots.indexOf(/** @type {HTMLElement} */ (event.target)),
      { step, place, parent } = nodes[i];
    /** @param {number} at */
    const there = (at) => nodes.findIndex((n) => n.step === step && n.place === at);
    const children = nodes.flatMap((n, at) => (n.parent === i ? [at] : []));
    /** @type {Record<string, number | undefined>} */
    const moves = {
      ArrowLeft: parent,
      ArrowRight: children.find((at) => winning.has(at)) ?? children[0],
      ArrowUp: there(place - 1),
      ArrowDown: there(place + 1),
      Home: 0,
      End: best,
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    event.stopPropagation(); // the theme turns pages with the arrow keys
    const next = spots[moves[event.key] ?? -1];
    if (!next) return;
    spots.forEach((spot) => spot.setAttribute("tabindex", "-1"));
    next.setAttribute("tabindex", "0");
    next.focus();
  });
  const scroll = make(
    "div",
    { class: "try-tree", role: "group", "aria-label": `Beam search with a beam of ${size}, step by step` },
    box,
  );
  return [about, scroll];
}

// ---------------------------------------------------------------- the page

/** @param {HTMLElement} home */
function start(home) {
  const megabytes = home.dataset.megabytes;
  const input = make("textarea", { id: "try-sentence", lang: "ja", rows: 2, autocomplete: "off", spellcheck: "false" });
  const asked = new URLSearchParams(location.search).get("sentence"); // from the form of the start page
  input.value = asked ?? SENTENCES[0][0];
  const button = make(
    "button",
    { type: "submit", class: "try-go" },
    `Load the translator (${megabytes} MB) and translate`,
  );
  const examples = make("div", { class: "try-examples", role: "group", "aria-label": "Example sentences" });
  const progress = make("progress", { max: 1, value: 0, hidden: true, "aria-label": "Loading the translator" });
  const status = make("p", { class: "try-status", role: "status" });
  const form = make(
    "form",
    { class: "try-form" },
    make("label", { for: "try-sentence" }, "Japanese sentence"),
    input,
    button,
    progress,
    status,
    examples,
  );
  const result = make("div", { class: "try-result" });
  home.replaceChildren(form, result);
  for (const [sentence, meaning] of SENTENCES) {
    const choice = make(
      "button",
      { type: "button" },
      make("span", { lang: "ja" }, sentence),
      make("small", {}, meaning),
    );
    choice.addEventListener("click", () => {
      input.value = sentence;
      if (worker) form.requestSubmit();
    });
    examples.append(choice);
  }

  /** @type {Worker | undefined} */
  let worker;
  /** @type {{ script: string, data: object }} */
  let template;
  let busy = false;

  form.addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    if (busy) return;
    busy = true;
    button.setAttribute("aria-disabled", "true");
    if (!worker) {
      worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
      worker.onmessage = ({ data }) => answer(data);
      worker.onerror = () => answer({ type: "failed", says: "this browser cannot run its script" });
      progress.hidden = false;
    }
    status.textContent = template ? "" : `Loading the translator (${megabytes} MB).`;
    worker.postMessage(input.value);
  });
  input.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    event.stopPropagation(); // the theme turns pages with the arrow keys
    if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });

  if (asked !== null) form.requestSubmit();

  /** @param {any} data */
  function answer(data) {
    if (data.type === "progress") progress.value = data.share;
    else if (data.type === "view") {
      template = data.view;
      progress.hidden = true;
      button.textContent = "Translate";
    } else {
      busy = false;
      button.removeAttribute("aria-disabled");
      progress.hidden = true;
      result.replaceChildren();
      if (data.type === "translation") show(data.translation);
      else if (data.type === "help") status.textContent = data.says;
      else status.textContent = `The translator could not be loaded (${data.says}). Click the button to try again.`;
    }
  }

  /** @param {Translation} t */
  function show(t) {
    status.textContent = [`“${t.beam.text}”`, ...t.says].join(" ");
    const pieces = make("div", { class: "try-pieces" }),
      views = make("div", { class: "try-views" });
    const choices = make(
      "fieldset",
      { class: "try-found" },
      make("legend", {}, "Choose the search whose attention you want to see"),
    );
    /** @type {[string, Found][]} */
    const found = [
      [`Beam of ${t.size}`, t.beam],
      ["Greedy search", t.greedy],
    ];
    found.forEach(([name, f], i) => {
      const radio = make("input", { type: "radio", name: "try-found", checked: !i });
      radio.addEventListener("change", () => choose(f));
      const text = make("span", { class: "try-english", lang: "en" }, f.text || "(nothing)");
      choices.append(
        make("label", {}, radio, make("b", {}, name), text, make("small", {}, `log-probability ${said(f.logProb)}`)),
      );
    });
    const table = make(
      "table",
      {},
      make("caption", {}, `Translations that the beam of ${t.size} found, best score first`),
    );
    table.append(
      make(
        "thead",
        {},
        make("tr", {}, ...["Translation", "Log-probability", "Score"].map((h) => make("th", { scope: "col" }, h))),
      ),
    );
    const rows = [t.beam, ...t.others].map((f) =>
      make("tr", {}, make("td", {}, f.text), make("td", {}, said(f.logProb)), make("td", {}, said(f.score))),
    );
    table.append(make("tbody", {}, ...rows));
    result.append(
      pieces,
      choices,
      make("p", { class: "try-compared" }, compare(t.beam, t.greedy)),
      make("h2", {}, "Attention"),
      views,
      make("h2", {}, "Beam search as a tree"),
      ...makeTree(t.nodes, t.best, t.size, Math.max(260, result.clientWidth - 24)),
      make("div", { class: "try-table", role: "region", tabindex: 0, "aria-label": table.caption.textContent }, table),
    );
    const tree = result.querySelector(".try-tree");
    const fade = () => tree.classList.toggle("goes-on", tree.scrollLeft + tree.clientWidth < tree.scrollWidth - 2);
    tree.addEventListener("scroll", fade);
    fade();
    choose(t.beam);
    examples.classList.add("try-compact"); // one row, so that the result stays in sight

    /** @param {Found} f */
    function choose(f) {
      pieces.replaceChildren(...rowsOfPieces(t.source, f));
      views.replaceChildren(...chooseView(t, f));
    }
  }

  /**
   * Two rows of tokens. The colour of a Japanese token shows how much the chosen English token attends to it.
   * @param {Token[]} source
   * @param {Found} f
   */
  function rowsOfPieces(source, f) {
    const japanese = source.map((token) => make("span", { ...look(token), lang: "ja" }, token.text));
    const note = make("p", { class: "try-about" });
    const S = source.length,
      T = f.tokens.length,
      last = f.cross[f.cross.length - 1];
    const mean = withMean(last, last.length / S / T).slice(0, S * T);
    /** @param {number} t */
    const shade = (t) => {
      const row = mean.slice(t * S, (t + 1) * S);
      const most = row.indexOf(Math.max(...row));
      japanese.forEach((e, s) => e.style.setProperty("--weight", `${Math.round(100 * row[s])}%`));
      english.forEach((e, i) => e.classList.toggle("try-on", i === t));
      note.replaceChildren(
        "To write ",
        make("b", {}, f.tokens[t].text),
        ", the decoder attends most to ",
        make("b", { lang: "ja" }, source[most].text),
        `. The weight is ${row[most].toFixed(2)}, averaged over the heads of the last layer.`,
      );
    };
    const english = f.tokens.map((token, t) => {
      const e = make("button", { ...look(token), type: "button", tabindex: t ? -1 : 0 }, token.text);
      e.addEventListener("pointerenter", () => shade(t));
      e.addEventListener("focus", () => shade(t));
      e.addEventListener("click", () => shade(t));
      return e;
    });
    const row = make("div", { class: "try-row", role: "group", "aria-label": "English tokens" }, ...english);
    row.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      const at = english.indexOf(/** @type {any} */ (event.target));
      const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: T - 1 }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      if (!english[next]) return;
      english.forEach((e, i) => e.setAttribute("tabindex", i === next ? 0 : -1));
      english[next].focus();
    });
    // The English tokens appear in the order of writing, each with its attention weights.
    const pause = matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 110;
    if (pause) english.forEach((e) => e.classList.add("try-later"));
    english.forEach((e, t) =>
      setTimeout(
        () => {
          if (!e.isConnected) return;
          e.classList.remove("try-later");
          const pointed = row.contains(document.activeElement) || row.matches(":hover");
          if (!pointed && /[\p{L}\p{N}]/u.test(f.tokens[t].text)) shade(t);
        },
        pause * (t + 1),
      ),
    );
    return [
      make("div", { class: "try-row", role: "group", "aria-label": "Japanese tokens", lang: "ja" }, ...japanese),
      row,
      note,
    ];
  }

  /**
   * @param {Translation} t
   * @param {Found} f
   */
  function chooseView(t, f) {
    const japanese = texts(t.source),
      english = texts(f.tokens),
      place = make("div", { class: "try-view" });
    const read = ["▷", ...english.slice(0, -1)];
    /** @type {[string, string, number[][], string[], string[]][]} */
    const kinds = [
      [
        "English attends to Japanese",
        "Cross-attention when the decoder writes each English token",
        f.cross,
        english,
        japanese,
      ],
      ["Japanese attends to Japanese", "Self-attention of the encoder", t.encoder, japanese, japanese],
      [
        "English attends to English",
        "Self-attention of the decoder when it writes each English token",
        f.decoder,
        english,
        read,
      ],
    ];
    const fieldset = make("fieldset", { class: "try-kinds" }, make("legend", {}, "Choose the attention"));
    kinds.forEach(([label, ...view], i) => {
      const radio = make("input", { type: "radio", name: "try-kind", checked: !i });
      radio.addEventListener("change", () => place.replaceChildren(makeView(template, ...view)));
      fieldset.append(make("label", {}, radio, label));
    });
    const [[, ...view]] = kinds;
    place.append(makeView(template, ...view));
    return [fieldset, place];
  }
}

const home = document.getElementById("try");
if (home) start(home);
