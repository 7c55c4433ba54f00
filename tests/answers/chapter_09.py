"""Answers to the exercises of chapter 9."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from answers import right, unnamed, wrong

# -- layer_norm --------------------------------------------------------------------------------------


@right
def layer_norm(x, gain, bias, eps=1e-5):
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + eps) * gain + bias


@right
def layer_norm(x, gain, bias, eps=1e-5):
    E = x.shape[-1]
    centred = x - (x.sum(-1) / E).unsqueeze(-1)
    return gain * centred / ((centred**2).sum(-1, keepdim=True) / E + eps) ** 0.5 + bias


@wrong("changes its input")
def layer_norm(x, gain, bias, eps=1e-5):
    x -= x.mean(-1, keepdim=True)
    x /= (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()
    return gain * x + bias


@wrong("mean of squares less square of the mean")
def layer_norm(x, gain, bias, eps=1e-5):
    mean = x.mean(dim=-1, keepdim=True)
    variance = (x**2).mean(dim=-1, keepdim=True) - mean**2
    variance = variance.clamp(min=0)
    return gain * (x - mean) / torch.sqrt(variance + eps) + bias


@unnamed("E − 1 undone, which a token of one number does not survive")
def layer_norm(x, gain, bias, eps=1e-5):
    E = x.size(-1)
    variance = x.var(-1, keepdim=True) * (E - 1) / E
    return gain * (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance + eps) + bias


@unnamed("four axes at most")
def layer_norm(x, gain, bias, eps=1e-5):
    letters = {1: "e->", 2: "te->t", 3: "bte->bt", 4: "abte->abt"}[x.dim()]
    x = x - torch.einsum(letters, x).unsqueeze(-1) / x.size(-1)
    variance = torch.einsum(letters, x * x).unsqueeze(-1) / x.size(-1)
    return gain * x / torch.sqrt(variance + eps) + bias


@unnamed("a view of rows")
def layer_norm(x, gain, bias, eps=1e-5):
    rows = x.view(-1, x.size(-1))
    rows = rows - rows.mean(1, keepdim=True)
    rows = rows / torch.sqrt(rows.square().mean(1, keepdim=True) + eps)
    return rows.view(x.shape) * gain + bias


# -- run_stack ---------------------------------------------------------------------------------------


@right
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for i in range(len(sublayers)):
        x = sublayers[i](norms[i](x)) + x if norm_first else norms[i](sublayers[i](x) + x)
    if norm_first:
        x = final_norm(x)
    return x


@right
def run_stack(x, sublayers, norms, final_norm, norm_first):
    def run(x, sublayers, norms):
        if not sublayers:
            return final_norm(x) if norm_first else x
        f, norm = sublayers[0], norms[0]
        return run(x + f(norm(x)) if norm_first else norm(x + f(x)), sublayers[1:], norms[1:])

    return run(x, sublayers, norms)


@wrong("changes its input")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        if norm_first:
            x += f(norm(x))
        else:
            x = norm(x + f(x))
    return final_norm(x) if norm_first else x


@wrong("one norm for all")  # where one sublayer stands twice
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f in sublayers:
        norm = norms[sublayers.index(f)]
        x = x + f(norm(x)) if norm_first else norm(x + f(x))
    return final_norm(x) if norm_first else x


@unnamed("one row of all tokens")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    shape = x.shape
    x = x.reshape(-1, shape[-1])
    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(norm(x)) if norm_first else norm(x + f(x))
    return (final_norm(x) if norm_first else x).reshape(shape)


@unnamed("positions first")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    x = x.transpose(0, 1)
    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(norm(x)) if norm_first else norm(x + f(x))
    return (final_norm(x) if norm_first else x).transpose(0, 1)


@unnamed("final norm called for nothing")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(norm(x)) if norm_first else norm(x + f(x))
    last = final_norm(x)
    return last if norm_first else x


@unnamed("norms written anew")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    def normalise(x, norm):
        return F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias)

    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(normalise(x, norm)) if norm_first else normalise(x + f(x), norm)
    return final_norm(x) if norm_first else x


# -- decode_layer ------------------------------------------------------------------------------------


def look(layer, x, **options):
    return layer.self_attention(layer.self_attention_norm(x), is_causal=True, **options)[0]


def read(layer, x, memory, mask):
    return layer.cross_attention(layer.cross_attention_norm(x), memory, mask=mask, need_weights=True)


def think(layer, x):
    return layer.feed_forward(layer.feed_forward_norm(x))


@right
def decode_layer(layer, x, memory, memory_mask):
    T = x.size(1)
    past = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
    looked = layer.self_attention(layer.self_attention_norm(x), mask=past)[0] + x
    read, weights = layer.cross_attention(
        layer.cross_attention_norm(looked), memory, mask=memory_mask, need_weights=True
    )
    both = looked + read
    hidden = F.relu(layer.feed_forward.up(layer.feed_forward_norm(both)))
    return both + layer.feed_forward.down(hidden), weights


@right
def decode_layer(layer, x, memory, memory_mask):
    rows, asked = [], []
    for t in range(x.size(1)):  # one position at a time, each from what is written so far
        written = x[:, : t + 1]
        row = x[:, t : t + 1] + layer.self_attention(layer.self_attention_norm(written))[0][:, -1:]
        found, weights = read(layer, row, memory, memory_mask)
        row = row + found
        rows.append(row + think(layer, row))
        asked.append(weights)
    return torch.cat(rows, dim=1), torch.cat(asked, dim=2)


@wrong("changes its input")
def decode_layer(layer, x, memory, memory_mask):
    with torch.no_grad():
        x += look(layer, x)
        found, weights = read(layer, x, memory, memory_mask)
        x += found
        x += think(layer, x)
    return x, weights


@unnamed("padding on the right only")
def decode_layer(layer, x, memory, memory_mask):
    lengths = memory_mask.sum(-1, keepdim=True)
    memory_mask = torch.arange(memory.size(1), device=x.device) < lengths
    y = layer.self_attention_norm(x)
    x = x + layer.self_attention(y, is_causal=True)[0]
    y = layer.cross_attention_norm(x)
    out, weights = layer.cross_attention(y, memory, mask=memory_mask, need_weights=True)
    x = x + out
    return x + layer.feed_forward(layer.feed_forward_norm(x)), weights


@unnamed("norms written anew")
def decode_layer(layer, x, memory, memory_mask):
    def normalise(x, norm):
        return F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias)

    x = x + layer.self_attention(normalise(x, layer.self_attention_norm), is_causal=True)[0]
    y = normalise(x, layer.cross_attention_norm)
    out, weights = layer.cross_attention(y, memory, mask=memory_mask, need_weights=True)
    x = x + out
    return x + layer.feed_forward(normalise(x, layer.feed_forward_norm)), weights


# -- TiedTable ---------------------------------------------------------------------------------------


class Table(nn.Module):
    """What most answers share."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.d_model = d_model
        self.table = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.table.weight, std=d_model**-0.5)

    def embed(self, ids):
        return self.table(ids) * self.d_model**0.5

    def score(self, x):
        return F.linear(x, self.table.weight)


