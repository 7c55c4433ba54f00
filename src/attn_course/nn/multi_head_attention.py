"""Multi-head self-attention and cross-attention. Derived in chapters 6 and 7 (MultiHeadCrossAttention)."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attn_course.caching import Cache, KeyValueCache, RollingCache
from attn_course.caching.decoder import rollback_on_error
from attn_course.functional.attention import attention
from attn_course.functional.autocast import autocast_dtype
from attn_course.functional.masks import make_sliding_window_mask
from attn_course.functional.positions import Rotation, rotate
from attn_course.functional.sdpa import fused_attention, weights_of_rows
from attn_course.functional.validation import (
    check_is_tensor,
    check_mask,
    check_need_weights,
    check_positive,
    check_probability,
    check_sequence,
    check_sizes,
    check_window,
)
from attn_course.nn.torch_interop import (
    attention_to_torch,
    cross_attention_from_torch,
    self_attention_from_torch,
)


class _MultiHeadBase(nn.Module):
    """The projections and the attention that both layers below share."""

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
        scale: float | None = None,
        softcap: float | None = None,
        qk_norm: Callable[[int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        d_in = d_model if d_in is None else d_in
        d_memory = d_in if d_memory is None else d_memory
        check_sizes(d_model=d_model, num_heads=num_heads, num_kv_heads=num_kv_heads, d_in=d_in, d_memory=d_memory)
        if d_model % num_heads:
            raise ValueError(f"num_heads ({num_heads}) must divide d_model ({d_model})")
        if num_heads % num_kv_heads:
            raise ValueError(f"num_kv_heads ({num_kv_heads}) must divide num_heads ({num_heads})")
        if sink not in (None, "zero", "learned"):
            raise ValueError(f"sink ({sink!r}) must be None, 'zero' or 'learned'")
        check_probability(dropout, "dropout")
        for name, value in (("scale", scale), ("softcap", softcap)):
            if value is not None:
                check_positive(value, name)
        d_kv = d_model // num_heads * num_kv_heads
        self.d_in = d_in
        self.d_memory = d_memory
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = d_model // num_heads
        self.dropout = dropout
        self.q_proj = nn.Linear(d_in, d_model, bias=bias)
        self.k_proj = nn.Linear(d_memory, d_kv, bias=bias)
        self.v_proj = nn.Linear(d_memory, d_kv, bias=bias)
        self.out_proj = nn.Linear(d_model, d_model, bias=out_bias)
        self.sink_scores = nn.Parameter(torch.zeros(num_heads)) if sink == "learned" else None
        self.sink = sink
        self.scale = scale
        self.softcap = softcap
        self.q_norm, self.k_norm = (None if qk_norm is None else qk_norm(self.head_dim) for _ in range(2))

    def _project_queries(self, x: Tensor) -> Tensor:
        q = self._split_heads(self.q_proj(x), self.num_heads)  # (B, H, T, D)
        return q if self.q_norm is None else self.q_norm(q)

    def _project_keys_and_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        k = self._split_heads(self.k_proj(key), self.num_kv_heads)  # (B, G, S, D)
        v = self._split_heads(self.v_proj(value), self.num_kv_heads)  # (B, G, S, D)
        return k if self.k_norm is None else self.k_norm(k), v

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
                f"bias of shape {tuple(bias.shape)} must have two or four axes: (T, S) for all, (1, H, T, S) for each "
                "head, (B, 1, T, S) for each sequence; see Tensor.unsqueeze"
            )
        options = {
            "bias": bias,
            "is_causal": is_causal,
            "softcap": self.softcap,
            "sink": 0.0 if self.sink == "zero" else self.sink_scores,
            "enable_gqa": self.num_kv_heads != self.num_heads,
            "scale": self.scale,
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
        options = {name: getattr(self, name, None) for name in ("sink", "scale", "softcap", "window")}
        return text + "".join(f", {name}={value!r}" for name, value in options.items() if value is not None)

    def to_torch(self) -> nn.MultiheadAttention:
        """Copy the weights into a new ``nn.MultiheadAttention`` with ``batch_first=True``.

        ``sink="zero"`` becomes ``add_zero_attn``, which adds a key and a value of zeros.

        Raises:
            ValueError: if ``nn.MultiheadAttention`` cannot express the layer: ``d_in`` differs from ``d_model``, only
                some projections have a bias, there are fewer key heads than query heads, the sink is learned, or there
                is a ``scale``, ``softcap``, ``window`` or ``qk_norm``. Also if a weight is computed from other
                parameters, such as by ``weight_norm``.

        Example:
            >>> ours = MultiHeadAttention(d_model=8, num_heads=2)
            >>> x = torch.randn(1, 5, 8)
            >>> torch.allclose(ours(x)[0], ours.to_torch()(x, x, x)[0], atol=1e-6)
            True
        """
        return attention_to_torch(self)


class MultiHeadAttention(_MultiHeadBase):
    r"""Self-attention with several heads in parallel, and an output projection that mixes their results.

    Computes $\mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_H)\,W_o$ with $\mathrm{head}_h =
    \mathrm{attention}(xW_q^h, xW_k^h, xW_v^h)$ (Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2). One matrix
    contains the projections of all heads, and head h has its columns h * D to (h + 1) * D.

    The layer computes weights only on request. Otherwise it uses PyTorch's fused kernel, which has no second
    derivatives and no forward-mode derivatives. With ``need_weights=True``, the layer has both.

    Args:
        d_model: E, the total width of queries, keys and values, and the width of the output.
        num_heads: H; must divide ``d_model``. The width of each head is D = E / H.
        d_in: width of the input; ``d_model`` if not given.
        bias: whether the projections of queries, keys and values add a bias.
        out_bias: whether the output projection adds a bias.
        dropout: probability of dropping a weight in training, at least 0 and below 1.
        num_kv_heads: G, the number of heads of keys and values; must divide ``num_heads``. Each serves H / G heads of
            queries (Ainslie et al. 2023, arXiv:2305.13245). 1 is multi-query attention; the default is ``num_heads``.
        sink: "zero" adds a sink with the score 0 to every softmax, and "learned" a sink whose score each head learns,
            the parameter ``sink_scores`` (H,) with the initial value 0. See :func:`~attn_course.quiet_softmax`.
        scale, softcap: as in :func:`~attn_course.attention`.
        window: number of keys that a query sees, including its own, and none of the future; None for all keys.
        qk_norm: makes a norm of the width D for the queries of each head and one for the keys, before the rotation,
            such as ``nn.RMSNorm``, so that scores do not grow with the projections (Henry et al. 2020,
            arXiv:2010.04245).

    Raises:
        ValueError: if ``num_heads`` does not divide ``d_model`` or ``num_kv_heads`` does not divide ``num_heads``,
            a size is below 1, ``dropout`` is outside [0, 1), ``sink`` is unknown, or ``scale`` or ``softcap`` is not
            positive.

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
        scale: float | None = None,
        softcap: float | None = None,
        window: int | None = None,
        qk_norm: Callable[[int], nn.Module] | None = None,
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
            scale=scale,
            softcap=softcap,
            qk_norm=qk_norm,
        )
        if window is not None:
            check_window(window, num_sink_tokens=0)
        self.window = window

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
        """Attend within ``x`` and to the positions in the cache.

        Args:
            x: (B, T, d_in).
            mask: True where a query may attend: (T, S) for all, (B, T, S) or (B, 1, S) for each sequence, or
                (B, H, T, S) for each head. Any axis may be 1.
            bias: numbers added to the scores: (T, S) for all, (1, H, T, S) for each head, such as
                ``make_alibi_bias(…)[None]``, or (B, H, T, S). Any axis may be 1.
            positions: positions (T,), or (B, T) if sequences differ, by which :func:`~attn_course.rotate` rotates
                queries and keys. D must be even. Alternatively, a result of :func:`~attn_course.make_rotation`.
            is_causal: hide the future, in addition to ``mask``. The last query is aligned with the last key.
            need_weights: whether to return the weights, or the indices of R queries as a list or tensor. A few queries
                cost almost nothing, because the output still comes from the fused kernel.
            cache: keys and values of earlier positions. The new ones are appended, and S counts both. With a
                :class:`~attn_course.RollingCache`, each query sees only its window. The mask and the bias then count
                forgotten positions, too, but the weights do not.

        Returns:
            The output (B, T, E), and the weights (B, H, T, S), or (B, H, R, S) of chosen queries, or None. In
            training, the weights are after dropout, but the weights of chosen queries are before dropout.

        Raises:
            ValueError: if a shape does not fit, the cache has no room, or it has sinks and the layer has a window.
            TypeError: if the mask is not boolean, the bias is not floating-point, the positions are not integers, or
                ``need_weights`` is neither a bool nor indices.
        """
        check_sequence(x, self.d_in, "x", "d_in")
        check_need_weights(need_weights, x.size(1))
        if self.window is not None and isinstance(cache, RollingCache) and cache.num_sink_tokens:
            raise ValueError(
                f"a layer with a window ({self.window}) needs a cache without sinks, not with num_sink_tokens "
                f"({cache.num_sink_tokens}): they are outside the window"
            )
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
            if self.window is not None:
                is_causal = self.window >= k.size(-2)
                if not is_causal:
                    window = make_sliding_window_mask(q.size(-2), self.window, k.size(-2), device=k.device)
                    mask = _combine(mask, window, q)
            return self._attend(q, k, v, mask, bias, is_causal, need_weights)

    def make_cache(self, batch_size: int, max_len: int) -> KeyValueCache:
        """Make an empty cache for this layer, with the type that the layer computes in, also under autocast.

        Raises:
            ValueError: if a size is below 1.
        """
        # A quantised layer has no parameters; its output has the default type.
        weight = next(filter(Tensor.is_floating_point, self.k_proj.parameters()), torch.empty(0))
        return KeyValueCache(
            batch_size, self.num_kv_heads, max_len, self.head_dim, dtype=autocast_dtype(weight), device=weight.device
        )

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> "MultiHeadAttention":
        """Copy an ``nn.MultiheadAttention`` with its weights, type, device and mode.

        The copy always reads (B, T, E). A module with ``batch_first=False``, PyTorch's default, reads (T, B, E): swap
        these axes for the copy. ``add_zero_attn``, which adds a key and a value of zeros, becomes ``sink="zero"``.

        Raises:
            ValueError: if it uses ``add_bias_kv``, which this class lacks, or has other widths for keys and values.

        Example:
            >>> theirs = nn.MultiheadAttention(8, 2, batch_first=True)
            >>> ours = MultiHeadAttention.from_torch(theirs)
            >>> x = torch.randn(1, 5, 8)
            >>> torch.allclose(ours(x)[0], theirs(x, x, x)[0], atol=1e-6)
            True
        """
        return self_attention_from_torch(cls, module)


