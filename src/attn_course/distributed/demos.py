"""Functions that the processes of chapter 20 run. Used inside a chapter, from chapter 20 on.

A process that a notebook starts can import the functions of a module, but it cannot see functions of the notebook.
"""

import copy
import re
from collections.abc import Callable, Sequence
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from attn_course.distributed.context_parallel import (
    decode_attention,
    ring_attention,
    ulysses_attention,
)
from attn_course.functional.sdpa import fused_attention
from attn_course.nn.multi_head_attention import MultiHeadAttention
from attn_course.testing.memory import peak_bytes

IGNORED = -100  # F.cross_entropy's own mark of a target that does not count


def add_up(numbers: Sequence[float]) -> float:
    """Add up the numbers of all ranks; each rank contributes one number."""
    own = torch.tensor(numbers[dist.get_rank()], dtype=torch.float64)
    dist.all_reduce(own)
    return own.item()


def both_send_first() -> float:
    """Try to swap ranks between two processes, and wait forever, because both send and neither receives."""
    other = 1 - dist.get_rank()
    mine, theirs = torch.tensor([float(dist.get_rank())]), torch.empty(1)
    dist.send(mine, dst=other)
    dist.recv(theirs, src=other)
    return theirs.item()


def send_and_receive_at_once() -> float:
    """Swap ranks between two processes: both transfers start before a process waits."""
    other = 1 - dist.get_rank()
    mine, theirs = torch.tensor([float(dist.get_rank())]), torch.empty(1)
    transfers = [
        dist.P2POp(dist.isend, mine, other),
        dist.P2POp(dist.irecv, theirs, other),
    ]
    for transfer in dist.batch_isend_irecv(transfers):
        transfer.wait()
    return theirs.item()


