// The picture that answers. Every view on a page brings this script; the first to run starts all views it finds.
// It sets text by textContent alone, so a token is never markup, and it keeps everything in a shadow root:
// no name, id or style leaks out, and no style of the page leaks in.
(() => {
  "use strict";
  const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstvwxyz-_.";
  const WIDE = /[\u1100-\u11ff\u2e80-\ud7a3\uf900-\ufaff\uff00-\uffef]/;
  const make = (tag, attributes, ...children) => {
    const e = document.createElement(tag);
    for (const name in attributes) e.setAttribute(name, attributes[name]);
    e.append(...children);
    return e;
  };

  function start(host) {
    const data = JSON.parse(host.querySelector("script").textContent);
    const { label, layers, heads, queries, keys = queries } = data;
    const T = queries.length, S = keys.length, size = T * S;
    const [digits, code] = data.weights.split(":"), unit = 10 ** digits, bits = (unit + 1).toString(2).length;
    // Each number takes as few bits as its digits need; all bits set mean that the query may not look at the key.
    const numbers = new Int32Array(layers.length * heads.length * size);
    for (let i = 0, next = 0, held = 0, rest = 0; i < numbers.length; i++) {
      for (; held < bits; held += 6) rest = rest * 64 + DIGITS.indexOf(code[next++]);
      held -= bits;
      numbers[i] = rest >> held;
      rest &= (1 << held) - 1;
      if (numbers[i] > unit) numbers[i] = -1;
    }
    const said = (n) => (n < 0 ? "not allowed" : (n / unit).toFixed(digits));

    // Colours: a table of 256, read between the stops that the data brings.
    const stops = data.colors.match(/../g).map((byte) => parseInt(byte, 16)), last = stops.length / 3 - 1;
    const table = Array.from({ length: 256 }, (_, i) => [0, 1, 2].map((c) => {
      const at = i / 255 * last, low = Math.min(Math.floor(at), last - 1);
      return stops[3 * low + c] * (1 + low - at) + stops[3 * low + 3 + c] * (at - low);
    }));
    const paint = (canvas, head) => {
      const context = canvas.getContext("2d"), image = context.createImageData(S, T);
      for (let i = 0; i < size; i++) {
        const n = numbers[head * size + i], color = n < 0 ? [233, 233, 233] : table[Math.round(n / unit * 255)];
        image.data.set([...color, 255], 4 * i);
      }
      context.putImageData(image, 0, 0);
    };
    const newCanvas = (attributes) => make("canvas", { width: S, height: T, "aria-hidden": "true", ...attributes });

    // The grid: one canvas for the colours, and over it transparent cells for pointer, keyboard and screen reader.
    const picture = newCanvas({ class: "cells" });
    const veil = make("div", { class: "veil", hidden: "" }), ring = make("div", { class: "ring", hidden: "" });
    const grid = make("div", { class: "grid", role: "grid", "aria-rowcount": T + 1, "aria-colcount": S + 1 });
    const at = new Map(), spots = [];
    const add = (row, role, r, c, text, attributes) => {
      const e = make("div", { role, ...attributes }, text);
      at.set(e, [r, c]);
      (spots[r + 1] ??= [])[c + 1] = e;
      row.append(e);
    };
    for (let r = -1; r < T; r++) {
      const row = make("div", { class: "row", role: "row" });
      grid.append(row);
      if (r < 0) {
        row.append(make("div", { role: "columnheader", class: "corner" }, "key →", make("br"), "query ↓"));
        keys.forEach((key, c) => add(row, "columnheader", r, c, make("bdi", { class: WIDE.test(key) ? "" : "latin" }, key)));
      } else {
        add(row, "rowheader", r, -1, make("bdi", {}, queries[r]));
        for (let c = 0; c < S; c++) add(row, "gridcell", r, c, "");
      }
    }
    grid.prepend(make("div", { class: "over", role: "presentation" }, picture, make("div", { class: "lines" })));
    grid.append(make("div", { class: "over", role: "presentation" }, veil, ring));
    const corner = grid.querySelector(".corner");
    const box = make("div", { class: "box" }, grid);

    // Layers and heads: small pictures to choose from, one group of native radio buttons.
    const fieldset = make("fieldset", {}, make("legend", {}, layers.length > 1 ? "Choose a layer and a head" : heads.every((name) => /^head /.test(name)) ? "Choose a head" : "Choose a panel"));
    const nameOf = (head) => [layers.length > 1 && layers[Math.floor(head / heads.length)], heads.length * layers.length > 1 && heads[head % heads.length]].filter(Boolean).join(", ");
    layers.forEach((layer, l) => {
      const line = make("div", { class: "layer" }, ...(layers.length > 1 ? [make("span", {}, layer)] : []));
      heads.forEach((name, h) => {
        const head = l * heads.length + h, input = make("input", { type: "radio", name: "head", value: head, "aria-label": nameOf(head) });
        input.checked = !head;
        const small = newCanvas({});
        paint(small, head);
        line.append(make("label", {}, input, small, make("span", {}, name.replace(/^head (?=\d+$)/, ""))));
      });
      fieldset.append(line);
    });

    const title = make("p", { class: "quiet" });
    const answer = make("p", { class: "said", "aria-live": "polite" });
    const scale = make("i", { style: `background: linear-gradient(90deg, ${table.filter((_, i) => i % 51 === 0).map((c) => `rgb(${c})`)})` });
    const key = make("p", { class: "key" }, "0", scale, `1 ${label}`);
    if (numbers.some((n) => n < 0)) key.append(make("i", { class: "no" }), "not allowed");
    const fold = make("details", {}, make("summary", {}, "Show the weights as a table"));
    const view = make("div", { class: "view", role: "group", "aria-label": data.name });
    view.append(...(heads.length * layers.length > 1 ? [fieldset] : []), title, box, make("div", { class: "below" }, answer, key), fold);

    // What stands out: the cell, row or column under the pointer, else the one chosen by key, click or tap.
    let head = 0, cell = 0, written = false, hovered = null, chosen = null, marked = [], stop = spots[1][1];
    const value = (r, c) => numbers[head * size + r * S + c];
    const quoted = (token) => make("b", {}, make("bdi", {}, token));
    const best = (tokens, weigh) => {
      const order = tokens.map((token, i) => [weigh(i), token]).filter(([n]) => n > 0);
      order.sort((a, b) => b[0] - a[0]);
      const parts = order.slice(0, 3).flatMap(([n, token], i) => [i ? ", " : " ", quoted(token), ` ${said(n)}`]);
      return parts.length ? parts : [" nothing"];
    };
    const show = () => {
      const [r, c] = hovered ?? chosen ?? [-1, -1];
      marked.forEach((e) => e.classList.remove("on"));
      marked = [r >= 0 && spots[r + 1][0], c >= 0 && spots[0][c + 1]].filter(Boolean);
      marked.forEach((e) => e.classList.add("on"));
      veil.hidden = !marked.length;
      ring.hidden = marked.length < 2;
      const y = r * cell, x = c * cell, bands = [[0, r >= 0 ? y : 0], [r >= 0 ? y + cell : 0, T * cell]];
      const sides = [[0, c >= 0 ? x : 0], [c >= 0 ? x + cell : 0, S * cell]];
      // Hide all but the row and the column: what is left of the four corners.
      veil.style.clipPath = `path("${bands.flatMap(([a, b]) => sides.map(([d, e]) => `M${d} ${a}H${e}V${b}H${d}Z`)).join("")}")`;
      ring.style.transform = `translate(${x}px, ${y}px)`;
      if (marked.length > 1) answer.replaceChildren("query ", quoted(queries[r]), ", key ", quoted(keys[c]), value(r, c) < 0 ? ": " : `: ${label} `, make("b", {}, said(value(r, c))));
      else if (r >= 0) answer.replaceChildren("query ", quoted(queries[r]), " looks most at", ...best(keys, (i) => value(r, i)));
      else if (c >= 0) answer.replaceChildren("key ", quoted(keys[c]), " is looked at most by", ...best(queries, (i) => value(i, c)));
      else answer.replaceChildren("Point at a cell or a token, tap it, or press the arrow keys.");
      answer.classList.toggle("quiet", !marked.length);
    };
    const choose = (e, focus) => {
      stop.removeAttribute("tabindex");
      stop = e;
      stop.setAttribute("tabindex", 0);
      if (focus) stop.focus();
    };
    const write = () => {
      for (let r = 0; r < T; r++) for (let c = 0; c < S; c++) {
        const n = value(r, c), e = spots[r + 1][c + 1];
        e.setAttribute("aria-label", said(n));
        if ((n < 0) !== e.classList.contains("no")) e.classList.toggle("no");
        if (!written && !e.firstChild) continue;
        e.textContent = written && n >= 0 ? (n / unit).toFixed(Math.min(digits, 2)) : "";
        e.classList.toggle("dark", n > 0.6 * unit);
      }
    };
    const fill = () => {
      if (!fold.open) return;
      const line = (name, scope, cells) => make("tr", {}, name, ...cells.map((text) => make(scope ? "th" : "td", scope ? { scope } : {}, text)));
      const rows = queries.map((query, r) => line(make("th", { scope: "row" }, query), "", keys.map((_, c) => said(value(r, c)))));
      const first = make("thead", {}, line(make("td", {}, "query ↓ key →"), "col", keys));
      const inside = make("div", { class: "table", tabindex: 0, role: "region", "aria-label": `Table of ${title.textContent}` });
      inside.append(make("table", {}, make("caption", {}, title.textContent), first, make("tbody", {}, ...rows)));
      fold.replaceChildren(fold.firstChild, inside);
    };
    const turn = (to) => {
      head = to;
      title.textContent = [nameOf(head), `${label}: queries down, keys across`].filter(Boolean).join(" · ");
      grid.setAttribute("aria-label", title.textContent);
      paint(picture, head);
      write();
      show();
      fill();
    };
    const pen = make("canvas", {}).getContext("2d");
    pen.font = "700 12px system-ui, sans-serif";
    const widest = Math.max(...keys.map((token) => pen.measureText(token).width));
    const fit = () => {
      const room = box.clientWidth - corner.offsetWidth;
      if (!box.clientWidth) return;
      const least = matchMedia("(pointer: coarse)").matches ? 24 : 13;
      const next = Math.max(least, Math.min(44, Math.floor(room / S), Math.max(24, Math.floor(620 / T))));
      if (next === cell) return;
      cell = next;
      grid.style.setProperty("--cell", `${cell}px`);
      grid.style.gridTemplate = `max-content repeat(${T}, ${cell}px) / max-content repeat(${S}, ${cell}px)`;
      grid.classList.toggle("turned", widest > cell - 4 && keys.some((key) => [...key].length > 1));
      box.style.scrollPadding = `${corner.offsetHeight}px 0 0 ${corner.offsetWidth}px`;
      if (written !== (cell >= 34 && size <= 400)) {
        written = !written;
        write();
      }
      show();
    };
    // A page whose text is light is dark, whoever made it so; Colab says it in an attribute.
    const shade = () => {
      const theme = document.documentElement.getAttribute("theme"), color = getComputedStyle(host).color.match(/^rgba?\((\d+), (\d+), (\d+)/);
      const dark = theme ? theme === "dark" : color ? +color[1] + 2 * color[2] + +color[3] > 512 : matchMedia("(prefers-color-scheme: dark)").matches;
      host.toggleAttribute("data-dark", dark);
    };

    const over = (event) => at.get(event.composedPath().find((e) => at.has(e))) ?? null;
    const moved = (event) => {
      const next = event.pointerType === "touch" || event.type === "pointerleave" ? null : over(event);
      if (next === hovered) return;
      hovered = next;
      show();
    };
    grid.addEventListener("pointerover", moved);
    grid.addEventListener("pointerleave", moved);
    grid.addEventListener("click", (event) => {
      const spot = over(event);
      if (spot) choose(spots[spot[0] + 1][spot[1] + 1], true);
    });
    grid.addEventListener("focusin", (event) => {
      chosen = at.get(event.target);
      show();
    });
    grid.addEventListener("keydown", (event) => {
      const [r, c] = at.get(stop), all = event.ctrlKey || event.metaKey;
      const next = { ArrowUp: [r - 1, c], ArrowDown: [r + 1, c], ArrowLeft: [r, c - 1], ArrowRight: [r, c + 1], Home: [all ? 0 : r, 0], End: [all ? T - 1 : r, S - 1] }[event.key];
      if (event.key === "Escape") {
        chosen = hovered = null;
        show();
      }
      if (!next || event.altKey) return;
      event.preventDefault();
      event.stopPropagation();
      hovered = null;
      const e = spots[next[0] + 1]?.[next[1] + 1];
      if (e) choose(e, true);
    });
    fieldset.addEventListener("change", (event) => turn(+event.target.value));
    fieldset.addEventListener("keydown", (event) => event.stopPropagation());
    fold.addEventListener("toggle", fill);
    host.addEventListener("pointerenter", shade);

    host.setAttribute("data-lm-suppress-shortcuts", "true"); // JupyterLab: the keys are for the view
    const root = host.attachShadow({ mode: "open" });
    root.append(make("style", {}, data.style), view);
    choose(stop, false);
    turn(0);
    shade();
    new ResizeObserver(fit).observe(box);
    fit();
    const themes = new MutationObserver(shade);
    for (const e of [document.documentElement, document.body]) themes.observe(e, { attributes: true });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", shade);
  }

  for (const host of document.querySelectorAll("div.attn-view")) if (!host.shadowRoot) start(host);
})();
