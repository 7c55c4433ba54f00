"""The translator in the page: its weights and vocabularies as the package ships them, beside the scripts that run it.

Nothing of it is stored twice: the weights are copied when the book is built, and so are the rules of spelling.
"""

import json
import re
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from attn_course.data import text
from attn_course.data.subwords import Subwords
from attn_course.plots import attention_view
from attn_course.training.build_model import make_model
from attn_course.training.run_dir import BEST, SETTINGS, SRC_SUBWORDS, TGT_SUBWORDS
from attn_course.training.settings import Settings
from attn_course.translation import copy_numbers, source_text, translator

PAGE = "book/try_the_translator"
FOLDER = "translator"  # of the website; the scripts are there already
SCRIPTS = Path(__file__).parents[2] / "_extra" / FOLDER
BEAM = 5  # as `attn-course translate` searches


def view_template() -> dict[str, Any]:
    """What every view of weights brings, its scripts and the colours of its data, from one of a single weight."""
    html = attention_view([[1.0]], ["·"]).html
    data, *scripts = re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL)
    return {"script": "\n".join(scripts), "data": {"colors": json.loads(data)["colors"]}}


@cache
def files() -> dict[str, bytes]:
    """The files that the page loads besides its scripts: name and content."""
    settings = Settings.load(translator.BUNDLED / SETTINGS)
    if not settings.norm_first or not settings.tie_weights or settings.src_words:
        raise ValueError(
            f"norm_first ({settings.norm_first}) and tie_weights ({settings.tie_weights}) must be true and src_words "
            f"({settings.src_words}) false: book/_extra/translator/model.js reads raw text with such a Transformer"
        )
    src, tgt = (Subwords.load(translator.BUNDLED / name) for name in (SRC_SUBWORDS, TGT_SUBWORDS))
    about = {
        "sizes": {
            "dModel": settings.d_model,
            "numHeads": settings.num_heads,
            "numEncoderLayers": settings.num_encoder_layers,
            "numDecoderLayers": settings.num_decoder_layers,
        },
        "beam": {"size": BEAM, "patience": translator.PATIENCE, "lengthReward": translator.LENGTH_REWARD},
        "maxLen": make_model(settings, len(src), len(tgt)).max_len,
        "longest": settings.max_pieces,
        "weights": (translator.BUNDLED / BEST).stat().st_size,
        "spelling": {
            "japanese": text.JAPANESE.pattern,
            "sentence_end": text.SENTENCE_END.pattern,
            "quoted_on": text.AFTER_QUOTATION.pattern,
            "quotation": text.QUOTATION.pattern,
            "name": text.PROPER_NAME.pattern,
            "month": text.MONTH_NAME.pattern,
            "titled": text.TITLED_NAME.pattern,
            "abbreviation": text.ABBREVIATION.pattern,
        },
        "numbers": {
            "in_source": copy_numbers.NUMBER_IN_SOURCE.pattern,
            "part": copy_numbers.NUMBER_PART.pattern,
            "may_be_lacking": copy_numbers.OPTIONAL_IF_BEFORE.pattern,
            "in_english": copy_numbers.NUMBER_IN_ENGLISH.pattern,
            "goes_on": copy_numbers.NUMERIC_PIECE.pattern,
            "words": copy_numbers.NUMBER_WORDS,
            "missing": copy_numbers.MISSING_NUMBER,
        },
        "source_text": {
            "months": source_text.MONTHS,
            "weekdays": source_text.WEEKDAYS,
            "clock": source_text.CLOCK.pattern,
            "date": source_text.DATE.pattern,
            "number": source_text.KANJI_NUMBER.pattern,
            "with_year": source_text.DATE_WITH_YEAR.pattern,
            "no_end_mark": source_text.NO_END_MARK.pattern,
        },
        "unsure": translator.UNSURE,
        "src": [src.piece(i) for i in range(len(src))],
        "tgt": [tgt.piece(i) for i in range(len(tgt))],
        "view": view_template(),
    }
    return {
        "about.json": json.dumps(about, ensure_ascii=False, separators=(",", ":")).encode(),
        BEST: (translator.BUNDLED / BEST).read_bytes(),
    }


def megabytes() -> str:
    """Return the size of the translator's files and scripts, which a reader downloads, in megabytes."""
    size = sum(map(len, files().values())) + sum(path.stat().st_size for path in SCRIPTS.iterdir())
    return f"{size / 1e6:.1f}"


def insert_size(app: Sphinx, page: str, source: list[str]) -> None:
    if page == PAGE:
        source[0] = source[0].replace("{{ megabytes }}", megabytes())


def write_files(app: Sphinx, exception: Exception | None) -> None:
    if exception or app.builder.format != "html":
        return
    for name, content in files().items():
        path = Path(app.outdir, FOLDER, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def setup(app: Sphinx) -> dict[str, Any]:
    # The extension for _toc.yml looks at every object there is, and with PyTorch loaded one of them is a warning.
    warnings.filterwarnings("ignore", "`torch.distributed.reduce_op` is deprecated", FutureWarning)
    app.connect("source-read", insert_size)
    app.connect("build-finished", write_files)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
