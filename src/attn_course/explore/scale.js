// Rows of scores at a width that the reader chooses: how soft they are, and how much of a gradient comes back.
import { entropy, softmax } from "./arithmetic.js";
import { make, number, set, start, svg, write } from "./core.js";

/**
 * The size of the softmax's Jacobian in a row: the root of the sum of its squared entries.
 * @param {number[]} weights
 */
export const jacobianSize = (weights) => Math.sqrt(weights.reduce((sum, w, i) => sum
  + weights.reduce((part, u, j) => part + (i === j ? w * (1 - w) : w * u) ** 2, 0), 0));

/** The lower of the two in the middle, as torch.median. @param {number[]} list */
export const median = (list) => [...list].sort((a, b) => a - b)[Math.floor((list.length - 1) / 2)];

start("scale", () => ({ width: 6, by: "root", from: "drawn" }), (figure) => {
  const { data, state } = figure, { rows } = data, bins = 20, wide = 340, high = 150, base = 124;
  figure.style = "scale.css";
  const picture = svg("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img" });
  const text = (/** @type {number} */ x, /** @type {string} */ words, /** @type {string} */ kind) => svg("text", { x, y: base + 18, class: kind }, words);
  const bars = Array.from({ length: bins }, (_, i) => svg("rect", { x: 10 + i * (wide - 20) / bins + 1, width: (wide - 20) / bins - 2, class: "count" }));
  picture.append(svg("path", { d: `M10 ${base}H${wide - 10}`, class: "axis" }), ...bars, text(10, "0", "low"), text(wide / 2, "largest weight of the row", "mid"), text(wide - 10, "1", "high"));
  const lines = ["one row: its weights", "tokens that take part, e to the mean entropy", "rows with a weight above 0.99", "gradient at q·k, mean of the rows", "gradient at q·k, median row"].map((title) => {
    const cell = make("td");
    return { cell, e: make("tr", {}, make("th", { scope: "row" }, title), cell) };
  });
  const table = make("table", {}, make("tbody", {}, ...lines.map(({ e }) => e)));
  figure.stage.append(make("figure", { class: "card" }, make("figcaption", {}, `${rows.length} rows of ${rows[0].length} weights`), picture), make("div", { class: "card" }, table));
  figure.slider("width", { label: "Width D", min: 0, max: 10, step: 1, show: (x) => String(2 ** x) });
  figure.choice("by", "Scores are", { none: "q·k", root: "q·k ÷ √D", full: "q·k ÷ D" });
  figure.choice("from", "Queries and keys", { drawn: "of variance 1", layer: "from a new nn.Linear" });
  const now = () => {
    const D = 2 ** state.width, divisor = { none: 1, root: Math.sqrt(D), full: D }[/** @type {"none"} */ (state.by)];
    const factor = Math.sqrt(D) / divisor / (state.from === "layer" ? 3 : 1);
    const weights = rows.map((/** @type {number[]} */ row) => softmax(row.map((s) => s * factor)));
    const sizes = weights.map((/** @type {number[]} */ w) => jacobianSize(w) / divisor);
    return { D, weights, sizes, largest: weights.map((/** @type {number[]} */ w) => Math.max(...w)) };
  };
  const mean = (/** @type {number[]} */ list) => list.reduce((a, b) => a + b, 0) / list.length;
  const small = (/** @type {number} */ x) => (x >= 0.001 ? number(x, 4) : x < 1e-99 ? "0" : x.toExponential(0).replace(/e-(\d+)/, (_, digits) => ` · 10⁻${[...digits].map((d) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[+d]).join("")}`));
  const sure = (/** @type {number[]} */ largest) => largest.filter((w) => w > 0.99).length;
  return {
    draw() {
      const { weights, sizes, largest } = now(), counts = Array(bins).fill(0);
      for (const w of largest) counts[Math.min(bins - 1, Math.floor(w * bins))]++;
      counts.forEach((n, i) => {
        const h = n / rows.length * 112;
        set(bars[i], { y: (base - h).toFixed(1), height: h.toFixed(1) });
      });
      set(picture, { "aria-label": `Largest weights: median ${number(median(largest))}, ${sure(largest)} of ${rows.length} above 0.99` });
      const told = [weights[0].map((/** @type {number} */ w) => number(w)).join(" "), number(Math.exp(mean(weights.map(entropy)))), `${sure(largest)} of ${rows.length}`, small(mean(sizes)), small(median(sizes))];
      told.forEach((t, i) => write(lines[i].cell, t));
    },
    tell() {
      const { D, sizes, largest } = now();
      return `At width ${D}, ${sure(largest)} of ${rows.length} rows give nearly everything to one token; the median row gets a gradient of ${small(median(sizes))}, the mean is ${small(mean(sizes))}.`;
    },
    found: () => state.by === "none" && state.width >= 8,
    solve: () => ({ by: "none", width: 8 }),
  };
});
