#!/usr/bin/env bash
# Gradescope runs this once, as root, when it builds the image of the autograder.
set -euo pipefail

apt-get update
apt-get install -y python3 python3-venv git
python3 -m venv /opt/course
/opt/course/bin/pip install --extra-index-url https://download.pytorch.org/whl/cpu /autograder/source/course
# Submissions run as this user. It cannot write results, and cannot read the autograder.
useradd --create-home student
chmod 700 /autograder/source
