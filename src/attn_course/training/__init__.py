"""Training a translator: settings, schedule, checkpoints and the training loop. Derived in chapter 12.

A module is imported when one of its names is first used: to load a translator takes only its model.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
