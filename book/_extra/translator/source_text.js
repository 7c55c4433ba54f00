// Spell Japanese as the model reads it best, as attn_course.translation.source_text does it: the patterns are Python's.

import { normalizeJapanese } from "./text.js";

/** @typedef {{ japanese: string, english: string, read: string, written: string }} DateOf */

export class SourceText {
  /**
   * @param {any} about what the book's build wrote of it
   * @param {import("./copy_numbers.js").CopyNumbers} copying which knows the value of a number
   */
  constructor(about, copying) {
    this.copying = copying;
    /** @type {string[]} */
    this.months = about.months;
    /** @type {[string, string][]} */
    this.weekdays = Object.entries(about.weekdays);
    this.clock = new RegExp(about.clock, "gu");
    this.date = new RegExp(about.date, "gu");
    this.number = new RegExp(about.number, "gu");
    this.withYear = new RegExp(about.with_year, "gu");
    this.noEndMark = new RegExp(about.no_end_mark, "u");
  }

  /**
   * Write times, dates and numbers with Arabic digits.
   * @param {string} japanese
   */
  spell(japanese) {
    /** @param {string} number */
    const value = (number) => this.copying.value(number);
    return normalizeJapanese(japanese)
      .replace(this.clock, "$1時$2分")
      .replace(this.date, (_, month, day) => `${value(month)}月${value(day)}日`)
      .replace(this.number, (number) => {
        const digits = String(Math.trunc(value(number)));
        return digits.length > 4 ? digits.replace(/\B(?=([0-9]{3})+$)/g, ",") : digits;
      });
  }

  /**
   * Add 。 to a sentence that ends in a letter or a digit.
   * @param {string} text
   */
  addEndMark(text) {
    return this.noEndMark.test(text) ? `${text}。` : text;
  }

  /**
   * Replace dates by weekdays that the sentence does not contain.
   * @param {string} text
   */
  replaceDates(text) {
    /** @type {DateOf[]} */
    const dates = [];
    const replaced = text.replace(this.withYear, (date, year, month, day) => {
      const free = this.weekdays.find(
        ([read]) => !text.includes(read.slice(0, 2)) && !dates.some((other) => other.read === read),
      );
      const known = Number(month) >= 1 && Number(month) <= 12 && Number(day) >= 1 && Number(day) <= 31;
      if (!free || !known) return date;
      const english = `${this.months[Number(month) - 1]} ${Number(day)}${year ? `, ${year}` : ""}`;
      dates.push({ japanese: date, english, read: free[0], written: free[1] });
      return free[0];
    });
    return { text: replaced, dates };
  }
}

/**
 * Replace the weekdays of a translation by their dates.
 * @param {string} english
 * @param {DateOf[]} dates
 */
export function restoreDates(english, dates) {
  return english.replace(/[a-z]+/g, (word) => dates.find(({ written }) => written === word)?.english ?? word);
}

/**
 * Show the dates over the pieces of their weekdays.
 * @template {{ text: string }} Piece
 * @param {Piece[]} pieces
 * @param {string} text of the pieces
 * @param {DateOf[]} dates
 * @returns {Piece[]}
 */
export function showDates(pieces, text, dates) {
  const shown = pieces.map((piece) => ({ ...piece }));
  for (const { japanese, read } of dates) {
    const start = text.indexOf(read);
    let position = 0;
    const places = pieces.flatMap((piece, k) => {
      const at = position;
      position += piece.text.length;
      return at >= start && at < start + read.length ? [k] : [];
    });
    const [, month, day] = /** @type {RegExpMatchArray} */ (japanese.match(/^(.*月)(.*)$/));
    const parts = places.length === 1 ? [japanese] : [month, day];
    places.forEach((k, i) => (shown[k].text = parts[i]));
  }
  return shown;
}
