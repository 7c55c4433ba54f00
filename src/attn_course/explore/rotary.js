// Rotary positions: each pair of columns is a hand, turned by an angle that grows with the position.
import { clamp, drag, element, number, setAttributes, setText, start, svg } from "./core.js";

/**
 * Radians per position of each pair: 1 / base^(2i/D), as the package's rotate.
 * @param {number} pairs @param {number} base
 * @returns {number[]}
 */
export const speeds = (pairs, base) => Array.from({ length: pairs }, (_, i) => base ** (-i / pairs));

start(
  "rotary",
  ({ pairs, base, query, key }) => ({ query, key, moved: 0, base: Math.log10(base), pairs }),
  (figure) => {
    const { state } = figure,
      most = 4,
      far = 64;
    figure.style = "rotary.css";
    const ring = (at) => `${(44 * Math.cos(at)).toFixed(1)} ${(-44 * Math.sin(at)).toFixed(1)}`;
    const clocks = Array.from({ length: most }, (_, i) => {
      const wedge = svg("path", { class: "wedge" }),
        key = svg("path", { class: "hand key" }),
        query = svg("path", { class: "hand query" });
      const face = svg(
        "svg",
        { viewBox: "-52 -52 104 104", role: "img" },
        svg("circle", { r: 48, class: "face" }),
        svg("path", { d: "M40 0H48", class: "tick" }),
        wedge,
        key,
        query,
      );
      const title = element("figcaption"),
        product = element("p", { class: "product" });
      const e = element("figure", { class: "clock" }, title, face, product);
      return { e, wedge, key, query, face, title, product, i };
    });
    const curve = svg("path", { class: "curve" }),
      zero = svg("path", { class: "axis" }),
      here = svg("circle", { r: 4.5, class: "here" });
    const plot = svg(
      "svg",
      { viewBox: "0 0 340 100", role: "img" },
      zero,
      curve,
      here,
      svg("text", { x: 8, y: 98 }, "distance 0"),
      svg("text", { x: 332, y: 98, class: "end" }, `${far}`),
    );
    figure.stage.append(
      element("div", { class: "clocks" }, ...clocks.map(({ e }) => e)),
      element(
        "figure",
        { class: "card wide" },
        element(
          "figcaption",
          {},
          "Score (up) by distance (across). In the clocks, orange is the query and green is the key. Drag a hand, or drag along the curve.",
        ),
        plot,
      ),
    );
    figure.slider("query", { label: "Position of the query", min: 0, max: far, step: 1 });
    figure.slider("key", { label: "Position of the key", min: 0, max: far, step: 1 });
    figure.slider("moved", { label: "Both shifted by", min: 0, max: 200, step: 5 });
    figure.slider("pairs", { label: "Pairs of columns", min: 1, max: most, step: 1 });
    figure.slider("base", { label: "Base", min: 0.2, max: 4, step: "any", show: (x) => number(10 ** x, 0) });
    const base = () => 10 ** state.base;
    const score = (distance) => speeds(state.pairs, base()).reduce((sum, w) => sum + Math.cos(w * distance), 0);
    const apart = () => Math.abs(state.query - state.key);
    // A dragged hand turns with the pointer, and its position changes by the angle over the speed of its pair.
    clocks.forEach(({ face, i }) => {
      let hand = "query",
        last = 0;
      const angle = ({ clientX, clientY }) => {
        const box = face.getBoundingClientRect();
        return Math.atan2(box.top + box.height / 2 - clientY, clientX - box.left - box.width / 2);
      };
      const turn = (by) => Math.atan2(Math.sin(by), Math.cos(by));
      face.addEventListener("pointerdown", (event) => {
        const speed = speeds(state.pairs, base())[i],
          off = (at) => Math.abs(turn(angle(event) - speed * (at + state.moved)));
        hand = off(state.query) <= off(state.key) ? "query" : "key";
        last = angle(event);
      });
      drag(face, (event) => {
        const steps = Math.round(turn(angle(event) - last) / speeds(state.pairs, base())[i]);
        if (!steps) return;
        last += steps * speeds(state.pairs, base())[i];
        figure.change({ [hand]: clamp(state[hand] + steps, 0, far) });
      });
    });
    drag(plot, ({ clientX }) => {
      const box = plot.getBoundingClientRect(),
        distance = clamp(Math.round(((((clientX - box.left) / box.width) * 340 - 8) / 324) * far), 0, far);
      figure.change(
        state.key + distance <= far ? { query: state.key + distance } : { query: far, key: far - distance },
      );
    });
    figure.showValues(plot, ({ clientX }) => {
      const box = plot.getBoundingClientRect(),
        distance = Math.round(((((clientX - box.left) / box.width) * 340 - 8) / 324) * far);
      return distance >= 0 && distance <= far
        ? `Distance ${distance}: the score is ${number(score(distance), 3)}.`
        : "";
    });
    return {
      draw() {
        const turns = speeds(state.pairs, base());
        clocks.forEach(({ e, wedge, key, query, face, title, product, i }) => {
          e.hidden = i >= turns.length;
          if (e.hidden) return;
          const a = turns[i] * (state.query + state.moved),
            b = turns[i] * (state.key + state.moved),
            wide = Math.abs(a - b);
          const low = Math.min(a, b),
            shown = wide % (2 * Math.PI),
            large = shown > Math.PI ? 1 : 0;
          setAttributes(query, { d: `M0 0L${ring(a)}` });
          setAttributes(key, { d: `M0 0L${ring(b)}` });
          setAttributes(wedge, {
            d: `M0 0L${(22 * Math.cos(low)).toFixed(1)} ${(-22 * Math.sin(low)).toFixed(1)}A22 22 0 ${large} 0 ${(22 * Math.cos(low + shown)).toFixed(1)} ${(-22 * Math.sin(low + shown)).toFixed(1)}Z`,
          });
          setAttributes(face, { "aria-label": `pair ${i}: ${number(wide)} radians between the hands` });
          setText(title, `pair ${i}: ${number(turns[i], 4)} rad`);
          setText(product, `cos ${number(wide)} = ${number(Math.cos(wide), 3)}`);
        });
        const n = state.pairs,
          x = (d) => 8 + (d / far) * 324,
          y = (s) => 44 - (s / n) * 40;
        const points = Array.from(
          { length: 4 * far + 1 },
          (_, i) => `${x(i / 4).toFixed(1)} ${y(score(i / 4)).toFixed(1)}`,
        );
        setAttributes(curve, { d: `M${points.join("L")}` });
        setAttributes(zero, { d: "M8 44H332" });
        setAttributes(here, { cx: x(apart()).toFixed(1), cy: y(score(apart())).toFixed(1) });
        setAttributes(plot, { "aria-label": `Score ${number(score(apart()), 3)} at distance ${apart()}` });
      },
      describe() {
        const now = score(apart()),
          rest = Array.from({ length: far }, (_, i) => i + 1).filter((d) => d > apart() && score(d) > now + 0.005);
        const back = rest.length ? `At distance ${rest[0]}, it is higher.` : "At no larger distance is it higher.";
        return `Positions ${state.query + state.moved} and ${state.key + state.moved}: the score is ${number(now, 3)}, at distance ${apart()}. ${back}`;
      },
      solved: () => state.moved >= 20,
      solve: () => ({ moved: 20 }),
    };
  },
);
