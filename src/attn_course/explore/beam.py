"""An interactive figure of beam search. Used in chapter 13."""

import math
from collections.abc import Mapping

from attn_course.explore.figure import Explorable, Guess
from attn_course.plots.svg import WIDTH, Canvas, Drawing, short
from attn_course.plots.text import on_one_line

_WIDEST = 5  # beam


def beam(following: Mapping[tuple[str, ...], Mapping[str, float]], end: str = "■") -> Explorable:
    """Show beam search step by step: which prefixes stay in the beam, which have ended and which are dropped.

    The figure addresses the misconception that a beam of K finds the K most probable sentences.

    Args:
        following: the words that may follow each beginning, with their probabilities; after any other beginning the
            end is certain.
        end: the word that ends a sentence.

    Raises:
        ValueError: if the words after a beginning do not share a probability of 1, if the language is too large to be
            drawn, or if no beam of 2 to 5 misses one of the most probable sentences.

    Example:
        >>> language = {(): {"a": 0.7, "b": 0.2, "■": 0.1}, ("a",): {"c": 0.55, "d": 0.45}, ("a", "c"): {"e": 1.0}}
        >>> print(beam(language).text.split("Guess")[0], end="")
        What a beam search finds among 4 sentences
        beam 1: a c e ■ 0.3850
        beam 2: a c e ■ 0.3850, a d ■ 0.3150
        beam 3: a d ■ 0.3150, b ■ 0.2000, ■ 0.1000
        beam 4: a c e ■ 0.3850, a d ■ 0.3150, b ■ 0.2000, ■ 0.1000
        beam 5: a c e ■ 0.3850, a d ■ 0.3150, b ■ 0.2000, ■ 0.1000
    """
    for beginning, words in following.items():
        total = sum(words.values())
        if not words or min(words.values()) <= 0 or abs(total - 1) > 1e-6:
            raise ValueError(
                f"the words after {beginning} have the probabilities {list(words.values())}: they must be above 0 "
                f"and sum to 1, not to {total:g}"
            )
    nodes = _grown(following, end)
    for node in nodes:
        node["words"] = on_one_line(node["words"])
    leaves = [i for i, node in enumerate(nodes) if node["end"]]
    deepest = max(node["depth"] for node in nodes)
    if len(leaves) > 12 or deepest > 5:
        raise ValueError(
            f"a language of {len(leaves)} sentences of up to {deepest} words is too large to be drawn: 12 of 5 fit"
        )
    by_size = {size: _search(nodes, size) for size in range(1, _WIDEST + 1)}
    best = sorted(leaves, key=lambda i: -nodes[i]["log"])
    missing = (
        (size, found[size - 1], lost[0])
        for size, found in by_size.items()
        if 2 <= size <= len(found) < len(best)
        for lost in [[i for i in best[:size] if i not in found]]
        if lost and nodes[lost[0]]["log"] > nodes[found[size - 1]]["log"] + 1e-9
    )
    size, last, lost = next(missing, (0, 0, 0))
    if not size:
        raise ValueError(
            "each beam of 2 to 5 finds the most probable sentences of this language: there is no mistake to be seen"
        )

    def named(i: int) -> str:
        return f"{' '.join(nodes[i]['words'])} {math.exp(nodes[i]['log']):.4f}"

    lines = [f"beam {k}: {', '.join(named(i) for i in found)}" for k, found in by_size.items()]
    guess = Guess(
        f"A beam of {size} goes on until {size} sentences have ended. Are the best {size} that it finds the {size} "
        "most probable sentences of this language?",
        [
            "No, because a better one may not have ended yet when the search stops.",
            f"Yes, because it keeps the {size} best at every step.",
            "No, because it finds only sentences that begin with the most probable word.",
        ],
        0,
        f"Now make the beam {size} wide and step to the end. Then try a beam of 1, which is greedy search, and a beam "
        "of 2.",
        f"A beam keeps the best prefixes, and the search stops when {size} sentences have ended. “{named(lost)}” had "
        f"not ended yet, so “{named(last)}” took its place. A beam of 1 can miss even the most probable sentence.",
        f"`search(by_table, {size})[{size - 1}]` holds `{tuple(nodes[last]['words'])}`, and "
        f"`everything[{best.index(lost)}]` holds `{tuple(nodes[lost]['words'])}`.",
    )
    kept = ("words", "p", "parent", "end", "row", "depth")
    data = [{name: node[name] for name in kept} for node in nodes]
    for node in data:
        node["words"] = node["words"][-1:]
    alt = f"What a beam search finds among {len(leaves)} sentences"
    return Explorable("beam", _still(nodes, alt, lines), guess, nodes=data, hard=size, widest=_WIDEST)


def _grown(following: Mapping[tuple[str, ...], Mapping[str, float]], end: str) -> list[dict]:
    """Return all prefixes as a tree, parents first. Each complete sentence has its own row."""
    nodes: list[dict] = []
    rows = iter(range(10**6))

    def grow(words: tuple[str, ...], p: float, parent: int, log: float) -> float:
        if len(nodes) > 200:
            raise ValueError("the language must be small enough to be drawn, and this one has no end")
        here = len(nodes)
        ended = bool(words) and words[-1] == end
        node = {"words": list(words), "p": p, "parent": parent, "log": log, "end": ended}
        nodes.append({**node, "depth": len(words)})
        if ended:
            row = float(next(rows))
        else:
            options = following.get(words, {end: 1.0})
            below = [grow((*words, word), float(q), here, log + math.log(q)) for word, q in options.items()]
            row = (below[0] + below[-1]) / 2
        nodes[here]["row"] = round(row, 4)
        return row

    grow((), 1.0, -1, 0.0)
    return nodes


def _search(nodes: list[dict], size: int) -> list[int]:
    """Return the sentences that a beam search of chapter 13 finds, the most probable first."""
    beams, ended = [0], []
    while beams and len(ended) < size:
        options = [i for b in beams for i, node in enumerate(nodes) if node["parent"] == b]
        options.sort(key=lambda i: nodes[i]["log"], reverse=True)
        ended += [i for i in options[:size] if nodes[i]["end"]]
        beams = [i for i in options if not nodes[i]["end"]][:size]
    return sorted(ended, key=lambda i: nodes[i]["log"], reverse=True)


def _still(nodes: list[dict], alt: str, lines: list[str]) -> Drawing:
    """Draw the complete language as a tree, with the probability of each prefix."""
    deepest = max(node["depth"] for node in nodes)
    step, high, wide = (WIDTH - 24) / deepest, 30, (WIDTH - 24) / deepest - 14
    sheet = Canvas(high * sum(node["end"] for node in nodes) + 20)

    def place(node: dict) -> tuple[float, float]:
        return 12 + step * (node["depth"] - 1) + 14, 10 + high * (node["row"] + 0.5)

    for node in nodes[1:]:
        x, y = place(node)
        if node["parent"]:
            u, v = place(nodes[node["parent"]])
            sheet.line((u + wide, v), (x, y), kind="pale")
    for node in nodes[1:]:
        x, y = place(node)
        label = f"{short(node['words'][-1], 8)} {math.exp(node['log']) + 1e-9:.3f}"
        kind = "context" if node["end"] else "vector"
        sheet.labelled(x, y - 11, wide, 22, kind, label, size=12)
    return sheet.finish(alt, lines)
