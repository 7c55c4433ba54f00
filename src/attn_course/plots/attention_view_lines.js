// The lines of an attention view: queries left, keys right.
import { element, setAttributes, setText, svg } from "../explore/core.js";

/** @typedef {import("./attention_view_data.js").Map_} Map_ */
/** @typedef {[number, number]} Spot a query and a key, or a component; -1 for none */
/** @typedef {{ maps: Map_[], e: HTMLElement, at: Map<Element, Spot>, stop: any, paint: () => void, mark: (spot: Spot) => void, fit: () => void, next: (event: KeyboardEvent, spot: Spot) => any }} Panel */
/** @typedef {import("../explore/core.js").Child} Child */

export const FAINT = 0.02; // no line for less

/**
 * Lines between two lists of tokens, as thick as the weights.
 * @param {any} shared what the parts of a view share @param {Map_[]} group the heads of this drawing @returns {Panel}
 */
export function makeLines(shared, group) {
  const { queries, keys, kept, value, format, titleOf } = shared;
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
  /** @type {Panel} */
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
}
