/* The small figure of the first page, loaded when it is first touched: hide words from words, and see the weights that
   are left share out what was lost. The arrow keys go from cell to cell, Space and Enter hide and show. */
/** @param {HTMLElement} figure @param {Event} first the event that loaded this, which counts */
globalThis.attnFrontPageFigure = (figure, first) => {
  const cells = [...figure.querySelectorAll("tbody tr")].map((row) => [...row.querySelectorAll("button")]);
  const names = [...figure.querySelectorAll("tbody th")].map((name) => name.textContent);
  const said = figure.querySelector(".first-answer-said");
  const hidden = (cell) => cell.getAttribute("aria-pressed") === "true";
  const hide = (cell, yes) => cell.setAttribute("aria-pressed", yes);

  const draw = (t) => {
    const row = cells[t],
      total = row.reduce((sum, cell) => sum + (hidden(cell) ? 0 : +cell.dataset.weight), 0);
    row.forEach((cell, s) => {
      const weight = hidden(cell) ? 0 : cell.dataset.weight / total;
      cell.textContent = hidden(cell) ? "–" : weight > 0.9995 ? "1" : weight.toFixed(3).slice(1);
      cell.setAttribute("aria-label", `hide ${names[s]} from ${names[t]}`);
      cell.parentElement.style.setProperty("--share", Math.sqrt(weight).toFixed(3));
    });
    const left = row.filter((cell) => !hidden(cell)).length;
    const name = document.createElement("em");
    name.textContent = names[t];
    const rest = !left
      ? "attends to nothing: there is nothing to average."
      : left === row.length
        ? "attends to all six tokens again."
        : `attends to ${left} of the 6 tokens: each weight that is left is ${(1 / total).toFixed(3)} times what it was, and they add up to 1.`;
    return [name, ` ${rest}`];
  };
  const toggle = (cell) => {
    hide(cell, !hidden(cell));
    said.replaceChildren(...draw(cells.findIndex((row) => row.includes(cell))));
  };
  const all = { future: (t, s) => s > t, show: () => false };
  const tell = {
    future: "No token attends to a later one: the weights of each row go to itself and to the tokens before it.",
    show: "Each row adds up to 1, apart from rounding.",
  };

  const press = (event) => {
    const button = event.target.closest("button"),
      what = button?.dataset.do;
    if (!button) return;
    if (!what) return void toggle(button);
    cells.forEach((row, t) => {
      row.forEach((cell, s) => hide(cell, all[what](t, s)));
      draw(t);
    });
    said.textContent = tell[what];
  };
  const key = (event) => {
    const t = cells.findIndex((row) => row.includes(event.target)),
      s = cells[t]?.indexOf(event.target);
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[
      event.key
    ] ?? [0, 0];
    const next = t < 0 ? null : cells[t + down]?.[s + right];
    if (!next || next === event.target) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  };
  figure.addEventListener("click", press);
  figure.addEventListener("keydown", key);
  if (first.type === "click") press(first);
  else if (first.key === " " || first.key === "Enter") first.target.click();
  else key(first);
};
