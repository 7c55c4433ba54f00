// Weights of attention that were stored as text, and a chart of them that grows with what is written.
import { setAttributes, setText, svg } from "./core.js";

/** A row of weights in percent: two digits for each, a point for 0, # for all. @param {string} row @returns {number[]} */
export const unpack = (row) => (row.match(/\d\d|[.#]/g) ?? []).map((x) => (x === "." ? 0 : x === "#" ? 1 : +x / 100));

/** Which columns a row attends to most, in words; none if it attends to all alike. @param {number[]} row @param {string[]} columns @param {number} [most] */
export const spots = (row, columns, most = 2) =>
  row
    .map((w, s) => ({ w, s }))
    .filter(({ w }) => w >= 0.1 && row.some((other) => other !== w))
    .sort((a, b) => b.w - a.w || a.s - b.s)
    .slice(0, most)
    .map(({ w, s }) => `“${columns[s] === " " ? "␣" : columns[s]}” (${w.toFixed(2)})`)
    .join(" and ");

/**
 * A row for each token that is written, over the tokens that are read, in blocks of so many columns as fit.
 * @param {{ across: number, wide: number, high: number, left: number, head: number }} sizes
 */
export function chart({ across, wide, high, left, head }) {
  const picture = svg("svg", { class: "chart", role: "img" });
  /** @type {WeakMap<string[], { table: number[][], shades: [string, string[]][] }>} */
  const known = new WeakMap();
  const ground = svg("g"),
    rows = svg("g"),
    shaded = svg("g"),
    cells = /** @type {Element[]} */ ([]);
  let seen = "",
    groups = /** @type {{ g: Element, labels: Element[] }[]} */ ([]),
    looks = /** @type {Element[]} */ ([]);
  picture.append(ground, rows, shaded);
  /** The weights, and all cells of one weight as one path, row by row. @param {string[]} packed @param {(t: number, s: number) => string} cell */
  const unpacked = (packed, cell) => {
    const table = packed.map(unpack),
      shades = /** @type {Record<string, string[]>} */ ({});
    table.forEach((row, t) =>
      row.forEach((w, s) => {
        if (w) (shades[w] ??= table.map(() => ""))[t] += cell(t, s);
      }),
    );
    const made = { table, shades: Object.entries(shades) };
    known.set(packed, made);
    return made;
  };
  return {
    picture,
    /** The row and the column of the chart under a pointer, if there are any. @param {PointerEvent} event @param {number} columns @param {number} rows */
    cellAt({ clientX, clientY }, columns, rows) {
      const box = picture.getBoundingClientRect(),
        scale = (left + across * wide + 2) / box.width;
      const block = head + rows * high + 14,
        y = (clientY - box.top) * scale,
        column = Math.floor(((clientX - box.left) * scale - left) / wide);
      const t = Math.floor(((y % block) - head) / high),
        s = Math.floor(y / block) * across + column;
      return column >= 0 && column < across && s < columns && t >= 0 && t < rows ? { t, s } : null;
    },
    /**
     * @param {string[]} columns what is read; a second line is a gloss @param {string[]} names what is written @param {boolean[]} wrong which of it is
     * @param {string[] | null} packed a row of weights for each @param {number} at the row that is written last; -1 shows all of them
     */
    draw(columns, names, wrong, packed, at) {
      const block = head + names.length * high + 14;
      const x = (s) => left + (s % across) * wide,
        y = (s) => Math.floor(s / across) * block;
      const starts = columns.map((_, s) => s).filter((s) => s % across === 0),
        reading = JSON.stringify([columns, names.length]);
      const { table, shades } = !packed
        ? { table: [], shades: [] }
        : (known.get(packed) ??
          unpacked(packed, (t, s) => `M${x(s)} ${y(s) + head + t * high}h${wide}v${high - 1}h${-wide}z`));
      if (reading !== seen) {
        seen = reading;
        looks = columns.map((_, s) => svg("rect", { x: x(s), y: y(s), width: wide, height: head - 3, class: "look" }));
        const words = columns.flatMap((column, s) =>
          column
            .split("\n")
            .map((line, n) =>
              svg("text", { x: x(s) + wide / 2, y: y(s) + 14 + 13 * n, class: n ? "gloss" : "read" }, line),
            ),
        );
        setAttributes(picture, { viewBox: `0 0 ${left + across * wide + 2} ${starts.length * block - 8}` });
        ground.replaceChildren(...looks, ...words);
        groups = names.map((_, t) => {
          const low = head + t * high,
            labels = starts.map((s) => svg("text", { x: left - 6, y: y(s) + low + high / 2 + 4 }));
          const grounds = starts.map((s) =>
            svg("rect", {
              x: left,
              y: y(s) + low,
              width: Math.min(across, columns.length - s) * wide,
              height: high - 1,
              class: "ground",
            }),
          );
          return { g: svg("g", {}, ...grounds, ...labels), labels };
        });
        rows.replaceChildren(...groups.map(({ g }) => g));
      }
      names.forEach((name, t) => {
        const { g, labels } = groups[t];
        setAttributes(g, { class: at >= 0 && t > at ? "later" : t === at ? "now" : "row" });
        for (const label of labels) {
          setText(label, name);
          setAttributes(label, { class: wrong[t] ? "written wrong" : "written" });
        }
      });
      while (cells.length < shades.length) shaded.append(cells[cells.push(svg("path", { class: "weight" })) - 1]);
      cells.forEach((cell, i) => {
        const [weight, pieces] = shades[i] ?? [null, []];
        setAttributes(cell, {
          "fill-opacity": weight,
          d: pieces.slice(0, at < 0 ? undefined : at + 1).join("") || null,
        });
      });
      looks.forEach((e, s) => setAttributes(e, { "fill-opacity": table[at]?.[s] ?? 0 }));
    },
  };
}
