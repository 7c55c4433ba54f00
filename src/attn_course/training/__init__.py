"""Training a translator: settings, schedule, checkpoints and the loop. Derived in chapter 12."""

from attn_course.training.checkpoint import (
    load_checkpoint,
    save_checkpoint,
    write_atomically,
)
from attn_course.training.loop import load_weights, make_model, train, translate_greedily
from attn_course.training.loss import translation_loss
from attn_course.training.processes import join_processes
from attn_course.training.schedule import learning_rate
from attn_course.training.settings import Settings

__all__ = [
    "Settings",
    "join_processes",
    "learning_rate",
    "load_checkpoint",
    "load_weights",
    "make_model",
    "save_checkpoint",
    "train",
    "translate_greedily",
    "translation_loss",
    "write_atomically",
]
