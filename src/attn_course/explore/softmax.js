// Scores, a temperature and a shift: the weights as the package computes them, and as exp and a sum would.
import { average, naiveSoftmax, softmax } from "./arithmetic.js";
import { drag, element, number, setText, start } from "./core.js";

start(
  "softmax",
  ({ scores }) => ({ scores, heat: 0, shift: 0 }),
  (figure) => {
    const { data, state } = figure,
      { tokens, values } = data;
    figure.style = "softmax.css";
    const low = Math.min(-1, ...data.scores),
      high = Math.max(3, ...data.scores);
    figure.numbers("scores", [low], [high]);
    const rows = tokens.map((token, i) => {
      const input = element("input", {
        type: "range",
        min: low,
        max: high,
        step: "any",
        "aria-label": `score of ${token}`,
      });
      input.addEventListener("input", () =>
        figure.change({
          scores: state.scores.map((s, j) => (i === j ? Math.round(+input.value * 100) / 100 : s)),
        }),
      );
      input.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -0.1, ArrowDown: -0.1, ArrowRight: 0.1, ArrowUp: 0.1 }[event.key];
        if (!step) return;
        event.preventDefault();
        const s = Math.min(high, Math.max(low, state.scores[i] + step));
        figure.change({
          scores: state.scores.map((old, j) => (i === j ? Math.round(s * 100) / 100 : old)),
        });
      });
      figure.effects.push(() => {
        input.value = state.scores[i];
        input.setAttribute("aria-valuetext", number(state.scores[i]));
      });
      const score = element("td"),
        ours = element("td", { class: "bar" });
      drag(ours, ({ clientX }) => {
        // the length of the bar is the weight; the other scores stay
        const box = ours.getBoundingClientRect(),
          share = Math.min(0.99, Math.max(0.01, (clientX - box.left) / box.width));
        const others = state.scores.reduce((sum, s, j) => sum + (i === j ? 0 : Math.exp(s / 10 ** state.heat)), 0);
        const s = Math.min(high, Math.max(low, 10 ** state.heat * Math.log((others * share) / (1 - share))));
        if (Number.isFinite(s))
          figure.change({
            scores: state.scores.map((old, j) => (i === j ? Math.round(s * 100) / 100 : old)),
          });
      });
      const naive = element("td", { class: "bar naive" });
      return {
        e: element(
          "tr",
          {},
          element("th", { scope: "row" }, token),
          element("td", { class: "drag" }, input),
          score,
          ours,
          naive,
        ),
        score,
        ours,
        naive,
      };
    });
    const titles = ["move the score", "÷ temperature, +\u00a0added", "softmax", "exp ÷ sum (float32)"];
    const head = element("tr", {}, element("td"), ...titles.map((title) => element("th", { scope: "col" }, title)));
    const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows.map((r) => r.e)));
    figure.stage.append(table);
    figure.slider("heat", {
      label: "Temperature",
      min: -2,
      max: 2,
      step: 0.05,
      show: (x) => number(10 ** x, x < 0 ? 2 : 1),
    });
    figure.slider("shift", {
      label: "Added to all scores",
      min: -200,
      max: 200,
      step: 5,
      show: (x) => (x > 0 ? "+" : "") + number(x, 0),
    });
    const seen = () => state.scores.map((s) => s / 10 ** state.heat + state.shift);
    return {
      draw() {
        const s = seen(),
          ours = softmax(s),
          naive = naiveSoftmax(s);
        rows.forEach((row, i) => {
          setText(row.score, number(s[i], Math.abs(s[i]) < 10 ? 3 : 1));
          for (const [cell, w] of [
            [row.ours, ours[i]],
            [row.naive, naive[i]],
          ]) {
            setText(cell, number(w, 4));
            cell.style.setProperty("--share", Number.isNaN(w) ? 0 : w.toFixed(4));
            cell.classList.toggle("nan", Number.isNaN(w));
          }
        });
      },
      describe() {
        const s = seen(),
          weights = softmax(s),
          order = [...s].sort((a, b) => b - a),
          naive = naiveSoftmax(s);
        const sum = naive.reduce((a, b) => a + b, 0),
          lead = order[0] - order[1];
        const broken = Number.isNaN(sum)
          ? "Without subtracting the maximum, the weights are NaN."
          : Math.abs(sum - 1) > 0.01
            ? `Without subtracting the maximum, the weights sum to ${number(sum)}.`
            : naive.every((w, i) => Math.abs(w - weights[i]) < 5e-4)
              ? "With and without subtracting the maximum, the weights are equal."
              : "Without subtracting the maximum, the weights are wrong, because very small exponentials lose digits.";
        const context = values
          ? ` The context is (${average(weights, values)
              .map((x) => number(x, 3))
              .join(", ")}).`
          : "";
        return `The largest score is ${number(lead, 3)} above the second, so its weight is ${lead > 20 ? "more than a hundred million" : number(Math.exp(lead), lead > 5 ? 0 : 2)} times as large. ${broken}${context}`;
      },
      solved: () => naiveSoftmax(seen()).some(Number.isNaN),
      solve: () => ({ shift: 100 }),
    };
  },
);
