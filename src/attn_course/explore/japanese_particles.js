// A translator in training, asked in two word orders that mean the same: the one it is trained on, and another.
import { element, setAttributes, setText, start } from "./core.js";
import { chart, spots, unpack } from "./recorded_attention.js";

start(
  "japanese_particles",
  ({ steps }) => ({ sentence: "0", order: "subject", step: steps.length - 1 }),
  (figure) => {
    const { data, state } = figure,
      { steps, sentences, written, weights, exact, glosses } = data,
      last = steps.length - 1;
    figure.style = "japanese_particles.css";
    const view = chart({ across: 8, wide: 42, high: 20, left: 66, head: 38 });
    const answer = element("p", { class: "answer" }),
      bars = [0, 1].map(() => element("td", { class: "bar" }));
    const heading = (words, scope) => element("th", { scope }, words);
    const table = element(
      "table",
      {},
      element(
        "thead",
        {},
        element("tr", {}, heading("400 new sentences", "col"), heading("right, word for word", "col")),
      ),
      element(
        "tbody",
        {},
        ...["subject first", "object first"].map((words, i) => element("tr", {}, heading(words, "row"), bars[i])),
      ),
    );
    figure.stage.append(
      element(
        "figure",
        { class: "card wide" },
        element("figcaption", {}, "Columns: the words that are read. Rows: the words that are written."),
        view.picture,
      ),
      element("div", { class: "card" }, answer, table),
    );
    figure.choice("order", "Word order", { subject: "subject first", object: "object first" });
    figure.choice("sentence", "Sentence", Object.fromEntries(sentences.map(({ right }, i) => [`${i}`, right])));
    figure.slider("step", { label: "Training step", min: 0, max: last, step: 1, show: (i) => `${steps[i]}` });
    const now = () => {
      const i = +state.sentence,
        order = state.order === "object" ? 1 : 0,
        { right, japanese } = sentences[i],
        words = japanese[order].split(" ");
      const english = written[state.step][2 * i + order],
        rows = /** @type {string[]} */ (weights[state.step][2 * i + order]),
        names = [...english.split(" "), "<eos>"].slice(0, rows.length);
      const wanted = [...right.split(" "), "<eos>"];
      return {
        order,
        right,
        words,
        english,
        rows,
        names,
        wrong: names.map((name, t) => name !== wanted[t]),
      };
    };
    figure.showValues(view.picture, (event) => {
      const { words, names, rows } = now(),
        place = view.cellAt(event, words.length, names.length);
      return (
        place &&
        `Written “${names[place.t]}”, read “${words[place.s]}”: weight ${unpack(rows[place.t])[place.s].toFixed(2)}.`
      );
    });
    return {
      draw() {
        const { right, words, english, rows, names, wrong } = now();
        view.draw(
          words.map((word) => `${word}\n${glosses[word]}`),
          names,
          wrong,
          rows,
          -1,
        );
        setAttributes(view.picture, {
          "aria-label": `${words.join(" ")}. ${names
            .slice(0, -1)
            .map((name, t) => `${name} attends most to ${spots(unpack(rows[t]), words, 1) || "no word"}`)
            .join(", ")}.`,
        });
        answer.replaceChildren(
          "written ",
          element("b", { class: english === right ? "" : "wrong" }, english || "nothing"),
          element("br"),
          "right ",
          element("b", {}, right),
        );
        bars.forEach((bar, i) => {
          const share = exact[state.step][i];
          setText(bar, share.toFixed(2));
          bar.style.setProperty("--share", share);
        });
      },
      describe() {
        const { order, right, words, english, rows, names } = now(),
          [first, second] = exact[state.step];
        return [
          `Step ${steps[state.step]}, ${order ? "object" : "subject"} first: ${words.join(" ")} becomes “${english}”${english === right ? ", which is right" : `, where “${right}” is right`}.`,
          `“${names[0]}” attends most to ${spots(unpack(rows[0]), words, 1) || "no word"}.`,
          `Right of 400 new sentences: ${first.toFixed(2)} with the subject first, ${second.toFixed(2)} with the object first.`,
        ].join(" ");
      },
      solved: () => state.order === "object" && state.step === last,
      solve: () => ({ order: "object", step: last }),
    };
  },
);
