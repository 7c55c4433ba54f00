// The grid of an attention view: queries down, keys across.
import { element, number, setAttributes, setText } from "../explore/core.js";
import { isDark } from "./attention_view_data.js";

/** @typedef {import("./attention_view_data.js").Map_} Map_ */
/** @typedef {[number, number]} Spot a query and a key, or a component; -1 for none */
/** @typedef {{ maps: Map_[], e: HTMLElement, at: Map<Element, Spot>, stop: any, paint: () => void, mark: (spot: Spot) => void, fit: () => void, next: (event: KeyboardEvent, spot: Spot) => any }} Panel */
/** @typedef {import("../explore/core.js").Child} Child */

const WIDE = /[\u1100-\u11ff\u2e80-\ud7a3\uf900-\ufaff\uff00-\uffef]/;

/**
 * A grid: one canvas for the colours, and over it transparent cells for pointer, keyboard and screen reader.
 * @param {any} shared what the parts of a view share @param {Map_[]} group the heads of this grid @returns {Panel}
 */
export function makeGrid(shared, group) {
  const {
    queries,
    digits,
    kept,
    across,
    nameAcross,
    step,
    plain,
    stage,
    value,
    hidden,
    format,
    color,
    paint,
    newCanvas,
    titleOf,
    marked,
  } = shared;
  const rows = kept(queries),
    columns = across(),
    numRows = rows.length,
    numColumns = columns.length;
  const picture = newCanvas({ class: "cells" }),
    title = element("p", { class: "quiet title" });
  const veil = element("div", { class: "veil", hidden: true }),
    ring = element("div", { class: "ring", hidden: true });
  const grid = element("div", {
    class: "grid",
    role: "grid",
    "aria-rowcount": numRows + 1,
    "aria-colcount": numColumns + 1,
  });
  /** @type {Map<Element, Spot>} */
  const at = new Map();
  /** @type {any[][]} by place, headers first */
  const spots = [];
  /** @param {any} row @param {string} role @param {number} i @param {number} j @param {Child} text */
  const add = (row, role, i, j, text) => {
    const e = element("div", { role }, text);
    at.set(e, [rows[i] ?? -1, columns[j] ?? -1]);
    (spots[i + 1] ??= [])[j + 1] = e;
    row.append(e);
  };
  const corner = element(
    "div",
    { role: "columnheader", class: "corner" },
    step() === "values" ? "part →" : "key →",
    element("br"),
    "query ↓",
  );
  for (let i = -1; i < numRows; i++) {
    const row = element("div", { class: "row", role: "row" });
    grid.append(row);
    if (i < 0) {
      row.append(corner);
      columns.forEach((c, j) =>
        add(
          row,
          "columnheader",
          i,
          j,
          element("bdi", { class: WIDE.test(nameAcross(c)) ? "" : "latin" }, nameAcross(c)),
        ),
      );
    } else {
      add(row, "rowheader", i, -1, element("bdi", {}, queries[rows[i]]));
      for (let j = 0; j < numColumns; j++) add(row, "gridcell", i, j, "");
    }
  }
  grid.prepend(element("div", { class: "over", role: "presentation" }, picture, element("div", { class: "lines" })));
  grid.append(element("div", { class: "over", role: "presentation" }, veil, ring));
  const box = element("div", { class: "box" }, grid);
  let cell = 0,
    written = false;
  const write_ = () => {
    const short = !plain() && stage(group[0].head, step()).bound >= 10 ? 1 : 2;
    rows.forEach((r, i) =>
      columns.forEach((c, j) => {
        const e = spots[i + 1][j + 1],
          values = group.map((map) => value(map, r, c)),
          no = values.every((x) => hidden(x));
        setAttributes(e, { "aria-label": values.map(format).join(" and ") });
        if (no !== e.classList.contains("no")) e.classList.toggle("no");
        if (!written && !e.firstChild) return;
        e.textContent =
          written && !no && values.length === 1
            ? plain()
              ? values[0].toFixed(Math.min(digits, 2))
              : number(values[0], short)
            : "";
        e.classList.toggle("dark", !no && isDark(/** @type {number[]} */ (color(group, values))));
      }),
    );
  };
  const pen = element("canvas").getContext("2d");
  pen.font = "700 12px system-ui, sans-serif";
  const widest = Math.max(...columns.map((c) => pen.measureText(nameAcross(c)).width));
  /** @type {Panel} */
  const sheet = {
    maps: group,
    at,
    stop: spots[1][1],
    e: element("div", { class: "panel" }, title, box),
    paint() {
      setText(title, titleOf(group));
      setAttributes(grid, { "aria-label": title.textContent });
      paint(picture, rows, columns, (r, c) =>
        color(
          group,
          group.map((map) => value(map, r, c)),
        ),
      );
      write_();
    },
    mark([r, c]) {
      const i = rows.indexOf(r),
        j = columns.indexOf(c),
        marked = [i >= 0 && spots[i + 1][0], j >= 0 && spots[0][j + 1]].filter(Boolean);
      grid.querySelectorAll(".on").forEach((e) => e.classList.remove("on"));
      marked.forEach((e) => e.classList.add("on"));
      veil.hidden = !marked.length;
      ring.hidden = marked.length < 2;
      const y = i * cell,
        x = j * cell,
        bands = [
          [0, i >= 0 ? y : 0],
          [i >= 0 ? y + cell : 0, numRows * cell],
        ];
      const sides = [
        [0, j >= 0 ? x : 0],
        [j >= 0 ? x + cell : 0, numColumns * cell],
      ];
      // Hide all but the row and the column: what is left of the four corners.
      veil.style.clipPath = `path("${bands.flatMap(([a, b]) => sides.map(([d, e]) => `M${d} ${a}H${e}V${b}H${d}Z`)).join("")}")`;
      ring.style.transform = `translate(${x}px, ${y}px)`;
    },
    fit() {
      if (!box.clientWidth) return;
      const fits = Math.floor((box.clientWidth - corner.offsetWidth) / numColumns);
      // A finger needs room; for a mouse, cells are a little smaller where that saves scrolling.
      const least = matchMedia("(pointer: coarse)").matches ? 24 : fits >= 11 ? Math.min(fits, 13) : 13;
      const next = Math.max(least, Math.min(44, fits, Math.max(24, Math.floor(620 / numRows))));
      if (next === cell) return;
      cell = next;
      grid.style.setProperty("--cell", `${cell}px`);
      grid.style.gridTemplate = `max-content repeat(${numRows}, ${cell}px) / max-content repeat(${numColumns}, ${cell}px)`;
      grid.classList.toggle("turned", widest > cell - 4 && columns.some((c) => [...nameAcross(c)].length > 1));
      box.style.scrollPadding = `${corner.offsetHeight}px 0 0 ${corner.offsetWidth}px`;
      if (written !== (cell >= 34 && numRows * numColumns <= 400 && group.length === 1)) {
        written = !written;
        write_();
      }
      sheet.mark(marked());
    },
    next({ key, ctrlKey, metaKey }, [r, c]) {
      const i = rows.indexOf(r),
        j = columns.indexOf(c),
        far = ctrlKey || metaKey;
      const to = {
        ArrowUp: [i - 1, j],
        ArrowDown: [i + 1, j],
        ArrowLeft: [i, j - 1],
        ArrowRight: [i, j + 1],
        Home: [far ? 0 : i, 0],
        End: [far ? numRows - 1 : i, numColumns - 1],
      }[key];
      return to && (spots[to[0] + 1]?.[to[1] + 1] ?? null);
    },
  };
  return sheet;
}
