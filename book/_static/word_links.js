/* The picture of a translation on the first page: point at a token of either sentence, tap it or go to it with the arrow
   keys, and its lines stand out with the tokens they lead to. It also works in the enlarged copy (enlarge.js). */
// Not at DOMContentLoaded: enlarge.js, which comes first, asks then whether the picture takes taps itself.
(() => {
  const figure = document.querySelector("#fig-translated");
  const picture = figure?.querySelector("svg.drawing");
  if (!picture) return;

  /** A token as a button: its box and text are two neighbours in the drawing. */
  const wrap = (box) => {
    const word = document.createElementNS(picture.namespaceURI, "g");
    const text = box.nextElementSibling;
    box.before(word);
    word.append(box, text);
    return { word, text: text.textContent, x: +text.getAttribute("x"), linked: [] };
  };
  const keys = [...picture.querySelectorAll(".draw-key")].map(wrap);
  const queries = [...picture.querySelectorAll(".draw-query")].map(wrap);
  const lines = [...picture.querySelectorAll(".draw-flow")].map((line) => {
    const query = queries.find(({ word }) => word.parentElement === line.parentElement);
    const end = +/L(\S+)/.exec(line.getAttribute("d"))[1]; // a line ends above the middle of a token
    const key = keys.reduce((a, b) => (Math.abs(b.x - end) < Math.abs(a.x - end) ? b : a));
    query.linked.push(key);
    key.linked.push(query);
    return { from: queries.indexOf(query), to: keys.indexOf(key) };
  });
  const listed = (tokens) => tokens.map(({ text }) => text).join(", ") || "no token with a weight of 0.2 or more";
  for (const row of [keys, queries])
    row.forEach(({ word, text, linked }, i) => {
      const says = row === queries ? "it attends to" : "attended to by";
      const label = `${text}: ${says} ${listed(linked)}`;
      const attributes = { role: "button", tabindex: i ? -1 : 0, "aria-pressed": false, "aria-label": label };
      Object.entries(attributes).forEach(([name, value]) => word.setAttribute(name, value));
      word.classList.add("word");
    });
  picture.setAttribute("role", "group"); // what is inside an image can't be a button

  // Found anew each time, since the enlarged picture is a copy.
  const rows = (svg) => [".draw-key", ".draw-query"].map((kind) => [...svg.querySelectorAll(`.word:has(${kind})`)]);
  const wordAt = (event) => event.target.closest?.(".word");

  const show = (svg, word) => {
    const [above, below] = rows(svg);
    const chosen = lines.map(({ from, to }) => word && (above[to] === word || below[from] === word));
    svg.querySelectorAll(".draw-flow").forEach((line, i) => line.classList.toggle("chosen", !!chosen[i]));
    for (const other of [...above, ...below]) {
      const linked = lines.some(({ from, to }, i) => chosen[i] && (above[to] === other || below[from] === other));
      other.classList.toggle("chosen", other === word || linked);
    }
    svg.classList.toggle("choosing", !!word);
  };
  const pressed = (svg) => svg.querySelector('[aria-pressed="true"]');
  const press = (svg, word) => {
    pressed(svg)?.setAttribute("aria-pressed", false);
    word?.setAttribute("aria-pressed", true);
    show(svg, word);
  };

  figure.addEventListener("click", (event) => {
    const svg = event.target.closest("svg.drawing");
    const word = wordAt(event);
    if (svg) press(svg, word === pressed(svg) ? null : word);
  });
  for (const kind of ["pointerover", "pointerout", "focusin", "focusout"])
    figure.addEventListener(kind, (event) => {
      const svg = event.target.closest("svg.drawing");
      if (!svg || event.pointerType === "touch") return;
      const over = kind === "pointerover" || kind === "focusin" ? wordAt(event) : null;
      show(svg, over ?? pressed(svg));
    });
  figure.addEventListener("keydown", (event) => {
    const word = wordAt(event);
    if (!word) return;
    const all = rows(word.closest("svg"));
    const t = all.findIndex((row) => row.includes(word));
    const i = all[t].indexOf(word);
    // The other row's token that a line leads to, else the one at the same place in its sentence.
    const across = () => {
      const line = lines.find(({ from, to }) => (t ? from : to) === i);
      const place = line ? (t ? line.to : line.from) : Math.min(i, all[1 - t].length - 1);
      return all[1 - t][place];
    };
    const moves = {
      ArrowLeft: () => all[t][i - 1],
      ArrowRight: () => all[t][i + 1],
      ArrowUp: () => t === 1 && across(),
      ArrowDown: () => t === 0 && across(),
      Home: () => all[t][0],
      End: () => all[t].at(-1),
    };
    if (event.key === "Enter" || event.key === " ") word.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    else if (!moves[event.key]) return;
    event.preventDefault();
    const next = moves[event.key]?.();
    if (!next) return;
    const [stop] = all[all[1].includes(next) ? 1 : 0].filter((other) => other.getAttribute("tabindex") === "0");
    stop?.setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
  });
})();
