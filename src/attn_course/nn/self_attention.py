"""Self-attention with one head. Derived in chapter 3."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from attn_course.functional.attention import attention
from attn_course.functional.validation import check_width


class SelfAttention(nn.Module):
    r"""Self-attention: every token of a sequence attends to every token of the same sequence.

    Computes $\mathrm{softmax}(QK^\top/\sqrt{D})\,V$ with $Q = xW_q$, $K = xW_k$, $V = xW_v$ (Vaswani et al.
    2017, arXiv:1706.03762, eq. 1). ``nn.Linear`` stores each W transposed.

    Args:
        d_in: width of the tokens.
        d_out: width of queries, keys, values and output.
        bias: whether the three projections add a bias.

    Shape:
        x (..., T, d_in), mask as in :func:`~attn_course.attention` -> out (..., T, d_out), weights (..., T, T).

    Raises:
        ValueError: if the width of ``x`` is not ``d_in``, or the mask does not fit.

    Example:
        >>> import torch
        >>> layer = SelfAttention(d_in=3, d_out=2)
        >>> out, weights = layer(torch.randn(6, 3))
        >>> out.shape, weights.shape
        (torch.Size([6, 2]), torch.Size([6, 6]))
    """

    def __init__(self, d_in: int, d_out: int, *, bias: bool = False) -> None:
        super().__init__()
        self.q_proj = nn.Linear(d_in, d_out, bias=bias)
        self.k_proj = nn.Linear(d_in, d_out, bias=bias)
        self.v_proj = nn.Linear(d_in, d_out, bias=bias)

    def forward(
        self, x: Float[Tensor, "*batch T E"], mask: Bool[Tensor, "..."] | None = None
    ) -> tuple[Float[Tensor, "*batch T D"], Float[Tensor, "*batch T T"]]:
        """Attend within ``x`` (..., T, d_in): return the output (..., T, d_out) and the weights (..., T, T)."""
        check_width(x, self.q_proj.in_features, "x", "d_in")
        return attention(self.q_proj(x), self.k_proj(x), self.v_proj(x), mask)
