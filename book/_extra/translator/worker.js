// The translator off the page's own thread: it loads once, then answers sentence after sentence.

import { CopyNumbers } from "./copy_numbers.js";
import { Model, pathOf, readWeights } from "./model.js";
import { scoreOf, search } from "./search.js";
import { BOS, EOS, Subwords, UNKNOWN } from "./subwords.js";
import { restoreDates, showDates, SourceText } from "./source_text.js";
import { normalizeJapanese, Spelling } from "./text.js";

/** @typedef {import("./model.js").Beginning} Beginning */
/** @typedef {import("./model.js").Source} Source */
/** @typedef {import("./search.js").Rule} Rule */
/** @typedef {import("./source_text.js").DateOf} DateOf */
/** @typedef {{ text: string, known: boolean }} Token */
/** @typedef {{ parent: number, text: string, logProb: number, step: number, place: number, ended: boolean, score: number }} Node */
/**
 * @typedef {object} Found
 * @property {string} text
 * @property {Token[]} tokens with the end, if it was written
 * @property {number[]} ids without the end
 * @property {number} logProb
 * @property {number} score
 * @property {boolean} unsure whether its probability per token is low
 * @property {number[][]} cross for each layer, (heads, tokens, source)
 * @property {number[][]} decoder for each layer, (heads, tokens, tokens), -1 in the future
 */

const MOST_LETTERS = 500,
  MOST_PIECES = 60;
const END = "■",
  START = "▷";

/** A sentence for the reader about what cannot be translated. */
class Help extends Error {}

/**
 * @param {string} name
 * @param {(bytes: number) => void} [progress]
 */
async function load(name, progress) {
  const answer = await fetch(new URL(name, import.meta.url));
  if (!answer.ok || !answer.body) throw new Error(`${name}: the server answers ${answer.status}`);
  const parts = [];
  const reader = answer.body.getReader();
  for (let bytes = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) return new Blob(parts).arrayBuffer();
    parts.push(value);
    progress?.((bytes += value.length));
  }
}

export class Translator {
  /** @param {any} about what the book's build wrote @param {ArrayBuffer} weights */
  constructor(about, weights) {
    this.about = about;
    this.src = new Subwords(about.src);
    this.tgt = new Subwords(about.tgt);
    this.spelling = new Spelling(about.spelling);
    this.copying = new CopyNumbers(about.numbers, this.tgt);
    this.sourceText = new SourceText(about.source_text, this.copying);
    this.model = new Model(readWeights(weights), about.sizes);
  }

  /**
   * The pieces of the first sentence of a text, and what there is to say about it.
   * @param {string} text
   */
  read(text) {
    const letters = [...text].length,
      { longest } = this.about;
    if (!text.trim()) throw new Help("There is nothing to translate yet. Type a Japanese sentence, or choose one.");
    if (letters > MOST_LETTERS)
      throw new Help(
        `The text has ${letters} characters, but the page reads at most ${MOST_LETTERS}. Try a single sentence.`,
      );
    const plain = normalizeJapanese(text);
    if (!this.spelling.japanese.test(plain))
      throw new Help(`There is no Japanese in “${text.trim().slice(0, 20)}”. The translator reads only Japanese.`);
    const [first, ...others] = this.spelling.splitSentences(text);
    const { text: typed, dates } = this.sourceText.replaceDates(this.sourceText.spell(first));
    const read = this.sourceText.addEndMark(typed);
    const { length } = this.src.cut(typed);
    const pieces = this.src.cut(read);
    if (length > MOST_PIECES)
      throw new Help(
        `This sentence has ${length} tokens, but the page reads at most ${MOST_PIECES}. ` +
          `The translator learned from sentences of up to ${longest} tokens. Try a shorter sentence.`,
      );
    const says = [];
    if (others.length)
      says.push(`The page translates one sentence at a time. This is the first of ${others.length + 1}.`);
    if (length > longest)
      says.push(
        `This sentence has ${length} tokens, but the translator learned from sentences of up to ${longest} tokens.`,
      );
    if (length <= 2)
      says.push("The translator learned from whole sentences, so its translation of a single word is often wrong.");
    const unknown = pieces.filter(({ id }) => id === UNKNOWN).map((piece) => piece.text);
    if (unknown.length) says.push(`The vocabulary does not contain ${[...new Set(unknown)].join(" ")}.`);
    return { pieces, says, read, dates };
  }

  /** @param {string} text */
  translate(text) {
    const { pieces, says, read, dates } = this.read(text);
    const ids = [...pieces.map(({ id }) => id), EOS];
    const source = this.model.encode(ids);
    const { beam, maxLen } = this.about;
    const wide = { ...beam, maxLen: Math.min(2 * ids.length + 10, maxLen) };
    const greedy = { ...wide, size: 1, patience: 1 };
    const numbers = pieces.map(({ text, id }) => (id === UNKNOWN ? " ⁇ " : text)).join("");
    const names = dates.map(({ written }) => written);
    const rule = this.copying.of(numbers, names);
    const tree = new Tree(this, wide, rule, dates);
    const [best, ...others] = this.run(source, wide, rule, tree);
    const found = this.spell(best, source, wide, rule, dates);
    if (found.unsure)
      says.push(
        "The translator is unsure: this sentence is unlike those that it learned from, so the translation may be wrong.",
      );
    return {
      says,
      source: [
        ...showDates(pieces, read, dates).map(({ text, id }) => ({ text, known: id !== UNKNOWN })),
        { text: END, known: true },
      ],
      encoder: source.weights.map((weights) => [...weights]),
      beam: found,
      others: others.map((end) => this.spell(end, source, wide, rule, dates)),
      greedy: this.spell(this.run(source, greedy, rule)[0], source, greedy, rule, dates),
      size: wide.size,
      nodes: tree.nodes,
      best: tree.places.get(best) ?? 0,
    };
  }

