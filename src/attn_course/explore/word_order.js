// Words in any order: their context vectors go along, unless the vectors are told their places.
import { average, dot, softmax } from "./arithmetic.js";
import { element, number, setAttributes, setText, start } from "./core.js";

/**
 * Attention without learned numbers: each row becomes the average of all, weighted by its dot products with them.
 * @param {number[][]} x
 * @returns {number[][]}
 */
export const contexts = (x) => x.map((query) => average(softmax(x.map((key) => dot(query, key))), x));

/** A list with one entry moved to another place. @param {number[]} list @param {number} from @param {number} to */
export function moved(list, from, to) {
  const rest = list.filter((_, i) => i !== from);
  return [...rest.slice(0, to), list[from], ...rest.slice(to)];
}

start(
  "word_order",
  ({ tokens }) => ({ order: tokens.map((_, i) => i), place: "no" }),
  (figure) => {
    const { data, state } = figure,
      { tokens, x } = data,
      size = tokens.length;
    figure.style = "word_order.css";
    figure.parsers.order = (text) => {
      const order = text.split("_").map(Number);
      return order.length === size &&
        new Set(order).size === size &&
        order.every((i) => Number.isInteger(i) && i >= 0 && i < size)
        ? order
        : undefined;
    };
    const rows = tokens.map((token, i) => {
      const grip = element("button", { type: "button", class: "grip", "aria-describedby": "how" }, token);
      const numbers = x[0].map(() => element("td")),
        change = element("td", { class: "change" });
      return {
        e: element(
          "tr",
          {},
          element("td", { class: "place" }),
          element("th", { scope: "row" }, grip),
          ...numbers,
          change,
        ),
        grip,
        numbers,
        change,
        i,
      };
    });
    const body = element("tbody", {}, ...rows.map((r) => r.e));
    const table = element(
      "table",
      {},
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          element("th", { scope: "col" }, "place"),
          element("th", { scope: "col" }, "word"),
          element("th", { scope: "col", colspan: x[0].length }, "context vector"),
          element("th", { scope: "col" }, "moved by"),
        ),
      ),
      body,
    );
    figure.stage.append(
      element(
        "figure",
        { class: "card wide" },
        element("figcaption", { id: "how" }, "Drag a word, or press ↑ and ↓ on it."),
        table,
      ),
    );
    const put = (token, to) => {
      const from = state.order.indexOf(token);
      if (to >= 0 && to < size && to !== from) figure.change({ order: moved(state.order, from, to) });
    };
    for (const { grip, i } of rows) {
      grip.addEventListener("keydown", (event) => {
        const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
        if (!step) return;
        event.preventDefault();
        put(i, state.order.indexOf(i) + step);
      });
      grip.addEventListener("pointerdown", (event) => {
        if (event.button) return;
        const drag = ({ clientY }) => {
          const { top, height } = body.getBoundingClientRect();
          put(i, Math.min(size - 1, Math.max(0, Math.floor(((clientY - top) / height) * size))));
        };
        addEventListener("pointermove", drag); // of the window: a row that is put elsewhere loses what it has captured
        for (const end of ["pointerup", "pointercancel"])
          addEventListener(end, () => removeEventListener("pointermove", drag), { once: true });
      });
    }
    figure.button("Reverse", () => figure.change({ order: [...state.order].reverse() }));
    figure.choice("place", "To each vector is added", { no: "nothing", yes: "0.2 times its place" });
    const made = (order) => contexts(order.map((i, t) => x[i].map((a) => a + (state.place === "yes" ? 0.2 * t : 0))));
    const now = () => made(state.order);
    const before = () => made(figure.start.order); // what the order alone has changed is the difference
    const far = (a, b) => Math.hypot(...a.map((y, c) => y - b[c]));
    return {
      draw() {
        const out = now(),
          first = before(),
          held = /** @type {ShadowRoot | null} */ (table.getRootNode())?.activeElement;
        state.order.forEach((i, t) => {
          const { e, numbers, change, grip } = rows[i];
          if (body.children[t] !== e) body.insertBefore(e, body.children[t]);
          setText(e.firstChild, `${t}`);
          setAttributes(grip, { "aria-label": `${tokens[i]}, place ${t}` });
          numbers.forEach((n, c) => setText(n, number(out[t][c], 3)));
          const by = far(out[t], first[i]);
          setText(change, number(by, 3));
          setAttributes(change, { class: `change${by > 5e-4 ? " yes" : ""}` });
        });
        if (held instanceof HTMLElement) held.focus({ preventScroll: true }); // a row that moves loses it
      },
      describe() {
        const out = now(),
          first = before(),
          most = Math.max(...state.order.map((i, t) => far(out[t], first[i])));
        const text = state.order.map((i) => tokens[i]).join(" ");
        return `${text}: ${most < 5e-4 ? "every word has the context vector that it had." : `context vectors have changed by up to ${number(most, 3)}, because the vectors contain their places.`}`;
      },
      solved: () => state.order.some((i, t) => i !== t),
      solve: () => ({ order: [...state.order].reverse() }),
    };
  },
);
