"""Chapter 4: what its exercises say beside their solutions."""

import torch
from read_chapters import exercises, solution


def test_the_other_solution_of_exercise_3_gives_the_same():
    (exercise,) = [found for found in exercises("04") if found.number == 3]
    assert "`q[:, None] @ k.mT` gives the same scores by broadcasting" in exercise.text
    q, k = torch.randn(2, 3, 7), torch.randn(5, 11, 7)
    by_broadcasting = (q[:, None] @ k.mT).amax(-1).sum(-1)
    torch.testing.assert_close(solution("04", 3)["max_sim"](q, k), by_broadcasting)
