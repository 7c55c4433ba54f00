// A mask to paint: what the weights become, and whose scores still influence them.
import { maskedWeights, say } from "./arithmetic.js";
import { element, number, setAttributes, setText, start } from "./core.js";

start(
  "mask",
  ({ mask }) => ({ mask, when: "before", means: "may" }),
  (figure) => {
    const { data, state } = figure,
      { tokens, scores } = data,
      size = tokens.length;
    const places = tokens.map((_, i) => i);
    figure.style = "mask.css";
    figure.numbers("mask", [0], [1]);

    /** @param {string} title @param {string} note @param {(t: number, s: number) => any} cell */
    const grid = (title, note, cell) => {
      /** @type {any[][]} */
      const cells = [];
      const head = element(
        "div",
        { role: "row", class: "row" },
        element("span", { role: "columnheader", class: "corner" }, "key →", element("br"), "query ↓"),
        ...tokens.map((token) => element("span", { role: "columnheader", class: "across" }, element("bdi", {}, token))),
      );
      const rows = places.map((t) => {
        cells.push(places.map((s) => cell(t, s)));
        return element(
          "div",
          { role: "row", class: "row" },
          element("span", { role: "rowheader", class: "down" }, tokens[t]),
          ...cells[t],
        );
      });
      const e = element("div", { role: "grid", "aria-label": title, class: "grid" }, head, ...rows);
      e.style.setProperty("--size", size);
      figure.stage.append(
        element("figure", { class: "card" }, element("figcaption", {}, element("b", {}, title), ` ${note}`), e),
      );
      return { e, cells };
    };
    const at = (t, s) => t * size + s;
    const allowed = () => places.map((t) => places.map((s) => state.mask[at(t, s)] > 0.5 === (state.means === "may")));
    const paint = (t, s, value) => {
      const mask = [...state.mask];
      mask[at(t, s)] = value;
      figure.change({ mask });
    };

    const painted = grid(
      "The mask:",
      "filled cells are True. Click or tap, drag with a mouse, or press Space.",
      (t, s) => element("span", { role: "gridcell", class: "cell paint", tabindex: t + s ? -1 : 0 }),
    );
    const weighed = grid("The weights:", "each row sums to at most 1.", () =>
      element("span", { role: "gridcell", class: "cell" }),
    );
    const felt = grid("Influence of each score:", "how much the weights of its row change with it.", () =>
      element("span", { role: "gridcell", class: "cell say" }),
    );

    const spots = new Map(painted.cells.flatMap((row, t) => row.map((e, s) => [e, [t, s]])));
    /** @type {number | null} */
    let brush = null;
    painted.e.addEventListener("pointerdown", (event) => {
      const spot = spots.get(event.target);
      if (!spot || event.button) return;
      brush = 1 - Math.round(state.mask[at(spot[0], spot[1])]);
      if (event.pointerType !== "touch") paint(spot[0], spot[1], brush);
    });
    // A finger that scrolls over the table must not paint; one that taps does.
    painted.e.addEventListener("click", (event) => {
      const spot = spots.get(event.target);
      if (spot && event.pointerType === "touch")
        paint(spot[0], spot[1], 1 - Math.round(state.mask[at(spot[0], spot[1])]));
    });
    painted.e.addEventListener("pointerover", (event) => {
      const spot = spots.get(event.target);
      if (spot && brush !== null && event.buttons & 1 && event.pointerType !== "touch") paint(spot[0], spot[1], brush);
    });
    painted.e.addEventListener("keydown", (event) => {
      const spot = spots.get(event.target);
      if (!spot) return;
      const [t, s] = spot,
        step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (event.key === " " || event.key === "Enter") paint(t, s, 1 - Math.round(state.mask[at(t, s)]));
      else if (!step) return;
      event.preventDefault();
      const next = step && painted.cells[t + step[0]]?.[s + step[1]];
      if (next) {
        setAttributes(/** @type {Element} */ (event.target), { tabindex: -1 });
        setAttributes(next, { tabindex: 0 });
        next.focus();
      }
    });

    /** @type {Record<string, (t: number, s: number) => boolean>} */
    const presets = {
      all: () => true,
      causal: (t, s) => s <= t,
      "window of 2": (t, s) => s <= t && s > t - 2,
      [`${tokens[size - 1]} is padding`]: (_, s) => s < size - 1,
    };
    const named = element("fieldset", { class: "choice" }, element("legend", {}, "Mask"));
    figure.controls.append(named);
    for (const name in presets) {
      const mask = places.flatMap((t) => places.map((s) => +presets[name](t, s)));
      const button = figure.button(name, () => figure.change({ mask: [...mask] }));
      named.append(button);
      figure.effects.push(() => setAttributes(button, { "aria-pressed": String(String(state.mask) === String(mask)) }));
    }
    figure.choice("means", "True means", { may: "may attend", not: "hidden" });
    figure.choice("when", "What is hidden becomes", {
      before: "−∞ before the softmax",
      after: "0 after it",
      again: "0 after it, then divide again",
    });

    const leaks = () => {
      const may = allowed(),
        felt_ = say(scores, may, state.when);
      return felt_.flatMap((row, t) =>
        row.flatMap((x, s) => (!may[t][s] && x > 1e-9 && may[t].some(Boolean) ? [[t, s]] : [])),
      );
    };
    return {
      draw() {
        const may = allowed(),
          weights = maskedWeights(scores, may, state.when),
          moves = say(scores, may, state.when);
        for (const t of places) {
          for (const s of places) {
            const on = state.mask[at(t, s)] > 0.5,
              x = moves[t][s],
              leak = !may[t][s] && x > 1e-9;
            setAttributes(painted.cells[t][s], {
              "aria-selected": on ? "true" : "false",
              "aria-label": `${tokens[t]} at ${tokens[s]}: ${on ? "True" : "False"}`,
              class: `cell paint${on ? " on" : ""}`,
            });
            const w = weighed.cells[t][s],
              f = felt.cells[t][s];
            setAttributes(w, {
              class: `cell${may[t][s] ? "" : " no"}`,
              "aria-label": may[t][s] ? number(weights[t][s], 3) : "hidden, 0",
            });
            w.style.setProperty("--share", Math.sqrt(weights[t][s]).toFixed(3));
            setText(w, may[t][s] ? number(weights[t][s], 2).replace(/^0/, "") : "0");
            setAttributes(f, {
              class: `cell say${leak ? " leak" : ""}`,
              "aria-label": `${number(x, 3)}${leak ? ", a leak" : ""}`,
            });
            f.style.setProperty("--share", Math.sqrt(2 * x).toFixed(3));
            setText(f, number(x, 2).replace(/^0(?=\.)/, ""));
          }
        }
      },
      describe() {
        const may = allowed(),
          weights = maskedWeights(scores, may, state.when),
          found = leaks();
        const sums = weights.map((row) => row.reduce((a, b) => a + b, 0));
        const low = sums.indexOf(Math.min(...sums)),
          empty = may.filter((row) => !row.some(Boolean)).length;
        const ahead = may.some((row, t) => row.some((on, s) => on && s > t));
        return [
          found.length
            ? `${found.length} ${found.length > 1 ? "hidden keys have" : "hidden key has"} a weight of 0 and still an influence, for example ${tokens[found[0][1]]} in the row of ${tokens[found[0][0]]}.`
            : "No hidden key has an influence.",
          sums[low] < 0.9995 ? `The row of ${tokens[low]} sums to ${number(sums[low], 2)}.` : "Every row sums to 1.",
          empty
            ? `For ${empty} ${empty > 1 ? "queries" : "query"}, every key is hidden.`
            : ahead
              ? "At least one query may attend to a later token."
              : "No query may attend to a later token.",
        ].join(" ");
      },
      solved: () => state.when === "after" && leaks().length > 0,
      solve: () => ({ when: "after" }),
    };
  },
);
