/**
 * The cells of a chapter, made editable, with a button that runs each in a kernel, and a bar that says how it goes.
 *
 * A cell needs what the cells above it define. So these run first, once in each kernel, and without a word: their
 * outputs stand on the page. A detail is run only for the cells of details, since no core needs one; an exercise never.
 */
import { Kernel, Trouble, diagnose } from "./kernel.js";
import { Outputs } from "./outputs.js";
import { findPlace } from "./find_server.js";

const element = (name, attributes = {}, ...content) => {
  const made = document.createElement(name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  made.append(...content);
  return made;
};

/** The text of an editable place, in which a browser may write a line break as an element. */
const textOf = (written) => {
  written.querySelectorAll("br").forEach((end) => end.replaceWith("\n"));
  return written.textContent;
};

/** One cell of the page. */
class Cell {
  ran = false; // in this kernel
  state = "idle"; // or "waiting", or "running"

  constructor(node, number) {
    this.node = node;
    this.number = number;
    this.pre = node.querySelector(".cell_input pre");
    this.written = this.code;
    this.coloured = this.pre.innerHTML;
    this.exercise = /check\.(\w+)\(/.exec(node.matches(".tag_exercise") ? this.written : "")?.[1];
    this.detail = node.closest("details.detail") !== null;
  }

  get code() {
    return textOf(this.pre.cloneNode(true)).replace(/\n+$/, "");
  }

  get changed() {
    return this.code !== this.written;
  }

  get name() {
    return this.exercise ? `exercise ${this.exercise}` : `cell ${this.number}`;
  }

  /** Makes the cell editable; `act` is called when it is to run or to stop. */
  open(act) {
    this.button = element("button", { type: "button", class: "live-run" });
    this.reset = element("button", { type: "button", class: "live-reset", hidden: "" }, "Undo changes");
    this.node.querySelector(".cell_input").append(element("div", { class: "live-tools" }, this.button, this.reset));
    Object.entries({
      contenteditable: "plaintext-only",
      role: "textbox",
      "aria-multiline": "true",
      spellcheck: "false",
      tabindex: "0",
      "aria-label": `Code of ${this.name}. Shift+Enter runs it, Escape leaves it.`,
      autocapitalize: "off",
      translate: "no",
    }).forEach(([key, value]) => this.pre.setAttribute(key, value));
    this.button.addEventListener("click", () => act(this));
    this.reset.addEventListener("click", () => {
      this.pre.innerHTML = this.coloured;
      this.edited();
      this.pre.focus();
    });
    this.pre.addEventListener("input", () => this.edited());
    this.pre.addEventListener("keydown", (event) => this.#key(event, act));
    this.show("idle");
  }

  #key(event, act) {
    // Undo knows what is written in this way.
    const insert = (text) => {
      event.preventDefault();
      if (text) document.execCommand("insertText", false, text);
    };
    if (!event.ctrlKey && !event.metaKey) event.stopPropagation(); // a slash is no request to search
    if (event.key === "Enter" && (event.shiftKey || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      if (this.state === "idle") act(this);
    } else if (event.key === "Enter" && !event.isComposing) {
      const line = this.#before().split("\n").pop();
      document.execCommand("insertLineBreak");
      insert(/^ */.exec(line)[0] + (/:\s*(#.*)?$/.test(line) ? "    " : ""));
    } else if (event.key === "Tab" && !event.shiftKey) {
      const column = this.#before().split("\n").pop().length;
      insert(" ".repeat(4 - (column % 4)));
    } else if (event.key === "Escape") this.button.focus();
  }

  /** The code before the caret. */
  #before() {
    const range = getSelection().getRangeAt(0).cloneRange();
    range.setStart(this.pre, 0);
    return textOf(range.cloneContents());
  }

  edited() {
    this.ran = false;
    this.reset.hidden = !this.changed;
  }

  show(state) {
    this.state = state;
    const does = { idle: "Run", waiting: "Waiting", running: "Stop" }[state];
    this.button.replaceChildren(does, element("span", { class: "visually-hidden" }, ` ${this.name}`));
    this.node.classList.toggle("live-running", state === "running");
  }

  /** An empty place for what the cell says now; what the page said stands as long as the code is the same. */
  outputs() {
    const stored = this.node.querySelector(".cell_output");
    this.model ??= stored?.querySelector("figure") ?? stored;
    const place = element("div", { class: "cell_output docutils container" });
    if (this.exercise) place.setAttribute("role", "status"); // the verdict is read out
    this.node.querySelector("details.hide")?.setAttribute("open", ""); // the page had covered its own output
    if (stored) stored.replaceWith(place);
    else this.node.append(place);
    return new Outputs(place, this.changed ? null : this.model);
  }
}

/** The chapter's cells and their kernel. */
class Live {
  kernel = null;
  connecting = null;
  stopped = 0; // how often the reader stopped everything
  queue = Promise.resolve();

  constructor({ root, binder, button }) {
    Object.assign(this, { root, binder, button });
    this.cells = [...document.querySelectorAll(".bd-article .cell")]
      .filter((node) => node.querySelector(".cell_input pre"))
      .map((node, index) => new Cell(node, index + 1));
    this.status = element("p", { role: "status" });
    this.again = element("button", { type: "button", hidden: "" }, "New kernel");
    this.ender = element("button", { type: "button", hidden: "" }, "End");
    this.bar = element(
      "section",
      { class: "live-bar", "aria-label": "Live cells" },
      this.status,
      this.again,
      this.ender,
    );
    this.again.addEventListener("click", () => this.renew());
    this.ender.addEventListener("click", () =>
      this.leave("Ended. What you wrote stays until you leave the page; Run starts a new kernel."),
    );
    this.cells.forEach((cell) => cell.open((which) => this.act(which)));
    document.querySelector(".bd-article-container").append(this.bar);
    document.documentElement.classList.add("live-on");
    window.addEventListener("pagehide", ({ persisted }) => {
      if (!persisted) this.kernel?.end();
    });
  }

  say(sentence) {
    this.status.textContent = sentence;
  }

  /** The kernel, started where there is none. */
  async connect() {
    if (this.kernel) {
      if (await this.kernel.find()) return this.kernel;
      const why = await diagnose(this.kernel.place);
      this.lose(why);
      throw new Trouble(why);
    }
    this.connecting ??= (async () => {
      this.say("Looking for a Jupyter server.");
      const place = await findPlace({ root: this.root, binder: this.binder, say: (sentence) => this.say(sentence) });
      this.say("Starting a kernel.");
      this.kernel = await Kernel.start(place, "notebooks", (sentence) => this.lose(sentence));
      this.again.hidden = this.ender.hidden = false;
      this.say("Ready: every cell can be changed and run.");
      return this.kernel;
    })().finally(() => {
      this.connecting = null;
    });
    return this.connecting;
  }

  /** The kernel can no longer be reached, or has lost its variables. */
  lose(sentence) {
    this.kernel?.end();
    this.forget();
    this.say(sentence);
  }

  forget() {
    this.kernel = null;
    this.again.hidden = this.ender.hidden = true;
    this.cells.forEach((cell) => {
      cell.ran = false;
    });
  }

  async leave(sentence) {
    this.stopped += 1;
    const kernel = this.kernel;
    this.forget();
    await kernel?.end();
    this.say(sentence);
  }

  async renew() {
    await this.leave("Starting a kernel.");
    await this.connect().catch((error) => this.say(sentenceOf(error)));
  }

  /** The reader pressed a cell's button. */
  act(cell) {
    if (cell.state !== "idle") {
      this.stopped += 1;
      this.kernel?.interrupt();
      return;
    }
    const asked = this.stopped;
    cell.show("waiting");
    this.queue = this.queue.then(async () => {
      try {
        if (asked === this.stopped) await this.run(cell, asked);
      } catch (error) {
        this.say(sentenceOf(error));
      }
      cell.show("idle");
    });
  }

  /** Runs a cell, and before it what it needs. */
  async run(cell, asked) {
    cell.show("running");
    const kernel = await this.connect();
    const above = this.cells.slice(0, this.cells.indexOf(cell));
    const needed = above.filter((other) => !other.ran && !other.exercise && (cell.detail || !other.detail));
    for (const [index, other] of needed.entries()) {
      if (asked !== this.stopped) break;
      this.say(`Running the cells above first: ${index + 1} of ${needed.length}.`);
      if ((await this.once(kernel, other, other.changed)) === "ok" || asked !== this.stopped) continue;
      this.say(
        `Cell ${other.number}, above, stopped with an error, so ${cell.name} did not run. Look there, then run it again.`,
      );
      other.node.scrollIntoView({ block: "center" });
      return;
    }
    if (asked === this.stopped) {
      this.say(`Running ${cell.name}.`);
      await this.once(kernel, cell, true);
    }
    if (this.kernel) this.say(asked === this.stopped ? "Ready." : "Stopped. The variables are as they were then.");
  }

  /** Runs one cell; what it says is shown, or only an error is. */
  async once(kernel, cell, shown) {
    const code = cell.code;
    let outputs = shown ? cell.outputs() : null;
    const ended = await kernel.run(code, (message) => {
      if (message.header.msg_type === "error") outputs ??= cell.outputs();
      outputs?.add(message);
    });
    cell.ran = ended === "ok" && code === cell.code;
    if (outputs) dispatchEvent(new Event("resize")); // a box that scrolls can be reached by keyboard (a11y.js)
    if (cell.exercise && /^Right\./m.test(outputs?.words ?? "")) {
      document.dispatchEvent(new CustomEvent("exercise-right", { detail: cell.exercise }));
    }
    return ended;
  }
}

const sentenceOf = (error) =>
  error instanceof Trouble
    ? error.message
    : `Something went wrong that this page has no sentence for (${error.message}). Reload it and press Live again.`;

let live = null;

/**
 * Makes the page live, or finds a kernel again where it has lost it.
 * @param {{root: URL, binder?: string, button: HTMLButtonElement}} page
 */
export const begin = async (page) => {
  if (!live) {
    await new Promise((loaded) => {
      const style = element("link", { rel: "stylesheet", href: new URL("_static/live/live.css", page.root) });
      style.onload = style.onerror = loaded;
      document.head.append(style);
    });
    live = new Live(page);
  }
  await live.connect().catch((error) => live.say(sentenceOf(error)));
};
