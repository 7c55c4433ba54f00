"""Answers to the exercises of chapter 14."""

import torch

from answers import right, wrong

# -- dequantize_blocks -------------------------------------------------------------------------------


@right
def dequantize_blocks(blocks):
    rows = []
    settings = blocks[:, :4].contiguous().view(torch.float16).to(torch.float32)
    numbers = blocks[:, 4:].int()
    for levels in (numbers % 16, numbers // 16):
        rows.append(settings[:, 1:] + settings[:, :1] * levels)
    return torch.cat(rows, dim=-1)


@right
def dequantize_blocks(blocks):
    import gguf
    import numpy as np

    rows = gguf.dequantize(np.ascontiguousarray(blocks.cpu().numpy()), gguf.GGMLQuantizationType.Q4_1)
    return torch.from_numpy(rows.copy()).to(blocks.device)


# -- our_name ----------------------------------------------------------------------------------------


@right
def our_name(name):
    import re

    match = re.fullmatch(r"blk\.(\d+)\.(attn|ffn)_(\w+)\.weight", name)
    if name == "token_embd.weight":
        return "embed.weight"
    if name == "output_norm.weight":
        return "norm.weight"
    part = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "output": "out_proj"}
    if match and match[3] == "norm":
        return f"layers.{match[1]}.{'attention' if match[2] == 'attn' else 'ffn'}_norm.weight"
    if match and match[2] == "attn" and match[3] in part:
        return f"layers.{match[1]}.attention.{part[match[3]]}.weight"
    if match and match[2] == "ffn" and match[3] in ("gate", "up", "down"):
        return f"layers.{match[1]}.ffn.{match[3]}.weight"
    raise ValueError(name)


INSIDE = {
    "attn_norm": "attention_norm",
    "attn_q": "attention.q_proj",
    "attn_k": "attention.k_proj",
    "attn_v": "attention.v_proj",
    "attn_output": "attention.out_proj",
    "ffn_norm": "ffn_norm",
    "ffn_gate": "ffn.gate",
    "ffn_up": "ffn.up",
    "ffn_down": "ffn.down",
}


@wrong("unknown names accepted")
def our_name(name):
    for old, new in {"token_embd": "embed", "output_norm": "norm", "blk": "layers", **INSIDE}.items():
        name = name.replace(old, new)
    return name


@wrong("another error")
def our_name(name):
    table = {"token_embd.weight": "embed.weight", "output_norm.weight": "norm.weight"}
    for i in range(120):
        table |= {f"blk.{i}.{theirs}.weight": f"layers.{i}.{ours}.weight" for theirs, ours in INSIDE.items()}
    return table[name]


# -- previous_token_head -----------------------------------------------------------------------------


@right
def previous_token_head(weights):
    L, H, T, _ = weights.shape
    best, place = -1.0, (0, 0)
    for layer in range(L):
        for head in range(H):
            mean = sum(weights[layer, head, t, t - 1].item() for t in range(2, T)) / (T - 2)
            if mean > best:
                best, place = mean, (layer, head)
    return place


@right
def previous_token_head(weights):
    T = weights.size(-1)
    rows = torch.arange(2, T, device=weights.device)
    means = weights[:, :, rows, rows - 1].mean(-1)  # (L, H)
    layer = means.amax(1).argmax()
    return layer.item(), means[layer].argmax().item()
