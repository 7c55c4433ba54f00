// Two networks write a date, character by character, as they stood at some step of their training.
import { element, setAttributes, setText, start } from "./core.js";
import { chart, spots, unpack } from "./recorded_attention.js";

const PARTS = /** @type {[string, number, number][]} */ ([
  ["year", 0, 4],
  ["month", 5, 7],
  ["day", 8, 10],
]);

/**
 * Which parts of an answer are not those of the right one.
 * @param {string} written @param {string} right
 * @returns {string[]}
 */
export const wrongParts = (written, right) =>
  PARTS.filter(([, a, b]) => written.slice(a, b) !== right.slice(a, b)).map(([name]) => name);

start(
  "decoder",
  ({ steps, shown }) => ({ net: "on", text: `${shown}`, step: steps.length - 1, at: 10 }),
  (figure) => {
    const { data, state } = figure,
      { steps, texts, written, weights, exact, characters } = data,
      last = steps.length - 1;
    figure.style = "decoder.css";
    const view = chart({ across: 26, wide: 13, high: 13, left: 20, head: 21 });
    const answer = element("p", { class: "answer" }),
      count = element("p", { class: "count" });
    figure.stage.append(
      element(
        "figure",
        { class: "card wide" },
        element("figcaption", {}, "Columns: the text that is read. Rows: the date that is written."),
        view.picture,
      ),
      element("div", { class: "card" }, answer, count),
    );
    figure.choice("net", "Network", { on: "with attention", off: "with one vector" });
    figure.choice(
      "text",
      "Length of the text",
      Object.fromEntries(texts.map(([text], i) => [`${i}`, `${text.length}`])),
    );
    figure.slider("step", {
      label: "Training step",
      min: 0,
      max: last,
      step: 1,
      show: (i) => steps[i].toLocaleString("en"),
    });
    figure.effects.push(() => setAttributes(place.querySelector("input"), { max: now().all.length })); // before its value is set
    const place = figure.slider("at", {
      label: "Characters written",
      min: 1,
      max: 10,
      step: 1,
      show: (t) => `${Math.min(t, now().all.length)} of ${now().all.length}`,
    });
    figure.button(
      "Next character",
      () => figure.change({ at: state.at >= now().all.length ? 1 : state.at + 1 }),
      () => state.at >= now().all.length,
    );
    const cell = (event) => view.cellAt(event, now().text.length, now().all.length);
    figure.showValues(view.picture, (event) => {
      const { text, all, rows } = now(),
        place = cell(event),
        weight = rows && place && unpack(rows[place.t])[place.s].toFixed(2);
      return (
        place &&
        `Written “${all[place.t]}”, read “${text[place.s]}”: ${weight ? `weight ${weight}` : "no weight, because this network has no attention"}.`
      );
    });
    view.picture.classList.add("pressable");
    view.picture.addEventListener("click", (event) => {
      const place = cell(event);
      if (place) figure.change({ at: place.t + 1 });
    });
    const now = () => {
      const on = state.net === "on",
        i = +state.text,
        [text, right] = texts[i],
        all = written[on ? "attention" : "one vector"][state.step][i];
      const at = Math.min(state.at, all.length) - 1,
        rows = on ? /** @type {string[]} */ (weights[state.step][i]) : null;
      return { on, text, right, all, at, rows, wrong: [...all].map((c, t) => c !== right[t]) };
    };
    const share = (net, length) => {
      const range = characters.findIndex(([a, b]) => a <= length && length <= b);
      return { range: characters[range], right: `${(100 * exact[net][state.step][range]).toFixed(0)} %` };
    };
    return {
      draw() {
        const { on, text, right, all, at, rows, wrong } = now();
        view.draw([...text], [...all], wrong, rows, at);
        setAttributes(view.picture, {
          "aria-label": `The text is “${text}”. Written: ${all.slice(0, at + 1)}. ${rows ? `For the last character it attends most to ${spots(unpack(rows[at]), [...text], 3) || "no character"}.` : "It has no attention."}`,
        });
        const letters = [...all].slice(0, at + 1).map((c, t) => element("span", { class: wrong[t] ? "wrong" : "" }, c));
        answer.replaceChildren(
          "written ",
          element("code", {}, ...letters),
          element("br"),
          "right ",
          element("code", {}, right),
        );
        const [mine, other] = on ? ["attention", "one vector"] : ["one vector", "attention"],
          { range, right: good } = share(mine, text.length);
        setText(
          count,
          `At this step, the network with ${mine} writes ${good} of the dates correctly, if the text has ${range[0]} to ${range[1]} characters. The network with ${other} writes ${share(other, text.length).right} of them correctly.`,
        );
      },
      describe() {
        const { on, text, right, all, at, rows, wrong } = now(),
          c = all[at],
          end = c === "■" ? "the end" : c === "□" ? "a special symbol" : c;
        const parts = wrongParts(all, right),
          seen = rows && spots(unpack(rows[at]), [...text]);
        return [
          `Step ${steps[state.step].toLocaleString("en")}, character ${at + 1}: it writes ${end}${wrong[at] ? `, where ${right[at]} is right` : ""}${on ? ` and attends ${seen ? `most to ${seen}` : "to no character with a weight of 0.1 or more"}` : ". All that it knows about the text is one vector of 64 numbers"}.`,
          at < all.length - 1
            ? ""
            : parts.length
              ? `Wrong in the end: the ${parts.join(", the ")}.`
              : "The date is right.",
        ]
          .join(" ")
          .trim();
      },
      solved: () => state.net === "on" && state.step === 0,
      solve: () => ({ net: "on", step: 0 }),
    };
  },
);
