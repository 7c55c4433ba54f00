// Beam search over a small language: which prefixes stay in the beam, which have ended, which are dropped.
import { element, number, setAttributes, setText, start, svg } from "./core.js";

/** @typedef {{ parent: number, p: number, end: boolean }} Prefix */
/** @typedef {{ options: number[], ended: number[], beams: number[] }} Step */

/**
 * The logarithm of each prefix's probability; parents come before their children.
 * @param {Prefix[]} nodes
 * @returns {number[]}
 */
export function logProbs(nodes) {
  /** @type {number[]} */
  const logs = [];
  nodes.forEach(({ parent, p }) => logs.push(parent < 0 ? 0 : logs[parent] + Math.log(p)));
  return logs;
}

/**
 * What each step of a search compares, best first, what of it has ended among the best, and what goes on.
 * @param {Prefix[]} nodes @param {number} size of the beam
 * @returns {Step[]}
 */
export function searchSteps(nodes, size) {
  const logs = logProbs(nodes),
    steps = /** @type {Step[]} */ ([]);
  let beams = [0],
    count = 0;
  while (beams.length && count < size) {
    const options = beams
      .flatMap((b) => nodes.flatMap(({ parent }, i) => (parent === b ? [i] : [])))
      .sort((a, b) => logs[b] - logs[a]);
    const ended = options.slice(0, size).filter((i) => nodes[i].end);
    beams = options.filter((i) => !nodes[i].end).slice(0, size);
    count += ended.length;
    steps.push({ options, ended, beams });
  }
  return steps;
}

