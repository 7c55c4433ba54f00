import pytest

from attn_course.exercises.engine.largest_tensor import yes_or_no
from attn_course.exercises.engine.mistakes import Mistake
from attn_course.exercises.engine.runner import OPEN


@pytest.mark.parametrize("several", [False, True])
def test_yes_or_no_leaves_open_what_a_wrong_answer_in_the_numbers_would_do(several):
    wrong, other = (lambda: 1), (lambda: 2)
    mistakes = {"wrong number": Mistake("…", [other, wrong] if several else wrong), "whole table": Mistake("…", len)}
    assert yes_or_no(True, wrong, mistakes, "whole table") is OPEN
    assert yes_or_no(True, len, mistakes, "whole table") == "yes"
    assert yes_or_no(False, abs, mistakes, "whole table") == "no"
