"""Hypothesis strategies for the shapes, masks and types that attention meets."""

import torch
from hypothesis import strategies as st

lengths = st.integers(1, 7)
widths = st.integers(1, 9)
leading_axes = st.lists(st.integers(1, 3), max_size=3).map(tuple)
seeds = st.integers(0, 2**16)


@st.composite
def qkv(draw, dtype=torch.float64, leading=leading_axes):
    """Queries, keys and values of any leading axes, lengths and widths."""
    axes, t, s = draw(leading), draw(lengths), draw(lengths)
    d, dv = draw(widths), draw(widths)
    rng = torch.Generator().manual_seed(draw(seeds))
    return tuple(torch.randn(*axes, *size, generator=rng, dtype=dtype) for size in ((t, d), (s, d), (s, dv)))


@st.composite
def masked_qkv(draw, dtype=torch.float64, leading=leading_axes):
    """The same with a mask, of two axes or of as many as the queries; whole rows may be hidden."""
    q, k, v = draw(qkv(dtype, leading))
    shape = (*q.shape[:-1], k.size(-2))
    shape = shape[-2:] if draw(st.booleans()) else tuple(draw(st.sampled_from([1, n])) for n in shape)
    rng = torch.Generator().manual_seed(draw(seeds))
    mask = torch.rand(shape, generator=rng) < draw(st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    return q, k, v, mask
