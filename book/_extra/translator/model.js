// The Transformer of chapter 9, in its pre-norm form, as it is asked one token after the other.
// Weights are float32, everything that is computed with them float64.

/** @typedef {Float64Array} Vector */
/** @typedef {{ numHeads: number, numEncoderLayers: number, numDecoderLayers: number, dModel: number }} Sizes */
/** @typedef {{ memory: Vector, length: number, keys: Vector[][], values: Vector[][], weights: Vector[] }} Source */
/**
 * A beginning of a target. Its own keys and values, and its parent's, and so on, are its cache.
 * @typedef {object} Beginning
 * @property {Beginning | null} parent
 * @property {number} id the last token that was written
 * @property {number} length how many were written
 * @property {number} logProb of all of them
 * @property {Vector[]} [keys] of each layer, once it was read
 * @property {Vector[]} [values]
 * @property {Vector[]} [toTarget] weights (heads, length + 1) of each layer
 * @property {Vector[]} [toSource] weights (heads, source) of each layer
 */

const EPSILON = 1e-5;

/** All 65,536 numbers of float16. */
function halves() {
  return Float32Array.from({ length: 1 << 16 }, (_, bits) => {
    const exponent = (bits >> 10) & 31,
      fraction = bits & 1023;
    const size = exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
    return bits >> 15 ? -size : size;
  });
}

/**
 * The tensors of a safetensors file, which holds float16, as float32.
 * @param {ArrayBuffer} file
 * @returns {Map<string, Float32Array>}
 */
export function readWeights(file) {
  const start = 8 + Number(new DataView(file).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 8, start - 8)));
  const table = halves(),
    weights = new Map();
  delete header.__metadata__;
  for (const [
    name,
    {
      dtype,
      data_offsets: [begin, end],
    },
  ] of Object.entries(header)) {
    if (dtype !== "F16") throw new Error(`${name} is ${dtype}, and must be F16`);
    const bits = new Uint16Array(file, start + begin, (end - begin) / 2);
    weights.set(
      name,
      Float32Array.from(bits, (b) => table[b]),
    );
  }
  return weights;
}

/**
 * Multiply each row of x by a matrix, whose every number is fetched once for five rows.
 * @param {Vector} x (rows, width)
 * @param {Float32Array} weight (out, width)
 * @param {Float32Array} [bias] (out)
 * @returns {Vector} (rows, out)
 */
export function linear(x, weight, bias, width = 256) {
  const rows = x.length / width,
    size = weight.length / width;
  const y = new Float64Array(rows * size);
  let row = 0;
  for (; row + 5 <= rows; row += 5) {
    const a = row * width,
      b = a + width,
      c = b + width,
      d = c + width,
      e = d + width;
    for (let n = 0; n < size; n += 2) {
      let a0 = 0,
        a1 = 0,
        b0 = 0,
        b1 = 0,
        c0 = 0,
        c1 = 0,
        d0 = 0,
        d1 = 0,
        e0 = 0,
        e1 = 0;
      const first = n * width,
        second = first + width;
      for (let k = 0; k < width; k++) {
        const w0 = weight[first + k],
          w1 = weight[second + k];
        const xa = x[a + k],
          xb = x[b + k],
          xc = x[c + k],
          xd = x[d + k],
          xe = x[e + k];
        a0 += xa * w0;
        a1 += xa * w1;
        b0 += xb * w0;
        b1 += xb * w1;
        c0 += xc * w0;
        c1 += xc * w1;
        d0 += xd * w0;
        d1 += xd * w1;
        e0 += xe * w0;
        e1 += xe * w1;
      }
      const sums = [a0, a1, b0, b1, c0, c1, d0, d1, e0, e1];
      for (let i = 0; i < 10; i++) y[(row + (i >> 1)) * size + n + (i & 1)] = sums[i];
    }
  }
  for (; row < rows; row++) {
    const a = row * width;
    for (let n = 0; n < size; n += 4) {
      let s0 = 0,
        s1 = 0,
        s2 = 0,
        s3 = 0;
      const i0 = n * width,
        i1 = i0 + width,
        i2 = i1 + width,
        i3 = i2 + width;
      for (let k = 0; k < width; k++) {
        const xa = x[a + k];
        s0 += xa * weight[i0 + k];
        s1 += xa * weight[i1 + k];
        s2 += xa * weight[i2 + k];
        s3 += xa * weight[i3 + k];
      }
      y.set([s0, s1, s2, s3], row * size + n);
    }
  }
  if (bias) for (let i = 0; i < y.length; i++) y[i] += bias[i % size];
  return y;
}

