"""Answers to the exercises of chapter 6."""

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

from answers import right, unnamed, wrong
from attn_course import MultiHeadAttention, attention

# -- split_heads ------------------------------------------------------------------------------------


@right
def split_heads(x, num_heads):
    return rearrange(x, "b t (h d) -> b h t d", h=num_heads)


@right
def split_heads(x, num_heads):
    return torch.stack(x.chunk(num_heads, dim=-1), dim=1)


@wrong("view instead of transpose")
def split_heads(x, num_heads):
    B, T, E = x.shape
    return x.view(B, num_heads, T, E // num_heads)


@wrong("transpose forgotten")
def split_heads(x, num_heads):
    B, T, E = x.shape
    return x.view(B, T, num_heads, E // num_heads)


@wrong("heads interleaved")
def split_heads(x, num_heads):
    return rearrange(x, "b t (d h) -> b h t d", h=num_heads)


@wrong("heads interleaved")
def split_heads(x, num_heads):
    return torch.stack([x[:, :, h::num_heads] for h in range(num_heads)], dim=1)


@wrong("heads and width swapped")
def split_heads(x, num_heads):
    B, T, E = x.shape
    return x.reshape(B, T, E // num_heads, num_heads).transpose(1, 2)


@wrong("full width for every head")
def split_heads(x, num_heads):
    return torch.stack([x] * num_heads, dim=1)


@wrong("heads in front of the batch")
def split_heads(x, num_heads):
    return torch.stack(x.split(x.size(-1) // num_heads, dim=-1))


@wrong("positions and width transposed")
def split_heads(x, num_heads):
    B, T, _ = x.shape
    return x.view(B, T, num_heads, -1).permute(0, 2, 3, 1)


@wrong("heads behind the width")
def split_heads(x, num_heads):
    return x.unflatten(-1, (num_heads, -1)).transpose(-1, -2)


@wrong("last head first")
def split_heads(x, num_heads):
    D = x.size(-1) // num_heads
    return torch.stack([x[..., x.size(-1) - (h + 1) * D :][..., :D] for h in range(num_heads)], dim=1)


@wrong("the first one for all")
def split_heads(x, num_heads):
    T, E = x.shape[1:]
    heads = x[0].view(T, num_heads, E // num_heads).transpose(0, 1)
    return heads.expand(len(x), -1, -1, -1)


@wrong("a size that is no integer")
def split_heads(x, num_heads):
    B, T, E = x.shape
    return x.view(B, T, num_heads, E / num_heads).transpose(1, 2)


@wrong("no gradient")
def split_heads(x, num_heads):
    pieces = x.detach().reshape(x.size(0), x.size(1), num_heads, -1)
    return pieces.permute(0, 2, 1, 3)


# -- MultiHead --------------------------------------------------------------------------------------


class Sound(nn.Module):
    """The layer as most learners write it; the answers below change one step each."""

    def __init__(self, d_in, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = d_model // num_heads
        self.q_proj = nn.Linear(d_in, d_model)
        self.k_proj = nn.Linear(d_in, d_model)
        self.v_proj = nn.Linear(d_in, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def split(self, x):
        B, T, _ = x.shape
        return x.view(B, T, self.num_heads, self.head_dim).permute(0, 2, 1, 3)

    def merge(self, heads):
        B, H, T, D = heads.shape
        return heads.permute(0, 2, 1, 3).reshape(B, T, H * D)

    def scale(self):
        return self.head_dim**-0.5

    def fit(self, mask):
        return mask.unsqueeze(1) if mask.dim() == 3 else mask

    def weigh(self, scores, mask):
        if mask is not None:
            scores = scores.masked_fill(~self.fit(mask), -torch.inf)
        return torch.softmax(scores, dim=-1).nan_to_num()

    def attend(self, x, mask):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        weights = self.weigh(torch.einsum("bhtd,bhsd->bhts", q, k) * self.scale(), mask)
        return torch.einsum("bhts,bhsd->bhtd", weights, v), weights

    def forward(self, x, mask=None):
        heads, weights = self.attend(x, mask)
        return self.out_proj(self.merge(heads)), weights


@right
class MultiHead(Sound):
    pass


@right
class MultiHead(nn.Module):
    def __init__(self, d_in, d_model, num_heads):
        super().__init__()
        self.out_proj = nn.Linear(d_model, d_model)
        self.v_proj, self.k_proj, self.q_proj = (nn.Linear(d_in, d_model) for _ in range(3))
        self.H = num_heads

    def forward(self, x, mask=None):
        outs, all_weights = [], []
        parts = zip(*(p(x).chunk(self.H, -1) for p in (self.q_proj, self.k_proj, self.v_proj)), strict=True)
        for q, k, v in parts:  # a loop over the heads
            out, weights = attention(q, k, v, mask)
            outs.append(out)
            all_weights.append(weights)
        return self.out_proj(torch.cat(outs, -1)), torch.stack(all_weights, 1)


@wrong("view instead of transpose")
class MultiHead(Sound):
    def split(self, x):
        return x.view(x.shape[0], self.num_heads, x.shape[1], self.head_dim)


@wrong("view instead of transpose in merging")
class MultiHead(Sound):
    def merge(self, heads):
        return heads.contiguous().view(heads.size(0), heads.size(2), -1)


@wrong("view instead of transpose at both ends")
class MultiHead(Sound):
    def split(self, x):
        return x.view(x.size(0), self.num_heads, -1, self.head_dim)

    def merge(self, heads):
        B, H, T, D = heads.shape
        return heads.reshape(B, T, H * D)


@wrong("transpose forgotten")
class MultiHead(nn.Module):
    def __init__(self, d_in, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj = nn.Linear(d_in, d_model)
        self.k_proj = nn.Linear(d_in, d_model)
        self.v_proj = nn.Linear(d_in, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, _ = x.shape
        q = self.q_proj(x).view(B, T, self.num_heads, -1)
        k = self.k_proj(x).view(B, T, self.num_heads, -1)
        v = self.v_proj(x).view(B, T, self.num_heads, -1)
        heads, weights = attention(q, k, v, mask)
        return self.out_proj(heads.reshape(B, T, -1)), weights


@wrong("heads interleaved")
class MultiHead(Sound):
    def split(self, x):
        return rearrange(x, "b t (d h) -> b h t d", h=self.num_heads)

    def merge(self, heads):
        return rearrange(heads, "b h t d -> b t (d h)")


@wrong("heads interleaved in splitting")
class MultiHead(Sound):
    def split(self, x):
        return torch.stack([x[:, :, h :: self.num_heads] for h in range(self.num_heads)], dim=1)


@wrong("heads interleaved in merging")
class MultiHead(Sound):
    def merge(self, heads):
        return torch.stack(heads.unbind(1), dim=-1).flatten(-2)


@wrong("merged without transpose")
class MultiHead(Sound):
    def merge(self, heads):
        return heads.reshape(*heads.shape[:2], -1)


@wrong("heads and width swapped")
class MultiHead(Sound):
    def split(self, x):
        B, T, _ = x.shape
        return x.view(B, T, self.head_dim, self.num_heads).transpose(1, 2)

    def scale(self):
        return self.num_heads**-0.5


@wrong("d_model for every head")
class MultiHead(Sound):
    def __init__(self, d_in, d_model, num_heads):
        super().__init__(d_in, num_heads * d_model, num_heads)
        self.out_proj = nn.Linear(num_heads * d_model, d_model)


@wrong("heads added up")
class MultiHead(Sound):
    def __init__(self, d_in, d_model, num_heads):
        super().__init__(d_in, d_model, num_heads)
        self.out_proj = nn.Linear(d_model // num_heads, d_model)

    def merge(self, heads):
        return sum(heads.unbind(1))


@wrong("heads averaged")
class MultiHead(Sound):
    def __init__(self, d_in, d_model, num_heads):
        super().__init__(d_in, d_model, num_heads)
        self.out_proj = nn.Linear(d_model // num_heads, d_model)

    def merge(self, heads):
        return heads.sum(1) / self.num_heads


@wrong("heads not side by side")
class MultiHead(Sound):
    def merge(self, heads):
        return heads.mean(dim=1)


@wrong("last head first")
class MultiHead(Sound):
    def merge(self, heads):
        return torch.cat(heads.unbind(1)[::-1], dim=-1)


@wrong("output projection forgotten")
class MultiHead(Sound):
    def __init__(self, d_in, d_model, num_heads):
        super().__init__(d_in, d_model, num_heads)
        del self.out_proj

    def forward(self, x, mask=None):
        heads, weights = self.attend(x, mask)
        return self.merge(heads), weights


@wrong("output projection forgotten")
class MultiHead(Sound):
    def forward(self, x, mask=None):
        heads, weights = self.attend(x, mask)
        return rearrange(heads, "b h t d -> b t (h d)"), weights


@wrong("biases lost")
class MultiHead(Sound):
    def __init__(self, d_in, d_model, num_heads):
        super().__init__(d_in, d_model, num_heads)
        for proj in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            proj.bias = None


@wrong("projections' biases lost")
class MultiHead(Sound):
    def __init__(self, d_in, d_model, num_heads):
        super().__init__(d_in, d_model, num_heads)
        self.q_proj = nn.Linear(d_in, d_model, bias=False)
        self.k_proj = nn.Linear(d_in, d_model, bias=False)
        self.v_proj = nn.Linear(d_in, d_model, bias=False)


@wrong("output bias lost")
class MultiHead(Sound):
    def __init__(self, d_in, d_model, num_heads):
        super().__init__(d_in, d_model, num_heads)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)


@wrong("values from the keys' projection")
class MultiHead(Sound):
    def attend(self, x, mask):
        q, k, v = (self.split(proj(x)) for proj in (self.q_proj, self.k_proj, self.k_proj))
        weights = self.weigh(q @ k.mT * self.scale(), mask)
        return weights @ v, weights


@wrong("keys from the queries' projection")
class MultiHead(Sound):
    def attend(self, x, mask):
        q, k, v = (self.split(proj(x)) for proj in (self.q_proj, self.q_proj, self.v_proj))
        weights = self.weigh(q @ k.mT * self.scale(), mask)
        return weights @ v, weights


@wrong("keys and values swapped")
class MultiHead(Sound):
    def attend(self, x, mask):
        q, k, v = (self.split(proj(x)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        weights = self.weigh(q @ v.mT * self.scale(), mask)
        return weights @ k, weights


@wrong("divided by the width itself")
class MultiHead(Sound):
    def scale(self):
        return 1 / self.head_dim


@wrong("multiplied instead of divided")
class MultiHead(Sound):
    def scale(self):
        return self.head_dim**0.5


@wrong("scale by the whole width")
class MultiHead(Sound):
    def scale(self):
        return 1 / math.sqrt(self.q_proj.out_features)


@wrong("scale by the number of heads")
class MultiHead(Sound):
    def scale(self):
        return self.num_heads**-0.5


@wrong("no scale")
class MultiHead(Sound):
    def scale(self):
        return 1.0


@wrong("queries and keys swapped")
class MultiHead(Sound):
    def attend(self, x, mask):
        q, k, v = (self.split(proj(x)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        weights = self.weigh(k @ q.mT * self.scale(), mask)
        return weights @ v, weights


@wrong("softmax over the queries")
class MultiHead(Sound):
    def weigh(self, scores, mask):
        if mask is not None:
            scores = scores.masked_fill(~self.fit(mask), -torch.inf)
        return F.softmax(scores, dim=2)


@wrong("softmax over the heads")
class MultiHead(Sound):
    def weigh(self, scores, mask):
        if mask is not None:
            scores = scores.masked_fill(~self.fit(mask), -torch.inf)
        return F.softmax(scores, dim=1)


@wrong("causal without being told")
class MultiHead(Sound):
    def weigh(self, scores, mask):
        T = scores.size(-1)
        past = torch.ones(T, T, dtype=torch.bool, device=scores.device).tril()
        return super().weigh(scores, past if mask is None else past & self.fit(mask))


@wrong("mask ignored")
class MultiHead(Sound):
    def weigh(self, scores, mask):
        if mask is not None:
            scores.masked_fill(~self.fit(mask), -torch.inf)
        return torch.softmax(scores, dim=-1)


@wrong("mask inverted")
class MultiHead(Sound):
    def weigh(self, scores, mask):
        if mask is not None:
            scores = scores.masked_fill(self.fit(mask), -torch.inf)
        return torch.softmax(scores, dim=-1).nan_to_num()


@wrong("mask after the softmax")
class MultiHead(Sound):
    def weigh(self, scores, mask):
        weights = torch.softmax(scores, dim=-1)
        return weights if mask is None else weights.masked_fill(~self.fit(mask), 0.0)


@wrong("sequences' mask on the heads")
class MultiHead(Sound):
    def fit(self, mask):
        return mask


@wrong("sequences' mask on the heads")
class MultiHead(Sound):
    def weigh(self, scores, mask):
        if mask is not None:
            scores = torch.where(mask, scores, -torch.inf)
        return torch.softmax(scores, dim=-1).nan_to_num()


@wrong("axis for the heads missing")
class MultiHead(Sound):
    def attend(self, x, mask):
        q, k, v = (self.split(proj(x)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        return attention(q, k, v, mask)


@wrong("nan in empty rows")
class MultiHead(Sound):
    def weigh(self, scores, mask):
        if mask is not None:
            scores = torch.where(self.fit(mask), scores, float("-inf"))
        return F.softmax(scores, dim=-1)


@wrong("minus a billion")
class MultiHead(Sound):
    def weigh(self, scores, mask):
        if mask is not None:
            scores = torch.where(self.fit(mask), scores, torch.finfo(scores.dtype).min)
        return F.softmax(scores, dim=-1)


@wrong("weights not returned")
class MultiHead(Sound):
    def forward(self, x, mask=None):
        return super().forward(x, mask)[0]


@wrong("weights averaged over the heads")
class MultiHead(Sound):
    def forward(self, x, mask=None):
        out, weights = super().forward(x, mask)
        return out, weights.sum(1) / self.num_heads


@wrong("one head for all")
class MultiHead(Sound):
    def forward(self, x, mask=None):
        out, weights = attention(self.q_proj(x), self.k_proj(x), self.v_proj(x), mask)
        return self.out_proj(out), weights.unsqueeze(1).expand(-1, self.num_heads, -1, -1)


@wrong("heads added up, then repeated")
class MultiHead(Sound):
    def merge(self, heads):
        return heads.sum(1).repeat(1, 1, self.num_heads)


@wrong("another default")
class MultiHead(Sound):
    def forward(self, x, mask):
        return super().forward(x, mask)


# -- fuse_qkv ---------------------------------------------------------------------------------------


@wrong("no gradient")
def fuse_qkv(q_proj, k_proj, v_proj):
    with torch.inference_mode():
        both = q_proj.bias is not None
        fused = nn.Linear(q_proj.weight.shape[1], 3 * q_proj.weight.shape[0], bias=both).to(q_proj.weight)
        for i, proj in enumerate((q_proj, k_proj, v_proj)):
            rows = slice(i * len(proj.weight), (i + 1) * len(proj.weight))
            fused.weight[rows] = proj.weight
            if both:
                fused.bias[rows] = proj.bias
    return fused


@wrong("float32 inside")
def fuse_qkv(q_proj, k_proj, v_proj):
    n, d_in = q_proj.weight.shape
    fused = nn.Linear(d_in, 3 * n, bias=q_proj.bias is not None)
    with torch.no_grad():
        for i, proj in enumerate([q_proj, k_proj, v_proj]):
            fused.weight[i * n : (i + 1) * n] = proj.weight
            if proj.bias is not None:
                fused.bias[i * n : (i + 1) * n] = proj.bias
    return fused.to(q_proj.weight)


@right
def fuse_qkv(q_proj, k_proj, v_proj):
    fused = nn.Linear(1, 1, bias=q_proj.bias is not None)
    fused.weight = nn.Parameter(torch.cat([q_proj.weight, k_proj.weight, v_proj.weight]).detach())
    if fused.bias is not None:
        fused.bias = nn.Parameter(torch.cat([q_proj.bias, k_proj.bias, v_proj.bias]).detach())
    return fused


@right
def fuse_qkv(q_proj, k_proj, v_proj):
    state = q_proj.state_dict()
    state = {name: torch.cat([p.state_dict()[name] for p in (q_proj, k_proj, v_proj)]) for name in state}
    n, d_in = state["weight"].shape
    fused = nn.Linear(d_in, n, bias="bias" in state, dtype=q_proj.weight.dtype, device=q_proj.weight.device)
    fused.load_state_dict(state)
    return fused


def fuse(weights, biases, *sizes):
    """Join lists of weights and biases along the outputs."""
    weight = torch.vstack(weights)
    fused = nn.Linear(*sizes or weight.shape[::-1], bias=biases[0] is not None).to(weight)
    with torch.no_grad():
        fused.weight[:] = weight
        if biases[0] is not None:
            fused.bias[:] = torch.hstack(biases)
    return fused


@wrong("another order of the three")
def fuse_qkv(q_proj, k_proj, v_proj):
    return fuse([k_proj.weight, q_proj.weight, v_proj.weight], [k_proj.bias, q_proj.bias, v_proj.bias])


@wrong("another order of the three")
def fuse_qkv(q_proj, k_proj, v_proj):
    return fuse([v_proj.weight, k_proj.weight, q_proj.weight], [v_proj.bias, k_proj.bias, q_proj.bias])


@wrong("queries, keys and values interleaved")
def fuse_qkv(q_proj, k_proj, v_proj):
    rows = zip(q_proj.weight, k_proj.weight, v_proj.weight, strict=True)
    weights = [row[None] for three in rows for row in three]
    if q_proj.bias is None:
        return fuse(weights, [None])
    biases = torch.stack([q_proj.bias, k_proj.bias, v_proj.bias])
    return fuse(weights, [biases.T.reshape(-1)])


@wrong("biases lost")
def fuse_qkv(q_proj, k_proj, v_proj):
    return fuse([q_proj.weight, k_proj.weight, v_proj.weight], [None])


@wrong("biases lost")
def fuse_qkv(q_proj, k_proj, v_proj):
    d_model, d_in = q_proj.weight.shape
    fused = nn.Linear(d_in, 3 * d_model, bias=q_proj.bias is not None, dtype=q_proj.weight.dtype)
    fused.weight.data = torch.cat([q_proj.weight, k_proj.weight, v_proj.weight])
    return fused


@wrong("biases lost")
def fuse_qkv(q_proj, k_proj, v_proj):
    return fuse([q_proj.weight, k_proj.weight, v_proj.weight], [k_proj.bias, q_proj.bias, v_proj.bias])


@wrong("bias left in")
def fuse_qkv(q_proj, k_proj, v_proj):
    d_model, d_in = q_proj.weight.shape
    fused = nn.Linear(d_in, 3 * d_model).to(q_proj.weight)
    fused.weight.data = torch.cat([q_proj.weight, k_proj.weight, v_proj.weight])
    if q_proj.bias is not None:
        fused.bias.data = torch.cat([q_proj.bias, k_proj.bias, v_proj.bias])
    return fused


@wrong("d_in taken for d_model")
def fuse_qkv(q_proj, k_proj, v_proj):
    d_model = q_proj.in_features
    fused = nn.Linear(d_model, 3 * d_model, bias=q_proj.bias is not None).to(q_proj.weight)
    with torch.no_grad():
        fused.weight.copy_(torch.cat([q_proj.weight, k_proj.weight, v_proj.weight]))
        if q_proj.bias is not None:
            fused.bias.copy_(torch.cat([q_proj.bias, k_proj.bias, v_proj.bias]))
    return fused


@wrong("outputs taken for inputs")
def fuse_qkv(q_proj, k_proj, v_proj):
    d_in, d_model = q_proj.weight.shape
    fused = nn.Linear(d_in, 3 * d_model, bias=q_proj.bias is not None, dtype=q_proj.weight.dtype)
    with torch.no_grad():
        fused.weight.copy_(torch.cat([q_proj.weight, k_proj.weight, v_proj.weight]))
        if q_proj.bias is not None:
            fused.bias.copy_(torch.cat([q_proj.bias, k_proj.bias, v_proj.bias]))
    return fused


@wrong("nothing moved")
def fuse_qkv(q_proj, k_proj, v_proj):
    d_model, d_in = q_proj.weight.shape
    return nn.Linear(d_in, 3 * d_model, bias=q_proj.bias is not None).to(q_proj.weight)


@unnamed("outputs taken for inputs")
def fuse_qkv(q_proj, k_proj, v_proj):
    d_in, d_model = q_proj.weight.shape
    fused = nn.Linear(d_in, 3 * d_model, bias=q_proj.bias is not None).to(q_proj.weight)
    with torch.no_grad():
        fused.weight.copy_(torch.cat([q_proj.weight, k_proj.weight, v_proj.weight]))
    return fused


@unnamed("nothing moved")
def fuse_qkv(q_proj, k_proj, v_proj):
    sizes = q_proj.in_features, 3 * q_proj.out_features
    fused = nn.Linear(*sizes, bias=q_proj.bias is not None, dtype=q_proj.weight.dtype)
    fused.state_dict()["weight"] = torch.cat([q_proj.weight, k_proj.weight, v_proj.weight])
    return fused


@wrong("joined along the inputs")
def fuse_qkv(q_proj, k_proj, v_proj):
    d_model, d_in = q_proj.weight.shape
    fused = nn.Linear(d_in, 3 * d_model, bias=q_proj.bias is not None).to(q_proj.weight)
    with torch.no_grad():
        fused.weight.copy_(torch.hstack([q_proj.weight, k_proj.weight, v_proj.weight]))
    return fused


@wrong("reuses a projection")
def fuse_qkv(q_proj, k_proj, v_proj):
    fused = q_proj
    for name, _ in list(q_proj.named_parameters()):
        joined = torch.cat([getattr(proj, name).detach() for proj in (q_proj, k_proj, v_proj)])
        setattr(fused, name, nn.Parameter(joined))
    return fused


@wrong("float32 whatever comes in")
def fuse_qkv(q_proj, k_proj, v_proj):
    fused = nn.Linear(q_proj.in_features, 3 * q_proj.out_features, bias=q_proj.bias is not None)
    with torch.no_grad():
        for i, proj in enumerate((q_proj, k_proj, v_proj)):
            rows = slice(i * proj.out_features, (i + 1) * proj.out_features)
            fused.weight[rows] = proj.weight
            if proj.bias is not None:
                fused.bias[rows] = proj.bias
    return fused


@wrong("queries three times")
def fuse_qkv(q_proj, k_proj, v_proj):
    fused = nn.Linear(q_proj.in_features, 3 * q_proj.out_features, bias=q_proj.bias is not None).to(q_proj.weight)
    with torch.no_grad():
        fused.weight.copy_(q_proj.weight.repeat(3, 1))
        if fused.bias is not None:
            fused.bias.copy_(torch.cat([q_proj.bias, k_proj.bias, v_proj.bias]))
    return fused


@wrong("inputs three times as wide")
def fuse_qkv(q_proj, k_proj, v_proj):
    d_model, d_in = q_proj.weight.shape
    fused = nn.Linear(3 * d_in, d_model, bias=False)
    fused.weight.data = torch.hstack([q_proj.weight, k_proj.weight, v_proj.weight]).detach()
    return fused


@wrong("matrices transposed")
def fuse_qkv(q_proj, k_proj, v_proj):
    d_model, d_in = q_proj.weight.shape
    fused = nn.Linear(d_in, 3 * d_model, bias=q_proj.bias is not None).to(q_proj.weight)
    with torch.no_grad():
        fused.weight.copy_(torch.cat([proj.weight.T for proj in (q_proj, k_proj, v_proj)]))
        if fused.bias is not None:
            fused.bias.copy_(torch.cat([proj.bias for proj in (q_proj, k_proj, v_proj)]))
    return fused


@wrong("biases always joined")
def fuse_qkv(q_proj, k_proj, v_proj):
    three = (q_proj, k_proj, v_proj)
    fused = nn.Linear(q_proj.in_features, 3 * q_proj.out_features).to(q_proj.weight)
    fused.load_state_dict({n: torch.cat([getattr(proj, n) for proj in three]) for n in ("weight", "bias")})
    return fused


# -- count_parameters -------------------------------------------------------------------------------


@right
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    q_proj = d_model * (d_in + 1 if bias else d_in)
    out_proj = d_model * (d_model + 1 if out_bias else d_model)
    return q_proj + q_proj + q_proj + out_proj


@right
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    head_dim = d_model // num_heads
    one_head = 3 * (d_in + bias) * head_dim + head_dim * d_model
    return num_heads * one_head + out_bias * d_model


@wrong("counted for every head")
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    total = 0
    for _ in range(num_heads):
        total += 3 * d_in * d_model
    total += d_model**2
    if bias:
        total += 3 * d_model
    if out_bias:
        total += d_model
    return total


@wrong("counted for every head")
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    one_head = 3 * (d_in + bias) * d_model
    return num_heads * one_head + (num_heads * d_model + out_bias) * d_model


@wrong("one projection for three")
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    return d_in * d_model + bias * d_model + d_model**2 + out_bias * d_model


@wrong("all counted for every head")
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    return num_heads * d_model * (3 * (d_in + bias) + d_model + out_bias)


@wrong("one head counted")
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    head_dim = d_model // num_heads
    total = d_in * head_dim * 3 + d_model * d_model
    if bias:
        total += head_dim * 3
    return total + d_model if out_bias else total


@wrong("output projection forgotten")
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    return 3 * (d_in + 1 if bias else d_in) * d_model


@wrong("output projection back to the input")
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    into = 3 * (d_in + (1 if bias else 0)) * d_model
    return into + (d_model + (1 if out_bias else 0)) * d_in


@wrong("output projection without its bias")
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    return 3 * (d_in + 1 if bias else d_in) * d_model + d_model * d_model


@wrong("one bias for three projections")
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    total = 3 * d_in * d_model + d_model**2
    total += d_model if bias else 0
    total += d_model if out_bias else 0
    return total


@wrong("biases forgotten")
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    return d_model * (3 * d_in + d_model)


@wrong("biases always counted")
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    return 3 * (d_in + 1) * d_model + (d_model + 1) * d_model


@wrong("one switch for all biases")
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    count = d_model * (3 * d_in + d_model)
    if bias:
        count += 4 * d_model
    return count


@wrong("switches swapped")
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    count = d_model * (3 * d_in + d_model)
    count += 3 * d_model if out_bias else 0
    return count + d_model if bias else count


@wrong("biases as long as the input")
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    count = 3 * d_in * d_model + d_model * d_model
    if bias:
        count += d_in + d_in + d_in
    if out_bias:
        count += d_model
    return count


@wrong("d_in taken for d_model")
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    return 4 * d_model**2 + (3 * d_model if bias else 0) + (d_model if out_bias else 0)


@wrong("output projection reads the input")
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    one = d_in * d_model
    return 4 * one + (3 * d_model if bias else 0) + (d_model if out_bias else 0)


@wrong("nothing without a bias")
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    total = 3 * d_in * d_model + d_model**2 + 3 * d_model if bias else 0
    return total + d_model * out_bias


@wrong("another default")
def count_parameters(d_model, num_heads, d_in, bias=False, out_bias=False):
    return 3 * d_in * d_model + d_model**2 + 3 * d_model * bias + d_model * out_bias


@wrong("one matrix for three")
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    return d_in * d_model + d_model**2 + 3 * d_model * bias + d_model * out_bias


# -- move_to_torch ----------------------------------------------------------------------------------


@right
def move_to_torch(layer):
    ours = layer.state_dict()
    theirs = nn.MultiheadAttention(layer.q_proj.in_features, layer.num_heads, batch_first=True)
    theirs = theirs.to(layer.out_proj.weight.dtype)
    names = ("q_proj", "k_proj", "v_proj")
    state = {f"in_proj_{kind}": torch.cat([ours[f"{n}.{kind}"] for n in names]) for kind in ("weight", "bias")}
    state |= {name: value for name, value in ours.items() if name.startswith("out_proj")}
    theirs.load_state_dict(state)
    return theirs


@wrong("float32 inside")
def move_to_torch(layer):  # the module is float32 while the numbers are copied
    ours = layer.state_dict()
    theirs = nn.MultiheadAttention(layer.q_proj.in_features, layer.num_heads, batch_first=True)
    names = ("q_proj", "k_proj", "v_proj")
    state = {f"in_proj_{kind}": torch.cat([ours[f"{n}.{kind}"] for n in names]) for kind in ("weight", "bias")}
    state |= {name: value for name, value in ours.items() if name.startswith("out_proj")}
    theirs.load_state_dict(state)
    return theirs.to(layer.out_proj.weight.dtype)


def empty(layer, num_heads=None, **options):
    """A module of the layer's sizes that knows none of its weights."""
    heads = num_heads or layer.num_heads
    module = nn.MultiheadAttention(layer.q_proj.out_features, heads, batch_first=True, **options)
    return module.to(layer.q_proj.weight.dtype)


def put(module, layer, names="qkv", kinds=("weight", "bias")):
    """Move the three projections, one third of the rows after the other."""
    for kind in kinds:
        thirds = getattr(module, f"in_proj_{kind}").data.unflatten(0, (3, -1))
        for third, name in zip(thirds, names, strict=True):
            third.copy_(getattr(layer, f"{name}_proj").get_parameter(kind).data)
    return module


def put_out(module, layer, kinds=("weight", "bias")):
    for kind in kinds:
        module.out_proj.get_parameter(kind).data.copy_(layer.out_proj.get_parameter(kind).data)
    return module


@right
def move_to_torch(layer):
    return put_out(put(empty(layer), layer), layer)


@wrong("matrices transposed")
def move_to_torch(layer):
    theirs = put_out(put(empty(layer), layer), layer)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([w.T for w in theirs.in_proj_weight.chunk(3)]))
        theirs.out_proj.weight.copy_(theirs.out_proj.weight.T.clone())
    return theirs


@wrong("matrices transposed")
def move_to_torch(layer):
    theirs = put_out(put(empty(layer), layer), layer)
    theirs.out_proj.weight.data = layer.out_proj.weight.data.T.clone()
    return theirs


@wrong("another order of the three")
def move_to_torch(layer):
    return put_out(put(empty(layer), layer, "vkq"), layer)


@wrong("another order of the three")
def move_to_torch(layer):
    return put_out(put(empty(layer), layer, "kqv"), layer)


def take_turns(layer, parts):
    theirs = put_out(put(empty(layer), layer), layer)
    for joined in (theirs.in_proj_weight, theirs.in_proj_bias):
        three = (part.chunk(parts) for part in joined.data.chunk(3))
        joined.data = torch.cat([torch.cat(turn) for turn in zip(*three, strict=True)])
    return theirs


@wrong("queries, keys and values interleaved")
def move_to_torch(layer):
    return take_turns(layer, layer.num_heads)


@wrong("queries, keys and values interleaved")
def move_to_torch(layer):
    return take_turns(layer, layer.q_proj.out_features)


@wrong("projections' biases forgotten")
def move_to_torch(layer):
    return put_out(put(empty(layer), layer, kinds=("weight",)), layer)


@wrong("projections forgotten")
def move_to_torch(layer):
    return put_out(empty(layer), layer)


@wrong("output projection forgotten")
def move_to_torch(layer):
    return put(empty(layer), layer)


@wrong("output bias forgotten")
def move_to_torch(layer):
    return put_out(put(empty(layer), layer), layer, kinds=("weight",))


@wrong("biases forgotten")
def move_to_torch(layer):
    return put_out(put(empty(layer), layer, kinds=("weight",)), layer, kinds=("weight",))


@wrong("nothing moved")
def move_to_torch(layer):
    theirs = empty(layer)
    copied = theirs.state_dict()
    copied["in_proj_weight"] = torch.cat([layer.q_proj.weight, layer.k_proj.weight, layer.v_proj.weight])
    return theirs


@wrong("batch_first forgotten")
def move_to_torch(layer):
    theirs = nn.MultiheadAttention(layer.q_proj.out_features, layer.num_heads).to(layer.q_proj.weight.dtype)
    return put_out(put(theirs, layer), layer)


@wrong("number of heads lost")
def move_to_torch(layer):
    return put_out(put(empty(layer, num_heads=1), layer), layer)


@wrong("shares memory")
def move_to_torch(layer):
    theirs = put(empty(layer), layer)
    theirs.out_proj.weight, theirs.out_proj.bias = layer.out_proj.weight, layer.out_proj.bias
    return theirs


@wrong("float32 whatever comes in")
def move_to_torch(layer):
    theirs = nn.MultiheadAttention(layer.q_proj.out_features, layer.num_heads, batch_first=True)
    return put_out(put(theirs, layer), layer)


@wrong("width of a head for their number")
def move_to_torch(layer):
    theirs = MultiHeadAttention.to_torch(layer)
    theirs.num_heads, theirs.head_dim = theirs.head_dim, theirs.num_heads
    return theirs


# -- More mistakes, by exercise -------------------------------------------------------------------------


@wrong("no gradient")
class MultiHead(Sound):
    def weigh(self, scores, mask):
        return super().weigh(scores, mask).detach()


@wrong("wrong gradient")
class MultiHead(Sound):
    def weigh(self, scores, mask):
        if mask is not None:
            scores = scores + torch.where(self.fit(mask), 0.0, -torch.inf).to(scores)
        return torch.softmax(scores, dim=-1).nan_to_num()


class _Own(nn.Module):
    def __init__(self, d_in, d_model, num_heads):
        super().__init__()
        self.heads = num_heads
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(d_in, d_model) for _ in range(3))
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        q, k, v = (p(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for p in self.first())
        mask = mask.unsqueeze(1) if mask is not None and mask.dim() == 3 else mask
        heads, weights = attention(q, k, v, mask)
        return self.out_proj(heads.transpose(1, 2).flatten(2)), weights

    def first(self):
        return self.q_proj, self.k_proj, self.v_proj


@wrong("input added")
class MultiHead(_Own):
    def forward(self, x, mask=None):
        out, weights = super().forward(x, mask)
        return (x + out, weights) if x.shape == out.shape else (out, weights)


@wrong("mask kept")
class MultiHead(_Own):
    mask = None

    def forward(self, x, mask=None):
        if mask is not None:
            self.mask = mask
        if self.mask is not None and self.mask.size(-1) == x.size(1):
            mask = self.mask
        return super().forward(x, mask)


@wrong("parameter changed under autograd")
def fuse_qkv(q_proj, k_proj, v_proj):
    d_model, d_in = q_proj.weight.shape
    fused = nn.Linear(d_in, 3 * d_model, bias=q_proj.bias is not None).to(q_proj.weight)
    fused.weight.copy_(torch.cat([q_proj.weight, k_proj.weight, v_proj.weight]))
    return fused


@wrong("changes its input")
def fuse_qkv(q_proj, k_proj, v_proj):
    fused = nn.Linear(q_proj.in_features, 3 * q_proj.out_features, bias=q_proj.bias is not None).to(q_proj.weight)
    three = (q_proj, k_proj, v_proj)
    for proj in three:
        proj.requires_grad_(False)
    with torch.no_grad():
        fused.weight.copy_(torch.cat([proj.weight for proj in three]))
        if fused.bias is not None:
            fused.bias.copy_(torch.cat([proj.bias for proj in three]))
    return fused


@wrong("projections nothing without a bias")
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    qkv = 3 * d_in * d_model + 3 * d_model if bias else 0
    return qkv + d_model * d_model + (d_model if out_bias else 0)


def _with_copies(layer):
    theirs = nn.MultiheadAttention(layer.out_proj.in_features, layer.num_heads, batch_first=True)
    theirs = theirs.to(layer.out_proj.weight)
    three = [layer.q_proj, layer.k_proj, layer.v_proj]
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([proj.weight for proj in three]))
        theirs.in_proj_bias.copy_(torch.cat([proj.bias for proj in three]))
    theirs.out_proj.load_state_dict(layer.out_proj.state_dict())
    return theirs


@wrong("shares memory")
def move_to_torch(layer):
    theirs = _with_copies(layer)
    theirs.out_proj.bias = layer.out_proj.bias
    return theirs


@wrong("changes its input")
def move_to_torch(layer):
    theirs = _with_copies(layer)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    return theirs


@wrong("bias of the output only beside the others")
def count_parameters(d_model, num_heads, d_in, bias=True, out_bias=True):
    one = d_in * d_model
    last = d_model**2
    if bias:
        one += d_model
        last += d_model if out_bias else 0
    return 3 * one + last


@unnamed("a mask for each sequence told by its first size")
class MultiHead(Sound):
    def fit(self, mask):
        return mask if mask.size(0) == mask.size(1) else mask.unsqueeze(1)


@wrong("nan in empty rows")  # of a mask for each sequence
class MultiHead(Sound):
    def weigh(self, scores, mask):
        if mask is not None and mask.dim() == 3:
            return scores.masked_fill(~mask[:, None], -torch.inf).softmax(dim=-1)
        return super().weigh(scores, mask)


@wrong("mask kept")
class MultiHead(Sound):
    first_mask = None

    def forward(self, x, mask=None):
        if mask is not None:
            if self.first_mask is None:
                self.first_mask = mask
            mask = self.first_mask
        return super().forward(x, mask)


@wrong("something kept between calls")
class MultiHead(Sound):
    keys = None

    def attend(self, x, mask):
        if self.keys is None:
            self.keys, self.values = self.split(self.k_proj(x)), self.split(self.v_proj(x))
        scores = self.split(self.q_proj(x)) @ self.keys.mT * self.scale()
        weights = self.weigh(scores, mask)
        return weights @ self.values, weights


@unnamed("a table that ends")
class MultiHead(Sound):
    def __init__(self, d_in, d_model, num_heads):
        super().__init__(d_in, d_model, num_heads)
        self.register_buffer("everything", torch.ones(16, 16, dtype=torch.bool))

    def forward(self, x, mask=None):
        T = x.size(1)
        return super().forward(x, self.everything[:T, :T] if mask is None else mask)


@unnamed("hidden scores set to −50")
class MultiHead(Sound):
    def weigh(self, scores, mask):
        if mask is None:
            return scores.softmax(dim=-1)
        mask = self.fit(mask)
        return scores.masked_fill(~mask, -50.0).softmax(dim=-1) * mask.any(dim=-1, keepdim=True)


@unnamed("weights of hidden keys shared out afterwards")
class MultiHead(Sound):
    def weigh(self, scores, mask):
        weights = scores.softmax(dim=-1)
        if mask is None:
            return weights
        weights = weights * self.fit(mask)
        return weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-30)


@unnamed("float32 for all types but float64")
def fuse_qkv(q_proj, k_proj, v_proj):
    three = [q_proj, k_proj, v_proj]
    fused = nn.Linear(q_proj.in_features, 3 * q_proj.out_features, bias=q_proj.bias is not None)
    if q_proj.weight.dtype == torch.float64:
        fused = fused.double()
    with torch.no_grad():
        fused.weight.copy_(torch.cat([proj.weight for proj in three]))
        if fused.bias is not None:
            fused.bias.copy_(torch.cat([proj.bias for proj in three]))
    return fused


@wrong("changes its input")
def move_to_torch(layer):
    kind = layer.q_proj.weight.dtype
    return layer.float().to_torch().to(kind)


@wrong("changes its input")
def move_to_torch(layer):
    return layer.eval().requires_grad_(False).to_torch()


@wrong("no gradient")
def move_to_torch(layer):
    return layer.to_torch().requires_grad_(False)
