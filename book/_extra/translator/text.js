// Spelling, as attn_course.data.text does it: the patterns are Python's own and come with the vocabularies.

// What Python takes for white space.
const SPACE = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]+";
const SPACES = new RegExp(SPACE, "g");
const SPACES_AROUND = new RegExp(`^${SPACE}|${SPACE}$`, "g");
const LETTER = "\\p{L}\\p{N}_";
const MEANING = new Map([
  ["\\b", `(?:(?<=[${LETTER}])(?![${LETTER}])|(?<![${LETTER}])(?=[${LETTER}]))`],
  ["\\w", `[${LETTER}]`],
  ["\\W", `[^${LETTER}]`],
  ["\\d", "\\p{Nd}"],
  ['\\"', '"'],
  ["\\ ", " "],
]);

/**
 * A pattern of Python's, in which letters and digits are those of all scripts.
 * @param {string} pattern
 * @param {string} flags
 */
export function likePython(pattern, flags = "g") {
  return new RegExp(
    pattern.replace(/\\[\s\S]/g, (sign) => MEANING.get(sign) ?? sign),
    `${flags}u`,
  );
}

/**
 * Remove the spaces, and write every letter and digit in one width.
 * @param {string} text
 */
export function normalizeJapanese(text) {
  return text.normalize("NFKC").replace(SPACES, "");
}

const BRACKETS = ["「」", "『』", "（）"];
/** @param {string} text @param {string} sign */
const count = (text, sign) => text.split(sign).length - 1;

export class Spelling {
  /** @param {{ japanese: string, sentence_end: string, quoted_on: string, quotation: string, name: string, month: string, titled: string, abbreviation: string }} patterns */
  constructor(patterns) {
    this.japanese = likePython(patterns.japanese, "");
    this.sentenceEnd = likePython(patterns.sentence_end);
    this.quotedOn = likePython(patterns.quoted_on, "y");
    this.quotation = likePython(patterns.quotation);
    this.spaceBeforeApostrophe = likePython(" (?='(?!'|\\d))");
    this.name = likePython(patterns.name);
    this.abbreviation = likePython(patterns.abbreviation);
    this.i = likePython("\\bi\\b(?!\\.\\w)");
    this.month = likePython(patterns.month);
    this.titled = likePython(patterns.titled);
    this.first = likePython("^\\W*\\w", "");
  }

  /**
   * Cut Japanese into its sentences; what is quoted within a sentence stays in it.
   * @param {string} text
   */
  splitSentences(text) {
    const sentences = [];
    let start = 0;
    let counted = 0;
    const lastClosing = BRACKETS.map(([, closing]) => text.lastIndexOf(closing));
    let open = BRACKETS.map(() => 0); // opening minus closing brackets from start to counted
    for (const end of text.matchAll(this.sentenceEnd)) {
      const at = end.index + end[0].length;
      const part = text.slice(counted, at);
      counted = at;
      open = BRACKETS.map(([opening, closing], i) => open[i] + count(part, opening) - count(part, closing));
      const inside = open.some((number, i) => number > 0 && lastClosing[i] >= at);
      this.quotedOn.lastIndex = at;
      const quoted = /[」』）)"”]$/.test(end[0]) && this.quotedOn.test(text);
      if (!inside && !quoted) {
        sentences.push(text.slice(start, at));
        start = at;
        open = BRACKETS.map(() => 0);
      }
    }
    return [...sentences, text.slice(start)].map((s) => s.replace(SPACES_AROUND, "")).filter(Boolean);
  }

  /**
   * Write a tokenised sentence as people do: no space before punctuation, capitals where they are certain.
   * @param {string} text
   */
  detokenizeEnglish(text) {
    /** @param {string} match */
    const title = (match) => match.replace(/\p{L}+/gu, (word) => word[0].toUpperCase() + word.slice(1));
    /** @param {string} match */
    const upper = (match) => match.toUpperCase();
    return text
      .replace(this.quotation, "‘$1'")
      .replace(this.spaceBeforeApostrophe, "")
      .replaceAll("‘", "'")
      .replace(/'' (.*?) ''/g, '"$1"')
      .replaceAll("''", '"')
      .replace(/ (?=[.,;:?!)])/g, "")
      .replaceAll("( ", "(")
      .replace(this.i, "I")
      .replace(this.titled, (_, shortened, letter) => title(`${shortened ?? "mt"}. ${letter}`))
      .replace(this.month, title)
      .replace(this.name, title)
      .replace(this.abbreviation, upper)
      .replace(this.first, upper);
  }
}
