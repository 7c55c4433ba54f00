// The picture that answers: weights as a grid or as lines, of one head or of two, step by step, and taken apart.
// Controls, state and address are those of the explorable figures. It sets text by textContent alone, so a token is
// never markup, and lives in a shadow root: no name, id or style leaks out, and no style of the page leaks in.
import { dot, softmax } from "../explore/arithmetic.js";
import { clamp, element, Figure, number, setAttributes, setText, svg } from "../explore/core.js";

/** @typedef {{ name: string, small: string, numbers: Int32Array, head: number }} Map_ head is -1 for an average */
/** @typedef {[number, number]} Spot a query and a key, or a component; -1 for none */
/** @typedef {{ maps: Map_[], e: HTMLElement, at: Map<Element, Spot>, stop: any, paint: () => void, mark: (spot: Spot) => void, fit: () => void, next: (event: KeyboardEvent, spot: Spot) => any }} Canvas */
/** @typedef {import("../explore/core.js").Child} Child */

const STYLE = "attention_view.css";
const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstvwxyz-_.";
const WIDE = /[\u1100-\u11ff\u2e80-\ud7a3\uf900-\ufaff\uff00-\uffef]/;
const SPECIAL = /^(<[^<>\s]+>|\[[A-Z]+\])$/;
const PAIR = [
  [213, 94, 0],
  [0, 114, 178],
]; // two heads in one grid: orange and blue, and dark where both look
const FAINT = 0.02; // no line for less
const MOST = 8; // lines of a sum before "the others"

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
function ramp(colors) {
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
const isDark = (color) => {
  const [r, g, b] = color.map((x) => (x <= 10.3 ? x / 3295 : ((x / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b < 0.179;
};

/** @param {number[][]} table */
const gradient = (table) =>
  `background: linear-gradient(90deg, ${table.filter((_, i) => i % 51 === 0).map((c) => `rgb(${c})`)})`;

/** @param {HTMLElement} host */
function start(host) {
  const data = JSON.parse(host.querySelector("script")?.textContent ?? "");
  const { label, layers, heads, queries, keys = queries } = data,
    L = layers.length,
    H = heads.length;
  const T = queries.length,
    S = keys.length,
    size = T * S,
    all = L * H;
  const { digits, unit, numbers } = unpack(data.weights, all * size);
  const colors = ramp(data.colors);
  data.id = host.closest("figure[id]")?.id; // a chapter's figures have addresses

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
    figure.choice("heads", ofHeads ? "Heads" : "Panels", { one: "one", beside: "side by side", over: "overlaid" });
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

  // ---- a grid: one canvas for the colours, and over it transparent cells for pointer, keyboard and screen reader
  /** @param {Map_[]} group @returns {Canvas} */
  const makeGrid = (group) => {
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
            no = values.every(hidden);
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
    /** @type {Canvas} */
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
  };

  // ---- lines between two lists of tokens, as thick as the weights
  /** @param {Map_[]} group @returns {Canvas} */
  const makeLines = (group) => {
    const sides = [kept(queries), kept(keys)],
      title = element("p", { class: "quiet title" }),
      height = 24 * Math.max(sides[0].length, sides[1].length);
    /** @type {Map<Element, Spot>} */
    const at = new Map();
    const lists = sides.map((tokens, side) => {
      const list = element("div", { class: "side", role: "listbox", "aria-label": side ? "keys" : "queries" });
      for (const i of tokens) {
        const e = element(
          "div",
          { role: "option", "aria-selected": "false" },
          element("bdi", {}, (side ? keys : queries)[i]),
          element("i", {}),
        );
        at.set(e, side ? [-1, i] : [i, -1]);
        list.append(e);
      }
      return list;
    });
    const drawn = svg("svg", {
      viewBox: `0 0 100 ${height}`,
      preserveAspectRatio: "none",
      "aria-hidden": "true",
      height,
    });
    const box = element("div", { class: "box strings" }, element("div", { class: "loom" }, lists[0], drawn, lists[1]));
    /** @type {{ e: any, spot: Spot }[]} */
    let paths = [];
    /** @type {Canvas} */
    const sheet = {
      maps: group,
      at,
      stop: lists[0].firstChild,
      e: element("div", { class: "panel" }, title, box),
      paint() {
        setText(title, titleOf(group));
        paths = group.flatMap((map, n) =>
          sides[0].flatMap((r, i) =>
            sides[1].flatMap((c, j) => {
              const w = value(map, r, c),
                shift = group.length > 1 ? 6 * n - 3 : 0,
                y = 24 * i + 12 + shift,
                z = 24 * j + 12 + shift;
              return w < FAINT
                ? []
                : [
                    {
                      e: svg("path", {
                        d: `M0 ${y}C45 ${y} 55 ${z} 100 ${z}`,
                        class: `of${group.length > 1 ? n : 1}`,
                        style: `--w: ${w}`,
                      }),
                      spot: /** @type {Spot} */ ([r, c]),
                    },
                  ];
            }),
          ),
        );
        drawn.replaceChildren(...paths.map(({ e }) => e));
      },
      mark([r, c]) {
        for (const [e, [i, j]] of at) {
          const on = i >= 0 ? i === r : j === c,
            asked = (j >= 0 ? r : c) >= 0 && (j >= 0 ? c : r) < 0;
          e.classList.toggle("on", on);
          setAttributes(e, { "aria-selected": String(on) });
          setText(
            /** @type {any} */ (e.lastChild),
            asked ? group.map((map) => format(value(map, Math.max(i, r), Math.max(j, c)))).join(" / ") : "",
          );
        }
        for (const { e, spot } of paths)
          e.classList.toggle("off", (r >= 0 && spot[0] !== r) || (c >= 0 && spot[1] !== c));
      },
      fit() {},
      next({ key }, [r]) {
        const side = r >= 0 ? 0 : 1,
          list = lists[side],
          other = lists[1 - side],
          own = [...list.children].indexOf(sheet.stop);
        if (key === "ArrowLeft" || key === "ArrowRight")
          return (key === "ArrowRight") === (side === 0)
            ? other.children[Math.min(own, other.children.length - 1)]
            : null;
        const to = { ArrowUp: own - 1, ArrowDown: own + 1, Home: 0, End: list.children.length - 1 }[key];
        return to === undefined ? undefined : (list.children[to] ?? null);
      },
    };
    return sheet;
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
        plain() ? " is looked at most by" : " is wanted most by",
        ...ofEach((map) => best(queries, kept(queries), (i) => value(map, i, c))),
      ];
    const rest = (map) =>
      plain() && state.special === "hidden"
        ? keys.reduce((sum, key, i) => sum + (special(key) ? Math.max(0, value(map, r, i)) : 0), 0)
        : 0;
    return [
      ...query,
      plain() ? " looks most at" : " scores highest with",
      ...ofEach((map) => [
        ...best(keys, kept(keys), (i) => value(map, r, i)),
        ...(rest(map) > 0 ? [`; hidden tokens take ${format(rest(map))}`] : []),
      ]),
    ];
  };

  // ---- one number taken apart: the terms of its sum, largest first
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
  const apart = () => {
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

  /** @type {Canvas[]} */
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
  /** @param {Canvas} sheet @param {any} e @param {boolean} focus */
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
    sheets = now.map((group) => (lined() ? makeLines : makeGrid)([...group]));
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
      terms.replaceChildren(...apart());
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

  /** @param {Event} event @returns {[Canvas, any] | []} */
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
