// The data of an attention view: weights, their averages, and the steps from scores to context.
import { dot, softmax } from "../explore/arithmetic.js";

/** @typedef {{ name: string, small: string, numbers: Int32Array, head: number }} Map_ head is -1 for an average */

const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstvwxyz-_.";

/** Each number takes as few bits as its digits need; all bits set mean that the query may not look at the key. @param {string} text @param {number} total */
function unpack(text, total) {
  const [digits, code] = text.split(":"),
    unit = 10 ** +digits,
    bits = (unit + 1).toString(2).length;
  const numbers = new Int32Array(total);
  for (let i = 0, next = 0, held = 0, rest = 0; i < total; i++) {
    for (; held < bits; held += 6) rest = rest * 64 + DIGITS.indexOf(code[next++]);
    held -= bits;
    numbers[i] = rest >> held;
    rest &= (1 << held) - 1;
    if (numbers[i] > unit) numbers[i] = -1;
  }
  return { digits: +digits, unit, numbers };
}

/** A table of 256 colours, read between the stops that the data brings. @param {string} colors */
export function ramp(colors) {
  const stops = (colors.match(/../g) ?? []).map((byte) => parseInt(byte, 16)),
    last = stops.length / 3 - 1;
  return Array.from({ length: 256 }, (_, i) =>
    [0, 1, 2].map((c) => {
      const at = (i / 255) * last,
        low = Math.min(Math.floor(at), last - 1);
      return stops[3 * low + c] * (1 + low - at) + stops[3 * low + 3 + c] * (at - low);
    }),
  );
}

/** Whether white is read better on a colour than black. @param {number[]} color */
export const isDark = (color) => {
  const [r, g, b] = color.map((x) => (x <= 10.3 ? x / 3295 : ((x / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b < 0.179;
};

/** @param {number[][]} table */
export const gradient = (table) =>
  `background: linear-gradient(90deg, ${table.filter((_, i) => i % 51 === 0).map((c) => `rgb(${c})`)})`;

/** Read the weights of all heads, their means, and the tables of the other steps. @param {any} data */
export function readWeights(data) {
  const { layers, heads, queries, keys = queries } = data,
    L = layers.length,
    H = heads.length;
  const T = queries.length,
    S = keys.length,
    size = T * S,
    all = L * H;
  const { digits, unit, numbers } = unpack(data.weights, all * size);
  const colors = ramp(data.colors);
  // ---- the heads, and their averages where they are heads of one kind
  const ofHeads = heads.every((name) => /^head \d+$/.test(name)),
    ofLayers = layers.every((name) => /^layer \d+$/.test(name));
  /** @type {Map_[]} */
  const maps = [];
  for (let head = 0; head < all; head++) {
    const name = [L > 1 && layers[Math.floor(head / H)], all > 1 && heads[head % H]].filter(Boolean).join(", ");
    maps.push({
      name,
      small: heads[head % H].replace(/^head (?=\d+$)/, ""),
      numbers: numbers.subarray(head * size, head * size + size),
      head,
    });
  }
  /** @param {string} name @param {string} small @param {Map_[]} members */
  const average = (name, small, members) => {
    const numbers = new Int32Array(size).map((_, i) => {
      const seen = members.filter((map) => map.numbers[i] >= 0);
      return seen.length ? Math.round(seen.reduce((sum, map) => sum + map.numbers[i], 0) / members.length) : -1;
    });
    return maps.push({ name, small, numbers, head: -1 }) - 1;
  };
  /** @type {{ layer: string, ids: number[] }[]} */
  const picker = layers.map((layer, l) => {
    const ids = heads.map((_, h) => l * H + h);
    if (H > 1 && ofHeads)
      ids.push(
        average([L > 1 && layer, "mean of the heads"].filter(Boolean).join(", "), "mean", maps.slice(l * H, l * H + H)),
      );
    return { layer, ids };
  });
  if (L > 1 && ofLayers && (H === 1 || ofHeads))
    picker.push({ layer: "all layers", ids: [average("mean of all layers", "mean", maps.slice(0, all))] });

  // ---- what the heads were made of, where the cell handed it in
  const D = data.q ? data.q.width : 0;
  /** @param {{ width: number, numbers: string }} packed @param {number} rows */
  const rowsOf = (packed, rows) => {
    const flat = packed.numbers.split(" ").map(Number);
    return Array.from({ length: all }, (_, head) =>
      Array.from({ length: rows }, (_, r) =>
        flat.slice((head * rows + r) * packed.width, (head * rows + r + 1) * packed.width),
      ),
    );
  };
  const q = data.q && rowsOf(data.q, T),
    k = data.q && rowsOf(data.k, S),
    v = data.v && rowsOf(data.v, S);
  /** @type {Record<string, { table: number[][], bound: number }>} */
  const made = {};
  /** The table of a step before or after the weights. @type {(head: number, step: string) => { table: number[][], bound: number }} */
  const stage = (head, step) =>
    (made[`${head} ${step}`] ??= (() => {
      /** @type {number[][]} */
      const table =
        step === "scores"
          ? q[head].map((query) => k[head].map((key) => dot(query, key) / Math.sqrt(D)))
          : step === "mask"
            ? stage(head, "scores").table.map((row, r) =>
                row.map((x, c) => (maps[head].numbers[r * S + c] < 0 ? -Infinity : x)),
              )
            : step === "softmax"
              ? stage(head, "mask").table.map(softmax)
              : stage(head, "softmax").table.map((row) =>
                  v[head][0].map((_, d) =>
                    dot(
                      row,
                      v[head].map((value) => value[d]),
                    ),
                  ),
                );
      return { table, bound: Math.max(1e-9, ...table.flat().filter(Number.isFinite).map(Math.abs)) };
    })());
  const signed = data.signed ? ramp(data.signed) : colors;

  return { maps, picker, stage, colors, signed, digits, unit, D, q, k, v, ofHeads };
}