/** @param {Vector} x @param {Vector} y */
function add(x, y) {
  for (let i = 0; i < x.length; i++) x[i] += y[i];
}

/** @param {Vector} x @param {number} width @returns {Vector[]} */
function rowsOf(x, width) {
  return Array.from({ length: x.length / width }, (_, i) => x.subarray(i * width, (i + 1) * width));
}

/**
 * One query looks at keys, in each head's slice of the width.
 * @param {Vector} query (width)
 * @param {Vector[]} keys each (width)
 * @param {Vector[]} values each (width)
 * @param {number} numHeads
 * @param {Vector} out (width), all zeros, where the averages of the values go
 * @returns {Vector} the weights (heads, keys)
 */
export function attend(query, keys, values, numHeads, out) {
  const size = query.length / numHeads,
    S = keys.length;
  const weights = new Float64Array(numHeads * S);
  for (let h = 0; h < numHeads; h++) {
    const from = h * size,
      to = from + size,
      row = weights.subarray(h * S, (h + 1) * S);
    let highest = -Infinity,
      total = 0;
    for (let s = 0; s < S; s++) {
      const key = keys[s];
      let score = 0;
      for (let i = from; i < to; i++) score += query[i] * key[i];
      row[s] = score / Math.sqrt(size);
      highest = Math.max(highest, row[s]);
    }
    for (let s = 0; s < S; s++) total += row[s] = Math.exp(row[s] - highest);
    for (let s = 0; s < S; s++) {
      const value = values[s],
        weight = (row[s] /= total);
      for (let i = from; i < to; i++) out[i] += weight * value[i];
    }
  }
  return weights;
}

export class Model {
  /** @param {Map<string, Float32Array>} weights @param {Sizes} sizes */
  constructor(weights, sizes) {
    this.weights = weights;
    this.sizes = sizes;
  }

  /** @param {string} name */
  get(name) {
    const weight = this.weights.get(name);
    if (!weight) throw new Error(`the file of weights has no ${name}`);
    return weight;
  }

  /** @param {string} name @param {Vector} x @param {number} [width] */
  linear(name, x, width = this.sizes.dModel) {
    return linear(x, this.get(`${name}.weight`), this.get(`${name}.bias`), width);
  }

  /** @param {string} name @param {Vector} x */
  norm(name, x) {
    const E = this.sizes.dModel,
      gain = this.get(`${name}.weight`),
      bias = this.get(`${name}.bias`);
    const y = new Float64Array(x.length);
    for (let start = 0; start < x.length; start += E) {
      let mean = 0,
        variance = 0;
      for (let i = 0; i < E; i++) mean += x[start + i] / E;
      for (let i = 0; i < E; i++) variance += (x[start + i] - mean) ** 2 / E;
      const scale = 1 / Math.sqrt(variance + EPSILON);
      for (let i = 0; i < E; i++) y[start + i] = (x[start + i] - mean) * scale * gain[i] + bias[i];
    }
    return y;
  }

  /**
   * Tokens with sines and cosines of where they stand.
   * @param {string} name
   * @param {{ id: number, at: number }[]} tokens
   */
  embed(name, tokens) {
    const E = this.sizes.dModel,
      table = this.get(name),
      x = new Float64Array(tokens.length * E);
    tokens.forEach(({ id, at }, row) => {
      for (let i = 0; i < E; i++) {
        const angle = at / 10_000 ** ((i - (i % 2)) / E);
        x[row * E + i] = table[id * E + i] * Math.sqrt(E) + (i % 2 ? Math.cos(angle) : Math.sin(angle));
      }
    });
    return x;
  }

  /** @param {string} layer @param {Vector} x */
  feedForward(layer, x) {
    const inside = this.linear(`${layer}.feed_forward.up`, this.norm(`${layer}.feed_forward_norm`, x));
    for (let i = 0; i < inside.length; i++) inside[i] = Math.max(0, inside[i]);
    add(x, this.linear(`${layer}.feed_forward.down`, inside, (inside.length / x.length) * this.sizes.dModel));
  }

