"""Training a translator: settings, schedule, checkpoints and the loop. Derived in chapter 12."""

from attn_course.training.checkpoint import load_checkpoint, save_checkpoint
from attn_course.training.loop import train
from attn_course.training.loss import translation_loss
from attn_course.training.schedule import learning_rate
from attn_course.training.settings import Settings

__all__ = [
    "Settings",
    "learning_rate",
    "load_checkpoint",
    "save_checkpoint",
    "train",
    "translation_loss",
]
