// Beam search, as attn_course.decoding does it; a beam of one is greedy search.

import { BOS, EOS } from "./subwords.js";

/** @typedef {import("./model.js").Beginning} Beginning */
/** @typedef {{ size: number, patience: number, lengthReward: number, maxLen: number }} Beam */
/** @typedef {{ forbid: (written: number[], logProbs: Float64Array) => void, penalty: (written: number[]) => number }} Rule */

/**
 * The best ways to go on, best first; neither the padding nor the beginning is ever written.
 * @param {Beginning[]} alive
 * @param {Float64Array[]} logProbs
 * @param {number} most
 * @returns {Beginning[]}
 */
function bestOf(alive, logProbs, most) {
  /** @type {Beginning[]} */
  const best = [];
  alive.forEach((parent, row) => {
    for (let id = BOS + 1; id < logProbs[row].length; id++) {
      const logProb = parent.logProb + logProbs[row][id];
      if (logProb === -Infinity) continue;
      if (best.length === most && logProb <= best[most - 1].logProb) continue;
      let place = best.length;
      while (place && best[place - 1].logProb < logProb) place--;
      best.splice(place, 0, { parent, id, length: parent.length + 1, logProb });
      if (best.length > most) best.pop();
    }
  });
  return best;
}

/** @param {Beginning} end */
function idsOf(end) {
  const ids = [];
  for (let at = end; at.parent; at = at.parent) ids.unshift(at.id);
  return ids;
}

/**
 * Write targets for a source; after each step it hands out the beginnings that go on and those that have just ended.
 * @param {{ decode: (beginnings: Beginning[], source: any) => Float64Array[] }} model
 * @param {any} source
 * @param {Beam} beam
 * @param {Rule | null} [rule] of what may be written for this source
 * @returns {Generator<{ alive: Beginning[], ended: Beginning[] }, Beginning[]>} what was found, best first
 */
export function* search(model, source, beam, rule) {
  /** @type {Beginning[]} */
  let alive = [{ parent: null, id: BOS, length: 0, logProb: 0 }];
  /** @type {Beginning[]} */
  const all = [];
  let searching = true;
  for (let length = 1; searching && length <= beam.maxLen; length++) {
    const logProbs = model.decode(alive, source);
    if (rule) alive.forEach((beginning, row) => rule.forbid(idsOf(beginning), logProbs[row]));
    const best = bestOf(alive, logProbs, 2 * beam.size);
    // An end must be among the best to count.
    const ended = best.slice(0, beam.size).filter(({ id }) => id === EOS);
    all.push(...ended);
    alive = best.filter(({ id }) => id !== EOS).slice(0, beam.size);
    searching = all.length < beam.patience * beam.size && alive.length > 0;
    yield { alive, ended };
  }
  /** @param {Beginning} a @param {Beginning} b */
  const byScore = (a, b) => scoreOf(b, beam, rule) - scoreOf(a, beam, rule);
  const found = all.sort(byScore).slice(0, beam.size);
  return searching ? [...found, ...[...alive].sort(byScore)].slice(0, Math.max(found.length, beam.size)) : found;
}

/** @param {Beginning} end @param {Beam} beam @param {Rule | null} [rule] */
export function scoreOf(end, { lengthReward }, rule) {
  return end.logProb + lengthReward * end.length - (rule ? rule.penalty(idsOf(end)) : 0);
}
