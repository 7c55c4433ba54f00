// A key–value cache: append, truncate, append again; what is computed, what is read, what is left behind.
import { average, dot, softmax } from "./arithmetic.js";
import { element, number, setAttributes, setText, start } from "./core.js";

/** @typedef {{ held: number[], length: number }} Memory places that hold a token's key and value, -1 if none ever did; and how many count */

/**
 * Write one more token, over whatever stands there.
 * @param {Memory} memory @param {number} token
 * @returns {Memory | null} null if there is no room
 */
export function appended({ held, length }, token) {
  return length < held.length ? { held: held.map((old, i) => (i === length ? token : old)), length: length + 1 } : null;
}

/**
 * The weights and the output of the newest token, over the places that count.
 * @param {Memory} memory @param {number[][]} queries @param {number[][]} keys @param {number[][]} values
 * @returns {{ weights: number[], out: number[] }}
 */
export function newest({ held, length }, queries, keys, values) {
  const kept = held.slice(0, length),
    query = queries[kept[length - 1]];
  const weights = softmax(kept.map((token) => dot(query, keys[token]) / Math.sqrt(query.length)));
  return {
    weights,
    out: average(
      weights,
      kept.map((token) => values[token]),
    ),
  };
}

start(
  "cache",
  ({ room, written }) => {
    const held = Array.from({ length: room }, (_, i) => (i < written ? i : -1));
    return {
      held,
      length: written,
      computed: written,
      without: (written * (written + 1)) / 2,
      back: 0,
      after: 0,
      note: "",
    };
  },
  (figure) => {
    const { data, state } = figure,
      { tokens, queries, keys, values, room } = data;
    figure.style = "cache.css";
    const places = Array.from({ length: room }, (_, i) => {
      const token = element("th", { scope: "row" }),
        key = element("td"),
        value = element("td"),
        weight = element("td", { class: "bar" });
      return {
        e: element("tr", {}, element("td", { class: "place" }, `${i}`), token, key, value, weight),
        token,
        key,
        value,
        weight,
      };
    });
    const heading = (words) => element("th", { scope: "col" }, words);
    const table = element(
      "table",
      {},
      element(
        "thead",
        {},
        element("tr", {}, heading("place"), heading("token"), heading("key"), heading("value"), heading("weight")),
      ),
      element("tbody", {}, ...places.map(({ e }) => e)),
    );
    const out = element("p", { class: "out" }),
      count = element("p", { class: "count" });
    figure.stage.append(
      element(
        "figure",
        { class: "card wide" },
        element("figcaption", {}, "The cache, and the weights of the newest token"),
        table,
      ),
      element("div", { class: "card" }, out, count),
    );

    const truncate = (length) => {
      const note = `Truncated to ${length}: nothing was computed and nothing erased.`;
      figure.change({ length, back: state.back + 1, after: 0, note });
    };
    figure.controls.append(element("span", { class: "quiet-text" }, "Write"));
    const append = (i) => {
      const token = tokens[i];
      const memory = appended(/** @type {any} */ (state), i);
      if (!memory)
        figure.change({ note: `${state.length + 1} tokens do not fit into ${room} places: nothing was written.` });
      else
        figure.change({
          ...memory,
          computed: state.computed + 1,
          without: state.without + memory.length,
          after: state.back ? state.after + 1 : 0,
          note: `Wrote ${token}: one query, one key and one value were computed.`,
        });
    };
    tokens.forEach((token, i) => figure.button(token, () => append(i)));
    // A press on a place behind the text writes the next token there; a press on a filled place truncates the text to it.
    places.forEach(({ e }, i) =>
      e.addEventListener("click", () => (i < state.length ? truncate(i + 1) : append(state.length % tokens.length))),
    );
    const back = figure.button("Remove last", () => truncate(state.length - 1));
    const empty = figure.button("Clear", () => truncate(0));
    const format = (row, digits = 2) => row.map((x) => number(x, digits)).join(", ");
    return {
      draw() {
        const { weights, out: found } = state.length
          ? newest(/** @type {any} */ (state), queries, keys, values)
          : { weights: [], out: [] };
        places.forEach(({ e, token, key, value, weight }, i) => {
          const held = state.held[i],
            on = i < state.length,
            kind = on ? (i === state.length - 1 ? "on new" : "on") : held < 0 ? "never" : "left";
          setAttributes(e, { class: `pressable ${kind}` });
          setText(token, held < 0 ? "–" : tokens[held]);
          setText(key, held < 0 ? "" : format(keys[held]));
          setText(value, held < 0 ? "" : format(values[held]));
          setText(weight, on ? number(weights[i], 3) : held < 0 ? "empty" : "not read");
          weight.style.setProperty("--share", on ? weights[i].toFixed(4) : "0");
        });
        setText(
          out,
          state.length
            ? `Output of ${tokens[state.held[state.length - 1]]}: (${found.map((x) => number(x, 3)).join(", ")})`
            : "The cache counts no place as filled.",
        );
        setText(count, `Rows of keys computed so far: ${state.computed} with the cache, ${state.without} without.`);
        for (const button of [back, empty]) button.disabled = !state.length;
      },
      describe() {
        const text = state.held
            .slice(0, state.length)
            .map((t) => tokens[t])
            .join(" "),
          left = state.held.slice(state.length).filter((t) => t >= 0).length;
        return [
          state.note,
          `Length ${state.length} of ${room}${text ? `: ${text}.` : "."}`,
          left
            ? `${left} ${left > 1 ? "places" : "place"} after it still ${left > 1 ? "contain" : "contains"} old numbers that nobody reads.`
            : "",
        ]
          .filter(Boolean)
          .join(" ");
      },
      solved: () => state.back > 0 && state.after > 0,
      solve: () => {
        const { held, length, computed, without } = figure.start,
          token = length % tokens.length;
        const memory = /** @type {Memory} */ (appended({ held, length: length - 1 }, token));
        const note = `Removed ${tokens[held[length - 1]]} and wrote ${tokens[token]}: one query, one key and one value were computed.`;
        return { ...memory, computed: computed + 1, without: without + memory.length, back: 1, after: 1, note };
      },
    };
  },
);
