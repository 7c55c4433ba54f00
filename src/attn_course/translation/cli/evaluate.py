"""The command ``attn-course evaluate``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attn_course.translation.cli.common import (
    CORPORA,
    Beam,
    FreeNumbers,
    LengthReward,
    RunFolder,
    complete,
    dump_json,
    load_parts,
    need_output,
    say,
    search_options,
)

if TYPE_CHECKING:
    from attn_course.data.corpora import Pair
    from attn_course.training import Settings


def evaluate(
    folder: RunFolder = None,
    corpus: Annotated[
        str | None,
        typer.Option(
            help="everyday, small_parallel_enja or your own pairs=PATH (see `train`); by default the sentences that "
            "were held out from training.",
            autocompletion=complete(CORPORA),
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="test or dev.")] = "test",
    beam: Beam = 5,
    length_reward: LengthReward = None,
    free_numbers: FreeNumbers = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only this number of sentences.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write the translations to this file, one in each line.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Evaluate a translator by BLEU and chrF, and its attention by the alignment error rate.

    Translations and references are compared in lower case, with spaces around punctuation. If a sentence cannot be
    translated, a warning names it, it counts as an empty translation, and the exit status is 1.
    """
    need_output()
    from attn_course.data.text import tokenize_english
    from attn_course.training import Settings
    from attn_course.training.checkpoint import write_atomically
    from attn_course.training.run_dir import SETTINGS
    from attn_course.translation.cross_attention import alignment_error_rates
    from attn_course.translation.metrics import bleu, chrf
    from attn_course.translation.translator import BUNDLED, Translator

    search = search_options(beam, length_reward, free_numbers)
    if split not in ("dev", "test"):
        raise ValueError(f"--split {split} must be test or dev")
    translator = Translator.load(folder)
    settings = Settings.load((folder or BUNDLED) / SETTINGS)
    corpus, pairs = _find_pairs(corpus, split, settings)
    pairs = pairs[:limit]
    readable = []
    for number, (ja, _) in enumerate(pairs):
        try:
            translator.encode(ja)
        except ValueError as error:
            say(f"sentence {number + 1}: {error}; its translation counts as empty")
        else:
            readable.append(number)
    translations = translator.translate([pairs[i][0] for i in readable], **search)
    hypotheses = [""] * len(pairs)
    for number, translation in zip(readable, translations, strict=True):
        hypotheses[number] = translation.tokenized
    references = [tokenize_english(en) for _, en in pairs]
    if output is not None:
        write_atomically(output, "".join(f"{h}\n" for h in hypotheses).encode())
    scores = {"BLEU": bleu(hypotheses, references), "chrF": chrf(hypotheses, references)}
    exact = sum(h == r for h, r in zip(hypotheses, references, strict=True)) / len(pairs)
    errors = alignment_error_rates(translator, split, limit) if corpus == "everyday" else {}
    if as_json:
        record = {
            "corpus": corpus,
            "split": split,
            "sentences": len(pairs),
            "beam": beam,
            **{name: score._asdict() for name, score in scores.items()},
            "exact": exact,
            "alignment_error_rate": errors,
        }
        print(dump_json(record, indent=1))
    else:
        print(f"{corpus}, {split}: {len(pairs)} sentences, beam {beam}")
        for name, score in scores.items():
            print(f"{name:5}{score.score:6.1f}  95 % interval {score.low:.1f} to {score.high:.1f}")
            print(f"      {score.signature}")
        print(f"exactly right: {exact:.1%}")
        for name, error in errors.items():
            print(f"alignment error rate, {name}: {error:.3f}")
    if failed := len(pairs) - len(readable):
        say(f"attn-course: {failed:,} of {len(pairs):,} sentences could not be translated")
        raise typer.Exit(1)


def _find_pairs(name: str | None, split: str, settings: "Settings") -> tuple[str, list["Pair"]]:
    """Return the name and the sentence pairs of the corpus for the evaluation."""
    from attn_course.data.corpus_mixture import load_held_out

    if name is None:
        first = settings.corpora[0]
        dev, test = load_held_out(first, **settings.division)
        name, pairs = getattr(settings, split) or first, {"dev": dev, "test": test}[split]
    else:
        own = name.startswith("pairs=")
        if own and name in settings.corpora:
            raise ValueError(
                f"the translator was trained on {name}; without --corpus it is evaluated on held-out sentences"
            )
        pairs = load_parts(name).get("train" if own else split, [])
    if not pairs:
        raise ValueError(
            f"{name} has no {split} part; everyday and small_parallel_enja have one, and your own pairs=PATH is "
            "evaluated as a whole"
        )
    return name, pairs
