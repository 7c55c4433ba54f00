// One head has one row of weights: what it gives to one question, it takes from the other. A second head has its own.
import { drag, element, number, setAttributes, setText, start, svg } from "./core.js";

start(
  "shared_head",
  () => ({ dog: 0.5, cat: 0, heads: "one", wide: 1 }),
  (figure) => {
    const { data, state } = figure,
      { words, speeds } = data,
      [low, high] = [Math.min(...speeds), Math.max(...speeds)];
    figure.style = "shared_head.css";
    const width = 440,
      left = 40,
      right = width - 40,
      x = (v) => left + ((v - low) / (high - low)) * (right - left);
    const picture = svg("svg", { viewBox: `0 0 ${width} 150`, role: "img" });
    const text = (at, y, said, kind = "") => svg("text", { x: at, y, class: kind }, said);
    picture.append(svg("path", { d: `M${left} 75H${right}`, class: "line" }));
    words.forEach((word, i) => {
      picture.append(
        svg("circle", { cx: x(speeds[i]), cy: 75, r: 7, class: "target" }),
        text(x(speeds[i]), 137, `the ${word}: ${speeds[i]}`),
      );
    });
    const errors = [0, 1].map(() => svg("path", { class: "error" })),
      lengths = [0, 1].map(() => text(0, 0, "", "long"));
    const marks = [0, 1].map((i) =>
        svg(
          "g",
          { class: `answer head${i}` },
          svg("circle", { cy: -8, r: 24, class: "reach" }),
          svg("path", { d: "M0 0l-10 -18h20z" }),
        ),
      ),
      names = [0, 1].map((i) => text(0, 0, "", `reading head${i}`));
    picture.append(...errors, ...lengths, ...marks, ...names);
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
          ...[`weight of ${words[0]}`, `weight of ${words[1]}`, "answers"].map((t) =>
            element("th", { scope: "col" }, t),
          ),
        ),
      ),
    );
    const rows = [0, 1].map((i) => {
      const cells = [0, 1, 2].map(() => element("td"));
      const e = element("tr", {}, element("th", { scope: "row" }, i ? "head 1" : "head 0"), ...cells);
      table.append(e);
      return { e, cells };
    });
    figure.stage.append(element("figure", { class: "card wide" }, picture), element("div", { class: "card" }, table));
    figure.choice("heads", "Heads", { one: "one", two: "two" });
    figure.slider("dog", {
      label: `Head 0: weight of ${words[0]}`,
      min: 0,
      max: 1,
      step: 0.01,
      show: (w) => number(w),
    });
    const second = figure.slider("cat", {
      label: `Head 1: weight of ${words[0]}`,
      min: 0,
      max: 1,
      step: 0.01,
      show: (w) => number(w),
    });
    const wider = figure.slider("wide", { label: "Numbers that one head reports", min: 1, max: 4, step: 1 });
    const answers = () =>
      (state.heads === "two" ? [state.dog, state.cat] : [state.dog]).map((w) => w * speeds[0] + (1 - w) * speeds[1]);
    // Each question is answered by the head that is nearer to it; with one head there is no choice.
    const off = () => {
      const all = answers(),
        far = (i, a) => Math.abs(all[a] - speeds[i]);
      return all.length < 2
        ? [
            [far(0, 0), 0],
            [far(1, 0), 0],
          ]
        : far(0, 0) + far(1, 1) <= far(0, 1) + far(1, 0)
          ? [
              [far(0, 0), 0],
              [far(1, 1), 1],
            ]
          : [
              [far(0, 1), 1],
              [far(1, 0), 0],
            ];
    };
    marks.forEach((mark, i) =>
      drag(mark, ({ clientX }) => {
        const box = picture.getBoundingClientRect(),
          speed = low + ((((clientX - box.left) / box.width) * width - left) / (right - left)) * (high - low);
        const weight = Math.min(1, Math.max(0, (speed - speeds[1]) / (speeds[0] - speeds[1])));
        figure.change({ [i ? "cat" : "dog"]: Math.round(100 * weight) / 100 });
      }),
    );
    return {
      draw() {
        const all = answers(),
          two = all.length > 1,
          misses = off();
        second.hidden = !two;
        wider.hidden = two;
        [0, 1].forEach((i) => {
          const [miss, head] = misses[i],
            a = x(all[head]),
            b = x(speeds[i]),
            y = 92 + 15 * i;
          setAttributes(errors[i], { d: `M${a} ${y}H${b}` });
          setAttributes(lengths[i], { x: (a + b) / 2, y: y + 13 });
          setText(lengths[i], miss > 0.3 ? number(miss) : "");
          const there = i < all.length;
          for (const e of [marks[i], names[i]]) e.style.display = there ? "" : "none";
          rows[i].e.hidden = !there;
          if (!there) return;
          setAttributes(marks[i], { transform: `translate(${x(all[i]).toFixed(1)} 68)` });
          setAttributes(names[i], {
            x: x(all[i]).toFixed(1),
            y: two && Math.abs(x(all[0]) - x(all[1])) < 70 ? 41 - 18 * i : 41,
          });
          setText(
            names[i],
            Array(two ? 1 : state.wide)
              .fill(number(all[i]))
              .join(", "),
          );
          const w = i ? state.cat : state.dog;
          [number(w), number(1 - w), names[i].textContent].forEach((t, c) => setText(rows[i].cells[c], t));
        });
        setAttributes(picture, { "aria-label": `Off by ${misses.map(([m]) => number(m)).join(" and ")}` });
      },
      describe() {
        const [[a], [b]] = off();
        const more =
          state.heads === "one" && state.wide > 1
            ? ` Its ${state.wide} numbers use the same row of weights, so all of them are the same average.`
            : "";
        return `Off by ${number(a)} for the ${words[0]} and by ${number(b)} for the ${words[1]}, and the sum is ${number(a + b)}.${more}`;
      },
      solved: () => state.heads === "two" && off().every(([miss]) => miss < 0.005),
      solve: () => ({ heads: "two", dog: 1, cat: 0 }),
    };
  },
);
