"""Training a translator: settings, schedule, checkpoints and the training loop. Derived in chapter 12.

A module is imported when one of its names is first used: to load a translator takes only its model.
"""

from attn_course._lazy_imports import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
