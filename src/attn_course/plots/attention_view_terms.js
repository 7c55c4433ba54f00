// One number of an attention view, taken apart: the terms of its sum.
import { dot } from "../explore/arithmetic.js";
import { clamp, element, number } from "../explore/core.js";

/** @typedef {import("../explore/core.js").Child} Child */

const MOST = 8; // lines of a sum before "the others"

/** @param {Child[]} caption @param {string[]} names @param {[string, number[]][]} rows the last number of each is a term @param {Child[][]} ends */
const sum = (caption, names, rows, ends) => {
  const order = [...rows].sort((a, b) => Math.abs(b[1][b[1].length - 1]) - Math.abs(a[1][a[1].length - 1])),
    size = ([, cells]) => Math.abs(cells[cells.length - 1]);
  const shown = clamp(order.filter((row) => size(row) >= 0.0005).length, 1, MOST),
    most = Math.max(size(order[0]), 0.0005); // what is not written as 0
  const body = order
    .slice(0, shown)
    .map(([name, cells]) =>
      element(
        "tr",
        {},
        element("th", { scope: "row" }, element("bdi", {}, name)),
        ...cells.map((x, i) =>
          element(
            "td",
            i === cells.length - 1
              ? { class: x < 0 ? "bar less" : "bar", style: `--share: ${Math.abs(x) / most}` }
              : {},
            number(x, i === cells.length - 1 ? 3 : 2),
          ),
        ),
      ),
    );
  const others = order.slice(shown).reduce((total, [, cells]) => total + cells[cells.length - 1], 0);
  const wide = names.length - 1;
  const last = [
    ...(order.length > shown ? [[`the other ${order.length - shown}`, number(others, 3)]] : []),
    ...ends,
  ].map(([name, x]) =>
    element("tr", { class: "end" }, element("th", { scope: "row", colspan: wide }, name), element("td", {}, x)),
  );
  return element(
    "table",
    { class: "sum" },
    element("caption", {}, ...caption),
    element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...body, ...last),
  );
};
/** The terms of the chosen number as a table, largest first; nothing if the number is no sum. @param {any} shared what the parts of a view share */
export function takeApart(shared) {
  const { state, maps, queries, keys, D, q, k, v, stage, step, two, kept, across, quoted } = shared;
  const [r, c] = state.at,
    { head } = maps[state.head];
  if (!q || head < 0 || !kept(queries).includes(r) || !across().includes(c)) return [];
  const now = step(),
    of = two() ? ` (${maps[state.head].name})` : "";
  const score = stage(head, "scores").table[r],
    visible = stage(head, "mask").table[r],
    weights = stage(head, "softmax").table[r];
  if (now === "values") {
    const terms = weights.map(
      (w, i) => /** @type {[string, number[]]} */ ([keys[i], [w, v[head][i][c], w * v[head][i][c]]]),
    );
    return [
      sum([`Part ${c} of the context of `, quoted(queries[r]), of], ["key", "weight", "value", "product"], terms, [
        ["context", number(stage(head, "values").table[r][c], 3)],
      ]),
    ];
  }
  if (now === "weights") {
    const largest = Math.max(...visible),
      powers = visible.map((x) => Math.exp(x - largest)),
      total = powers.reduce((a, b) => a + b, 0);
    if (largest === -Infinity) return [];
    const terms = powers.map((p, i) => /** @type {[string, number[]]} */ ([keys[i], [visible[i], p]]));
    return [
      sum(
        ["The weights of ", quoted(queries[r]), of, `: e to the score, less the largest score ${number(largest)}`],
        ["key", "score", "power"],
        terms,
        [
          ["sum", number(total, 3)],
          [element("span", {}, "share of ", quoted(keys[c])), number(weights[c], 3)],
        ],
      ),
    ];
  }
  const terms = q[head][r].map(
    (x, i) => /** @type {[string, number[]]} */ ([String(i), [x, k[head][c][i], x * k[head][c][i]]]),
  );
  return [
    sum(["Query ", quoted(queries[r]), " · key ", quoted(keys[c]), of], ["part", "query", "key", "product"], terms, [
      ["sum of the products", number(dot(q[head][r], k[head][c]), 3)],
      [`divided by √${D}: the score`, number(score[c], 3)],
      ...(now === "mask" && visible[c] === -Infinity ? [["the mask makes it", "−∞"]] : []),
    ]),
  ];
}
