// Copy the numbers of the source, as attn_course.translation.copy_numbers does it: the patterns are Python's own.

/** @typedef {{ text: string, uses: number[] }} Spelling */

const DIGITS = "〇一二三四五六七八九";
/** @type {Record<string, number>} */
const UNITS = { 十: 10, 百: 100, 千: 1000, 万: 1e4, 億: 1e8, 兆: 1e12 };
const MYRIADS = "万億兆";

/** @param {number} value */
const write = (value) => String(Number(value.toPrecision(15)));

export class CopyNumbers {
  /**
   * @param {any} about what the book's build wrote of the numbers
   * @param {import("./subwords.js").Subwords} tgt
   */
  constructor(about, tgt) {
    this.missing = about.missing;
    this.words = about.words;
    this.inSource = new RegExp(about.in_source, "gu");
    this.part = new RegExp(about.part, "gu");
    this.mayBeLacking = new RegExp(`^(?:${about.may_be_lacking})`, "u");
    this.inEnglish = new RegExp(about.in_english, "gu");
    this.tgt = tgt;
    const goesOn = new RegExp(about.goes_on, "u");
    /** @type {[number, string][]} */
    this.numeric = tgt.pieces
      .map((piece, id) => /** @type {[number, string]} */ ([id, piece.replaceAll("▁", " ")]))
      .filter(([, piece]) => goesOn.test(piece));
  }

  /**
   * The rule for one source; null if it has neither an Arabic digit nor a name.
   * @param {string} japanese
   * @param {string[]} [names] that its translation should not lack
   */
  of(japanese, names = []) {
    if (!names.length && !/[0-9]/.test(japanese)) return null;
    const found = this.find(japanese);
    names.forEach((name, i) => found.required.set(-1 - i, [name]));
    return new NumbersOfSource(this, found);
  }

  /** @param {string} japanese */
  find(japanese) {
    const found = [...japanese.matchAll(this.inSource)].map((match) => ({
      number: match[0],
      start: match.index,
      behind: japanese.slice(match.index + match[0].length),
    }));
    /** @type {Spelling[]} */
    let spellings = [];
    /** @type {Map<number, string[]>} */
    const required = new Map();
    found.forEach(({ number, behind }, i) => {
      for (const text of this.spell(number, behind)) spellings.push({ text, uses: [i] });
      if ((number !== "1" || /^時(?!間)/.test(behind)) && /[0-9]/.test(number) && !this.mayBeLacking.test(behind))
        required.set(i, this.wordsFor(number));
    });
    found.slice(1).forEach((minute, i) => {
      const hour = found[i];
      const between = japanese.slice(hour.start + hour.number.length, minute.start);
      if (between === "時" && /^分(?!前)/.test(minute.behind)) {
        const minutes = String(Math.trunc(this.value(minute.number))).padStart(2, "0");
        // Minutes alone would be another hour, and "five" in 5時5分 would count twice.
        spellings = spellings.filter(({ uses }) => uses.length > 1 || uses[0] !== i + 1);
        spellings.push({ text: `${write(this.value(hour.number))}:${minutes}`, uses: [i, i + 1] });
        const words = required.get(i) ?? [];
        const rest = required.get(i + 1)?.filter((word) => !words.includes(word));
        if (rest) required.set(i + 1, rest);
      }
    });
    return { spellings, required };
  }

  /**
   * How English may write a number, by what is behind it.
   * @param {string} number
   * @param {string} behind
   */
  spell(number, behind) {
    const hasKanji = [...number].some((sign) => DIGITS.includes(sign) || sign in UNITS);
    const plain = hasKanji ? write(this.value(number)) : number.replaceAll(",", "");
    const withCommas = plain.replace(/\B(?=([0-9]{3})+$)/g, ",");
    if (!/^[1-9][0-9]*$/.test(plain) || behind.startsWith("年")) return [plain];
    if (hasKanji && plain.endsWith("00000") && plain.length > 6)
      return [withCommas, `${write(this.value(number) / 1e6)} million`];
    const texts = hasKanji ? [withCommas] : [plain, withCommas];
    if (behind.startsWith("時半")) texts.push(`${plain}:30`);
    else if (/^時(?!間)/.test(behind)) texts.push(`${plain}:00`);
    return [...new Set(texts)];
  }

  /**
   * The value of a number in Arabic digits, in kanji, or in both: 3万5千 is 35000.
   * @param {string} number
   */
  value(number) {
    let total = 0,
      below = 0,
      digits = 0;
    for (const [part] of number.matchAll(this.part)) {
      if (DIGITS.includes(part)) digits = 10 * digits + DIGITS.indexOf(part);
      else if (!(part in UNITS)) digits = Number(part.replaceAll(",", ""));
      else if (MYRIADS.includes(part)) {
        total += (below + digits || 1) * UNITS[part];
        below = digits = 0;
      } else {
        below += (digits || 1) * UNITS[part];
        digits = 0;
      }
    }
    return total + below + digits;
  }

  /**
   * The words of which one must be there where English has no digits: twenty for 23.
   * @param {string} number
   * @returns {string[]}
   */
  wordsFor(number) {
    if (!/^[0-9]+$/.test(number)) return [];
    if (["00", "000"].includes(number.slice(1))) return [number.length === 3 ? "hundred" : "thousand"];
    const value = Number(number);
    return (this.words[value] || this.words[Math.floor(value / 10) * 10] || "").split(" ");
  }
}

class NumbersOfSource {
  /**
   * @param {CopyNumbers} rule
   * @param {{ spellings: Spelling[], required: Map<number, string[]> }} numbers
   */
  constructor(rule, { spellings, required }) {
    this.rule = rule;
    this.spellings = spellings;
    this.required = required;
  }

  /**
   * Make every piece impossible that may not be written next; none where all of them were.
   * @param {number[]} written
   * @param {Float64Array} logProbs
   */
  forbid(written, logProbs) {
    const text = this.rule.tgt.decode(written);
    const others = this.usedIn(`${text} `).length > 0;
    const numeric = this.rule.numeric.map(([id, piece]) => ({ id, fits: this.usedIn(text + piece).length > 0 }));
    if (!others && !numeric.some(({ fits }) => fits)) return;
    const kept = new Map(numeric.filter(({ fits }) => fits).map(({ id }) => [id, logProbs[id]]));
    if (!others) logProbs.fill(-Infinity);
    for (const { id } of numeric) logProbs[id] = kept.get(id) ?? -Infinity;
  }

  /**
   * What the score of a whole translation loses, so much for each required number that it lacks.
   * @param {number[]} written
   */
  penalty(written) {
    const text = this.rule.tgt.decode(written);
    const words = new Set(text.match(/[a-z]+/g));
    const missing = [...this.required].filter(([, spelled]) => !spelled.some((word) => words.has(word)));
    const counts = this.usedIn(`${text} `).map((used) => missing.filter(([i]) => !used.includes(i)).length);
    return counts.length ? this.rule.missing * Math.min(...counts) : 0;
  }

  /**
   * The sets of numbers that a text may have written in digits; none if it breaks the rule.
   * @param {string} text whose last number may be unfinished
   */
  usedIn(text) {
    /** @type {number[][]} */
    let used = [[]];
    for (const match of text.matchAll(this.rule.inEnglish)) {
      const unfinished = match.index + match[0].length === text.length;
      used = used.flatMap((before) =>
        this.spellings
          .filter(({ text }) => (unfinished ? text.startsWith(match[0]) : text === match[0]))
          .filter(({ uses }) => !uses.some((i) => before.includes(i)))
          .map(({ uses }) => [...before, ...uses]),
      );
    }
    return used;
  }
}
