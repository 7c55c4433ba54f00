"""Multi-head latent attention, whose cache stores one short vector for each position. Derived in chapter 18."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attn_course.caching import LatentCache
from attn_course.caching.decoder import rollback_on_error
from attn_course.functional.autocast import autocast_dtype
from attn_course.functional.positions import rotate
from attn_course.functional.sdpa import fused_attention, weights_of_rows
from attn_course.functional.validation import check_need_weights, check_positive, check_sequence, check_sizes


class LatentAttention(nn.Module):
    r"""Multi-head latent attention, which computes keys and values from one short latent vector for each position.

    It follows DeepSeek-AI 2024 (arXiv:2405.04434, section 2.1 and equations 9 to 19), without the normalisation of the
    latents. For the vector x of a position, it computes

    - a latent $c = W_{dkv}\,x$ for all heads, and from it the key $W_{uk}^h\,c$ and the value $W_{uv}^h\,c$ of each
      head (equations 9 to 11);
    - a query $W_{uq}^h\,c_q$ for each head, from x itself or from a latent of its own, $c_q = W_{dq}\,x$ (12, 13);
    - rotary positions: a rotated part for the query of each head, and **one** rotated key for all heads. They are
      appended to the other parts, because a rotated key could not be absorbed (14 to 17).

    A cache stores only c and the rotated key, and need not expand them. As $q \cdot W_{uk}^h\,c =
    ({W_{uk}^h}^\top q) \cdot c$, the queries can absorb the up-projection of the keys. In the same way, the output
    absorbs the up-projection of the values. The rest is multi-query attention with the latents as keys and values.

    Args:
        d_model: E, the width of the stream.
        num_heads: H.
        d_latent: width of the latent that keys and values share.
        d_rope: width of the rotated parts; even.
        head_dim: D, the width of a head without the rotated part; E / H if not given.
        d_query_latent: width of the latent of the queries; without it, queries come from the stream.
        rope_base: base of the rotation, as in :func:`~attn_course.rotate`.
        scale: the positive factor of the scores; $1/\sqrt{D + d_\mathrm{rope}}$ if not given.

    Raises:
        ValueError: if a size is below 1, ``d_rope`` is odd, or ``head_dim`` is not given and ``num_heads`` does not
            divide ``d_model``.

    Example:
        >>> layer = LatentAttention(d_model=32, num_heads=4, d_latent=6, d_rope=2)
        >>> cache = layer.make_cache(batch_size=1, max_len=10)
        >>> x = torch.randn(1, 7, 32)
        >>> with torch.no_grad():
        ...     whole, _ = layer(x, is_causal=True)
        ...     parts = [layer(part, is_causal=True, cache=cache)[0] for part in x.split(3, dim=1)]
        >>> torch.allclose(torch.cat(parts, dim=1), whole, atol=1e-6)
        True
        >>> cache.num_bytes  # 6 + 2 numbers for each of 10 positions
        320
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        d_latent: int,
        d_rope: int,
        head_dim: int | None = None,
        d_query_latent: int | None = None,
        rope_base: float = 10_000.0,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        check_sizes(d_model=d_model, num_heads=num_heads, d_latent=d_latent, d_rope=d_rope)
        if head_dim is None:
            if d_model % num_heads:
                raise ValueError(f"num_heads ({num_heads}) must divide d_model ({d_model}) if head_dim is not given")
            head_dim = d_model // num_heads
        d_query = d_model if d_query_latent is None else d_query_latent
        check_sizes(head_dim=head_dim, d_query_latent=d_query)
        if d_rope % 2:
            raise ValueError(f"d_rope ({d_rope}) must be even, because rotary positions rotate pairs of columns")
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.d_latent = d_latent
        self.d_rope = d_rope
        self.rope_base = rope_base
        # Absorbed queries are wider, but the right width for the scale is that of a head.
        self.scale = (head_dim + d_rope) ** -0.5 if scale is None else scale
        check_positive(self.scale, "scale")
        width = num_heads * self.head_dim
        self.q_down_proj = None if d_query_latent is None else nn.Linear(d_model, d_query, bias=False)
        self.q_up_proj = nn.Linear(d_query, width + num_heads * d_rope, bias=False)
        self.kv_down_proj = nn.Linear(d_model, d_latent + d_rope, bias=False)
        self.k_up_proj = nn.Linear(d_latent, width, bias=False)
        self.v_up_proj = nn.Linear(d_latent, width, bias=False)
        self.out_proj = nn.Linear(width, d_model, bias=False)

    def forward(
        self,
        x: Float[Tensor, "B T E"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | None = None,
        is_causal: bool = False,
        need_weights: bool | Sequence[int] | Int[Tensor, "R"] = False,
        cache: LatentCache | None = None,
        absorb: bool | None = None,
    ) -> tuple[Float[Tensor, "B T E"], Float[Tensor, "B H _ S"] | None]:
        """Attend within ``x`` and to the positions in the cache.

        Args:
            mask: True where a query may attend: (T, S), (B, T, S), (B, 1, S) or (B, H, T, S), where S also counts the
                positions in the cache.
            positions: positions of the tokens, (T,) or (B, T); by default those after the cache.
            is_causal: hide the future, in addition to ``mask``. The last query is aligned with the last key.
            need_weights: as in :class:`~attn_course.MultiHeadAttention`.
            cache: entries of earlier positions. The new ones are appended.
            absorb: whether to absorb the up-projections of keys and values, which is faster for few queries and many
                cached positions. By default, True if there is a cache. The result is the same.

        Returns:
            The output (B, T, E), and the weights (B, H, T, S), or (B, H, R, S) of chosen queries, or None.

        Raises:
            ValueError: if a shape does not fit, or the cache is full.
            TypeError: if the mask is not boolean, the positions are not integers, or ``need_weights`` is neither a
                bool nor indices.
        """
        check_sequence(x, self.kv_down_proj.in_features, "x", "d_model")
        check_need_weights(need_weights, x.size(1))
        if positions is None:
            start = 0 if cache is None else cache.length
            positions = torch.arange(start, start + x.size(1), device=x.device)
        elif isinstance(positions, Tensor) and positions.dim() == 2:
            positions = positions[:, None]  # (B, 1, T): the same for every head
        if isinstance(mask, Tensor) and mask.dim() == 3:
            mask = mask[:, None]  # (B, 1, T, S): the same for every head

        q = self.q_up_proj(x if self.q_down_proj is None else self.q_down_proj(x))
        q = q.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, H, T, D + d_rope)
        q, q_turned = q.split([self.head_dim, self.d_rope], dim=-1)
        q_turned = rotate(q_turned, positions, base=self.rope_base)
        entries = self.kv_down_proj(x)[:, None]  # (B, 1, T, d_latent + d_rope)
        latent, k_turned = entries.split([self.d_latent, self.d_rope], dim=-1)
        k_turned = rotate(k_turned, positions, base=self.rope_base)
        entries = torch.cat([latent, k_turned], dim=-1)

        with rollback_on_error(cache):
            if cache is not None:
                entries = cache.append(entries[:, 0])  # (B, S, d_latent + d_rope)
                entries = entries[:, None]
            if absorb is None:
                absorb = cache is not None
            q, k, v = (self._absorb if absorb else self._expand)(q, q_turned, entries)
            options = {"is_causal": is_causal, "enable_gqa": absorb, "scale": self.scale}
            out = fused_attention(q, k, v, mask, **options)
            weights = None
            if need_weights is not False:
                indices = range(x.size(1)) if need_weights is True else need_weights
                weights = weights_of_rows(q, k, indices, mask, **options)
            if absorb:  # the latent is the first part of the average
                out = out[..., : self.d_latent] @ self._of_heads(self.v_up_proj).mT
            return self.out_proj(out.transpose(1, 2).flatten(2)), weights

    def _expand(self, q: Tensor, q_turned: Tensor, entries: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        latent, k_turned = entries.split([self.d_latent, self.d_rope], dim=-1)
        # Equations 10 and 11: keys and values for each head, (B, H, S, D).
        k, v = (latent @ self._of_heads(up).mT for up in (self.k_up_proj, self.v_up_proj))
        k_turned = k_turned.expand(-1, self.num_heads, -1, -1)
        return torch.cat([q, q_turned], dim=-1), torch.cat([k, k_turned], dim=-1), v

    def _absorb(self, q: Tensor, q_turned: Tensor, entries: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q = torch.cat([q @ self._of_heads(self.k_up_proj), q_turned], dim=-1)
        return q, entries, entries  # keys and values share their memory

    def _of_heads(self, up_proj: nn.Linear) -> Tensor:
        return up_proj.weight.unflatten(0, (self.num_heads, -1))  # (H, D, d_latent)

    def make_cache(
        self,
        batch_size: int,
        max_len: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> LatentCache:
        """Make an empty cache for this layer, by default with the type and device of the layer."""
        weight = self.out_proj.weight
        return LatentCache(
            batch_size,
            max_len,
            self.d_latent,
            self.d_rope,
            dtype=autocast_dtype(weight) if dtype is None else dtype,
            device=weight.device if device is None else device,
        )

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, head_dim={self.head_dim}, rope_base={self.rope_base:g}"


def cache_bytes_per_token(
    *,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    d_latent: int | None = None,
    d_rope: int = 0,
    num_layers: int = 1,
    dtype: torch.dtype = torch.float16,
) -> int:
    """Return the number of bytes that a cache needs for each token, over all layers.

    A cache of keys and values has 2 G D numbers in each layer, where G is H in multi-head attention and 1 in
    multi-query attention. A cache of latents has d_latent + d_rope numbers (DeepSeek-AI 2024, arXiv:2405.04434, table
    1).

    Args:
        num_kv_heads: G, together with ``head_dim``. Otherwise, pass ``d_latent``.
        head_dim: D, the width of a head.
        d_latent: width of the latents.
        d_rope: width of the rotated keys next to the latents.
        num_layers: number of layers with a cache.

    Raises:
        ValueError: if neither or both of ``num_kv_heads`` with ``head_dim`` and ``d_latent`` are given, or ``d_rope``
            without ``d_latent``.

    Example:
        >>> cache_bytes_per_token(num_kv_heads=128, head_dim=128, num_layers=60)  # multi-head
        3932160
        >>> cache_bytes_per_token(d_latent=512, d_rope=64, num_layers=60)  # DeepSeek-V2
        69120
    """
    of_heads = num_kv_heads is not None and head_dim is not None
    of_latents = d_latent is not None
    if of_heads == of_latents or (num_kv_heads is None) != (head_dim is None):
        raise ValueError(f"pass num_kv_heads and head_dim, or d_latent, not {num_kv_heads}, {head_dim} and {d_latent}")
    if of_heads and d_rope:
        raise ValueError(f"d_rope ({d_rope}) belongs to d_latent; keys of heads are rotated in place")
    numbers = 2 * num_kv_heads * head_dim if of_heads else d_latent + d_rope
    return numbers * num_layers * dtype.itemsize
