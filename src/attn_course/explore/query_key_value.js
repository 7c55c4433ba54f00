// One query, its keys and their values: scores, weights, and the context inside the values' hull.
import { average, dot, hull, softmax } from "./arithmetic.js";
import { element, number, setAttributes, setText, start, svg } from "./core.js";

/** @param {number[]} list @returns {number[][]} */
const pairs = (list) => Array.from({ length: list.length / 2 }, (_, i) => list.slice(2 * i, 2 * i + 2));

start(
  "query_key_value",
  ({ query, keys, values }) => ({ query, keys: keys.flat(), values: values.flat(), times: 0 }),
  (figure) => {
    const { data, state } = figure,
      { tokens, asks, spread, boxes } = data;
    let last = "";
    figure.style = "query_key_value.css";
    const touched = (what) => () => {
      last = what;
    };

    const left = figure.plane("Query and keys", boxes[0]),
      right = figure.plane("Values and context", boxes[1]);
    for (const [plane, name] of /** @type {[typeof left, string][]} */ ([
      [left, "query"],
      [left, "keys"],
      [right, "values"],
    ])) {
      const [x0, x1, y0, y1] = plane.box;
      figure.numbers(name, [x0, y0], [x1, y1]);
    }
    const arrow = (kind) => svg("path", { class: `arrow ${kind}` });
    const arrows = tokens.map(() => arrow("key")),
      ask = arrow("query"),
      guide = svg("path", { class: "guide" }); // to the point to drag, where the query is shorter
    const area = svg("polygon", { class: "hull" }),
      weight = tokens.map(() => svg("circle", { class: "weight" }));
    const context = svg("path", { class: "context", d: "M-7 -7L7 7M-7 7L7 -7" });
    const names = tokens.map((t) => svg("text", { class: "name key" }, t)),
      asking = svg("text", { class: "name query" }, "query");
    const named = tokens.map((t) => svg("text", { class: "name value" }, t));
    left.back.append(...arrows, guide, ask, ...names, asking);
    right.back.append(area, ...weight, ...named, context);
    tokens.forEach((token, i) => {
      left.handle("keys", i, `key of ${token}`, { kind: "key", moved: touched(`the key of ${token}`) });
      right.handle("values", i, `value of ${token}`, { kind: "value", moved: touched(`the value of ${token}`) });
    });
    left.handle("query", 0, `query of ${asks}`, { kind: "query", moved: touched("the query") });

    const rows = tokens.map((token) => {
      const score = element("td"),
        bar = element("td", { class: "bar" }),
        e = element("tr", {}, element("th", { scope: "row" }, token), score, bar);
      return { e, score, bar };
    });
    const table = element(
      "table",
      {},
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          element("td"),
          element("th", { scope: "col" }, "score ÷ √2"),
          element("th", { scope: "col" }, "weight"),
        ),
      ),
      element("tbody", {}, ...rows.map((r) => r.e)),
    );
    const card = (title, e) => element("figure", { class: "card" }, element("figcaption", {}, title), e);
    figure.stage.append(
      card("Queries meet keys", left.svg),
      card("Scores become weights", table),
      card("Weights average values; the cross is the context", right.svg),
    );
    const line = element("p", { class: "value-line" });
    figure.stage.append(line);
    for (const { svg: picture } of [left, right])
      figure.showValues(
        picture,
        ({ target }) => {
          const handle = target.closest(".handle");
          return handle && `${handle.getAttribute("aria-label")}: ${handle.getAttribute("aria-valuetext")}`;
        },
        line,
      );
    const factor = () => 10 ** state.times;
    const long = () => state.query.map((x) => x * factor()),
      isCut = () => long().some((x) => x < boxes[0][0] || x > boxes[0][1]);
    const slider = figure.slider("times", {
      label: "Length of the query",
      min: -1,
      max: 1.5,
      step: 0.05,
      show: (x) => `× ${number(10 ** x, x < 0 ? 2 : 1)}${isCut() ? ", cut at the frame" : ""}`,
    });
    slider.addEventListener("input", touched("the length of the query"));

    const tip = (plane, /** @type {number[]} */ [x, y]) => {
      const a = plane.x(0),
        b = plane.y(0),
        u = plane.x(x),
        v = plane.y(y),
        long = Math.hypot(u - a, v - b) || 1,
        c = (u - a) / long,
        s = (v - b) / long;
      return `M${a} ${b}L${u} ${v}M${u - 8 * c - 4 * s} ${v - 8 * s + 4 * c}L${u} ${v}L${u - 8 * c + 4 * s} ${v - 8 * s - 4 * c}`;
    };
    const now = () => {
      const keys = pairs(state.keys),
        values = pairs(state.values),
        query = long();
      const scores = keys.map((key) => dot(query, key) / spread),
        weights = softmax(scores);
      return { keys, values, scores, weights, out: average(weights, values) };
    };
    return {
      draw() {
        const { keys, values, scores, weights, out } = now();
        keys.forEach((key, i) => setAttributes(arrows[i], { d: tip(left, key) }));
        setAttributes(ask, { d: tip(left, long()) });
        setAttributes(guide, { d: `M${left.x(0)} ${left.y(0)}L${left.x(state.query[0])} ${left.y(state.query[1])}` });
        left.label([...names, asking], [...keys, state.query]);
        setAttributes(area, {
          points: hull(values)
            .map(([x, y]) => `${right.x(x).toFixed(1)},${right.y(y).toFixed(1)}`)
            .join(" "),
        });
        values.forEach(([x, y], i) =>
          setAttributes(weight[i], { cx: right.x(x), cy: right.y(y), r: (27 * Math.sqrt(weights[i])).toFixed(1) }),
        );
        setAttributes(context, { transform: `translate(${right.x(out[0]).toFixed(1)} ${right.y(out[1]).toFixed(1)})` });
        right.label(named, values);
        rows.forEach(({ score, bar }, i) => {
          setText(score, number(scores[i]));
          setText(bar, number(weights[i], 3));
          bar.style.setProperty("--share", weights[i].toFixed(4));
        });
      },
      describe() {
        const { weights, out } = now(),
          best = weights.indexOf(Math.max(...weights));
        const what = !last
          ? ""
          : last.startsWith("the value")
            ? `You moved ${last}: no score and no weight changed. `
            : `You changed ${last}: the scores and weights changed, the values did not. `;
        return `${what}${tokens[best]} has the most weight, ${number(weights[best], 3)}; the context is (${out.map((x) => number(x, 3)).join(", ")}).`;
      },
      solved: () => factor() >= 9.9,
      solve: () => ({ times: 1 }),
    };
  },
);
