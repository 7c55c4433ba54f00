"""``attn-course``, also as ``python -m attn_course``. Here Ctrl-C is tidy while modules are still imported, too."""

import sys

_STOPPED = 130  # what shells say of a program that Ctrl-C has ended


def main() -> None:
    """Run the command."""
    try:
        from attn_course.cli import app

        app()
    except KeyboardInterrupt:
        print("attn-course: stopped", file=sys.stderr)
        sys.exit(_STOPPED)


if __name__ == "__main__":
    main()
