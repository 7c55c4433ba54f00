// The picture that answers: weights as a grid or as lines, of one head or of two, step by step, and taken apart.
// Controls, state and address are those of the explorable figures. It sets text by textContent alone, so a token is
// never markup, and lives in a shadow root: no name, id or style leaks out, and no style of the page leaks in.
import { clamp, element, Figure, number, setAttributes } from "../explore/core.js";
import { gradient, readWeights } from "./attention_view_data.js";
import { makeGrid } from "./attention_view_grid.js";
import { FAINT, makeLines } from "./attention_view_lines.js";
import { takeApart } from "./attention_view_terms.js";

/** @typedef {import("./attention_view_data.js").Map_} Map_ */
/** @typedef {[number, number]} Spot a query and a key, or a component; -1 for none */
/** @typedef {{ maps: Map_[], e: HTMLElement, at: Map<Element, Spot>, stop: any, paint: () => void, mark: (spot: Spot) => void, fit: () => void, next: (event: KeyboardEvent, spot: Spot) => any }} Panel */
/** @typedef {import("../explore/core.js").Child} Child */

const STYLE = "attention_view.css";
const SPECIAL = /^(<[^<>\s]+>|\[[A-Z]+\])$/;
const PAIR = [
  [213, 94, 0],
  [0, 114, 178],
]; // two heads in one grid: orange and blue, and dark where both attend

