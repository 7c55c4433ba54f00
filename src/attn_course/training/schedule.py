"""The learning rate: warm-up, then inverse square root or cosine. Derived in chapter 12."""

import math

from attn_course.training.settings import Settings


def learning_rate(step: int, settings: Settings) -> float:
    r"""Return the learning rate of a step; the first step is step 1.

    The rate rises linearly to ``peak_lr`` at ``warmup_steps``. Then it falls like $1/\sqrt{step}$ (Vaswani et al. 2017,
    arXiv:1706.03762, section 5.3), or along half a cosine to 0 at ``steps`` (Loshchilov and Hutter 2016,
    arXiv:1608.03983, eq. 5, without restarts).

    Raises:
        ValueError: if the step is below 1.

    Example:
        >>> settings = Settings(peak_lr=1.0, warmup_steps=4)
        >>> [learning_rate(step, settings) for step in (1, 2, 4, 16)]
        [0.25, 0.5, 1.0, 0.5]
    """
    if step < 1:
        raise ValueError(f"step ({step}) must be at least 1: the first step is step 1")
    peak, warmup = settings.peak_lr, settings.warmup_steps
    if step < warmup:
        return peak * step / warmup
    if settings.schedule == "inverse_sqrt":
        return peak * math.sqrt(max(warmup, 1) / step)
    progress = min((step - warmup) / max(settings.steps - warmup, 1), 1.0)
    return peak * (1 + math.cos(math.pi * progress)) / 2
