"""BERT: a post-norm encoder made of the course's layers, with published weights. Derived in chapter 22."""

from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor, nn

from attn_course.functional.positions import learned_positions
from attn_course.functional.validation import check_is_flag
from attn_course.nn.outputs import ModelOutput
from attn_course.nn.transformer import EncoderLayer
from attn_course.pretrained.config import HFConfig, read_config
from attn_course.pretrained.weight_map import load_weight_map, optional_prefix
from attn_course.pretrained.weights import read_weights

BERT_NAMES = {
    "bert.embeddings.word_embeddings": "token_embed",
    "bert.embeddings.position_embeddings": "position_embed",
    "bert.embeddings.token_type_embeddings": "type_embed",
    "bert.embeddings.LayerNorm": "embed_norm",
    "bert.encoder.layer.{i}.attention.self.query": "layers.{i}.self_attention.q_proj",
    "bert.encoder.layer.{i}.attention.self.key": "layers.{i}.self_attention.k_proj",
    "bert.encoder.layer.{i}.attention.self.value": "layers.{i}.self_attention.v_proj",
    "bert.encoder.layer.{i}.attention.output.dense": "layers.{i}.self_attention.out_proj",
    "bert.encoder.layer.{i}.attention.output.LayerNorm": "layers.{i}.self_attention_norm",
    "bert.encoder.layer.{i}.intermediate.dense": "layers.{i}.feed_forward.up",
    "bert.encoder.layer.{i}.output.dense": "layers.{i}.feed_forward.down",
    "bert.encoder.layer.{i}.output.LayerNorm": "layers.{i}.feed_forward_norm",
    "bert.pooler.dense": "pooler",
}
"""Their names and ours. A file of the encoder alone has none of the ``bert.`` in front."""


class Bert(nn.Module):
    """An encoder that reads text in both directions (Devlin et al. 2018, arXiv:1810.04805).

    Our :class:`~attn_course.EncoderLayer`, post-norm and with GELU. What comes in is the sum of three
    rows, for the token, its position and its segment, and it is normalised before the first layer.

    Args:
        vocab_size: ids go from 0 to this less 1.
        d_model: E, the width of the stream.
        num_heads: H; must divide ``d_model``.
        num_layers: at least 1.
        d_ff: the width inside the feed-forwards.
        max_len: longest text; there is a learned row for each position.
        num_types: number of segments.
        activation: between the two maps of a feed-forward.
        norm_eps: what the norms add to the variance.
        dropout: as in :class:`~attn_course.EncoderLayer`, and of what enters the first layer.
        pooler: have the map that BERT's first training put on top of the first token. Nothing here uses it.

    Example:
        >>> model = Bert(100, d_model=8, num_heads=2, num_layers=3, d_ff=16, max_len=20)
        >>> hidden, weights = model(torch.randint(100, (1, 5)), need_weights=True)
        >>> len(hidden), hidden[-1].shape, weights.shape
        (4, torch.Size([1, 5, 8]), torch.Size([3, 1, 2, 5, 5]))
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        d_model: int,
        num_heads: int,
        num_layers: int,
        d_ff: int,
        max_len: int,
        num_types: int = 2,
        activation: Callable[[Tensor], Tensor] = F.gelu,
        norm_eps: float = 1e-12,
        dropout: float = 0.0,
        pooler: bool = False,
    ) -> None:
        super().__init__()
        self.token_embed = nn.Embedding(vocab_size, d_model)
        self.position_embed = nn.Embedding(max_len, d_model)
        self.type_embed = nn.Embedding(num_types, d_model)
        self.embed_norm = nn.LayerNorm(d_model, eps=norm_eps)
        self.layers = nn.ModuleList(
            EncoderLayer(
                d_model, num_heads, d_ff, dropout=dropout, norm_first=False, activation=activation, norm_eps=norm_eps
            )
            for _ in range(num_layers)
        )
        self.pooler = nn.Linear(d_model, d_model) if pooler else None
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        ids: Int[Tensor, "B S"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        token_types: Int[Tensor, "B S"] | None = None,
        need_weights: bool = False,
    ) -> ModelOutput:
        """Read texts.

        Args:
            ids: (B, S), padded on the right: positions are counted from the left end, padding or not, as
                BERT was trained.
            mask: True where there is a token, (B, 1, S), as :func:`~attn_course.make_padding_mask` makes it.
            token_types: the segment of each token, (B, S); 0 for all when not given.
            need_weights: whether to return the weights.

        Raises:
            ValueError: if the texts are longer than ``max_len``, or a shape does not fit.
        """
        if ids.size(1) > self.position_embed.num_embeddings:
            raise ValueError(
                f"ids is {ids.size(1)} tokens long, longer than max_len "
                f"({self.position_embed.num_embeddings}): no position was learned beyond it"
            )
        check_is_flag(need_weights, "need_weights")
        types = torch.zeros_like(ids) if token_types is None else token_types
        x = self.token_embed(ids) + self.type_embed(types)
        x = x + learned_positions(self.position_embed.weight, ids.size(1))
        x = self.dropout(self.embed_norm(x))
        hidden, weights = [x], []
        for layer in self.layers:
            x, layer_weights = layer(x, mask=mask, need_weights=need_weights)
            hidden.append(x)
            weights.append(layer_weights)
        return ModelOutput(tuple(hidden), torch.stack(weights) if need_weights else None)


def build_bert(config: HFConfig, *, pooler: bool = False) -> Bert:
    """Build a BERT with random weights from its config, or refuse what :class:`Bert` does not have."""
    config.must_be(position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    return Bert(
        config.size("vocab_size"),
        d_model=config.size("hidden_size"),
        num_heads=config.size("num_attention_heads"),
        num_layers=config.size("num_hidden_layers"),
        d_ff=config.size("intermediate_size"),
        max_len=config.size("max_position_embeddings"),
        num_types=config.size("type_vocab_size"),
        activation=config.activation("hidden_act"),
        norm_eps=config.number("layer_norm_eps"),
        dropout=config.number("hidden_dropout_prob"),
        pooler=pooler,
    )


def load_bert(folder: str | Path, *, dtype: torch.dtype = torch.float32) -> Bert:
    """Build a BERT from the ``config.json`` and the weights of a folder, in evaluation mode.

    Heads for tasks (``cls.…``, ``classifier.…``) are left aside: this is the encoder.

    Args:
        folder: with config.json and safetensors.
        dtype: type of the model, whatever that of the file.

    Raises:
        FileNotFoundError: if config.json or the weights are missing.
        ValueError: if the config asks for what :class:`Bert` does not have, or the weights are a pickle,
            damaged, or do not fit.
    """
    config = read_config(folder, "bert")
    tensors = {_new_name(name): tensor for name, tensor in read_weights(folder).items()}
    pooler = any("pooler.dense." in name for name in tensors)
    model = build_bert(config, pooler=pooler).to(dtype)
    names = optional_prefix(BERT_NAMES, "bert.", tensors)
    if model.pooler is None:
        names = {theirs: ours for theirs, ours in names.items() if ours != "pooler"}
    load_weight_map(model, tensors, names, ignore=["*embeddings.position_ids", "cls.*", "classifier.*"], source=folder)
    return model.eval()


def _new_name(name: str) -> str:
    # The first files of BERT still speak of gamma and beta.
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
