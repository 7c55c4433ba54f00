// A translator in training, asked in two word orders that mean the same: the one it is trained on, and another.
import { make, set, start, write } from "./core.js";
import { chart, spots, unpack } from "./looks.js";

start("particles", ({ steps }) => ({ sentence: "0", order: "subject", step: steps.length - 1 }), (figure) => {
  const { data, state } = figure, { steps, sentences, written, weights, exact, glosses } = data, last = steps.length - 1;
  figure.style = "particles.css";
  const view = chart({ across: 8, wide: 42, high: 20, left: 66, head: 38 });
  const answer = make("p", { class: "answer" }), bars = [0, 1].map(() => make("td", { class: "bar" }));
  const heading = (/** @type {string} */ words, /** @type {string} */ scope) => make("th", { scope }, words);
  const table = make("table", {}, make("thead", {}, make("tr", {}, heading("400 new sentences", "col"), heading("right, word for word", "col"))),
    make("tbody", {}, ...["subject first", "object first"].map((words, i) => make("tr", {}, heading(words, "row"), bars[i]))));
  figure.stage.append(
    make("figure", { class: "card wide" }, make("figcaption", {}, "Across: what is read. Down: what is written."), view.picture),
    make("div", { class: "card" }, answer, table),
  );
  figure.choice("order", "Word order", { subject: "subject first", object: "object first" });
  figure.choice("sentence", "Sentence", Object.fromEntries(sentences.map((/** @type {any} */ { right }, /** @type {number} */ i) => [`${i}`, right])));
  figure.slider("step", { label: "Training step", min: 0, max: last, step: 1, show: (i) => `${steps[i]}` });
  const now = () => {
    const i = +state.sentence, order = state.order === "object" ? 1 : 0, { right, japanese } = sentences[i], words = japanese[order].split(" ");
    const english = written[state.step][2 * i + order], rows = /** @type {string[]} */ (weights[state.step][2 * i + order]), names = [...english.split(" "), "<eos>"].slice(0, rows.length);
    const wanted = [...right.split(" "), "<eos>"];
    return { order, right, words, english, rows, names, wrong: names.map((/** @type {string} */ name, /** @type {number} */ t) => name !== wanted[t]) };
  };
  return {
    draw() {
      const { right, words, english, rows, names, wrong } = now();
      view.draw(words.map((/** @type {string} */ word) => `${word}\n${glosses[word]}`), names, wrong, rows, -1);
      set(view.picture, { "aria-label": `${words.join(" ")}. ${names.slice(0, -1).map((/** @type {string} */ name, /** @type {number} */ t) => `${name} looks most at ${spots(unpack(rows[t]), words, 1) || "no word"}`).join(", ")}.` });
      answer.replaceChildren("written ", make("b", { class: english === right ? "" : "wrong" }, english || "nothing"), make("br"), "right ", make("b", {}, right));
      bars.forEach((bar, i) => {
        const share = exact[state.step][i];
        write(bar, share.toFixed(2));
        bar.style.setProperty("--share", share);
      });
    },
    tell() {
      const { order, right, words, english, rows, names } = now(), [first, second] = exact[state.step];
      return [
        `Step ${steps[state.step]}, ${order ? "object" : "subject"} first: ${words.join(" ")} becomes “${english}”${english === right ? ", which is right" : `, where “${right}” is right`}.`,
        `“${names[0]}” looks most at ${spots(unpack(rows[0]), words, 1) || "no word"}.`,
        `Right of 400 new sentences: ${first.toFixed(2)} with the subject first, ${second.toFixed(2)} with the object first.`,
      ].join(" ");
    },
    found: () => state.order === "object" && state.step === last,
    solve: () => ({ order: "object", step: last }),
  };
});
