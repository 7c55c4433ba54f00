// Tiles over a table of scores: each query keeps a running maximum, a running total and a running weighted sum.
import { element, number, setAttributes, setText, start } from "./core.js";

/** @typedef {[number, number, number, number]} Tile first query, end of the queries, first key, end of the keys */
/** @typedef {{ maximum: number, total: number, weightedSum: number }} Running */

/**
 * The tiles of a table in the order in which they are read, without those that a causal mask hides whole.
 * @param {number} T @param {number} S @param {number} size @param {boolean} back keys from the back @param {boolean} causal
 * @returns {Tile[]}
 */
export function tilesOf(T, S, size, back, causal) {
  const starts = (n) => Array.from({ length: Math.ceil(n / size) }, (_, i) => i * size);
  const columns = back ? starts(S).reverse() : starts(S);
  return starts(T)
    .flatMap((t) => columns.map((s) => /** @type {Tile} */ ([t, Math.min(t + size, T), s, Math.min(s + size, S)])))
    .filter(([, end, s]) => !causal || s <= end - 1 + S - T);
}

/**
 * What a query knows after one more block of keys; without "shrinks", the earlier sums are not scaled.
 * @param {Running} before @param {number[]} scores -Infinity where a key is hidden @param {number[]} values @param {boolean} shrinks
 * @returns {Running}
 */
export function readBlock({ maximum, total, weightedSum }, scores, values, shrinks) {
  const now = Math.max(maximum, ...scores),
    base = now === -Infinity ? 0 : now,
    shrink = shrinks ? Math.exp(maximum - base) : 1;
  const powers = scores.map((s) => Math.exp(s - base));
  return {
    maximum: now,
    total: total * shrink + powers.reduce((a, b) => a + b, 0),
    weightedSum: weightedSum * shrink + powers.reduce((sum, p, i) => sum + p * values[i], 0),
  };
}

/**
 * All queries after some tiles.
 * @param {number[][]} powers exponentials of the scores @param {number[]} values @param {Tile[]} tiles @param {boolean} causal @param {boolean} shrinks
 * @returns {Running[]}
 */
export function readTiles(powers, values, tiles, causal, shrinks) {
  const more = powers[0].length - powers.length,
    all = powers.map(() => ({ maximum: -Infinity, total: 0, weightedSum: 0 }));
  for (const [t0, t1, s0, s1] of tiles) {
    for (let t = t0; t < t1; t++) {
      const scores = powers[t].slice(s0, s1).map((p, i) => (causal && s0 + i > t + more ? -Infinity : Math.log(p)));
      all[t] = readBlock(all[t], scores, values.slice(s0, s1), shrinks);
    }
  }
  return all;
}

