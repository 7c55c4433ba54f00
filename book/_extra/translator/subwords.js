// The vocabularies' pieces, and cutting text into them, as attn_course.data.subwords does it.

export const BOS = 1,
  EOS = 2,
  UNKNOWN = 3;
const SPECIAL = 4; // the padding is 0

export class Subwords {
  /** @param {string[]} pieces in the order in which they were learned, behind the four special ones */
  constructor(pieces) {
    this.pieces = pieces;
    /** @type {Map<string, number>} */
    this.ids = new Map(pieces.map((piece, id) => [piece, id]));
    for (const piece of pieces.slice(0, SPECIAL)) this.ids.delete(piece);
  }

  /**
   * Join the two neighbours whose piece was learned first, again and again; unknown letters in a row are one piece.
   * @param {string} text
   * @returns {{ text: string, id: number }[]}
   */
  cut(text) {
    const cut = [...text.replace(/▁+$/, "")]; // SentencePiece takes these for spaces, and drops them
    for (;;) {
      let best = Infinity,
        at = 0;
      for (let i = 0; i + 1 < cut.length; i++) {
        const id = this.ids.get(cut[i] + cut[i + 1]) ?? Infinity;
        if (id < best) [best, at] = [id, i];
      }
      if (best === Infinity) break;
      cut.splice(at, 2, cut[at] + cut[at + 1]);
    }
    /** @type {{ text: string, id: number }[]} */
    const pieces = [];
    for (const text of cut) {
      const id = this.ids.get(text) ?? UNKNOWN;
      if (id === UNKNOWN && pieces.at(-1)?.id === UNKNOWN) pieces[pieces.length - 1].text += text;
      else pieces.push({ text, id });
    }
    return pieces;
  }

  /**
   * The text of pieces; the unknown is written ⁇.
   * @param {number[]} ids
   */
  decode(ids) {
    const text = ids
      .filter((id) => id >= UNKNOWN)
      .map((id) => (id === UNKNOWN ? " ⁇ " : this.pieces[id].replaceAll("▁", " ")))
      .join("");
    return ids[0] === UNKNOWN ? text : text.replace(/^ +/, "");
  }
}
