"""The questions under *Test yourself*: their form, and each number among the answers, computed again.

A number is printed in the text, and a comment of the same cell computes it: the right one with right code, a wrong one
with the mistake that it stands for.
"""

import json
import math
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import attn_course
from attn_course import attention, softmax

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
TITLE = "### Test yourself"
PATHS = sorted(path for path in NOTEBOOKS.glob("*.ipynb") if TITLE in path.read_text(encoding="utf-8"))
NUMBER = re.compile(r"−?\d[\d,]*(\.\d+)?( %)?")
COMPUTE = re.compile(r"^<!-- compute (\d+)\n(.*?)^-->$", re.DOTALL | re.MULTILINE)
QUESTION = re.compile(r"^\*\*Question (\d+)\.?\*\*", re.MULTILINE)
OPTION = re.compile(r"^- \(([a-d])\) (.+)$", re.MULTILINE)


def sources(path):
    return ["".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]


def self_test(path):
    """The cell with the questions of a chapter, and the text of its core."""
    texts = sources(path)
    (place,) = [i for i, text in enumerate(texts) if text.startswith(TITLE)]
    return texts[place], "\n".join(texts[:place])


def parts(text):
    """Return options and answers, one dict of letters for each question, and the code that computes numbers."""
    questions, answers = COMPUTE.sub("", text).split("<details><summary>Answers</summary>")
    tables = [[dict(OPTION.findall(part)) for part in QUESTION.split(half)[2::2]] for half in (questions, answers)]
    return *tables, {int(number): code for number, code in COMPUTE.findall(text)}


def wrong_form(text, core):
    options, answers, computed = parts(text)
    found = []
    if not 3 <= len(options) <= 5:
        found.append(f"{len(options)} questions, not 3 to 5")
    if [list(letters) for letters in options] != [list(letters) for letters in answers]:
        found.append("an option without an answer, or an answer without an option")
    for number, (chosen, explained) in enumerate(zip(options, answers, strict=False), start=1):
        if list(chosen) not in (list("abc"), list("abcd")):
            found.append(f"question {number} has the answers {list(chosen)}")
        right = [letter for letter, said in explained.items() if said.startswith("**Right.**")]
        if len(right) != 1:
            found.append(f"question {number} has {len(right)} right answers")
        for letter, said in explained.items():
            sections = re.findall(r"section (\d+\.\d+)", said)
            if letter not in right and not sections:
                found.append(f"({letter}) of question {number} names no section")
            found += [f"section {name} is not in the core" for name in sections if f"\n## {name} " not in core]
        numeric = {letter for letter, option in chosen.items() if NUMBER.fullmatch(option.strip("$"))}
        names = set(re.findall(r"^([a-d]) = ", computed.get(number, ""), re.MULTILINE))
        if numeric - names:
            found.append(f"question {number} computes {sorted(names)}, but {sorted(numeric)} are numbers")
    return found


def wrong_numbers(text):
    options, _, computed = parts(text)
    found = []
    for number, code in computed.items():
        space = {
            "torch": torch, "math": math, "F": F, "nn": nn, "attn_course": attn_course, "softmax": softmax,
            "attention": attention,
        }  # fmt: skip
        torch.manual_seed(0)
        exec(compile(code, f"compute {number}", "exec"), space)
        for letter in set("abcd") & set(space):
            printed = options[number - 1][letter].strip("$")
            shown = NUMBER.match(printed)
            if shown is None:
                found.append(f"({letter}) of question {number} begins with no number: {printed}")
                continue
            decimals = len((shown[1] or ".")[1:])
            value = float(space[letter]) * (100 if shown[2] else 1)
            expected = f"{value:,.{decimals}f}".replace("-", "−")
            if expected != shown[0].removesuffix(" %"):
                found.append(f"({letter}) of question {number} is {printed}, computed {expected}")
    return found


@pytest.mark.parametrize("path", PATHS, ids=[path.stem[:2] for path in PATHS])
def test_questions_have_one_right_answer_and_a_section_for_each_mistake(path):
    text, core = self_test(path)
    assert wrong_form(text, core) == []


@pytest.mark.parametrize("path", PATHS, ids=[path.stem[:2] for path in PATHS])
def test_numbers_are_what_right_and_wrong_code_computes(path):
    text, _ = self_test(path)
    assert wrong_numbers(text) == []


def test_the_right_answer_has_no_favourite_letter():
    letters = [
        letter for path in PATHS for answers in parts(self_test(path)[0])[1]
        for letter, said in answers.items() if said.startswith("**Right.**")
    ]  # fmt: skip
    for letter in "abcd":
        assert letters.count(letter) <= 0.45 * len(letters), f"({letter}) is right too often"


def test_a_wrong_form_and_a_wrong_number_are_noticed():
    text, core = self_test(next(path for path in PATHS if path.stem.startswith("05")))
    assert wrong_form(text.replace("**Right.** Two", "Two"), core) == [
        "question 1 has 0 right answers",
        "(d) of question 1 names no section",
    ]
    assert wrong_form(text.replace("- (d) 5\n", ""), core)[0].startswith("an option without an answer")
    assert wrong_form(text.replace("the average stays 1 (section 5.6)", "the average stays 1"), core)
    assert wrong_form(text, core.replace("## 5.6 ", "## 5.66 ")) != []
    assert wrong_form(text.replace("\nb = ", "\nz = "), core) == [
        "question 1 computes ['a', 'c', 'd'], but ['a', 'b', 'c', 'd'] are numbers"
    ]
    assert wrong_numbers(text.replace("- (d) 5\n", "- (d) 5.5\n")) == ["(d) of question 1 is 5.5, computed 5.0"]
