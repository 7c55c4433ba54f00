// What all explorable figures share: their frame, the question before them, controls, points to drag, and their state.
// A figure sets text by textContent alone, so a token is never markup, and lives in a shadow root: no name, id or
// style leaks out, and no style of the page leaks in.

/** @typedef {number | string | boolean | number[]} Value */
/** @typedef {Record<string, any>} State */
/** @typedef {{ id: string, name: string, question: string, options: string[], right: number, task: string, answer: string, check: string, [more: string]: any }} Data */
/** @typedef {{ draw: () => void, describe?: () => string, solved?: () => boolean, solve?: () => State }} Drawn solve gives the state that shows the answer */
/** @typedef {Node | string} Child */

const STYLE = "explore.css";
const SVG = "http://www.w3.org/2000/svg";
const POINT = "Point at a part of the picture, or tap it, to see its value.";

/**
 * @param {Element} e
 * @param {Record<string, any>} attributes
 */
export function setAttributes(e, attributes) {
  for (const name in attributes) {
    const value = attributes[name];
    if (value === null || value === false) e.removeAttribute(name);
    else if (e.getAttribute(name) !== String(value)) e.setAttribute(name, value === true ? "" : String(value));
  }
}

/**
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...Child} children
 * @returns {any}
 */
export function element(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  setAttributes(e, attributes);
  e.append(...children);
  return e;
}

/**
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...Child} children
 * @returns {any}
 */
export function svg(tag, attributes = {}, ...children) {
  const e = document.createElementNS(SVG, tag);
  setAttributes(e, attributes);
  e.append(...children);
  return e;
}

/** @param {any} e @param {string} text */
export const setText = (e, text) => {
  if (e.textContent !== text) e.textContent = text;
};

/** A sentence whose `code` is set as code. @param {string} text @returns {Child[]} */
export const withCode = (text) => text.split("`").map((part, i) => (i % 2 ? element("code", {}, part) : part));

/** @param {number} x @param {number} low @param {number} high */
export const clamp = (x, low, high) => Math.min(high, Math.max(low, x));

/** As many digits, with a minus sign of the right width. @param {number} x @param {number} [digits] */
export const number = (x, digits = 2) =>
  Number.isNaN(x)
    ? "NaN"
    : Math.abs(x) === Infinity
      ? x < 0
        ? "−∞"
        : "∞"
      : (Math.abs(x) < 0.5 * 10 ** -digits ? 0 : x).toFixed(digits).replace("-", "−");

export const prefersReducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/**
 * Call a function with each pointer position while an element is pressed and dragged, the first press included.
 * @param {Element} e @param {(event: PointerEvent) => void} move
 */
export function drag(e, move) {
  const grip = /** @type {SVGElement} */ (e);
  grip.classList.add("movable");
  grip.addEventListener("pointerdown", (down) => {
    if (down.button) return;
    down.preventDefault();
    grip.setPointerCapture(down.pointerId);
    move(down);
    const stop = () => grip.removeEventListener("pointermove", move);
    grip.addEventListener("pointermove", move);
    for (const end of ["pointerup", "pointercancel"]) grip.addEventListener(end, stop, { once: true });
  });
  grip.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false }); // the page must not scroll
}

/** One figure on the page: what a script of a figure gets to draw with. */
export class Figure {
  /** @param {HTMLElement} host @param {Data} data @param {State} start */
  constructor(host, data, start) {
    this.host = host;
    this.data = data;
    this.start = start;
    /** @type {State} */
    this.state = structuredClone(start);
    /** How an address gives a value of the state back; a name without one is not taken from there. */
    this.parsers = /** @type {Record<string, (text: string) => Value | undefined>} */ ({});
    this.stage = element("div", { class: "stage" });
    this.controls = element("div", { class: "controls" });
    this.status = element("p", { class: "status", "aria-live": "polite" });
    this.touched = false;
    this.drawn = /** @type {Drawn} */ ({ draw() {} });
    this.effects = /** @type {(() => void)[]} */ ([]);
    this.style = "";
    this.waits = 0;
    this.frame = 0;
  }

