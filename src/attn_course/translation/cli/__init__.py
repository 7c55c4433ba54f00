"""The command ``attn-course``: fetch text, train a translator, evaluate it, translate; write text with a language
model; and grade the exercises of a notebook. Used from chapter 12.

Every error is one line on standard error that says what to do. The exit status is 1, or 2 for a command line that
cannot be understood, or 130 for a training that was stopped and can continue.
"""

from typing import Annotated

import typer

from attn_course.translation.cli import data, evaluate, generate, grade, train, translate
from attn_course.translation.cli.common import explain_errors

app = typer.Typer(
    help="Train a Japanese–English translator, and use it (chapter 12 of the Attention Course), let a small "
    "language model write (chapter 14), or grade the exercises of a notebook.\n\n"
    "Input and output are UTF-8, whatever the locale. The environment variable PYTHONIOENCODING can name another "
    "encoding for the output; characters that this encoding lacks are written as escapes such as \\u732b.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(requested: bool) -> None:
    if requested:
        from attn_course import __version__

        print(f"attn-course {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


for command in (data.data, train.train, translate.translate, evaluate.evaluate, generate.generate, grade.grade):
    app.command()(explain_errors(command))
