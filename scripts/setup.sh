#!/bin/sh
# Make or renew .venv with the pinned packages and this package. Called by make; does nothing when nothing changed.
# PYTHON names another Python than the newest one found; a .venv that was made with another one is made anew.
set -eu

fail() {
    echo "make: $*" >&2
    exit 1
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11, 2))' >/dev/null 2>&1
}

# The version and place of a Python. A virtual environment has those of the Python that made it.
origin() {
    "$1" -c 'import os, sys; print(sys.version_info[:3], os.path.realpath(sys.base_prefix))' 2>/dev/null
}

too_old() {
    found=$("${PYTHON:-python3}" --version 2>/dev/null || echo "none")
    fail "Python 3.11.2 or newer is needed (${PYTHON:-python3} is: $found); install it, or name one: make PYTHON=/path/to/python3.11"
}

if [ -n "${PYTHON:-}" ] && ! is_new_enough "$PYTHON"; then
    too_old
fi

# What the installation depends on: the files that ask for packages, and where the repository lies.
wanted="$(pwd)
$(cat requirements.txt requirements-no-deps.txt pyproject.toml)"
ready=.venv/.ready

# The programs in .venv contain its path, so a repository that was moved needs a new .venv.
if [ -f "$ready" ] && [ "$(head -n 1 "$ready")" != "$(pwd)" ]; then
    rm -rf .venv
fi

# A .venv that was complete once keeps its Python, unless PYTHON names another.
is_kept=no
if { .venv/bin/python -c "import pip" && is_new_enough .venv/bin/python; } 2>/dev/null; then
    if [ -n "${PYTHON:-}" ]; then
        [ "$(origin "$PYTHON")" != "$(origin .venv/bin/python)" ] || is_kept=yes
    elif [ -f "$ready" ]; then
        is_kept=yes
    fi
fi
if [ "$is_kept" = yes ] && [ -f "$ready" ] && [ "$(cat "$ready")" = "$wanted" ]; then
    exit 0
fi

if [ "$is_kept" = no ]; then
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
        too_old
    fi
    if ! .venv/bin/python -c "import pip" 2>/dev/null; then
        echo "Making .venv with $("$python" --version)."
    elif [ "$(origin "$python")" != "$(origin .venv/bin/python)" ]; then
        echo "Making .venv anew with $("$python" --version); it had $(.venv/bin/python --version)."
    else
        is_kept=yes # a first installation that did not finish goes on
    fi
    if [ "$is_kept" = no ]; then
        rm -rf .venv
        "$python" -m venv .venv
    fi
fi

echo "Installing the packages of requirements.txt in .venv; the first time this takes some minutes."
# From now on, until the end, .venv is not complete.
[ ! -f "$ready" ] || pwd >"$ready"
export PIP_DISABLE_PIP_VERSION_CHECK=1
export PIP_RETRIES="${PIP_RETRIES:-2}"
# Under LC_ALL=C, pip cannot write the name of a folder with other letters than English ones. Python replaces LC_CTYPE=C
# by a locale with UTF-8; PYTHONUTF8=1 is not enough before Python 3.13, which reads .pth files in UTF-8.
unset LC_ALL
export LC_CTYPE=C
# Most modules are never imported, so compiling all of them now would only take time.
install() {
    .venv/bin/python -m pip install --quiet --no-compile "$@"
}
{ install --requirement requirements.txt && install --no-deps --requirement requirements-no-deps.txt; } ||
    fail "the packages could not be installed; pip says why above." \
        "This needs a network and about 3 GB of free disk space (more with CUDA), also for temporary files." \
        "The same command goes on where it stopped."
install --no-deps --no-build-isolation --editable . ||
    fail "the packages are installed, but this folder's own package is not; pip says why above, and it needed no network."
# A path relative to the .pth file has no letter that another locale could not read; Python would not even start.
for link in .venv/lib/python3*/site-packages/__editable__.attn_course-*.pth; do
    [ ! -e "$link" ] || echo ../../../../src >"$link"
done
# Matplotlib lists the fonts now, because it would say so in the first notebook.
.venv/bin/python -c "import matplotlib.font_manager" >/dev/null 2>&1 || true
printf '%s\n' "$wanted" >"$ready"