  /**
   * @param {Source} source
   * @param {import("./search.js").Beam} beam
   * @param {Rule | null} rule
   * @param {Tree} [tree] to grow
   */
  run(source, beam, rule, tree) {
    const steps = search(this.model, source, beam, rule);
    for (;;) {
      const { value, done } = steps.next();
      if (done) return value;
      tree?.grow(value.alive, value.ended);
    }
  }

  /** @param {number} id @param {DateOf[]} dates @returns {Token} */
  token(id, dates) {
    if (id === EOS) return { text: END, known: true };
    if (id === UNKNOWN) return { text: "⁇", known: false };
    const piece = restoreDates(this.tgt.pieces[id], dates);
    return { text: piece === "▁" ? "␣" : piece.startsWith("▁") ? piece.slice(1) : `·${piece}`, known: true };
  }

  /**
   * @param {Beginning} end
   * @param {Source} source
   * @param {import("./search.js").Beam} beam
   * @param {Rule | null} rule
   * @param {DateOf[]} dates
   * @returns {Found}
   */
  spell(end, source, beam, rule, dates) {
    const written = pathOf(end)
      .slice(1)
      .map(({ id }) => id);
    const ids = written.filter((id) => id !== EOS);
    // A piece was written by looking from the place before it.
    const places = /** @type {Required<Beginning>[]} */ (pathOf(end).slice(0, -1));
    const { numHeads, numDecoderLayers } = this.about.sizes;
    /** @param {(place: Required<Beginning>) => Float64Array[]} get @param {number} width */
    const table = (get, width) =>
      Array.from({ length: numDecoderLayers }, (_, l) =>
        Array.from({ length: numHeads }, (_, h) =>
          places.map((place) => {
            const row = get(place)[l],
              size = row.length / numHeads;
            return Array.from({ length: width }, (_, s) => (s < size ? row[h * size + s] : -1));
          }),
        ).flat(2),
      );
    return {
      text: this.spelling.detokenizeEnglish(restoreDates(this.tgt.decode(ids), dates)),
      tokens: written.map((id) => this.token(id, dates)),
      ids,
      logProb: end.logProb,
      score: scoreOf(end, beam, rule),
      unsure: end.logProb < this.about.unsure * (ids.length + 1),
      cross: table((place) => place.toSource, source.length),
      decoder: table((place) => place.toTarget, places.length),
    };
  }
}

/** All beginnings that a beam kept or ended, each behind the one that it continues. */
class Tree {
  /** @param {Translator} translator @param {import("./search.js").Beam} beam @param {Rule | null} rule @param {DateOf[]} dates */
  constructor(translator, beam, rule, dates) {
    this.dates = dates;
    this.rule = rule;
    this.translator = translator;
    this.beam = beam;
    /** @type {Node[]} */
    this.nodes = [{ parent: -1, text: START, logProb: 0, step: 0, place: 0, ended: false, score: 0 }];
    /** @type {Map<Beginning, number>} */
    this.places = new Map();
  }

  /** @param {Beginning[]} alive @param {Beginning[]} ended */
  grow(alive, ended) {
    const all = [...alive, ...ended].sort((a, b) => b.logProb - a.logProb);
    all.forEach((end, place) => {
      const parent = end.parent?.id === BOS ? 0 : (this.places.get(/** @type {Beginning} */ (end.parent)) ?? 0);
      this.places.set(end, this.nodes.length);
      this.nodes.push({
        parent,
        text: this.translator.token(end.id, this.dates).text,
        logProb: end.logProb,
        step: end.length,
        place,
        ended: end.id === EOS,
        score: scoreOf(end, this.beam, end.id === EOS ? this.rule : null),
      });
    });
  }
}

/** @type {Promise<Translator> | undefined} */
let translator;

async function start() {
  const about = JSON.parse(new TextDecoder().decode(await load("about.json")));
  const weights = await load("best.safetensors", (bytes) =>
    postMessage({ type: "progress", share: bytes / about.weights }),
  );
  postMessage({ type: "view", view: about.view });
  return new Translator(about, weights);
}

// Elsewhere, as in a test, this is only a module.
if (typeof WorkerGlobalScope !== "undefined" && self instanceof WorkerGlobalScope)
  self.onmessage = async ({ data: text }) => {
    try {
      translator ??= start();
      postMessage({ type: "translation", translation: (await translator).translate(text) });
    } catch (error) {
      if (!(error instanceof Help)) translator = undefined; // the next click tries again
      postMessage({
        type: error instanceof Help ? "help" : "failed",
        says: String(/** @type {Error} */ (error).message),
      });
    }
  };
