"""``attn-course``, also as ``python -m attn_course``. Here Ctrl-C is tidy while modules are still imported, too."""

import os
import sys

_STOPPED = 130  # what shells say of a program that Ctrl-C has ended


def main() -> None:
    """Run the command."""
    _prepare_streams()
    try:
        from attn_course.translation.cli import app

        app()
    except ModuleNotFoundError as error:
        sys.exit(f"attn-course: the command needs {error.name}: pip install 'attn_course[course]'")
    except KeyboardInterrupt:
        print("attn-course: stopped", file=sys.stderr)
        sys.exit(_STOPPED)
    except OSError as error:  # the help could not be written
        print(f"attn-course: {error.strerror}", file=sys.stderr)
        sys.exit(1)


def _prepare_streams() -> None:
    """Write UTF-8 unless the user names another encoding, and never fail at a character that the encoding lacks.

    A closed stream is None in Python, and `print` would write to standard output in its place. It becomes one that
    is always empty; `sys.__stdin__` and the others stay None.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, stream)
    encoding, _, _ = os.environ.get("PYTHONIOENCODING", "").partition(":")
    for stream in (sys.stdout, sys.stderr):
        strict = stream.errors in ("strict", "surrogateescape")
        stream.reconfigure(
            encoding=None if encoding else "utf-8", errors="backslashreplace" if strict else stream.errors
        )


if __name__ == "__main__":
    main()
