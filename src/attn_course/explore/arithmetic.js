// The arithmetic of the explorable figures, in double precision unless said otherwise.
// tests/explore/test_explore.py compares each function with PyTorch and the package.

/** @typedef {number[]} Vector */
/** @typedef {number[][]} Matrix */
/** @typedef {"before" | "after" | "again"} When */

/** @param {Vector} a @param {Vector} b */
export const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);

/**
 * Softmax that subtracts the maximum; a row that may look at nothing gets zeros.
 * @param {Vector} scores
 * @returns {Vector}
 */
export function softmax(scores) {
  const largest = Math.max(...scores);
  if (largest === -Infinity) return scores.map(() => 0);
  const powers = scores.map((s) => Math.exp(s - largest));
  const total = powers.reduce((a, b) => a + b, 0);
  return powers.map((p) => p / total);
}

/**
 * exp(s) / sum(exp(s)) with every step rounded to float32, as PyTorch computes it without the maximum.
 * @param {Vector} scores
 * @returns {Vector}
 */
export function naiveSoftmax(scores) {
  const powers = scores.map((s) => Math.fround(Math.exp(Math.fround(s))));
  const total = powers.reduce((a, b) => Math.fround(a + b), 0);
  return powers.map((p) => Math.fround(p / total));
}

/**
 * The average of the rows by the weights.
 * @param {Vector} weights
 * @param {Matrix} rows
 * @returns {Vector}
 */
export const average = (weights, rows) =>
  rows[0].map((_, c) =>
    dot(
      weights,
      rows.map((row) => row[c]),
    ),
  );

/** @param {Vector} weights */
export const entropy = (weights) => -weights.reduce((sum, w) => sum + (w > 0 ? w * Math.log(w) : 0), 0);

/**
 * Weights of a table of scores under a mask, true where a query may look.
 * "before": hidden scores become minus infinity. "after": the softmax sees all scores, hidden weights become 0.
 * "again": so, and what is left of a row is divided by its sum.
 * @param {Matrix} scores
 * @param {boolean[][]} mask
 * @param {When} when
 * @returns {Matrix}
 */
export function maskedWeights(scores, mask, when) {
  return scores.map((row, t) => {
    if (when === "before") return softmax(row.map((s, j) => (mask[t][j] ? s : -Infinity)));
    const kept = softmax(row).map((w, j) => (mask[t][j] ? w : 0)),
      sum = when === "again" ? kept.reduce((a, b) => a + b, 0) : 1;
    return kept.map((w) => (sum ? w / sum : 0));
  });
}

/**
 * How much the weights of query t move, all together, when the score of key j grows: the sum over i of
 * |d w[t][i] / d s[t][j]|. It is 0 where the key has no say. (The second division of "again" takes the sum over all keys
 * out again, so on paper its weights are those of "before", and so are their derivatives.)
 * @param {Matrix} scores
 * @param {boolean[][]} mask
 * @param {When} when
 * @returns {Matrix}
 */
export function say(scores, mask, when) {
  return scores.map((row, t) => {
    const hidden = when !== "after";
    const p = softmax(row.map((s, j) => (hidden && !mask[t][j] ? -Infinity : s)));
    return row.map((_, j) =>
      p.reduce((sum, w, i) => sum + (mask[t][i] ? Math.abs(w * ((i === j ? 1 : 0) - p[j])) : 0), 0),
    );
  });
}

/**
 * The corners of the smallest convex shape around points of the plane, in order (Andrew's monotone chain).
 * @param {Matrix} points
 * @returns {Matrix}
 */
export function hull(points) {
  const sorted = points.map((p) => [...p]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  /** @param {Vector} o @param {Vector} a @param {Vector} b */
  const turn = (o, a, b) => (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0]);
  /** @param {Matrix} all */
  const half = (all) => {
    /** @type {Matrix} */
    const chain = [];
    for (const p of all) {
      while (chain.length > 1 && turn(chain[chain.length - 2], chain[chain.length - 1], p) <= 0) chain.pop();
      chain.push(p);
    }
    return chain.slice(0, -1);
  };
  return sorted.length < 3 ? sorted : [...half(sorted), ...half(sorted.reverse())];
}