def mean_of_means(logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Tensor:
    """The mean loss over this rank's tokens; DistributedDataParallel averages its gradient over the ranks."""
    return F.cross_entropy(logits.mT, targets, ignore_index=IGNORED)


def mean_over_all(logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Tensor:
    """This rank's part of the mean over the tokens of all ranks, times P, because DDP will divide by P."""
    total = F.cross_entropy(logits.mT, targets, ignore_index=IGNORED, reduction="sum")
    count = (targets != IGNORED).sum()
    dist.all_reduce(count)
    return total / count * dist.get_world_size()


def gradients_of_shards(
    model: nn.Module,
    loss: Callable,
    inputs: Int[Tensor, "B T"],
    targets: Int[Tensor, "B T"],
) -> dict[str, Tensor]:
    """Train one step on this rank's rows by DistributedDataParallel; return the gradients that all ranks then have."""
    replica = DistributedDataParallel(model)
    rank, count = dist.get_rank(), dist.get_world_size()
    own_inputs, own_targets = (x.chunk(count)[rank] for x in (inputs, targets))
    loss(replica(own_inputs), own_targets).backward()
    return {name: p.grad for name, p in model.named_parameters()}


def gradients_of_sharded_model(
    model: nn.Module,
    loss: Callable,
    inputs: Int[Tensor, "B T"],
    targets: Int[Tensor, "B T"],
) -> tuple[int, dict[str, Tensor]]:
    """The same by FSDP2, with a share of each parameter; return the numbers held here, and the whole gradients."""
    rank, count = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (count,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    held = sum(p.to_local().numel() for p in model.parameters())
    own_inputs, own_targets = (x.chunk(count)[rank] for x in (inputs, targets))
    loss(model(own_inputs), own_targets).backward()
    return held, {name: p.grad.full_tensor() for name, p in model.named_parameters()}


def attend_with_own_heads(
    layer: MultiHeadAttention, x: Float[Tensor, "B T E"]
) -> Float[Tensor, "B T E"]:
    """Compute this rank's heads of a layer, and add up the outputs of all heads.

    The first projections are cut by columns and the last by rows, so that one all-reduce is enough (Shoeybi et
    al. 2019, arXiv:1909.08053, section 3).
    """
    rank, count = dist.get_rank(), dist.get_world_size()
    width, num_heads = layer.out_proj.in_features // count, layer.num_heads // count
    own = slice(rank * width, (rank + 1) * width)
    q, k, v = (
        F.linear(x, p.weight[own], p.bias[own])
        .unflatten(-1, (num_heads, -1))
        .transpose(1, 2)
        for p in (layer.q_proj, layer.k_proj, layer.v_proj)
    )  # (B, H / P, T, D)
    heads = fused_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    out = heads @ layer.out_proj.weight[:, own].mT  # a summand of the output
    dist.all_reduce(out)
    return out + layer.out_proj.bias


def attend_to_shards(
    form: str,
    q: Float[Tensor, "B H S D"],
    k: Float[Tensor, "B G S D"],
    v: Float[Tensor, "B G S D"],
    upstream: Float[Tensor, "B H S D"],
    positions: Int[Tensor, "P N"],
) -> dict[str, Tensor]:
    """Keep this rank's shard, attend causally with "ring" or "ulysses", and run the backward pass.

    Returns:
        The output of this shard, and the gradients of its queries, keys and values.
    """
    own = positions[dist.get_rank()]
    leaves = [x[:, :, own].clone().requires_grad_() for x in (q, k, v)]
    forms = {
        "ring": lambda: ring_attention(leaves[0], leaves[1], leaves[2], positions),
        "ulysses": lambda: ulysses_attention(*leaves, is_causal=True),
    }
    out = forms[form]()
    gradients = torch.autograd.grad(out, leaves, upstream[:, :, own])
    return dict(zip(("out", "q", "k", "v"), (out.detach(), *gradients), strict=True))


def decode_with_cut_cache(
    q: Float[Tensor, "B H T D"], k: Float[Tensor, "B G S D"], v: Float[Tensor, "B G S D"]
) -> Float[Tensor, "B H T D"]:
    """Keep this rank's part of the cache, and attend to all parts with queries that every rank has."""
    rank, count = dist.get_rank(), dist.get_world_size()
    own_k, own_v = (x.tensor_split(count, dim=2)[rank] for x in (k, v))
    return decode_attention(q, own_k, own_v)


def weigh_the_ring(
    sizes: tuple[int, int, int, int], num_kv_heads: int, positions: Int[Tensor, "P N"]
) -> dict[str, int]:
    """Attend to a text of sizes (B, H, S, D) by ring, and count bytes in this process.

    Returns:
        The bytes that are kept for the backward pass, the peak memory beyond the shard, and the bytes that are sent in
        the forward and in the backward pass.
    """
    batch, num_heads, _, head_dim = sizes
    length = positions.size(1)
    q = torch.randn(batch, num_heads, length, head_dim, requires_grad=True)
    k, v = torch.randn(2, batch, num_kv_heads, length, head_dim).requires_grad_()
    kept, sent = [], []
    send = dist.batch_isend_irecv

    def counting(transfers: list[dist.P2POp]) -> list[dist.Work]:
        sent.extend(t.tensor.nbytes for t in transfers if t.op is dist.isend)
        return send(transfers)

    def pack(x: Tensor) -> Tensor:
        if x.is_floating_point():
            kept.append(x.nbytes)
        return x

    with patch.object(dist, "batch_isend_irecv", counting):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            out = ring_attention(q, k, v, positions)
        forward = sum(sent)
        out.sum().backward()
    backward = sum(sent) - forward
    peak = peak_bytes(lambda: ring_attention(q, k, v, positions))
    return {"kept": sum(kept), "peak": peak, "forward": forward, "backward": backward}


def call_context_parallel(
    q: Float[Tensor, "B H S D"], k: Float[Tensor, "B H S D"], v: Float[Tensor, "B H S D"]
) -> str:
    """Call PyTorch's own ring on this machine's CPU; return what it says, or that it ran."""
    from torch.distributed.tensor.experimental import context_parallel

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    q, k, v = (copy.deepcopy(x) for x in (q, k, v))
    try:
        with context_parallel(mesh, buffers=[q, k, v], buffer_seq_dims=[2, 2, 2]):
            F.scaled_dot_product_attention(q, k, v, is_causal=True)
    except (NotImplementedError, RuntimeError) as error:
        operator = re.search(r"_scaled_dot_product_\w+", str(error))
        return f"{type(error).__name__} {operator[0] if operator else ''}".strip()
    return "it ran"