class MultiHeadCrossAttention(_MultiHeadBase):
    r"""Cross-attention with several heads in parallel: one sequence attends to another one, the memory.

    Computes $\mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_H)\,W_o$ with $\mathrm{head}_h =
    \mathrm{attention}(xW_q^h, mW_k^h, mW_v^h)$ (Vaswani et al. 2017, arXiv:1706.03762, section 3.2.3). It has the
    same parameters as :class:`MultiHeadAttention`. If the memory is the sequence itself, both return the same.

    Args:
        d_model: E, the total width of queries, keys and values, and the width of the output.
        num_heads: H; must divide ``d_model``.
        d_in: width of the queries' input; ``d_model`` if not given.
        d_memory: width of the memory; ``d_in`` if not given.
        bias, out_bias, dropout, num_kv_heads, sink, scale, softcap, qk_norm: as in :class:`MultiHeadAttention`.

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
            memory: (B, S, d_memory), or its keys and values from :meth:`project_memory`.
            mask, bias, is_causal, need_weights: as in :class:`MultiHeadAttention`.

        Returns:
            The output and the weights or None, as :class:`MultiHeadAttention`.

        Raises:
            ValueError: if a shape does not fit.
            TypeError: as :class:`MultiHeadAttention`.
        """
        check_sequence(query, self.d_in, "query", "d_in")
        check_need_weights(need_weights, query.size(1))
        q = self._project_queries(query)  # (B, H, T, D)
        # Keys and values (B, G, S, D).
        k, v = memory if isinstance(memory, tuple) else self.project_memory(memory)
        return self._attend(q, k, v, _for_all_heads(mask), bias, is_causal, need_weights)

    def project_memory(
        self, memory: Float[Tensor, "B S _"], value: Float[Tensor, "B S _"] | None = None
    ) -> tuple[Float[Tensor, "B G S D"], Float[Tensor, "B G S D"]]:
        """Compute the keys and values of a memory once, for any number of calls.

        Args:
            memory: (B, S, d_memory).
            value: (B, S, d_memory), the source of the values; ``memory`` if not given.

        Returns:
            Keys and values (B, G, S, D), which ``forward`` accepts instead of the memory.

        Raises:
            ValueError: if a shape does not fit.
        """
        value = memory if value is None else value
        check_sequence(memory, self.d_memory, "memory", "d_memory")
        check_sequence(value, self.d_memory, "value", "d_memory")
        return self._project_keys_and_values(memory, value)

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> "MultiHeadCrossAttention":
        """Copy an ``nn.MultiheadAttention`` with its weights, type, device and mode.

        The copy always reads (B, T, E). ``add_zero_attn`` becomes ``sink="zero"``, as in
        :meth:`MultiHeadAttention.from_torch`.

        Raises:
            ValueError: if it uses ``add_bias_kv`` or ``kdim != vdim``, which this class lacks.

        Example:
            >>> theirs = nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True)
            >>> ours = MultiHeadCrossAttention.from_torch(theirs)
            >>> x, memory = torch.randn(1, 3, 8), torch.randn(1, 5, 6)
            >>> torch.allclose(ours(x, memory)[0], theirs(x, memory, memory)[0], atol=1e-6)
            True
        """
        return cross_attention_from_torch(cls, module)


def _for_all_heads(mask: Tensor | None) -> Tensor | None:
    if mask is not None:
        check_is_tensor(mask, "mask")
        if mask.dim() == 3:
            mask = mask[:, None]  # (B, 1, T, S): the same for every head
    return mask


def _for_cache(
    cache: Cache, q: Tensor, k: Tensor, mask: Tensor | None, bias: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Select the mask and the bias for the keys k that a cache returned, from those of all positions so far."""
    num_queries = q.size(-2)
    if bias is not None:
        check_is_tensor(bias, "bias")
        bias = cache.select(bias, num_queries)
    visible = cache.visible_mask(num_queries, device=k.device)
    if mask is None:
        return visible, bias
    mask = cache.select(mask, num_queries)
    return mask if visible is None else _combine(mask, visible, q), bias


def _combine(mask: Tensor | None, visible: Tensor, q: Tensor) -> Tensor:
    if mask is None:
        return visible
    check_mask(mask, (*q.shape[:-1], visible.size(-1)))
    return mask & visible