start(
  "beam",
  () => ({ size: 2, step: 1 }),
  (figure) => {
    const { data, state } = figure,
      { nodes, widest, hard } = data,
      logs = logProbs(nodes);
    figure.style = "beam.css";
    const depth = Math.max(...nodes.map((n) => n.depth)),
      rows = nodes.filter((n) => n.end).length;
    const wide = 86,
      apart = 97,
      high = 32,
      left = (n) => 4 + (n.depth - 1) * apart,
      top = (n) => 4 + n.row * high;
    const picture = svg("svg", { viewBox: `0 0 ${depth * apart - 6} ${rows * high + 4}`, role: "img" });
    const parts = nodes.map((n, i) => {
      if (!i) return null;
      const parent = nodes[n.parent],
        x = left(n),
        y = top(n);
      const way = svg("path", { d: n.parent ? `M${left(parent) + wide} ${top(parent) + 13}L${x} ${y + 13}` : "" });
      const word = svg("text", { x: x + 6, y: y + 17 }, n.words[0]),
        value = svg("text", { x: x + wide - 5, y: y + 17, class: "value" });
      return { way, box: svg("g", {}, svg("rect", { x, y, width: wide, height: 26, rx: 4 }), word, value), value };
    });
    parts.forEach((part, i) => {
      part?.box.addEventListener("click", () => figure.change({ step: nodes[i].depth }));
    });
    picture.append(...parts.slice(1).map((p) => p.way), ...parts.slice(1).map((p) => p.box));
    const body = element("tbody");
    const key = element(
      "p",
      { class: "key" },
      element("span", { class: "kept" }, "in the beam"),
      element("span", { class: "ended" }, "has ended"),
      element("span", { class: "dropped" }, "dropped"),
    );
    figure.stage.append(
      element(
        "figure",
        { class: "card wide" },
        element("figcaption", {}, "All prefixes; those that the search has reached show their probability"),
        picture,
        key,
      ),
      element(
        "figure",
        { class: "card" },
        element("figcaption", {}, "What has ended, best first"),
        element(
          "table",
          {},
          element(
            "thead",
            {},
            element(
              "tr",
              {},
              element("th", { scope: "col" }, "sentence"),
              element("th", { scope: "col" }, "probability"),
            ),
          ),
          body,
        ),
      ),
    );
    figure.showValues(picture);
    const sentence = (i) => {
      /** @type {string[]} */
      const words = [];
      for (let n = i; n > 0; n = nodes[n].parent) words.unshift(nodes[n].words[0]);
      return words.join(" ");
    };
    const p = (i, digits = 4) => number(Math.exp(logs[i]) + 1e-9, digits); // a half is rounded up, whatever the logarithm made of it
    const steps = () => searchSteps(nodes, state.size);
    const size = figure.slider("size", { label: "Beam size", min: 1, max: widest, step: 1 });
    size.addEventListener("input", () => figure.change({ step: 1 }));
    const slider = figure.slider("step", {
      label: "Step",
      min: 0,
      max: depth,
      step: 1,
      show: (x) => `${Math.min(x, steps().length)} of ${steps().length}`,
    });
    figure.button(
      "Next step",
      () => figure.change({ step: state.step >= steps().length ? 0 : state.step + 1 }),
      () => state.step >= steps().length,
    );
    figure.effects.push(() => {
      state.step = Math.min(state.step, steps().length);
      setAttributes(slider.querySelector("input"), { max: steps().length });
    });
    const ended = () =>
      steps()
        .slice(0, state.step)
        .flatMap((s) => s.ended)
        .sort((a, b) => logs[b] - logs[a]);
    const list = (all) => all.map((i) => `${sentence(i)} (${p(i)})`).join(", ");
    return {
      draw() {
        /** @type {string[]} */
        const kinds = nodes.map(() => "unseen");
        steps()
          .slice(0, state.step)
          .forEach(({ options, ended, beams }, n) => {
            for (const i of options)
              kinds[i] = ended.includes(i)
                ? "ended"
                : !beams.includes(i)
                  ? "dropped"
                  : n === state.step - 1
                    ? "kept"
                    : "past";
          });
        nodes.forEach((_, i) => {
          if (!i) return;
          const { way, box, value } = parts[i];
          setAttributes(way, { class: `way ${kinds[i]}` });
          setAttributes(box, {
            class: `node pressable ${kinds[i]}`,
            "data-value":
              kinds[i] === "unseen"
                ? "Not reached yet: press to go to its step."
                : `${sentence(i)}: probability ${p(i)}.`,
          });
          setText(value, kinds[i] === "unseen" ? "" : p(i, 3).replace(/^0/, ""));
        });
        body.replaceChildren(
          ...ended().map((i) =>
            element("tr", {}, element("th", { scope: "row" }, sentence(i)), element("td", {}, p(i))),
          ),
        );
        setAttributes(picture, {
          "aria-label": `Step ${state.step}. In the beam: ${list(nodes.flatMap((_, i) => (kinds[i] === "kept" ? [i] : []))) || "the empty prefix"}. Dropped: ${list(nodes.flatMap((_, i) => (kinds[i] === "dropped" ? [i] : []))) || "none"}.`,
        });
      },
      describe() {
        const all = steps(),
          now = all[state.step - 1];
        if (!now) return `A beam of ${state.size} starts from the empty prefix.`;
        const last = state.step === all.length,
          found = ended(),
          dropped = now.options.length - now.ended.length - now.beams.length;
        const best = nodes.flatMap((n, i) => (n.end ? [i] : [])).sort((a, b) => logs[b] - logs[a]);
        const lost = best.slice(0, Math.min(state.size, found.length)).filter((i) => !found.includes(i))[0];
        return [
          `Step ${state.step}: of ${now.options.length} continuations,`,
          [
            now.ended.length ? `${list(now.ended)} ${now.ended.length > 1 ? "have" : "has"} ended` : "",
            now.beams.length ? `${list(now.beams)} ${now.beams.length > 1 ? "go" : "goes"} on` : "",
            dropped ? `${dropped} ${dropped > 1 ? "are" : "is"} dropped` : "",
          ]
            .filter(Boolean)
            .join("; ") + ".",
          last
            ? `The search is over. ${lost === undefined ? `Nothing more probable than ${state.size > 1 ? "its best" : "it"} was missed.` : `It missed ${sentence(lost)} (${p(lost)}).`}`
            : "",
        ]
          .join(" ")
          .trim();
      },
      solved: () => state.size === hard && state.step === steps().length,
      solve: () => ({ size: hard, step: depth }),
    };
  },
);
