// A wide table on its way to the heads, number by number: in two steps, or by view.
import { element, prefersReducedMotion, setAttributes, setText, start, svg } from "./core.js";

/**
 * Where each number of a (T, E) table stands in the (H, T, D) table: as head, row and column.
 * "transpose" cuts the width and brings the heads to the front, "view" only moves the brackets.
 * @param {number} T @param {number} H @param {number} D @param {string} way
 * @returns {number[][]}
 */
export function destinations(T, H, D, way) {
  return Array.from({ length: T * H * D }, (_, n) => {
    const t = Math.floor(n / (H * D)),
      h = Math.floor(n / D) % H,
      d = n % D;
    return way === "view" ? [Math.floor(n / (T * D)), Math.floor(n / D) % T, d] : [h, t, d];
  });
}

start(
  "split_heads",
  () => ({ way: "transpose", step: 0 }),
  (figure) => {
    const { data, state } = figure,
      { T, H, D } = data,
      E = H * D,
      cell = 34,
      gap = 16,
      top = 40,
      left = 66;
    figure.style = "split_heads.css";
    // The heads stand beside the wide table; on a narrow window, below it.
    const beside = innerWidth >= 700,
      apart = D * cell + 34,
      right = left + E * cell + (H - 1) * gap,
      from = beside ? right + 66 : left,
      width = Math.max(right, from + H * apart - 34) + 8,
      low = beside ? top : top + T * cell + 52,
      height = low + T * cell + 6;
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
    const ghosts = svg("g"),
      frames = svg("g"),
      titles = svg("g"),
      boxes = svg("g");
    picture.append(ghosts, frames, titles, boxes);
    const text = (x, y, words, kind) => svg("text", { x, y, class: kind }, words);
    const headLeft = (h) => from + h * apart;
    titles.append(text(left, 14, `wide: (T, E) = (${T}, ${E})`, "title"));
    /** @type {Element[]} */
    const owners = [];
    for (let h = 0; h < H; h++) {
      owners.push(text(left + h * D * cell, 31, `head ${h}`, "owner"));
      titles.append(owners[h], text(headLeft(h), low - 9, `head ${h}`, "title"));
      frames.append(
        svg("rect", {
          x: headLeft(h) - 3,
          y: low - 3,
          width: D * cell + 4,
          height: T * cell + 4,
          rx: 3,
          class: `frame head${h % 4}`,
        }),
      );
    }
    for (let t = 0; t < T; t++) {
      titles.append(text(left - 9, top + t * cell + 21, `position ${t}`, "place"));
      titles.append(text(from - 9, low + t * cell + 21, `row ${t}`, "place"));
      for (let c = 0; c < E; c++)
        ghosts.append(
          svg("rect", {
            x: left + c * cell,
            y: top + t * cell,
            width: cell - 2,
            height: cell - 2,
            rx: 3,
            class: "ghost",
          }),
        );
    }
    const numbers = Array.from({ length: T * E }, (_, n) => {
      const owner = Math.floor(n / D) % H,
        name = `${10 * Math.floor(n / E) + (n % E)}`;
      const e = svg(
        "g",
        {
          class: `number head${owner % 4}`,
          "data-value": `${name}: position ${Math.floor(n / E)}, column ${n % E}, which belongs to head ${owner}.`,
        },
        svg("rect", { width: cell - 2, height: cell - 2, rx: 3 }),
        svg("text", { x: cell / 2 - 1, y: 21 }, name),
      );
      boxes.append(e);
      return e;
    });
    const shape = element("p", { class: "shape" });
    figure.stage.append(element("figure", { class: "card wide" }, picture, shape));
    figure.showValues(picture);
    figure.choice("way", "Split with", { transpose: "cut, then transpose", view: `view(${H}, ${T}, ${D})` });
    const steps = () => (state.way === "view" ? 1 : 2);
    const slider = figure.slider("step", {
      label: "Step",
      min: 0,
      max: 2,
      step: 1,
      show: (x) => `${Math.min(x, steps())} of ${steps()}`,
    });
    figure.button(
      "Next step",
      () => figure.change({ step: state.step >= steps() ? 0 : state.step + 1 }),
      () => state.step >= steps(),
    );
    figure.effects.push(() => {
      if (state.step > steps()) state.step = steps();
      setAttributes(slider.querySelector("input"), { max: steps() });
    });
    const wrong = () => destinations(T, H, D, state.way).filter(([h], n) => h !== Math.floor(n / D) % H).length;
    return {
      draw() {
        const arrived = state.step >= steps(),
          places = destinations(T, H, D, state.way);
        boxes.classList.toggle("still", prefersReducedMotion());
        owners.forEach((e, h) => setAttributes(e, { x: left + h * D * cell + (state.step && !arrived ? h * gap : 0) }));
        numbers.forEach((e, n) => {
          const t = Math.floor(n / E),
            c = n % E,
            [h, row, d] = places[n],
            owner = Math.floor(n / D) % H;
          const x = arrived
            ? headLeft(h) + d * cell
            : left + c * cell + (state.step && state.way !== "view" ? owner * gap : 0);
          e.style.transform = `translate(${x}px, ${arrived ? low + row * cell : top + t * cell}px)`;
          e.classList.toggle("astray", arrived && h !== owner);
        });
        const said = arrived
          ? `(H, T, D) = (${H}, ${T}, ${D})`
          : state.step
            ? `(T, H, D) = (${T}, ${H}, ${D})`
            : `(T, E) = (${T}, ${E})`;
        setText(shape, `Shape: ${said}`);
        setAttributes(picture, {
          "aria-label": `${said}; ${arrived ? places.map(([h, row], n) => `${10 * Math.floor(n / E) + (n % E)} in head ${h}, row ${row}`).join("; ") : "the wide table"}`,
        });
      },
      describe() {
        if (state.step < steps())
          return state.step
            ? "Each row is cut into pieces of D numbers. No number has changed its place."
            : "Each number is ten times its position plus its column, so it says where it comes from.";
        const first = destinations(T, H, D, state.way).flatMap(([h, row], n) =>
          h === H - 1 && row === 0 ? [10 * Math.floor(n / E) + (n % E)] : [],
        );
        return `Row 0 of head ${H - 1} contains ${first.join(" and ")}. ${wrong() ? `${wrong()} of ${T * E} numbers are in the wrong head.` : "Every number is in the right head."}`;
      },
      solved: () => state.way === "view" && state.step >= 1,
      solve: () => ({ way: "view", step: 1 }),
    };
  },
);
