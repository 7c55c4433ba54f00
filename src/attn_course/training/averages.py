"""The moving average of a model's weights. Used in chapter 12."""

import copy

import torch

from attn_course.nn.transformer import Transformer


class WeightAverage:
    """An exponential moving average (EMA) of the weights of a model.

    Args:
        model: the model whose weights are averaged; the average starts as a copy of it.
        decay: how much of the average remains at each step.
    """

    def __init__(self, model: Transformer, decay: float) -> None:
        self.model = copy.deepcopy(model)
        self.decay = decay

    @torch.no_grad()
    def update(self, model: Transformer, step: int) -> None:
        """Add the weights of the model after a step."""
        # The decay grows with the step, so that the average forgets the initial weights.
        decay = min(self.decay, step / (step + 10))
        for mean, weight in zip(self.model.parameters(), model.parameters(), strict=True):
            mean.lerp_(weight, 1 - decay)
