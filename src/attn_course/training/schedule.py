"""The learning rate at each step: warm-up, then inverse square root or cosine."""

import math

from attn_course.training.settings import Settings


def learning_rate(step: int, settings: Settings) -> float:
    """The rate of a step, the first step being 1.

    It rises in a straight line to ``peak_lr`` at ``warmup_steps``. Then it falls like $1/\\sqrt{step}$ (Vaswani et
    al. 2017, arXiv:1706.03762, section 5.3) or along half a cosine to zero at ``steps``.
    """
    peak, warmup = settings.peak_lr, settings.warmup_steps
    if step < warmup:
        return peak * step / warmup
    if settings.schedule == "inverse_sqrt":
        return peak * math.sqrt(max(warmup, 1) / step)
    progress = (step - warmup) / max(settings.steps - warmup, 1)
    return peak * (1 + math.cos(math.pi * progress)) / 2