/** @param {HTMLElement} host */
function start(host) {
  const data = JSON.parse(host.querySelector("script")?.textContent ?? "");
  const { label, layers, heads, queries, keys = queries } = data,
    L = layers.length,
    S = keys.length,
    all = layers.length * heads.length;
  const { maps, picker, stage, colors, signed, digits, unit, D, q, k, v, ofHeads } = readWeights(data);
  data.id = host.closest("figure[id]")?.id; // a chapter's figures have addresses

  const figure = new Figure(host, data, {
    head: 0,
    other: Math.min(1, maps.length - 1),
    slot: "first",
    heads: "one",
    draw: "grid",
    step: "weights",
    special: "shown",
    at: [-1, -1],
  });
  const { state } = figure;
  for (const name of ["head", "other"])
    figure.parsers[name] = (text) => (/^\d+$/.test(text) && +text < maps.length ? +text : undefined);
  const special = (token) => SPECIAL.test(token);
  const two = () => state.heads !== "one",
    chosen = () => [maps[state.head], ...(two() ? [maps[state.other]] : [])];
  const step = () => (q && chosen().every((map) => map.head >= 0) ? state.step : "weights");
  const plain = () => step() === "weights",
    lined = () => plain() && state.draw === "lines";
  const groups = () => (state.heads === "over" && plain() ? [chosen()] : chosen().map((map) => [map]));
  const kept = (tokens) => tokens.map((_, i) => i).filter((i) => state.special === "shown" || !special(tokens[i]));
  const across = () => (step() === "values" ? v[0][0].map((_, i) => i) : kept(keys));
  const nameAcross = (c) => (step() === "values" ? String(c) : keys[c]);

  // ---- one number: as a number, in words, as a colour
  /** @param {Map_} map @param {number} r @param {number} c */
  const value = (map, r, c) => (plain() ? map.numbers[r * S + c] / unit : stage(map.head, step()).table[r][c]);
  const hidden = (x) => x < 0 && (plain() || x === -Infinity);
  /** @param {number} x */
  const format = (x) =>
    !plain() ? (hidden(x) ? "−∞, not allowed" : number(x)) : x < 0 ? "not allowed" : x.toFixed(digits);
  /** @param {Map_[]} group @param {number[]} values @returns {number[] | null} */
  const color = (group, values) => {
    if (values.every(hidden)) return null;
    if (values.length > 1)
      return [0, 1, 2].map((c) =>
        values.reduce((light, w, i) => light * (1 - Math.max(0, w) * (1 - PAIR[i][c] / 255)), 255),
      );
    return plain()
      ? colors[Math.round(values[0] * 255)]
      : signed[Math.round((clamp(values[0] / stage(group[0].head, step()).bound + 1, 0, 2) / 2) * 255)];
  };
  /** @param {HTMLCanvasElement} canvas @param {number[]} rows @param {number[]} columns @param {(r: number, c: number) => number[] | null} shade */
  const paint = (canvas, rows, columns, shade) => {
    setAttributes(canvas, { width: columns.length, height: rows.length });
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")),
      image = context.createImageData(columns.length, rows.length);
    let i = 0;
    for (const r of rows)
      for (const c of columns) {
        const rgb = shade(r, c);
        if (rgb) image.data.set([...rgb, 255], 4 * i);
        i++;
      }
    context.putImageData(image, 0, 0);
  };
  const newCanvas = (attributes = {}) => element("canvas", { "aria-hidden": "true", ...attributes });

  // ---- layers and heads: small pictures to choose from, one group of native radio buttons
  const choose = element(
    "fieldset",
    { class: "heads" },
    element("legend", {}, L > 1 ? "Choose a layer and a head" : ofHeads ? "Choose a head" : "Choose a panel"),
  );
  /** @type {any[]} */
  const inputs = [];
  for (const { layer, ids } of picker) {
    const line = element("div", { class: "layer" }, ...(L > 1 ? [element("span", {}, layer)] : []));
    for (const id of ids) {
      const small = newCanvas();
      inputs[id] = element("input", { type: "radio", name: "head", value: id, "aria-label": maps[id].name });
      paint(
        small,
        queries.map((_, i) => i),
        keys.map((_, i) => i),
        (r, c) => {
          const n = maps[id].numbers[r * S + c];
          return n < 0 ? null : colors[Math.round((n / unit) * 255)];
        },
      );
      line.append(
        element(
          "label",
          {},
          inputs[id],
          small,
          element("span", { class: maps[id].head < 0 && "mean" }, maps[id].small),
        ),
      );
    }
    choose.append(line);
  }
  choose.style.setProperty("--heads", String(Math.max(...picker.map(({ ids }) => ids.length))));
  choose.addEventListener("change", (event) =>
    change({ [two() && state.slot === "second" ? "other" : "head"]: +event.target.value }),
  );
  choose.addEventListener("keydown", (event) => {
    const down = { ArrowUp: -1, ArrowDown: 1 }[event.key],
      id = inputs.indexOf(event.target);
    if (!down || picker.length < 2 || id < 0) return;
    event.preventDefault(); // left and right are the browser's; up and down stay with the head and change the layer
    const row = picker.findIndex(({ ids }) => ids.includes(id)),
      to = picker[(row + down + picker.length) % picker.length].ids;
    const next = inputs[to[Math.min(picker[row].ids.indexOf(id), to.length - 1)]];
    next.focus();
    next.click();
  });

  // ---- other ways to look
  if (all > 1) {
    figure.choice("heads", ofHeads || L > 1 ? "Heads" : "Panels", {
      one: "one",
      beside: "side by side",
      over: "overlaid",
    });
    const slot = figure.choice("slot", "Choose the", { first: "first", second: "second" });
    figure.effects.push(() => {
      slot.hidden = !two();
    });
    delete figure.parsers.slot; // of no use in an address
  }
  /** @type {HTMLFieldSetElement} */
  const draws = figure.choice("draw", "Draw", { grid: "a grid", lines: "lines" });
  figure.effects.push(() => {
    draws.disabled = !plain();
  });
  if (q) {
    const steps = figure.choice("step", "Step", {
      scores: "1 scores",
      mask: "2 mask",
      weights: "3 softmax",
      ...(v ? { values: "4 values" } : {}),
    });
    figure.effects.push(() => {
      steps.disabled = chosen().some((map) => map.head < 0);
    });
  }
  if ([...queries, ...keys].some(special) && !queries.every(special) && !keys.every(special))
    figure.choice("special", "Special tokens", { shown: "shown", hidden: "hidden" });
  figure.parsers.at = (text) => {
    const spot = text.split("_").map(Number);
    return spot.length === 2 && spot.every(Number.isInteger) ? spot : undefined;
  };

  // ---- what is said
  const whats = { scores: "score", mask: "score after the mask", weights: label, values: "context" };
  const what = () => whats[/** @type {"weights"} */ (step())];
  /** @param {Map_[]} group */
  const titleOf = (group) =>
    [
      group
        .map((map) => map.name)
        .filter(Boolean)
        .join(" and "),
      `${what()}: queries ${lined() ? "left, keys right" : `down, ${step() === "values" ? "parts of the context" : "keys"} across`}`,
    ]
      .filter(Boolean)
      .join(" · ");
  const quoted = (token) => element("b", {}, element("bdi", {}, token));
  const bold = (text) => element("b", {}, text);
  /** The same of each head that is shown, with its name where there are two. @param {(map: Map_) => Child[]} tell @returns {Child[]} */
  const ofEach = (tell) =>
    chosen().flatMap((map, i) => [...(i ? ["; "] : [" "]), ...(two() ? [`${map.name}: `] : []), ...tell(map)]);
  /** @param {string[]} tokens @param {number[]} places @param {(i: number) => number} weigh @returns {Child[]} */
  const best = (tokens, places, weigh) => {
    const order = places
      .map((i) => /** @type {[number, string]} */ ([weigh(i), tokens[i]]))
      .filter(([x]) => (plain() ? x > 0 : !hidden(x)));
    order.sort((a, b) => b[0] - a[0]);
    const parts = order.slice(0, 3).flatMap(([x, token], i) => [i ? ", " : "", quoted(token), ` ${format(x)}`]);
    return parts.length ? parts : ["nothing"];
  };
  /** @returns {Child[]} */
  const answer = () => {
    const [r, c] = marked(),
      values = step() === "values";
    if (r < 0 && c < 0)
      return [
        lined()
          ? "Point at a token, tap it, or press the arrow keys."
          : "Point at a cell or a token, tap it, or press the arrow keys.",
      ];
    const key = [values ? "part " : "key ", quoted(c >= 0 ? nameAcross(c) : "")],
      query = ["query ", quoted(queries[Math.max(r, 0)])];
    if (r >= 0 && c >= 0)
      return [
        ...query,
        ", ",
        ...key,
        ":",
        ...ofEach((map) =>
          hidden(value(map, r, c)) ? [format(value(map, r, c))] : [`${what()} `, bold(format(value(map, r, c)))],
        ),
      ];
    if (values)
      return r >= 0
        ? [...query, ": its context has ", String(across().length), " parts"]
        : [...key, " of all contexts"];
    if (c >= 0)
      return [
        ...key,
        plain() ? " gets most weight from" : " scores highest with",
        ...ofEach((map) => best(queries, kept(queries), (i) => value(map, i, c))),
      ];
    const rest = (map) =>
      plain() && state.special === "hidden"
        ? keys.reduce((sum, key, i) => sum + (special(key) ? Math.max(0, value(map, r, i)) : 0), 0)
        : 0;
    return [
      ...query,
      plain() ? " attends most to" : " scores highest with",
      ...ofEach((map) => [
        ...best(keys, kept(keys), (i) => value(map, r, i)),
        ...(rest(map) > 0 ? [`; hidden tokens take ${format(rest(map))}`] : []),
      ]),
    ];
  };

  // ---- the frame
  const panels = element("div", { class: "panels" }),
    selection = element("p", { class: "selection" }),
    legend = element("p", { class: "key" }),
    terms = element("div", { class: "apart" });
  const fold = element("details", {}, element("summary", {}, "Show the numbers as a table"));
  const view = element(
    "div",
    { class: "view", role: "group", "aria-label": data.name },
    ...(all > 1 ? [choose] : []),
    figure.controls,
    panels,
    element("div", { class: "below" }, selection, legend),
    terms,
    fold,
    figure.status,
  );

  /** @type {Panel[]} */
  let sheets = [];
  let built = "",
    loud = false;
  /** @type {Spot | null} */
  let hovered = null;
  /** The cell, row or column under the pointer, else the one chosen by key, click or tap; -1 for what is not shown. @returns {Spot} */
  const marked = () => {
    const [r, c] = hovered ?? state.at;
    return [kept(queries).includes(r) ? r : -1, across().includes(c) ? c : -1];
  };
  const shared = { state, maps, queries, keys, digits, D, q, k, v, stage, step, plain, two, kept, across, nameAcross };
  Object.assign(shared, { value, hidden, format, color, paint, newCanvas, titleOf, quoted, marked });
  const show = () => {
    const spot = marked(),
      nothing = spot[0] < 0 && spot[1] < 0;
    sheets.forEach((sheet) => sheet.mark(spot));
    selection.replaceChildren(...answer());
    selection.classList.toggle("quiet", nothing);
  };
  const scale = () => {
    const swatch = (css) => element("i", { style: css }),
      named = (mark, name) => element("span", {}, mark, name);
    const mixed = PAIR[0].map((x, i) => (x * PAIR[1][i]) / 255),
      flat = (rgb) => swatch(`width: 0.9rem; background: rgb(${rgb})`);
    if (lined())
      legend.replaceChildren(
        ...(two() && state.heads === "over"
          ? chosen().map((map, i) => named(element("i", { class: `swatch of${i}` }), map.name))
          : []),
        `thicker is more, no line below ${FAINT}`,
      );
    else if (groups()[0].length > 1)
      legend.replaceChildren(...chosen().map((map, i) => named(flat(PAIR[i]), map.name)), named(flat(mixed), "both"));
    else if (plain()) legend.replaceChildren("0", swatch(gradient(colors)), `1 ${label}`);
    else {
      const bound = number(stage(chosen()[0].head, step()).bound);
      legend.replaceChildren(`−${bound}`, swatch(gradient(signed)), bound);
    }
    if (
      !lined() &&
      step() !== "scores" &&
      step() !== "values" &&
      chosen().some((map) => map.numbers.some((n) => n < 0))
    )
      legend.append(element("i", { class: "no" }), "not allowed");
  };
  const fill = () => {
    if (!fold.open) return;
    const line = (name, scope, cells) =>
      element("tr", {}, name, ...cells.map((text) => element(scope ? "th" : "td", scope ? { scope } : {}, text)));
    fold.replaceChildren(
      fold.firstChild,
      ...chosen().map((map) => {
        const title = titleOf([map]),
          columns = across();
        const lines = kept(queries).map((r) =>
          line(
            element("th", { scope: "row" }, queries[r]),
            "",
            columns.map((c) => format(value(map, r, c))),
          ),
        );
        const first = element("thead", {}, line(element("td", {}, "query ↓ key →"), "col", columns.map(nameAcross)));
        return element(
          "div",
          { class: "table", tabindex: 0, role: "region", "aria-label": `Table of ${title}` },
          element("table", {}, element("caption", {}, title), first, element("tbody", {}, ...lines)),
        );
      }),
    );
  };
  /** @param {Panel} sheet @param {any} e @param {boolean} focus */
  const stopAt = (sheet, e, focus) => {
    if (e !== sheet.stop) sheet.stop.removeAttribute("tabindex"); // taken from what has the focus, it would take that too
    sheet.stop = e;
    e.setAttribute("tabindex", "0");
    if (focus) e.focus();
  };
  const build = () => {
    const shape = [lined(), two(), groups().length, step() === "values", state.special].join();
    const now = groups();
    if (shape === built) {
      sheets.forEach((sheet, i) => sheet.maps.splice(0, 2, ...now[i]));
      return;
    }
    built = shape;
    hovered = null;
    sheets = now.map((group) => (lined() ? makeLines : makeGrid)(shared, [...group]));
    sheets.forEach((sheet) => stopAt(sheet, sheet.stop, false));
    panels.replaceChildren(...sheets.map((sheet) => sheet.e));
  };
  let last = "";
  figure.drawn = {
    draw() {
      inputs.forEach((input, id) => {
        input.checked = id === (two() && state.slot === "second" ? state.other : state.head);
        setAttributes(input.parentElement, {
          class: [id === state.head && "first", two() && id === state.other && "second"].filter(Boolean).join(" "),
        });
      });
      // A step of its own for the cell that is chosen: with it nothing is painted again.
      const painted = JSON.stringify({ ...state, at: 0, slot: 0 });
      if (painted !== last) {
        last = painted;
        build();
        sheets.forEach((sheet) => sheet.paint());
        sheets.forEach((sheet) => sheet.fit());
        scale();
        fill();
      }
      show();
      terms.replaceChildren(...takeApart(shared));
    },
    // What has the focus is said by the browser; what changes around it is said here.
    describe: () => (loud && marked().some((i) => i >= 0) ? (selection.textContent ?? "") : ""),
  };
  /** Drawn at once, so that the eye sees the answer under the pointer. @param {Record<string, any>} to */
  function change(to) {
    loud = !("at" in to) || to.at.includes(-1);
    if ((to.step ?? state.step) !== state.step && [to.step, state.step].includes("values"))
      state.at = [state.at[0], -1]; // a part is no key
    Object.assign(state, to);
    figure.touched = true;
    figure.draw();
  }
  figure.change = change;
  if (!data.id) figure.remember = () => {};

  /** @param {Event} event @returns {[Panel, any] | []} */
  const over = (event) => {
    for (const e of /** @type {Element[]} */ (event.composedPath()))
      for (const sheet of sheets) if (sheet.at.has(e)) return [sheet, e];
    return [];
  };
  const moved = (event) => {
    const [sheet, e] = event.pointerType === "touch" || event.type === "pointerleave" ? [] : over(event),
      next = sheet?.at.get(e) ?? null;
    if (next === hovered) return;
    hovered = next;
    show();
  };
  panels.addEventListener("pointerover", moved);
  panels.addEventListener("pointerleave", moved);
  const take = (event) => {
    const [sheet, e] = over(event);
    if (!sheet) return;
    stopAt(sheet, e, event.type === "click");
    if (String(sheet.at.get(e)) !== String(state.at)) change({ at: [...(sheet.at.get(e) ?? [])] });
  };
  panels.addEventListener("click", take);
  panels.addEventListener("focusin", take);
  panels.addEventListener("keydown", (event) => {
    const [sheet, e] = over(event);
    if (!sheet) return;
    if (event.key === "Escape") {
      hovered = null;
      change({ at: [-1, -1] });
    }
    if (event.altKey) return;
    const next = sheet.next(event, /** @type {Spot} */ (sheet.at.get(e)));
    if (next === undefined) return;
    event.preventDefault();
    hovered = null;
    if (next) stopAt(sheet, next, true);
  });
  fold.addEventListener("toggle", fill);
  figure.mount(view, STYLE);
  new ResizeObserver(() => sheets.forEach((sheet) => sheet.fit())).observe(panels);
}

function scan() {
  for (const host of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("div.attn-view")))
    if (!host.shadowRoot) start(host);
}
scan();
if (document.readyState === "loading") addEventListener("DOMContentLoaded", scan);
