#!/bin/sh
# Make or renew .venv with the pinned packages and this package. Called by make; does nothing when nothing changed.
# PYTHON names another Python than the newest one found.
set -eu

fail() {
    echo "make: $*" >&2
    exit 1
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11, 2))' >/dev/null 2>&1
}

# What the installation depends on: the files that ask for packages, and where the repository lies.
wanted="$(pwd)
$(cat requirements.txt requirements-no-deps.txt pyproject.toml)"
ready=.venv/.ready
if [ -f "$ready" ] && .venv/bin/python -c "import pip" 2>/dev/null && [ "$(cat "$ready")" = "$wanted" ]; then
    exit 0
fi

# The programs in .venv know its place by heart, so a repository that was moved needs a new one.
if [ -f "$ready" ] && [ "$(head -n 1 "$ready")" != "$(pwd)" ]; then
    rm -rf .venv
fi
if ! { .venv/bin/python -c "import pip" && is_new_enough .venv/bin/python; } 2>/dev/null; then
    python='' without_venv=''
    if [ -n "${PYTHON:-}" ]; then
        set -- "$PYTHON"
    else
        set -- python3.13 python3.12 python3.11 python3 python
    fi
    for candidate in "$@"; do
        if command -v "$candidate" >/dev/null 2>&1 && is_new_enough "$candidate"; then
            if "$candidate" -c "import ensurepip, venv" >/dev/null 2>&1; then
                python=$candidate
                break
            fi
            without_venv=${without_venv:-$candidate}
        fi
    done
    if [ -z "$python" ] && [ -n "$without_venv" ]; then
        fail "$("$without_venv" --version) comes without venv; install it, on Debian and Ubuntu with: sudo apt install python3-venv"
    elif [ -z "$python" ]; then
        found=$("${PYTHON:-python3}" --version 2>/dev/null || echo "none")
        fail "Python 3.11.2 or newer is needed (${PYTHON:-python3} is: $found); install it, or name one: make PYTHON=/path/to/python3.11"
    fi
    echo "Making .venv with $("$python" --version)."
    rm -rf .venv
    "$python" -m venv .venv
fi

echo "Installing the packages of requirements.txt in .venv; the first time this takes some minutes."
rm -f "$ready"
# Most modules are never imported, so compiling all of them now would only take time.
export PIP_DISABLE_PIP_VERSION_CHECK=1
.venv/bin/python -m pip install --quiet --no-compile --requirement requirements.txt
.venv/bin/python -m pip install --quiet --no-compile --no-deps --requirement requirements-no-deps.txt
.venv/bin/python -m pip install --quiet --no-compile --no-deps --no-build-isolation --editable .
printf '%s\n' "$wanted" >"$ready"
