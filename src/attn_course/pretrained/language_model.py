"""What GPT-2 and Llama share: our language model with layers of another kind. Derived in chapter 17."""

from collections.abc import Iterable

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from attn_course.language_model import LanguageModel
from attn_course.pretrained.reading import Reading


class PretrainedLanguageModel(LanguageModel):
    """A :class:`~attn_course.LanguageModel` that is handed its layers and its last norm.

    Calling it and making a cache are those of the language model, so
    :func:`~attn_course.decoding.generate` writes with it.

    Args:
        vocab_size: V; ids go from 0 to V - 1.
        d_model: E, the width of the stream.
        layers: called as :class:`~attn_course.EncoderLayer` is.
        norm: behind the last layer.
        positions: "rotary" or "learned".
        tie_weights: make the logits with the embedding table itself.
        max_len: longest text.
        dropout: of what enters the first layer.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        *,
        layers: Iterable[nn.Module],
        norm: nn.Module,
        positions: str,
        tie_weights: bool,
        max_len: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            vocab_size,
            d_model=d_model,
            num_heads=1,
            num_layers=1,
            d_ff=1,  # its one layer is replaced
            dropout=dropout,
            positions=positions,
            tie_weights=tie_weights,
            max_len=max_len,
        )
        self.layers, self.norm = nn.ModuleList(layers), norm

    def read(
        self,
        ids: Int[Tensor, "B T"],
        *,
        mask: Bool[Tensor, "B 1 T"] | None = None,
        need_weights: bool = False,
    ) -> Reading:
        """Show the stream between the layers, and who attended to whom.

        Args:
            ids: (B, T).
            mask: True where there is a token, (B, 1, T); positions count real tokens only.
            need_weights: whether to return the weights.

        Raises:
            ValueError: as the call.
            TypeError: as the call.
        """
        hidden, weights = [], []

        def keep(layer: nn.Module, given: tuple, options: dict) -> tuple[tuple, dict]:
            hidden.append(given[0])
            return given, options | {"need_weights": need_weights}

        def keep_weights(layer: nn.Module, given: tuple, returned: tuple) -> None:
            weights.append(returned[1])

        def keep_last(norm: nn.Module, given: tuple, returned: Tensor) -> None:
            hidden.append(returned)

        hooks = [self.norm.register_forward_hook(keep_last)]
        for layer in self.layers:
            hooks.append(layer.register_forward_pre_hook(keep, with_kwargs=True))
            hooks.append(layer.register_forward_hook(keep_weights))
        try:
            self(ids, mask=mask)
        finally:
            for hook in hooks:
                hook.remove()
        return Reading(tuple(hidden), torch.stack(weights) if need_weights else None)
