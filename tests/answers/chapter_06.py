"""Answers to the exercises of chapter 6."""

import torch
from einops import rearrange
from torch import nn

from answers import right, unnamed, wrong
from attn_course import attention

# -- split_heads ------------------------------------------------------------------------------------


@right
def split_heads(x, num_heads):
    return rearrange(x, "b t (h d) -> b h t d", h=num_heads)


@right
def split_heads(x, num_heads):
    return torch.stack(x.chunk(num_heads, dim=-1), dim=1)


@wrong("the first one for all")
def split_heads(x, num_heads):
    T, E = x.shape[1:]
    heads = x[0].view(T, num_heads, E // num_heads).transpose(0, 1)
    return heads.expand(len(x), -1, -1, -1)


@wrong("a size that is no integer")
def split_heads(x, num_heads):
    B, T, E = x.shape
    return x.view(B, T, num_heads, E / num_heads).transpose(1, 2)


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


@wrong("nan in empty rows")  # of a mask for each sequence
class MultiHead(Sound):
    def weigh(self, scores, mask):
        if mask is not None and mask.dim() == 3:
            return scores.masked_fill(~mask[:, None], -torch.inf).softmax(dim=-1)
        return super().weigh(scores, mask)


@unnamed("a mask for each sequence told by its first size")
class MultiHead(Sound):
    def fit(self, mask):
        return mask if mask.size(0) == mask.size(1) else mask.unsqueeze(1)


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


# -- fuse_qkv ---------------------------------------------------------------------------------------


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


def fuse(weights, biases):
    """Join lists of weights and biases along the outputs."""
    weight = torch.vstack(weights)
    fused = nn.Linear(*weight.shape[::-1], bias=biases[0] is not None).to(weight)
    with torch.no_grad():
        fused.weight[:] = weight
        if biases[0] is not None:
            fused.bias[:] = torch.hstack(biases)
    return fused


@wrong("another order of the three")
def fuse_qkv(q_proj, k_proj, v_proj):
    return fuse([k_proj.weight, q_proj.weight, v_proj.weight], [k_proj.bias, q_proj.bias, v_proj.bias])


@wrong("biases lost")
def fuse_qkv(q_proj, k_proj, v_proj):
    return fuse([q_proj.weight, k_proj.weight, v_proj.weight], [None])


@wrong("bias left in")
def fuse_qkv(q_proj, k_proj, v_proj):
    d_model, d_in = q_proj.weight.shape
    fused = nn.Linear(d_in, 3 * d_model).to(q_proj.weight)
    fused.weight.data = torch.cat([q_proj.weight, k_proj.weight, v_proj.weight])
    if q_proj.bias is not None:
        fused.bias.data = torch.cat([q_proj.bias, k_proj.bias, v_proj.bias])
    return fused


@wrong("parameter changed under autograd")
def fuse_qkv(q_proj, k_proj, v_proj):
    d_model, d_in = q_proj.weight.shape
    fused = nn.Linear(d_in, 3 * d_model, bias=q_proj.bias is not None).to(q_proj.weight)
    fused.weight.copy_(torch.cat([q_proj.weight, k_proj.weight, v_proj.weight]))
    return fused


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


def empty(layer):
    """A module of the layer's sizes that knows none of its weights."""
    module = nn.MultiheadAttention(layer.q_proj.out_features, layer.num_heads, batch_first=True)
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


@wrong("float32 inside")
def move_to_torch(layer):  # the module is float32 while the numbers are copied
    ours = layer.state_dict()
    theirs = nn.MultiheadAttention(layer.q_proj.in_features, layer.num_heads, batch_first=True)
    names = ("q_proj", "k_proj", "v_proj")
    state = {f"in_proj_{kind}": torch.cat([ours[f"{n}.{kind}"] for n in names]) for kind in ("weight", "bias")}
    state |= {name: value for name, value in ours.items() if name.startswith("out_proj")}
    theirs.load_state_dict(state)
    return theirs.to(layer.out_proj.weight.dtype)


@wrong("matrices transposed")
def move_to_torch(layer):
    theirs = put_out(put(empty(layer), layer), layer)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([w.T for w in theirs.in_proj_weight.chunk(3)]))
        theirs.out_proj.weight.copy_(theirs.out_proj.weight.T.clone())
    return theirs


@wrong("another order of the three")
def move_to_torch(layer):
    return put_out(put(empty(layer), layer, "vkq"), layer)


@wrong("queries, keys and values interleaved")
def move_to_torch(layer):
    theirs = put_out(put(empty(layer), layer), layer)
    for joined in (theirs.in_proj_weight, theirs.in_proj_bias):
        three = (part.chunk(layer.num_heads) for part in joined.data.chunk(3))
        joined.data = torch.cat([torch.cat(turn) for turn in zip(*three, strict=True)])
    return theirs


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


@wrong("shares memory")
def move_to_torch(layer):
    theirs = put(empty(layer), layer)
    theirs.out_proj.weight, theirs.out_proj.bias = layer.out_proj.weight, layer.out_proj.bias
    return theirs
