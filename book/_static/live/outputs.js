/** What a kernel says, as parts of the page. */

const KEPT = 100_000; // characters of a stream: a loop that prints for ever must not fill the page
const RICHEST = ["text/html", "image/svg+xml", "image/png", "image/jpeg", "text/markdown", "text/plain"];

/** Text without the codes that colour a terminal; of a line that was written over, its last form. */
const plain = (text) =>
  text
    .replace(/\x1b\[[0-9;?]*[A-Za-z]/g, "")
    .split("\n")
    .map((line) => line.replace(/\r+$/, "").split("\r").pop())
    .join("\n");

const box = (kind, ...content) => {
  const made = document.createElement("div");
  made.className = `output ${kind}`;
  made.append(...content);
  return made;
};

const text = (kind, words) => {
  const pre = document.createElement("pre");
  pre.textContent = words;
  const highlight = document.createElement("div");
  highlight.className = "highlight";
  highlight.append(pre);
  return box(kind, highlight);
};

/** HTML whose scripts run, which they do not where it is only assigned. */
const html = (kind, source) => {
  const made = box(kind);
  made.innerHTML = source;
  made.querySelectorAll("script").forEach((script) => {
    const copy = document.createElement("script");
    [...script.attributes].forEach(({ name, value }) => copy.setAttribute(name, value));
    copy.textContent = script.textContent;
    script.replaceWith(copy);
  });
  return made;
};

/** The course shows its source as one block of code; other Markdown stays as it was written. */
const markdown = (source) => {
  const code = /^```\w*\n([\s\S]*?)\n?```\s*$/.exec(source);
  return text(code ? "text_markdown" : "text_plain", code ? code[1] : source);
};

/**
 * @param {Record<string, string>} data the same thing in several forms
 * @param {Record<string, any>} metadata
 * @param {Element | null} model the figure that stood here, where the code is what it was
 */
const rich = (data, metadata, model) => {
  const form = RICHEST.find((known) => known in data);
  const source = [data[form] ?? ""].flat().join("");
  if (form === "text/plain") return text("text_plain", plain(source));
  if (form === "text/markdown") return markdown(source);
  if (form === "text/html") return html("text_html", source);
  let picture;
  if (form === "image/svg+xml") picture = html("image_svg", source);
  else if (form) {
    picture = new Image();
    picture.src = `data:${form};base64,${source.replace(/\s/g, "")}`;
    const old = model?.querySelector("img");
    picture.alt = old?.alt || "The figure that this cell drew";
    for (const side of ["width", "height"]) {
      const size = old?.getAttribute(side) ?? metadata[form]?.[side];
      if (size) picture.setAttribute(side, size);
    }
  } else return text("text_plain", "This output has no form that the page can show.");
  const caption = model?.querySelector("figcaption")?.cloneNode(true);
  if (!caption) return box(form.replace(/\W/g, "_"), picture);
  const figure = model.cloneNode(false); // with the name that links lead to
  figure.append(picture, caption);
  return figure;
};

export class Outputs {
  #shown = new Map();
  #clear = false;
  #stream = null;

  /**
   * @param {Element} place
   * @param {Element | null} model
   */
  constructor(place, model) {
    Object.assign(this, { place, model, words: "" });
    place.replaceChildren();
  }

  /** @param {import("./kernel.js").Message} message */
  add({ header: { msg_type: type }, content, metadata }) {
    if (type === "clear_output") {
      if (content.wait) this.#clear = true;
      else this.#empty();
      return;
    }
    if (!["stream", "display_data", "execute_result", "update_display_data", "error"].includes(type)) return;
    if (this.#clear) this.#empty();
    if (type === "stream") return this.#write(content);
    this.#stream = null;
    if (type === "error") {
      const raised = content.traceback.length ? content.traceback.join("\n") : `${content.ename}: ${content.evalue}`;
      this.place.append(text("traceback", plain(raised)));
      return;
    }
    const made = rich(content.data, content.metadata ?? metadata ?? {}, this.model);
    const name = content.transient?.display_id;
    if (type !== "update_display_data") this.place.append(made);
    else this.#shown.get(name)?.replaceWith(made);
    if (name) this.#shown.set(name, made);
  }

  /** A sentence of the page's own. */
  say(sentence) {
    this.#stream = null;
    this.place.append(text("stream live-note", sentence));
  }

  #empty() {
    this.#clear = false;
    this.#stream = null;
    this.place.replaceChildren();
  }

  #write({ name, text: more }) {
    this.words = (this.words + more).slice(-KEPT);
    if (this.#stream?.name !== name) {
      this.#stream = { name, words: "", made: text(`stream ${name}`, "") };
      this.place.append(this.#stream.made);
    }
    this.#stream.words = (this.#stream.words + more).slice(-KEPT);
    this.#stream.made.querySelector("pre").textContent = plain(this.#stream.words);
  }
}
