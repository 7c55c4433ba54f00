"""Answers to the exercises of chapter 16."""

import torch

from answers import right, wrong

# -- accept_guesses --------------------------------------------------------------------------------


@right
def accept_guesses(logits, guesses, pad_id):
    B, k = guesses.shape
    tokens = torch.full((B, k + 1), pad_id, device=guesses.device)
    counts = torch.zeros(B, dtype=torch.int, device=guesses.device)
    for b in range(B):
        for i in range(k + 1):
            own = logits[b, i].argmax()
            tokens[b, i] = own
            counts[b] += 1
            if i < k and guesses[b, i] != own:
                break
            if i == k:
                break
    return tokens, counts


@right
def accept_guesses(logits, guesses, pad_id):
    own = logits.argmax(-1)
    wrong_so_far = (guesses != own[:, :-1]).cumsum(dim=1)  # (B, k)
    written = torch.cat([torch.ones_like(own[:, :1], dtype=torch.bool), wrong_so_far == 0], dim=1)
    return torch.where(written, own, pad_id), written.sum(dim=1)


@wrong("changes its input")
def accept_guesses(logits, guesses, pad_id):
    own = logits.argmax(dim=-1)
    agree = (guesses == own[:, :-1]).long().cumprod(dim=1)
    guesses[agree == 0] = pad_id
    places = torch.arange(own.size(1), device=own.device)
    return own.masked_fill(places > agree.sum(dim=1, keepdim=True), pad_id), agree.sum(dim=1) + 1


# -- call_cost --------------------------------------------------------------------------------------


@right
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    flops = fetched = 0
    for _ in range(batch):
        for _ in range(num_new):
            flops += 2 * num_weights
            flops += num_layers * 2 * (2 * d_model * (cached + num_new))
        fetched += num_layers * (cached + num_new) * 2 * num_kv_heads * head_dim * size
    return flops, fetched + num_weights * size


@right
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    seen = cached + num_new
    per_token = num_weights + 2.0 * num_layers * d_model * seen
    numbers = num_weights + 2.0 * num_layers * num_kv_heads * head_dim * seen * batch
    return 2 * batch * num_new * per_token, size * numbers


# -- slots_of ----------------------------------------------------------------------------------------


@right
def slots_of(block_tables, positions, block_size):
    slots = torch.full_like(positions, -1)
    for b, row in enumerate(positions.tolist()):
        for t, position in enumerate(row):
            if position >= 0:
                number, place = divmod(position, block_size)
                slots[b, t] = block_tables[b, number] * block_size + place
    return slots


@right
def slots_of(block_tables, positions, block_size):
    all_slots = block_tables[:, :, None] * block_size + torch.arange(block_size, device=block_tables.device)
    ends = torch.full_like(block_tables[:, :1], -1)  # where position -1 looks
    all_slots = torch.cat([all_slots.flatten(1), ends], dim=1)
    return all_slots.gather(1, positions % all_slots.size(1))


@wrong("changes its input")
def slots_of(block_tables, positions, block_size):
    is_padding = positions < 0
    positions[is_padding] = 0
    blocks = block_tables.gather(1, positions // block_size)
    return (blocks * block_size + positions % block_size).masked_fill(is_padding, -1)