  /** Change the state; it is drawn with the next frame. @param {State} change */
  change(change) {
    Object.assign(this.state, change);
    if (this.touched && this.waits) this.hold();
    this.touched = true;
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = 0;
    this.effects.forEach((f) => f());
    this.drawn.draw();
    clearTimeout(this.waits); // while something moves, a screen reader is not told
    this.waits = setTimeout(() => this.settle(), this.touched ? 200 : 0);
  }

  /** While a key is held or a point dragged, the figure keeps its height, so that the page around it is not laid out for each frame. */
  hold() {
    const { style } = this.host;
    if (!style.contain)
      Object.assign(style, { height: `${this.host.getBoundingClientRect().height}px`, contain: "size layout" });
  }

  settle() {
    this.waits = 0;
    Object.assign(this.host.style, { height: "", contain: "" });
    setText(this.status, this.drawn.describe ? this.drawn.describe() : "");
    if (this.touched) this.remember();
    this.judge();
  }

  judge() {}

  /** Say the state in the address, where that is the website's. */
  remember() {
    if (!("content_root" in document.documentElement.dataset)) return;
    const parts = Object.keys(this.parsers)
      .filter((name) => String(this.state[name]) !== String(this.start[name]))
      .map(
        (name) =>
          `${name}=${[this.state[name]]
            .flat()
            .map((x) => (typeof x === "number" ? +x.toFixed(4) : x))
            .join("_")}`,
      );
    history.replaceState(history.state, "", `#${this.data.id}${parts.length ? `?${parts.join("&")}` : ""}`);
  }

  /** Take the state that the address names, if it names this figure; what does not fit is left as it is. */
  recall() {
    const [id, rest = ""] = decodeURIComponent(location.hash.slice(1)).split("?");
    if (id !== this.data.id) return false;
    for (const part of rest.split("&")) {
      const [name, text = ""] = part.split("=");
      const value = Object.hasOwn(this.parsers, name) ? this.parsers[name](text) : undefined;
      if (value !== undefined) this.state[name] = value;
    }
    return true;
  }

