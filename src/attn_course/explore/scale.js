// Rows of scores at a width that the reader chooses: how soft they are, and how much of a gradient comes back.
import { entropy, softmax } from "./arithmetic.js";
import { element, number, setAttributes, setText, start, svg } from "./core.js";

/**
 * The size of the softmax's Jacobian in a row: the root of the sum of its squared entries.
 * @param {number[]} weights
 */
export const jacobianSize = (weights) =>
  Math.sqrt(
    weights.reduce(
      (sum, w, i) => sum + weights.reduce((part, u, j) => part + (i === j ? w * (1 - w) : w * u) ** 2, 0),
      0,
    ),
  );

/** The lower of the two in the middle, as torch.median. @param {number[]} list */
export const median = (list) => [...list].sort((a, b) => a - b)[Math.floor((list.length - 1) / 2)];

start(
  "scale",
  () => ({ width: 6, by: "root", from: "drawn" }),
  (figure) => {
    const { data, state } = figure,
      { rows } = data,
      bins = 20,
      wide = 340,
      high = 150,
      base = 124;
    figure.style = "scale.css";
    const picture = svg("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img" });
    const text = (x, words, kind) => svg("text", { x, y: base + 18, class: kind }, words);
    const bars = Array.from({ length: bins }, (_, i) =>
      svg("rect", { x: 10 + (i * (wide - 20)) / bins + 1, width: (wide - 20) / bins - 2, class: "count" }),
    );
    picture.append(
      svg("path", { d: `M10 ${base}H${wide - 10}`, class: "axis" }),
      ...bars,
      text(10, "0", "low"),
      text(wide / 2, "largest weight of the row", "mid"),
      text(wide - 10, "1", "high"),
    );
    const lines = [
      "one row: its weights",
      "tokens that take part, e to the mean entropy",
      "rows with a weight above 0.99",
      "gradient at q·k, mean of the rows",
      "gradient at q·k, median row",
    ].map((title) => {
      const cell = element("td");
      return { cell, e: element("tr", {}, element("th", { scope: "row" }, title), cell) };
    });
    const table = element("table", {}, element("tbody", {}, ...lines.map(({ e }) => e)));
    figure.stage.append(
      element(
        "figure",
        { class: "card" },
        element("figcaption", {}, `${rows.length} rows of ${rows[0].length} weights`),
        picture,
      ),
      element("div", { class: "card" }, table),
    );
    figure.showValues(picture, ({ clientX }) => {
      const box = picture.getBoundingClientRect(),
        i = Math.floor(((((clientX - box.left) / box.width) * wide - 10) / (wide - 20)) * bins);
      return i >= 0 && i < bins
        ? `${bin(i).length} of ${rows.length} rows have a largest weight from ${number(i / bins)} to ${number((i + 1) / bins)}.`
        : "";
    });
    figure.slider("width", { label: "Width D", min: 0, max: 10, step: 1, show: (x) => String(2 ** x) });
    figure.choice("by", "Scores are", { none: "q·k", root: "q·k ÷ √D", full: "q·k ÷ D" });
    figure.choice("from", "Queries and keys", { drawn: "of variance 1", layer: "from a new nn.Linear" });
    const now = () => {
      const D = 2 ** state.width,
        divisor = { none: 1, root: Math.sqrt(D), full: D }[/** @type {"none"} */ (state.by)];
      const factor = Math.sqrt(D) / divisor / (state.from === "layer" ? 3 : 1);
      const weights = rows.map((row) => softmax(row.map((s) => s * factor)));
      const sizes = weights.map((w) => jacobianSize(w) / divisor);
      return { D, weights, sizes, largest: weights.map((w) => Math.max(...w)) };
    };
    const bin = (i) => now().largest.filter((w) => Math.min(bins - 1, Math.floor(w * bins)) === i);
    const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
    const small = (x) =>
      x >= 0.001
        ? number(x, 4)
        : x < 1e-99
          ? "0"
          : x
              .toExponential(0)
              .replace(/e-(\d+)/, (_, digits) => ` · 10⁻${[...digits].map((d) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[+d]).join("")}`);
    const sure = (largest) => largest.filter((w) => w > 0.99).length;
    return {
      draw() {
        const { weights, sizes, largest } = now();
        bars.forEach((bar, i) => {
          const h = (bin(i).length / rows.length) * 112;
          setAttributes(bar, { y: (base - h).toFixed(1), height: h.toFixed(1) });
        });
        setAttributes(picture, {
          "aria-label": `Largest weights: median ${number(median(largest))}, ${sure(largest)} of ${rows.length} above 0.99`,
        });
        const told = [
          weights[0].map((w) => number(w)).join(" "),
          number(Math.exp(mean(weights.map(entropy)))),
          `${sure(largest)} of ${rows.length}`,
          small(mean(sizes)),
          small(median(sizes)),
        ];
        told.forEach((t, i) => setText(lines[i].cell, t));
      },
      describe() {
        const { D, sizes, largest } = now();
        return `At width ${D}, ${sure(largest)} of ${rows.length} rows give one token a weight above 0.99. The gradient of the median row is ${small(median(sizes))}, and the mean gradient is ${small(mean(sizes))}.`;
      },
      solved: () => state.by === "none" && state.width === 9,
      solve: () => ({ by: "none", width: 9 }),
    };
  },
);
