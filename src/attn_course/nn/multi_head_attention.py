"""Multi-head attention, within one sequence and to another. Derived in chapters 6 and 7 (MultiHeadCrossAttention)."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attn_course.caching import Cache, KeyValueCache
from attn_course.caching.decoder import rollback_on_error
from attn_course.functional.attention import attention
from attn_course.functional.autocast import autocast_dtype
from attn_course.functional.positions import Rotation, rotate
from attn_course.functional.sdpa import fused_attention, weights_of_rows
from attn_course.functional.validation import (
    check_has_weights,
    check_is_tensor,
    check_mask,
    check_need_weights,
    check_probability,
    check_sequence,
    check_sizes,
)


class _Heads(nn.Module):
    """What both layers below share: the four projections, and attention in all heads between them."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        d_in: int | None = None,
        d_memory: int | None = None,
        bias: bool = True,
        out_bias: bool = True,
        dropout: float = 0.0,
        num_kv_heads: int | None = None,
        sink: str | None = None,
    ) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        d_in = d_model if d_in is None else d_in
        d_memory = d_in if d_memory is None else d_memory
        check_sizes(
            d_model=d_model,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            d_in=d_in,
            d_memory=d_memory,
        )
        if d_model % num_heads:
            raise ValueError(f"num_heads ({num_heads}) must divide d_model ({d_model})")
        if num_heads % num_kv_heads:
            raise ValueError(
                f"num_kv_heads ({num_kv_heads}) must divide num_heads ({num_heads})"
            )
        if sink not in (None, "zero", "learned"):
            raise ValueError(f"sink ({sink!r}) must be None, 'zero' or 'learned'")
        check_probability(dropout, "dropout")
        d_kv = d_model // num_heads * num_kv_heads
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.dropout = dropout
        self.q_proj = nn.Linear(d_in, d_model, bias=bias)
        self.k_proj = nn.Linear(d_memory, d_kv, bias=bias)
        self.v_proj = nn.Linear(d_memory, d_kv, bias=bias)
        self.out_proj = nn.Linear(d_model, d_model, bias=out_bias)
        self.sink_scores = (
            nn.Parameter(torch.zeros(num_heads)) if sink == "learned" else None
        )
        self.sink = sink

    def _project_queries(self, x: Tensor) -> Tensor:
        return self._split_heads(self.q_proj(x), self.num_heads)  # (B, H, T, D)

    def _project_keys_and_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        k = self._split_heads(self.k_proj(key), self.num_kv_heads)  # (B, G, S, D)
        v = self._split_heads(self.v_proj(value), self.num_kv_heads)  # (B, G, S, D)
        return k, v

    def _split_heads(self, x: Tensor, num_heads: int) -> Tensor:
        # Split, then transpose: a bare view to the same shape would mix positions.
        x = x.unflatten(-1, (num_heads, -1))  # (B, T, H, D)
        return x.transpose(1, 2)  # (B, H, T, D)

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        bias: Tensor | None,
        is_causal: bool,
        need_weights: bool | Sequence[int] | Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        if isinstance(bias, Tensor) and bias.dim() == 3:
            raise ValueError(
                f"bias of shape {tuple(bias.shape)} must be (T, S), or say with four axes whom it is for: (1, H, T, S) "
                "for each head, (B, 1, T, S) for each sequence; see Tensor.unsqueeze"
            )
        options = {
            "bias": bias,
            "is_causal": is_causal,
            "sink": 0.0 if self.sink == "zero" else self.sink_scores,
            "enable_gqa": self.num_kv_heads != self.num_heads,
        }
        dropout_p = self.dropout if self.training else 0.0
        if need_weights is True:
            out, weights = attention(q, k, v, mask, dropout_p=dropout_p, **options)
        else:
            out = fused_attention(q, k, v, mask, dropout_p=dropout_p, **options)
            weights = None
            if need_weights is not False:
                weights = weights_of_rows(q, k, need_weights, mask, **options)
        return self._merge_heads(out), weights

    def _merge_heads(self, out: Tensor) -> Tensor:
        return self.out_proj(out.transpose(1, 2).flatten(2))  # (B, T, E)

    def extra_repr(self) -> str:
        text = f"num_heads={self.num_heads}, dropout={self.dropout}"
        if self.num_kv_heads != self.num_heads:
            text += f", num_kv_heads={self.num_kv_heads}"
        return text if self.sink is None else f"{text}, sink={self.sink!r}"

    def to_torch(self) -> nn.MultiheadAttention:
        """Copy the weights into a new ``nn.MultiheadAttention`` with ``batch_first=True``.

        ``sink="zero"`` becomes ``add_zero_attn``, one more key and value of zeros.

        Raises:
            ValueError: if ``d_in`` is not ``d_model``, only some projections have a bias, there are fewer heads
                of keys than of queries, or a learned sink, which ``nn.MultiheadAttention`` cannot express; or if
                a weight is computed from other parameters, as under ``weight_norm``.

        Example:
            >>> ours = MultiHeadAttention(d_model=8, num_heads=2)
            >>> x = torch.randn(1, 5, 8)
            >>> torch.allclose(ours(x)[0], ours.to_torch()(x, x, x)[0], atol=1e-6)
            True
        """
        if self.num_kv_heads != self.num_heads or self.sink == "learned":
            raise ValueError(
                f"num_kv_heads ({self.num_kv_heads}) must equal num_heads ({self.num_heads}) and sink "
                f"({self.sink!r}) must be None or 'zero' for nn.MultiheadAttention"
            )
        d_in, d_model = self.q_proj.in_features, self.q_proj.out_features
        if d_in != d_model:
            raise ValueError(
                f"d_in ({d_in}) must equal d_model ({d_model}) for nn.MultiheadAttention"
            )
        bias, out_bias = (p.bias is not None for p in (self.q_proj, self.out_proj))
        if bias != out_bias:
            raise ValueError(
                f"bias ({bias}) must equal out_bias ({out_bias}) for nn.MultiheadAttention: "
                "it has all biases or none"
            )
        theirs = nn.MultiheadAttention(
            d_model,
            self.num_heads,
            dropout=self.dropout,
            bias=bias,
            kdim=self.k_proj.in_features,
            vdim=self.v_proj.in_features,
            add_zero_attn=self.sink == "zero",
            batch_first=True,
        )
        ours = self.state_dict()
        kinds = ("weight", "bias") if bias else ("weight",)
        names = [f"{part}_proj.{kind}" for part in ("q", "k", "v", "out") for kind in kinds]
        check_has_weights(ours, names)
        weights = [ours[f"{name}_proj.weight"] for name in "qkv"]
        if theirs.in_proj_weight is not None:
            state = {"in_proj_weight": torch.cat(weights)}
        else:
            state = {
                f"{name}_proj_weight": w for name, w in zip("qkv", weights, strict=True)
            }
        if bias:
            state["in_proj_bias"] = torch.cat([ours[f"{name}_proj.bias"] for name in "qkv"])
        state |= {key: value for key, value in ours.items() if key.startswith("out_proj")}
        theirs.to(self.out_proj.weight).load_state_dict(state)
        return theirs.train(self.training)

    def _copy_from_torch(self, module: nn.MultiheadAttention) -> None:
        if module.bias_k is not None:
            raise ValueError(
                "add_bias_kv (True) must be False: a learned key and value has no counterpart here; "
                "add_zero_attn has one, sink='zero'"
            )
        theirs = module.state_dict()
        # Stored apart when keys and values have a width of their own.
        together = module.kdim == module.vdim == module.embed_dim
        names = (
            ["in_proj_weight"] if together else [f"{name}_proj_weight" for name in "qkv"]
        )
        biases = [] if self.q_proj.bias is None else ["in_proj_bias", "out_proj.bias"]
        check_has_weights(theirs, [*names, "out_proj.weight", *biases])
        weights = [theirs[name] for name in names]
        if together:
            weights = weights[0].chunk(3)
        state = {f"{name}_proj.weight": w for name, w in zip("qkv", weights, strict=True)}
        if self.q_proj.bias is not None:
            parts = zip("qkv", theirs["in_proj_bias"].chunk(3), strict=True)
            state |= {f"{name}_proj.bias": part for name, part in parts}
        state |= {key: value for key, value in theirs.items() if key.startswith("out_proj")}
        self.to(module.out_proj.weight).load_state_dict(state)
        self.train(module.training)


