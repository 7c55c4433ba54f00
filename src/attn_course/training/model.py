"""The translator that settings describe, and putting weights into it."""

from torch import Tensor

from attn_course.nn.transformer import Transformer, TransformerOptions
from attn_course.training.settings import Settings


def make_model(settings: Settings, src_vocab_size: int, tgt_vocab_size: int) -> Transformer:
    """The translator that the settings describe, with random weights."""
    return Transformer(
        src_vocab_size,
        tgt_vocab_size,
        d_model=settings.d_model,
        num_heads=settings.num_heads,
        num_layers=(settings.num_encoder_layers, settings.num_decoder_layers),
        d_ff=settings.d_ff,
        options=TransformerOptions(
            dropout=settings.dropout,
            norm_first=settings.norm_first,
            tie_weights=settings.tie_weights,
        ),
    )


def load_weights(model: Transformer, weights: dict[str, Tensor]) -> None:
    """Copy weights as a checkpoint holds them into a model."""
    if model.to_logits.weight is model.tgt_embed.weight:
        weights = weights | {"to_logits.weight": weights["tgt_embed.weight"]}
    model.load_state_dict(weights)
