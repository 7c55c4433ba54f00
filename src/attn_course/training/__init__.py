"""Training a translator: settings, schedule, checkpoints and the loop. Derived in chapter 12.

Like the package's, a module is imported when a name of it is first used: a translator needs only its model.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors, which do not run anything
    from attn_course.training.checkpoint import (
        load_checkpoint,
        save_checkpoint,
        write_atomically,
    )
    from attn_course.training.distributed import join_processes
    from attn_course.training.loss import translation_loss
    from attn_course.training.model import load_weights, make_model
    from attn_course.training.schedule import learning_rate
    from attn_course.training.settings import Settings
    from attn_course.training.trainer import train, translate_greedily

_MODULES = {
    "checkpoint": "load_checkpoint save_checkpoint write_atomically",
    "distributed": "join_processes",
    "loop": "train translate_greedily",
    "loss": "translation_loss",
    "model": "load_weights make_model",
    "schedule": "learning_rate",
    "settings": "Settings",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