  /**
   * Read the source, and make the keys and values that every decoder layer will look at.
   * @param {number[]} ids with the end
   * @returns {Source}
   */
  encode(ids) {
    const { dModel: E, numHeads, numEncoderLayers, numDecoderLayers } = this.sizes;
    const x = this.embed(
      "src_embed.weight",
      ids.map((id, at) => ({ id, at })),
    );
    const weights = [];
    for (let l = 0; l < numEncoderLayers; l++) {
      const layer = `encoder_layers.${l}`,
        name = `${layer}.self_attention`;
      const normed = this.norm(`${name}_norm`, x);
      const [queries, keys, values] = ["q", "k", "v"].map((part) =>
        rowsOf(this.linear(`${name}.${part}_proj`, normed), E),
      );
      const out = new Float64Array(x.length),
        all = new Float64Array(numHeads * ids.length ** 2);
      rowsOf(out, E).forEach((place, t) => {
        const row = attend(queries[t], keys, values, numHeads, place);
        for (let h = 0; h < numHeads; h++)
          all.set(row.subarray(h * ids.length, (h + 1) * ids.length), (h * ids.length + t) * ids.length);
      });
      add(x, this.linear(`${name}.out_proj`, out));
      this.feedForward(layer, x);
      weights.push(all);
    }
    const memory = this.norm("encoder_norm", x);
    const [keys, values] = ["k", "v"].map((part) =>
      Array.from({ length: numDecoderLayers }, (_, l) =>
        rowsOf(this.linear(`decoder_layers.${l}.cross_attention.${part}_proj`, memory), E),
      ),
    );
    return { memory, length: ids.length, keys, values, weights };
  }

  /**
   * Read the last token of each beginning, and score what may follow.
   * @param {Beginning[]} beginnings of one source, all of one length
   * @param {Source} source
   * @returns {Vector[]} logarithms of the probabilities of the next token, for each beginning
   */
  decode(beginnings, source) {
    const { dModel: E, numHeads, numDecoderLayers } = this.sizes;
    const x = this.embed(
      "tgt_embed.weight",
      beginnings.map(({ id, length }) => ({ id, at: length })),
    );
    const paths = beginnings.map(pathOf);
    for (const beginning of beginnings) Object.assign(beginning, { keys: [], values: [], toTarget: [], toSource: [] });
    for (let l = 0; l < numDecoderLayers; l++) {
      const layer = `decoder_layers.${l}`;
      let name = `${layer}.self_attention`,
        out = new Float64Array(x.length);
      const normed = this.norm(`${name}_norm`, x);
      const [queries, keys, values] = ["q", "k", "v"].map((part) =>
        rowsOf(this.linear(`${name}.${part}_proj`, normed), E),
      );
      rowsOf(out, E).forEach((place, b) => {
        const { keys: k, values: v, toTarget } = /** @type {Required<Beginning>} */ (beginnings[b]);
        k.push(keys[b]);
        v.push(values[b]);
        const before = /** @type {Required<Beginning>[]} */ (paths[b]);
        toTarget.push(
          attend(
            queries[b],
            before.map((p) => p.keys[l]),
            before.map((p) => p.values[l]),
            numHeads,
            place,
          ),
        );
      });
      add(x, this.linear(`${name}.out_proj`, out));

      name = `${layer}.cross_attention`;
      out = new Float64Array(x.length);
      const asked = rowsOf(this.linear(`${name}.q_proj`, this.norm(`${name}_norm`, x)), E);
      rowsOf(out, E).forEach((place, b) => {
        const { toSource } = /** @type {Required<Beginning>} */ (beginnings[b]);
        toSource.push(attend(asked[b], source.keys[l], source.values[l], numHeads, place));
      });
      add(x, this.linear(`${name}.out_proj`, out));
      this.feedForward(layer, x);
    }
    const table = this.get("tgt_embed.weight"); // tied: it makes the logits, too
    return rowsOf(linear(this.norm("decoder_norm", x), table, undefined, E), table.length / E).map(logSoftmax);
  }
}

/** @param {Beginning} end @returns {Beginning[]} from the first token to this one */
export function pathOf(end) {
  const path = [];
  for (let at = /** @type {Beginning | null} */ (end); at; at = at.parent) path.push(at);
  return path.reverse();
}

/** @param {Vector} logits */
function logSoftmax(logits) {
  let highest = -Infinity,
    total = 0;
  for (const logit of logits) highest = Math.max(highest, logit);
  for (const logit of logits) total += Math.exp(logit - highest);
  const less = highest + Math.log(total);
  return logits.map((logit) => logit - less);
}