class MultiHeadAttention(_Heads):
    r"""Attend several times in parallel, each head in its own slice of the width, and mix what the heads found.

    Computes $\mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_H)\,W_o$ with $\mathrm{head}_h =
    \mathrm{attention}(xW_q^h, xW_k^h, xW_v^h)$ (Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2). All heads'
    projections stand side by side in one matrix; head h owns columns h * D to (h + 1) * D of each. The sequence
    attends to itself; to another one attends :class:`MultiHeadCrossAttention`.

    Weights are computed only when asked for. Without them the call goes through PyTorch's fused kernel, which has no
    second derivatives and no forward-mode derivatives: for those, ask for all weights.

    Args:
        d_model: E, the width of queries, keys and values over all heads together, and of the output.
        num_heads: H; must divide ``d_model``. Each head is D = E / H wide.
        d_in: width of the incoming tokens; ``d_model`` when not given.
        bias: whether the projections of queries, keys and values add a bias.
        out_bias: whether the output projection adds a bias.
        dropout: probability of dropping a weight in training, from 0 up to but not including 1.
        num_kv_heads: G, how many heads of keys and values there are; must divide ``num_heads``. Each serves
            H / G heads of queries (Ainslie et al. 2023, arXiv:2305.13245); 1 is multi-query attention, and as
            many as ``num_heads``, when not given, is the attention of the first paper.
        sink: "zero" lets a head attend to nothing, by quiet softmax; "learned" does so with a score that each
            head learns, the parameter ``sink_scores`` (H,), 0 at first. See :func:`~attn_course.quiet_softmax`.

    Raises:
        ValueError: if ``num_heads`` does not divide ``d_model`` or ``num_kv_heads`` does not divide ``num_heads``,
            a size is below 1, ``dropout`` is outside [0, 1), or ``sink`` has no meaning.

    Example:
        >>> layer = MultiHeadAttention(d_model=8, num_heads=2)
        >>> x = torch.randn(1, 5, 8)
        >>> out, weights = layer(x, is_causal=True, need_weights=True)
        >>> out.shape, weights.shape
        (torch.Size([1, 5, 8]), torch.Size([1, 2, 5, 5]))
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        d_in: int | None = None,
        bias: bool = True,
        out_bias: bool = True,
        dropout: float = 0.0,
        num_kv_heads: int | None = None,
        sink: str | None = None,
    ) -> None:
        super().__init__(
            d_model,
            num_heads,
            d_in=d_in,
            d_memory=None,
            bias=bias,
            out_bias=out_bias,
            dropout=dropout,
            num_kv_heads=num_kv_heads,
            sink=sink,
        )

    def forward(
        self,
        x: Float[Tensor, "B T _"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        bias: Float[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | Rotation | None = None,
        is_causal: bool = False,
        need_weights: bool | Sequence[int] | Int[Tensor, "R"] = False,
        cache: Cache | None = None,
    ) -> tuple[Float[Tensor, "B T E"], Float[Tensor, "B H _ S"] | None]:
        """Attend within ``x``, and to what the cache holds.

        Args:
            x: (B, T, d_in).
            mask: True where a query may attend: (T, S) for all, (B, T, S) or (B, 1, S) for each sequence,
                (B, H, T, S) for each head; any axis may be 1.
            bias: numbers added to the scores: (T, S) for all, (1, H, T, S) for each head, as
                ``make_alibi_bias(…)[None]`` is, or (B, H, T, S); any axis may be 1.
            positions: where the tokens stand, (T,), or (B, T) when sequences differ; queries and keys are then
                turned by :func:`~attn_course.rotate`. D must be even. Or what :func:`~attn_course.make_rotation`
                made of positions (T,) or (B, 1, T): once for many layers, or with another ``base``.
            is_causal: hide the future, in addition to ``mask``; aligned bottom-right when T != S.
            need_weights: whether to return the weights; or of which queries, R numbers, a list or a tensor: a few
                rows cost next to nothing, as the output still comes from the fused kernel.
            cache: keys and values of the positions before ``x``, to which its own are appended: S counts both. With
                a :class:`~attn_course.RollingCache` each query sees its own window, so the future is hidden. The
                mask and the bias count forgotten positions too, but there are no weights of these.

        Returns:
            The output (B, T, E), and the weights (B, H, T, S), or (B, H, R, S) of chosen queries, or None. In
            training with dropout, the weights are those that were applied, after dropping; but those of chosen
            queries are as they were before.

        Raises:
            ValueError: if a shape does not fit, or the cache has no room.
            TypeError: if the mask is not boolean, the bias not floating point, the positions not integers, or
                ``need_weights`` neither a truth value nor rows.
        """
        check_sequence(x, self.q_proj.in_features, "x", "d_in")
        check_need_weights(need_weights, x.size(1))
        q = self._project_queries(x)  # (B, H, T, D)
        k, v = self._project_keys_and_values(x, x)  # (B, G, T, D)
        if positions is not None:
            if isinstance(positions, Tensor) and positions.dim() == 2:
                positions = positions[:, None]  # (B, 1, T): the same for every head
            q = rotate(q, positions)
            k = rotate(k, positions)
        mask = _for_all_heads(mask)
        with rollback_on_error(cache):
            if cache is not None:
                k, v = cache.append(k, v)  # all positions so far, or those that q can see
                mask, bias = _for_cache(cache, q, k, mask, bias)
            return self._attend(q, k, v, mask, bias, is_causal, need_weights)

    def make_cache(self, batch_size: int, max_len: int) -> KeyValueCache:
        """Make an empty cache for ``forward``, of this layer's sizes, type and device; under autocast, of its type.

        Raises:
            ValueError: if a size is below 1.
        """
        weight = self.k_proj.weight
        head_dim = weight.size(0) // self.num_kv_heads
        return KeyValueCache(
            batch_size,
            self.num_kv_heads,
            max_len,
            head_dim,
            dtype=autocast_dtype(weight),
            device=weight.device,
        )

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> "MultiHeadAttention":
        """Copy an ``nn.MultiheadAttention``, its weights, type, device and mode included.

        ``add_zero_attn``, one more key and value of zeros, becomes ``sink="zero"``: a score of 0 without a value.

        Raises:
            ValueError: if it uses ``add_bias_kv``, which this class does not have, or its keys come from another
                sequence, as ``kdim`` and ``vdim`` say.

        Example:
            >>> theirs = nn.MultiheadAttention(8, 2, batch_first=True)
            >>> ours = MultiHeadAttention.from_torch(theirs)
            >>> x = torch.randn(1, 5, 8)
            >>> torch.allclose(ours(x)[0], theirs(x, x, x)[0], atol=1e-6)
            True
        """
        if (module.kdim, module.vdim) != (module.embed_dim, module.embed_dim):
            raise ValueError(
                f"kdim ({module.kdim}) and vdim ({module.vdim}) must equal embed_dim ({module.embed_dim}): "
                "here a sequence attends to itself; see MultiHeadCrossAttention"
            )
        bias = module.in_proj_bias is not None
        ours = cls(
            module.embed_dim,
            module.num_heads,
            bias=bias,
            out_bias=bias,
            dropout=module.dropout,
            sink="zero" if module.add_zero_attn else None,
        )
        ours._copy_from_torch(module)
        return ours


class MultiHeadCrossAttention(_Heads):
    r"""Attend from one sequence to another, the memory, several times in parallel.

    Computes $\mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_H)\,W_o$ with $\mathrm{head}_h =
    \mathrm{attention}(xW_q^h, mW_k^h, mW_v^h)$ (Vaswani et al. 2017, arXiv:1706.03762, section 3.2.3). It has the
    parameters of :class:`MultiHeadAttention`, and is that layer where the memory is the sequence itself.

    Args:
        d_model: E, the width of queries, keys and values over all heads together, and of the output.
        num_heads: H; must divide ``d_model``.
        d_in: width of the incoming queries; ``d_model`` when not given.
        d_memory: width of the memory; ``d_in`` when not given.
        bias, out_bias, dropout, num_kv_heads, sink: as in :class:`MultiHeadAttention`.

    Raises:
        ValueError: as :class:`MultiHeadAttention`.

    Example:
        >>> layer = MultiHeadCrossAttention(d_model=8, num_heads=2, d_memory=6)
        >>> x, memory = torch.randn(1, 3, 8), torch.randn(1, 5, 6)
        >>> out, weights = layer(x, memory, need_weights=True)
        >>> out.shape, weights.shape
        (torch.Size([1, 3, 8]), torch.Size([1, 2, 3, 5]))
    """

    def forward(
        self,
        query: Float[Tensor, "B T _"],
        memory: Float[Tensor, "B S _"] | tuple[Tensor, Tensor],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        bias: Float[Tensor, "..."] | None = None,
        is_causal: bool = False,
        need_weights: bool | Sequence[int] | Int[Tensor, "R"] = False,
    ) -> tuple[Float[Tensor, "B T E"], Float[Tensor, "B H _ S"] | None]:
        """Attend from ``query`` to ``memory``.

        Args:
            query: (B, T, d_in).
            memory: (B, S, d_memory), or the keys and values that :meth:`project_memory` made of it.
            mask, bias, is_causal, need_weights: as in :class:`MultiHeadAttention`.

        Returns:
            The output and the weights or None, as :class:`MultiHeadAttention`.

        Raises:
            ValueError: if a shape does not fit.
            TypeError: as :class:`MultiHeadAttention`.
        """
        check_sequence(query, self.q_proj.in_features, "query", "d_in")
        check_need_weights(need_weights, query.size(1))
        q = self._project_queries(query)  # (B, H, T, D)
        # Keys and values (B, G, S, D).
        k, v = memory if isinstance(memory, tuple) else self.project_memory(memory)
        return self._attend(q, k, v, _for_all_heads(mask), bias, is_causal, need_weights)

    def project_memory(
        self, memory: Float[Tensor, "B S _"], value: Float[Tensor, "B S _"] | None = None
    ) -> tuple[Float[Tensor, "B G S D"], Float[Tensor, "B G S D"]]:
        """Make the keys and values of a memory: once is enough for any number of queries.

        Args:
            memory: (B, S, d_memory).
            value: (B, S, d_memory), what the values are made of; ``memory`` when not given.

        Returns:
            Keys and values (B, G, S, D), which ``forward`` takes in the place of the memory.

        Raises:
            ValueError: if a shape does not fit.
        """
        value = memory if value is None else value
        check_sequence(memory, self.k_proj.in_features, "memory", "d_memory")
        check_sequence(value, self.v_proj.in_features, "value", "d_memory")
        return self._project_keys_and_values(memory, value)

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> "MultiHeadCrossAttention":
        """Copy an ``nn.MultiheadAttention``, its weights, type, device and mode included.

        ``add_zero_attn`` becomes ``sink="zero"``, as in :meth:`MultiHeadAttention.from_torch`.

        Raises:
            ValueError: if it uses ``add_bias_kv`` or ``kdim != vdim``, which this class does not have.

        Example:
            >>> theirs = nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True)
            >>> ours = MultiHeadCrossAttention.from_torch(theirs)
            >>> x, memory = torch.randn(1, 3, 8), torch.randn(1, 5, 6)
            >>> torch.allclose(ours(x, memory)[0], theirs(x, memory, memory)[0], atol=1e-6)
            True
        """
        if module.kdim != module.vdim:
            raise ValueError(
                f"kdim ({module.kdim}) must equal vdim ({module.vdim}): "
                "here keys and values come from one memory"
            )
        bias = module.in_proj_bias is not None
        ours = cls(
            module.embed_dim,
            module.num_heads,
            d_memory=module.kdim,
            bias=bias,
            out_bias=bias,
            dropout=module.dropout,
            sink="zero" if module.add_zero_attn else None,
        )
        ours._copy_from_torch(module)
        return ours


def _for_all_heads(mask: Tensor | None) -> Tensor | None:
    if mask is not None:
        check_is_tensor(mask, "mask")
        if mask.dim() == 3:
            mask = mask[:, None]  # (B, 1, T, S): the same for every head
    return mask


def _for_cache(
    cache: Cache, q: Tensor, k: Tensor, mask: Tensor | None, bias: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """The mask and bias of the keys k that a cache returned, from those of all positions read so far."""
    num_queries = q.size(-2)
    if bias is not None:
        check_is_tensor(bias, "bias")
        bias = cache.select(bias, num_queries)
    visible = cache.visible_mask(num_queries, device=k.device)
    if mask is None:
        return visible, bias
    mask = cache.select(mask, num_queries)
    if visible is not None:
        check_mask(mask, (*q.shape[:-1], k.size(-2)))
        mask = mask & visible
    return mask, bias
