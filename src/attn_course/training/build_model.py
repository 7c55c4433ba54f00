"""The model of a training run, and its weights. Used in chapter 12."""

from torch import Tensor

from attn_course.nn.transformer import Transformer
from attn_course.training.settings import Settings


def make_model(settings: Settings, src_vocab_size: int, tgt_vocab_size: int) -> Transformer:
    """Make a translator from settings, with random weights."""
    return Transformer(
        src_vocab_size,
        tgt_vocab_size,
        d_model=settings.d_model,
        num_heads=settings.num_heads,
        num_layers=(settings.num_encoder_layers, settings.num_decoder_layers),
        d_ff=settings.d_ff,
        dropout=settings.dropout,
        norm_first=settings.norm_first,
        tie_weights=settings.tie_weights,
    )


def weights_of(model: Transformer) -> dict[str, Tensor]:
    """Return the weights for a checkpoint. Tied weights, one tensor with two names, are stored once."""
    weights = model.state_dict()
    if model.to_logits.weight is model.tgt_embed.weight:
        del weights["to_logits.weight"]
    return weights


def load_weights(model: Transformer, weights: dict[str, Tensor]) -> None:
    """Copy the weights of a checkpoint into a model."""
    if model.to_logits.weight is model.tgt_embed.weight:
        weights = weights | {"to_logits.weight": weights["tgt_embed.weight"]}
    model.load_state_dict(weights)
