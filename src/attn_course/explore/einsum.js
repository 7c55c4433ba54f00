// An einsum of queries and keys, written out: letters that stay are loops, letters that disappear are sums.
import { element, number, setAttributes, setText, start } from "./core.js";

const format = (x) => number(x, Number.isInteger(x) ? 0 : 2);

/**
 * What torch.einsum(`${a},${b}->${out}`) makes of two tables, row by row, or why it refuses.
 * @param {string} a @param {string} b @param {string} out
 * @param {number[][]} left @param {number[][]} right
 * @returns {{ sizes: Record<string, number>, order: string[], shape: number[], values: number[], terms: string[][], error: string }}
 */
export function contract(a, b, out, left, right) {
  /** @type {Record<string, number>} */
  const sizes = {};
  let error = "";
  for (const letter of out)
    if (!(a + b).includes(letter))
      error ||= `output subscript ${letter} does not appear in the equation for any input operand`;
  const operands = /** @type {[number[][], string][]} */ ([
    [left, a],
    [right, b],
  ]);
  operands.forEach(([table, letters], operand) => {
    [table.length, table[0].length].forEach((size, i) => {
      const letter = letters[i];
      if (letter in sizes && sizes[letter] !== size)
        error ||= `subscript ${letter} has size ${size} for operand ${operand} which does not broadcast with previously seen size ${sizes[letter]}`;
      sizes[letter] ??= size;
    });
  });
  const order = [...out, ...Object.keys(sizes).filter((letter) => !out.includes(letter))],
    shape = [...out].map((letter) => sizes[letter] ?? 0);
  const values = error ? [] : Array(shape.reduce((x, y) => x * y, 1)).fill(0),
    terms = /** @type {string[][]} */ (values.map(() => []));
  /** @param {number} depth @param {Record<string, number>} at @param {number} place */
  const loop = (depth, at, place) => {
    if (depth === order.length) {
      const x = left[at[a[0]]][at[a[1]]],
        y = right[at[b[0]]][at[b[1]]];
      values[place] += x * y;
      terms[place].push(`${format(x)} · ${format(y)}`);
      return;
    }
    const letter = order[depth];
    for (let i = 0; i < sizes[letter]; i++)
      loop(depth + 1, { ...at, [letter]: i }, depth < out.length ? place * sizes[letter] + i : place);
  };
  if (!error) loop(0, {}, 0);
  return { sizes, order, shape, values, terms, error };
}

start(
  "einsum",
  () => ({ second: "sd", out: "ts", keys: "all" }),
  (figure) => {
    const { data, state } = figure,
      { q, k } = data,
      T = q.length;
    figure.style = "einsum.css";
    const call = element("p", { class: "call" }),
      program = element("pre", { tabindex: 0, role: "region", "aria-label": "The same as loops" }),
      shape = element("p", { class: "shape" }),
      result = element("table", { class: "result" }),
      input = element("p", { class: "shape" });
    figure.stage.append(
      element("figure", { class: "card wide" }, call, program, input),
      element("div", { class: "card" }, shape, result),
    );
    figure.choice("second", "Letters of k", { sd: "sd", td: "td, a typo" });
    figure.choice("out", "Result", { ts: "ts", st: "st", t: "t", s: "s", tsd: "tsd", none: "nothing" });
    figure.choice("keys", "Keys", { all: `${k.length}`, few: `${T}, as many as queries` });
    const now = () => {
      const keys = state.keys === "all" ? k : k.slice(0, T),
        out = state.out === "none" ? "" : state.out;
      return { keys, out, made: contract("td", state.second, out, q, keys) };
    };
    figure.showValues(result);
    return {
      draw() {
        const { keys, out, made } = now(),
          { sizes, order, error } = made;
        setText(call, `torch.einsum("td,${state.second}->${out}", q, k)`);
        setText(
          input,
          `q: (${T}, ${q[0].length})  ${JSON.stringify(q)}; k: (${keys.length}, ${keys[0].length})  ${JSON.stringify(keys)}`,
        );
        const at = out ? `out[${[...out].join(", ")}]` : "out";
        const lines = order.map(
          (letter, i) =>
            `${"    ".repeat(i)}for ${letter} in range(${sizes[letter]}):  # ${i < out.length ? "stays: a loop" : "disappears: a sum"}`,
        );
        setText(
          program,
          error
            ? `RuntimeError: einsum(): ${error}`
            : [...lines, `${"    ".repeat(order.length)}${at} += q[t, d] * k[${[...state.second].join(", ")}]`].join(
                "\n",
              ),
        );
        program.classList.toggle("wrong", !!error);
        setText(
          shape,
          error
            ? "No result."
            : `Result, of the shape (${made.shape.join(", ")}${made.shape.length === 1 ? "," : ""}):`,
        );
        const sums = made.terms.map(
          (terms) =>
            `${terms.slice(0, 6).join(" + ")}${terms.length > 6 ? ` and ${terms.length - 6} more products` : ""}`,
        );
        const wide = made.shape.length ? made.shape[made.shape.length - 1] : 1;
        result.replaceChildren(
          ...Array.from({ length: error ? 0 : made.values.length / wide }, (_, r) =>
            element(
              "tr",
              {},
              ...made.values
                .slice(r * wide, (r + 1) * wide)
                .map((x, i) => element("td", { "data-value": sums[i + r * wide] }, format(x))),
            ),
          ),
        );
        setAttributes(result, { role: "presentation" });
      },
      describe() {
        const { out, made } = now(),
          { order, error } = made;
        if (error) return `PyTorch raises an error: ${error}.`;
        const gone = order.slice(out.length);
        const what = gone.length
          ? `${gone.join(" and ")} ${gone.length > 1 ? "disappear: they are" : "disappears: it is"} summed over.`
          : "No letter disappears: nothing is summed.";
        return `${what} The result has ${made.values.length} ${made.values.length > 1 ? "numbers" : "number"}.${state.second === "td" ? " Query i met only key i." : ""}`;
      },
      solved: () => state.second === "td" && !now().made.error,
      solve: () => ({ second: "td", keys: "few", out: "t" }),
    };
  },
);