start(
  "tiles",
  () => ({ size: "2", order: "front", sees: "all", shrink: "yes", step: 0 }),
  (figure) => {
    const { data, state } = figure,
      { powers, values } = data,
      T = powers.length,
      S = powers[0].length;
    figure.style = "tiles.css";
    const cells = powers.map((row) => row.map((p) => element("td", {}, number(p, Number.isInteger(p) ? 0 : 2))));
    const heads = values.map((v, s) =>
      element(
        "th",
        { scope: "col" },
        `key ${s}`,
        element("br"),
        element("span", { class: "value" }, number(v, Number.isInteger(v) ? 0 : 2)),
      ),
    );
    const grid = element(
      "table",
      { class: "grid" },
      element("thead", {}, element("tr", {}, element("td", {}, "value:"), ...heads)),
      element(
        "tbody",
        {},
        ...cells.map((row, t) => element("tr", {}, element("th", { scope: "row" }, `query ${t}`), ...row)),
      ),
    );
    const kept = powers.map((_, t) => {
      const parts = Array.from({ length: 5 }, () => element("td"));
      return { e: element("tr", {}, element("th", { scope: "row" }, `query ${t}`), ...parts), parts };
    });
    const names = ["maximum", "factor", "total\u00a0ℓ", "weighted sum\u00a0a", "a\u00a0÷\u00a0ℓ"].map((name) =>
      element("th", { scope: "col" }, name),
    );
    const table = element(
      "table",
      {},
      element("thead", {}, element("tr", {}, element("td"), ...names)),
      element("tbody", {}, ...kept.map((k) => k.e)),
    );
    const room = element("p", { class: "count" });
    figure.stage.append(
      element(
        "figure",
        { class: "card wide" },
        element("figcaption", {}, "The exponentials of the scores, e", element("sup", {}, "score")),
        grid,
        room,
      ),
      element(
        "figure",
        { class: "card wide sums" },
        element("figcaption", {}, "What each query keeps, relative to its maximum so far"),
        table,
      ),
    );
    const size = () => +state.size,
      causal = () => state.sees === "causal",
      shrinks = () => state.shrink === "yes";
    const tiles = () => tilesOf(T, S, size(), state.order === "back", causal());
    figure.effects.push(() => {
      // before its value is set
      state.step = Math.min(state.step, tiles().length);
      setAttributes(slider.querySelector("input"), { max: tiles().length });
    });
    const slider = figure.slider("step", {
      label: "Tiles read",
      min: 0,
      max: T * S,
      step: 1,
      show: (x) => `${x} of ${tiles().length}`,
    });
    figure.button(
      "Next tile",
      () => figure.change({ step: state.step >= tiles().length ? 0 : state.step + 1 }),
      () => state.step >= tiles().length,
    );
    figure.choice("size", "Tile", { 1: "1 × 1", 2: "2 × 2", 4: "4 × 4" });
    figure.choice("order", "Keys", { front: "from the front", back: "from the back" });
    figure.choice("sees", "A query sees", { all: "all keys", causal: "none after it" });
    figure.choice("shrink", "When the maximum grows", { yes: "scale the earlier sums", no: "leave them" });
    const full = () => readTiles(powers, values, [[0, T, 0, S]], causal(), true);
    cells.forEach((row, t) =>
      row.forEach((e, s) =>
        e.addEventListener("click", () => {
          const place = tiles().findIndex(([a, b, c, d]) => a <= t && t < b && c <= s && s < d);
          if (place >= 0) figure.change({ step: place + 1 });
        }),
      ),
    );
    const digits = (x) => number(x, 3).replace(/\.?0+$/, "");
    const now = () => {
      const all = tiles(),
        read = all.slice(0, state.step),
        states = readTiles(powers, values, read, causal(), shrinks());
      return { all, read, states, before: readTiles(powers, values, read.slice(0, -1), causal(), shrinks()) };
    };
    const off = () => {
      const right = full();
      return Math.max(
        ...now().states.map(({ total, weightedSum }, t) =>
          Math.abs(weightedSum / total - right[t].weightedSum / right[t].total),
        ),
      );
    };
    return {
      draw() {
        const { all, read, states, before } = now(),
          [t0, t1, s0, s1] = read[read.length - 1] ?? [0, 0, 0, 0];
        const inside = (t, s, list) => list.some(([a, b, c, d]) => a <= t && t < b && c <= s && s < d);
        cells.forEach((row, t) =>
          row.forEach((e, s) => {
            const hidden = causal() && s > t + S - T,
              here = t0 <= t && t < t1 && s0 <= s && s < s1,
              edge = `${s % size() ? "" : " west"}${t % size() ? "" : " north"}`;
            setAttributes(e, {
              class: `pressable ${hidden ? "hidden" : inside(t, s, read) ? "read" : "wait"}${here ? " here" : ""}${!inside(t, s, all) ? " skipped" : ""}${edge}`,
            });
          }),
        );
        kept.forEach(({ e, parts }, t) => {
          const { maximum, total, weightedSum } = states[t],
            here = t0 <= t && t < t1,
            grew = here && maximum > before[t].maximum && before[t].maximum > -Infinity;
          setAttributes(e, { class: here ? "here" : "" });
          const shown =
            maximum === -Infinity
              ? ["–", "", "0", "0", "–"]
              : [
                  digits(Math.exp(maximum)),
                  grew ? (shrinks() ? digits(Math.exp(before[t].maximum - maximum)) : "not") : "",
                  digits(total),
                  digits(weightedSum),
                  digits(weightedSum / total),
                ];
          shown.forEach((text, i) => setText(parts[i], text));
        });
        const skipped = Math.ceil(T / size()) * Math.ceil(S / size()) - all.length;
        setText(
          room,
          `${skipped ? `${skipped} hidden ${skipped > 1 ? "tiles are" : "tile is"} never read. ` : ""}Held at once: at most ${Math.min(size(), T) * Math.min(size(), S)} of ${T * S} scores.`,
        );
      },
      describe() {
        const { all, read, states, before } = now();
        if (!read.length)
          return `There are ${all.length} tiles to read. Each query starts with a total and a weighted sum of 0.`;
        const [t0, t1, s0, s1] = read[read.length - 1],
          rows = Array.from({ length: t1 - t0 }, (_, i) => t0 + i);
        const grown = rows.filter((t) => states[t].maximum > before[t].maximum && before[t].maximum > -Infinity);
        const span = (one, a, b) =>
          b - a > 1 ? `${one === "key" ? "keys" : "queries"} ${a} to ${b - 1}` : `${one} ${a}`;
        const what = grown.length
          ? grown
              .map(
                (t) =>
                  `Query ${t} has a larger exponential, ${digits(Math.exp(states[t].maximum))} after ${digits(Math.exp(before[t].maximum))}: ${shrinks() ? `total and weighted sum were multiplied by ${digits(Math.exp(before[t].maximum - states[t].maximum))}` : "total and weighted sum were left as they were"}.`,
              )
              .join(" ")
          : "No earlier maximum grew.";
        const error = off(),
          end =
            read.length === all.length
              ? ` All tiles are read: ${error < 1e-9 ? "each output is that of the softmax." : `outputs are off by up to ${number(error, 3)}.`}`
              : "";
        return `Tile ${read.length}: ${span("query", t0, t1)}, ${span("key", s0, s1)}. ${what}${end}`;
      },
      solved: () =>
        now().read.some((_, i, read) => {
          const a = readTiles(powers, values, read.slice(0, i), causal(), true),
            b = readTiles(powers, values, read.slice(0, i + 1), causal(), true);
          return b.some(({ maximum }, t) => maximum > a[t].maximum && a[t].maximum > -Infinity);
        }),
      solve: () => ({ step: tiles().length }),
    };
  },
);