  /** Put what was made in the host's place, light or dark as the page, in the state that the address names. @param {HTMLElement} view @param {string} style */
  mount(view, style) {
    const { host } = this;
    host.setAttribute("data-lm-suppress-shortcuts", "true"); // JupyterLab: the keys are for the figure
    this.draw(); // before it is in the page, which would have to lay out all that it has so far
    host.attachShadow({ mode: "open" }).append(element("style", {}, style), view, element("slot"));
    view.addEventListener("keydown", (event) => event.stopPropagation());
    // A page whose text is light is dark, whoever made it so; Colab says it in an attribute.
    const shade = () => {
      const theme = document.documentElement.getAttribute("theme"),
        ink = getComputedStyle(host).color.match(/^rgba?\((\d+), (\d+), (\d+)/);
      const dark = theme
        ? theme === "dark"
        : ink
          ? +ink[1] + 2 * +ink[2] + +ink[3] > 512
          : matchMedia("(prefers-color-scheme: dark)").matches;
      host.toggleAttribute("data-dark", dark);
    };
    const themes = new MutationObserver(shade);
    for (const e of [document.documentElement, document.body]) themes.observe(e, { attributes: true });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", shade);
    host.addEventListener("pointerenter", shade);
    requestAnimationFrame(shade); // asked at once, the colour would be looked up in half a page
    const recall = () => {
      if (!this.recall()) return;
      for (let fold = host.closest("details"); fold; fold = fold.parentElement?.closest("details") ?? null)
        fold.open = true;
      host.scrollIntoView();
      this.draw();
    };
    addEventListener("hashchange", recall);
    recall();
  }

  /**
   * @param {string} name of the state
   * @param {{ label: string, min: number, max: number, step: number | "any", show?: (x: number) => string }} options
   */
  slider(name, { label, min, max, step, show = String }) {
    const input = element("input", { type: "range", min, max, step, "aria-label": label }),
      output = element("output");
    input.addEventListener("input", () => this.change({ [name]: +input.value }));
    this.effects.push(() => {
      const x = this.state[name];
      if (+input.value !== x) input.value = x;
      setAttributes(input, { "aria-valuetext": show(x) });
      setText(output, show(x));
    });
    this.parsers[name] = (text) => (text !== "" && Number.isFinite(+text) ? clamp(+text, min, max) : undefined);
    const e = element("label", { class: "slider" }, element("span", {}, label), input, output);
    this.controls.append(e);
    return e;
  }

  /** @param {string} name @param {string} label @param {Record<string, string>} options value: words */
  choice(name, label, options) {
    const set_ = element("fieldset", { class: "choice" }, element("legend", {}, label));
    for (const value in options) {
      const input = element("input", { type: "radio", name, value });
      input.addEventListener("change", () => this.change({ [name]: value }));
      this.effects.push(() => {
        input.checked = this.state[name] === value;
      });
      set_.append(element("label", {}, input, element("span", {}, options[value])));
    }
    this.parsers[name] = (text) => (Object.hasOwn(options, text) ? text : undefined);
    this.controls.append(set_);
    return set_;
  }

  /** @param {string} label @param {() => void} press @param {() => boolean} [atEnd] whether the next press leads back to the beginning, which is said */
  button(label, press, atEnd) {
    const e = element("button", { type: "button" }, label);
    e.addEventListener("click", press);
    if (atEnd) this.effects.push(() => setText(e, atEnd() ? "Back to the start" : label));
    this.controls.append(e);
    return e;
  }

  /** A list of numbers that no control holds, such as points that are dragged. @param {string} name @param {number[]} [low] @param {number[]} [high] */
  numbers(name, low, high) {
    const size = this.start[name].length;
    this.parsers[name] = (text) => {
      const numbers = text.split("_").map(Number);
      if (numbers.length !== size || !numbers.every(Number.isFinite)) return undefined;
      return numbers.map((x, i) => (low && high ? clamp(x, low[i % low.length], high[i % high.length]) : x));
    };
  }

  /**
   * Below a picture, or at another place, show the value of the part that has the pointer or the focus.
   * @param {Element} picture @param {(event: any) => string | null | undefined} describe gives the text of a part, if it has one
   * @param {Element} line where it is shown
   */
  showValues(
    picture,
    describe = ({ target }) => target.closest("[data-value]")?.getAttribute("data-value"),
    line = element("p", { class: "value-line" }),
  ) {
    setText(line, POINT);
    if (!line.isConnected && !line.parentNode) picture.after(line);
    for (const type of ["pointermove", "pointerdown", "focusin"])
      picture.addEventListener(type, (event) => {
        const text = describe(event);
        if (text || type === "pointermove") setText(line, text || POINT); // a press may move the focus elsewhere
      });
    picture.addEventListener("pointerleave", (/** @type {any} */ { pointerType }) => {
      if (pointerType !== "touch") setText(line, POINT);
    });
  }

  /** @param {string} label what it shows @param {[number, number, number, number]} box lowest and highest x, lowest and highest y */
  plane(label, box, size = [240, 230]) {
    return new Plane(this, label, box, size);
  }
}

/** Two axes with points that can be dragged or moved by the arrow keys. */
export class Plane {
  /** @param {Figure} figure @param {string} label @param {[number, number, number, number]} box @param {number[]} size */
  constructor(figure, label, box, [width, height]) {
    const [x0, x1, y0, y1] = box;
    this.figure = figure;
    this.box = box;
    this.x = (x) => ((x - x0) / (x1 - x0)) * width;
    this.y = (y) => ((y1 - y) / (y1 - y0)) * height;
    this.svg = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "plane", role: "group", "aria-label": label });
    const cross = `M${this.x(Math.max(0, x0))} 0V${height}M0 ${this.y(Math.max(0, y0))}H${width}`;
    this.back = svg("g");
    this.front = svg("g");
    this.svg.append(svg("path", { d: cross, class: "axis" }), this.back, this.front);
    this.handles = /** @type {{ e: Element, place: () => number[], hold: (event: PointerEvent) => void }[]} */ ([]);
    this.size = [width, height];
  }

  /** Where a pointer is, in the numbers of the axes. @param {PointerEvent} event */
  under(event) {
    const r = this.svg.getBoundingClientRect(),
      [x0, x1, y0, y1] = this.box;
    return [
      x0 + ((event.clientX - r.left) / r.width) * (x1 - x0),
      y1 - ((event.clientY - r.top) / r.height) * (y1 - y0),
    ];
  }

  /**
   * Two numbers of a list in the state that are one point. Of points that overlap, the nearest is taken.
   * @param {string} name of the list @param {number} index of the point @param {string} label
   * @param {{ kind: string, moved?: () => void }} options
   */
  handle(name, index, label, { kind, moved = () => {} }) {
    const { figure } = this,
      [x0, x1, y0, y1] = this.box;
    const place = () => figure.state[name].slice(2 * index, 2 * index + 2);
    const move = (x, y) => {
      const list = [...figure.state[name]];
      list[2 * index] = Math.round(clamp(x, x0, x1) * 1000) / 1000;
      list[2 * index + 1] = Math.round(clamp(y, y0, y1) * 1000) / 1000;
      moved();
      figure.change({ [name]: list });
    };
    const e = svg(
      "g",
      {
        class: `handle ${kind}`,
        tabindex: 0,
        role: "slider",
        "aria-label": label,
        "aria-valuemin": x0,
        "aria-valuemax": x1,
      },
      svg("circle", { r: 15, class: "reach" }),
      svg("circle", { r: 4, class: "dot" }),
    );
    const hold = (down) => {
      const grip = /** @type {SVGElement} */ (e),
        [x, y] = place(),
        [u, v] = this.under(down);
      grip.focus({ preventScroll: true });
      grip.setPointerCapture(down.pointerId);
      const drag = (event) => {
        const [a, b] = this.under(event);
        move(x + a - u, y + b - v);
      };
      const stop = () => grip.removeEventListener("pointermove", drag);
      grip.addEventListener("pointermove", drag);
      for (const end of ["pointerup", "pointercancel"]) grip.addEventListener(end, stop, { once: true });
    };
    e.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      event.preventDefault();
      const [u, v] = this.under(event);
      const far = ({ place: at }) => Math.hypot(this.x(at()[0]) - this.x(u), this.y(at()[1]) - this.y(v));
      this.handles.reduce((a, b) => (far(b) < far(a) ? b : a)).hold(event);
    });
    // Inside a drawing, browsers do not heed touch-action: without this a finger would scroll the page.
    e.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false });
    e.addEventListener("keydown", (event) => {
      const [x, y] = place(),
        step = event.shiftKey ? 0.1 : 0.02;
      const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key] ?? [
        0, 0,
      ];
      if (!dx && !dy) return;
      event.preventDefault();
      move(x + dx * step * (x1 - x0), y + dy * step * (y1 - y0));
    });
    figure.effects.push(() => {
      const [x, y] = place();
      setAttributes(e, {
        transform: `translate(${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)})`,
        "aria-valuenow": x,
        "aria-valuetext": `${number(x)} across, ${number(y)} up`,
      });
    });
    this.handles.push({ e, place, hold });
    this.front.append(e);
    return e;
  }

  /** Names beside their points, moved apart where they would overlap. @param {any[]} texts @param {number[][]} points */
  label(texts, points) {
    const [width, height] = this.size;
    const spots = points
      .map(([x, y], i) => ({ i, x: this.x(x), y: this.y(y), at: this.y(y) }))
      .sort((a, b) => a.at - b.at);
    for (let round = 0; round < 12; round++) {
      for (let n = 1; n < spots.length; n++) {
        const a = spots[n - 1],
          b = spots[n],
          gap = 13 - (b.at - a.at);
        if (gap > 0 && Math.abs(a.x - b.x) < 60) {
          a.at -= gap / 2;
          b.at += gap / 2;
        }
      }
    }
    for (const { i, x, at } of spots) {
      const left = x > width - 60;
      setAttributes(texts[i], {
        x: (x + (left ? -9 : 9)).toFixed(1),
        y: (clamp(at, 8, height - 6) + 4).toFixed(1),
        "text-anchor": left ? "end" : "start",
      });
    }
  }
}