@right
class TiedTable(Table):
    pass


@right
class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.way_in = nn.Embedding(vocab_size, d_model)
        self.way_out = nn.Linear(d_model, vocab_size, bias=False)
        nn.init.uniform_(self.way_in.weight, -((3 / d_model) ** 0.5), (3 / d_model) ** 0.5)
        self.way_out.weight = self.way_in.weight

    def embed(self, ids):
        return math.sqrt(self.way_in.embedding_dim) * self.way_in(ids)

    def score(self, x):
        return self.way_out(x)


@right
class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.scale = d_model**0.5
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        nn.init.trunc_normal_(self.weight, std=1 / self.scale, a=-3, b=3)

    def embed(self, ids):
        return nn.functional.embedding(ids, self.weight) * self.scale

    def score(self, x):
        return torch.einsum("bte,ve->btv", x, self.weight)


@wrong("row of zeros")
class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        table = torch.randn(vocab_size, d_model) / d_model**0.5
        table[-1] = 0
        self.table = nn.Parameter(table)

    def embed(self, ids):
        return self.table[ids] * self.table.size(1) ** 0.5

    def score(self, x):
        return x @ self.table.T


@wrong("a constant factor")  # once the table has changed
class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocab_size, d_model) * d_model**-0.5)
        self.scaled = None

    def embed(self, ids):
        if self.scaled is None:
            self.scaled = self.table * math.sqrt(self.table.size(1))
        return self.scaled[ids]

    def score(self, x):
        return x @ self.table.T


@wrong("a constant added")  # to the number of parameters
class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocab_size, d_model) * d_model**-0.5)
        self.scale = nn.Parameter(torch.tensor(math.sqrt(d_model)), requires_grad=False)

    def embed(self, ids):
        return self.table[ids] * self.scale

    def score(self, x):
        return x @ self.table.T


@unnamed("spread that depends on no width")
class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocab_size, d_model) * 24**-0.5)

    def embed(self, ids):
        return self.table[ids] * self.table.size(1) ** 0.5

    def score(self, x):
        return x @ self.table.T


# -- count_transformer -------------------------------------------------------------------------------


@right
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    per_layer = 3 * attend + 2 * think + 5 * norm
    return d_model * (src_vocab_size + tgt_vocab_size + 4) + per_layer * num_layers


def parts(e, f):
    """Parameters of an attention, a feed-forward and a norm."""
    return 4 * e * (e + 1), e * f + f + f * e + e, 2 * e


@wrong("not built as asked")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    from attn_course import Transformer

    with torch.device("meta"):
        model = Transformer(
            src_vocab_size,
            tgt_vocab_size,
            d_model=d_model,
            num_heads=1,
            d_ff=d_ff,
            num_layers=num_layers,
        )
    return sum(p.numel() for p in model.parameters())
