// A sentence as four heads of a trained model read it: each token, and the tokens that it attends to.
import { element, number, setAttributes, setText, start, svg } from "./core.js";

/**
 * The tokens with a weight of at least 0.01, the largest weight first.
 * @param {number[]} weights
 * @returns {number[]}
 */
export const attended = (weights) =>
  weights
    .map((_, s) => s)
    .filter((s) => weights[s] >= 0.01)
    .sort((a, b) => weights[b] - weights[a]);

start(
  "trained_heads",
  () => ({ sentence: "0", head: "1", at: [5, 9] }),
  (figure) => {
    const { data, state } = figure,
      { heads, sentences } = data;
    figure.style = "trained_heads.css";
    figure.numbers(
      "at",
      sentences.map(() => 0),
      sentences.map(({ tokens }) => tokens.length - 1),
    );
    let hovered = -1,
      pointer = "";
    const texts = sentences.map(({ tokens }, n) => {
      const lines = tokens.map(() => svg("path", { class: "weight" })),
        drawing = svg("svg", { class: "arcs", "aria-hidden": "true" }, ...lines);
      const words = tokens.map((token, t) => {
        const value = element("span", { class: "share" }),
          word = element("button", { type: "button", class: "word" }, element("bdi", {}, token), value);
        word.addEventListener("pointermove", ({ pointerType, clientX, clientY }) => {
          const place = `${clientX} ${clientY}`; // a pointer that rests has no say, though words move below it
          if (pointerType !== "touch" && place !== pointer) point(t);
          pointer = place;
        });
        word.addEventListener("click", () => choose(t));
        word.addEventListener("focus", () => choose(t));
        return { e: word, value };
      });
      const e = element("div", { class: "sentence", role: "group", "aria-label": tokens.join(" ") }, drawing);
      words.forEach((word, t) => {
        e.append(word.e);
        if (tokens[t] === "." && t < tokens.length - 1) e.append(element("span", { class: "break" })); // on a phone
      });
      e.addEventListener("pointerleave", () => point(-1));
      e.addEventListener("keydown", (event) => {
        const t = state.at[n] + ({ ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? 0);
        if (t === state.at[n] || !words[t]) return;
        event.preventDefault();
        choose(t);
        words[t].e.focus();
      });
      return { e, tokens, words, lines, drawing };
    });
    const shown = () => texts[+state.sentence];
    const point = (t) => {
      if (hovered === t) return;
      hovered = t;
      figure.draw();
    };
    const choose = (t) => {
      const at = [...state.at];
      hovered = -1; // the last input counts
      at[+state.sentence] = t;
      figure.change({ at });
    };
    const now = () => {
      const { tokens } = shown(),
        t = hovered >= 0 && hovered < tokens.length ? hovered : Math.round(state.at[+state.sentence]);
      return { tokens, t, weights: sentences[+state.sentence].weights[+state.head][t] };
    };
    const answer = element("p", { class: "told" });
    figure.stage.append(
      element(
        "figure",
        { class: "card whole" },
        element(
          "figcaption",
          {},
          "A thicker line is a larger weight. The model reads from left to right, so later tokens are hidden. Tap a token, or press ← and →, to keep it.",
        ),
        ...texts.map(({ e }) => e),
        answer,
      ),
    );
    figure.choice("head", "What the head attends to", Object.fromEntries(heads.map((name, h) => [`${h}`, name])));
    figure.choice("sentence", "Sentence", { 0: "Your journey …", 1: "The cat sat …" });
    figure.effects.push(() => {
      hovered = Math.min(hovered, shown().tokens.length - 1);
    });

    // Lines between the words, where the page has put them.
    const arcs = () => {
      const { e, words, lines, drawing } = shown(),
        { t, weights } = now();
      const place = ({ e: word }) => [word.offsetLeft + word.offsetWidth / 2, word.offsetTop, word.offsetHeight];
      const [x, y] = place(words[t]);
      setAttributes(drawing, { viewBox: `0 0 ${e.clientWidth} ${e.clientHeight}` });
      lines.forEach((line, s) => {
        const [u, v, height] = place(words[s]),
          up = 16 + Math.min(38, 0.16 * Math.abs(x - u)),
          below = v + height; // of a token in the line above, the line ends at its lower edge
        const d =
          s === t
            ? `M${x - 7} ${y}C${x - 22} ${y - 30} ${x + 22} ${y - 30} ${x + 7} ${y}`
            : below < y
              ? `M${x} ${y}C${x} ${y - 24} ${u} ${below + 24} ${u} ${below}`
              : `M${x} ${y}C${x} ${y - up} ${u} ${y - up} ${u} ${y}`;
        setAttributes(line, { d, style: `--w: ${weights[s] < 0.01 ? 0 : weights[s]}` });
      });
    };
    if ("ResizeObserver" in globalThis) {
      const watcher = new ResizeObserver(() => requestAnimationFrame(arcs));
      texts.forEach(({ e }) => watcher.observe(e));
    }
    const listed = (tokens, weights) =>
      attended(weights)
        .slice(0, 3)
        .map((s) => `“${tokens[s]}” (${number(weights[s])})`)
        .join(", ");
    return {
      draw() {
        const { tokens, t, weights } = now();
        texts.forEach(({ e }, n) => {
          e.hidden = n !== +state.sentence;
        });
        shown().words.forEach(({ e, value }, s) => {
          setAttributes(e, {
            class: s === t ? "word query" : s > t ? "word later" : "word",
            tabindex: s === Math.round(state.at[+state.sentence]) ? 0 : -1,
            "aria-pressed": s === t ? "true" : "false",
            "aria-label": s > t ? `${tokens[s]}, hidden` : `${tokens[s]}, weight ${number(weights[s])}`,
            style: `--share: ${weights[s]}`,
          });
          setText(value, s > t ? "hidden" : weights[s] < 0.005 ? "0" : number(weights[s]).replace(/^0/, ""));
        });
        setText(answer, `“${tokens[t]}” attends to ${listed(tokens, weights)}.`);
        if (shown().e.isConnected) arcs();
      },
      describe() {
        const { tokens, t, weights } = now();
        const later = tokens.length - 1 - t;
        return `Head “${heads[+state.head]}”: “${tokens[t]}” attends to ${listed(tokens, weights)}. ${later ? `The ${later > 1 ? `${later} later tokens are` : "later token is"} hidden from it, because a language model reads from left to right.` : "It is the last token, so none is hidden from it."}`;
      },
      solved: () => state.sentence === "1" && state.head === "3" && state.at[1] === 9,
      solve: () => ({ sentence: "1", head: "3", at: [state.at[0], 9] }),
    };
  },
);