/** @param {Figure} figure */
function frame(figure) {
  const { data } = figure;
  let guess = -1,
    shown = false;
  const task = element("p", { class: "task", hidden: true }, ...withCode(data.task));
  const answerButton = element("button", { type: "button", class: "quiet" }, "Show the answer");
  const answer = element("p", { class: "answer-text", "aria-live": "polite" });
  const check = element("p", { class: "check", hidden: true }, "In the notebook: ", ...withCode(data.check ?? ""));
  const question = element("p", { class: "question" }, ...withCode(data.question));
  const ask = element("fieldset", { class: "guess" }, element("legend", {}, "Your guess"));
  const options = data.options.map((option, i) => {
    const input = element("input", { type: "radio", name: "guess", value: i }),
      mark = element("b", { class: "mark" });
    input.addEventListener("change", () => {
      guess = i;
      judge();
    });
    ask.append(element("label", {}, input, element("span", {}, mark, ...withCode(option))));
    return { input, mark };
  });
  const judge = () => {
    shown ||= guess >= 0 && figure.touched && Boolean(figure.drawn.solved?.());
    task.hidden = shown || guess < 0;
    answerButton.hidden = shown;
    check.hidden = !shown || !data.check;
    const verdict = guess === data.right ? "Your guess is right. " : "Not what you guessed. ";
    answer.replaceChildren(
      ...(shown && guess >= 0 ? [element("b", {}, verdict)] : []),
      ...(shown ? withCode(data.answer) : []),
    );
    options.forEach(({ mark }, i) =>
      setText(mark, !shown ? "" : i === data.right ? "✓ Right: " : i === guess ? "✗ Wrong: " : ""),
    );
  };
  figure.judge = judge;
  answerButton.addEventListener("click", () => {
    shown = true;
    judge();
    if (figure.drawn.solve) figure.change(figure.drawn.solve());
  });
  const reset = element("button", { type: "button", class: "quiet" }, "Start again");
  reset.addEventListener("click", () => {
    options.forEach(({ input }) => {
      input.checked = false;
    });
    guess = -1;
    shown = false;
    judge();
    figure.change(structuredClone(figure.start));
  });
  return element(
    "div",
    { class: "explore", role: "group", "aria-label": data.name },
    question,
    figure.stage,
    figure.controls,
    figure.status,
    ask,
    task,
    answer,
    check,
    element("p", { class: "last" }, answerButton, reset),
  );
}

const kinds = /** @type {Map<string, [(data: Data) => State, (figure: Figure) => Drawn]>} */ (new Map());

function scan() {
  for (const host of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("div.attn-explore"))) {
    const kind = kinds.get(host.dataset.kind ?? "");
    if (host.shadowRoot || !kind) continue;
    const data = JSON.parse(host.querySelector("script")?.textContent ?? ""),
      { id } = data;
    for (let n = 2; document.getElementById(data.id); n++) data.id = `${id}-${n}`; // another of its kind stands above
    const figure = new Figure(host, data, kind[0](data));
    figure.drawn = kind[1](figure);
    host.id = data.id;
    figure.mount(frame(figure), STYLE + figure.style);
  }
}

/**
 * Start all figures of a kind, those that the page still has to read too.
 * @param {string} kind
 * @param {(data: Data) => State} begin gives the state at the start
 * @param {(figure: Figure) => Drawn} build
 */
export function start(kind, begin, build) {
  kinds.set(kind, [begin, build]);
  scan();
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", scan);
}
