#!/usr/bin/env bash
# Gradescope runs this once, as root, when it builds the image of the autograder.
set -euo pipefail

# The course needs Python 3.11.2 or newer, whatever the image has, in a folder that every user can read.
apt-get update
apt-get install -y git python3-venv
python3 -m venv /opt/uv
/opt/uv/bin/pip install uv
export UV_PYTHON_INSTALL_DIR=/opt/python
/opt/uv/bin/uv venv --python 3.12 /opt/course
/opt/uv/bin/uv pip install --python /opt/course/bin/python --torch-backend cpu '/autograder/source/course[course]'

# Submissions run as this user. It cannot write results, and cannot read the autograder.
useradd --create-home student
chmod 700 /autograder/source
