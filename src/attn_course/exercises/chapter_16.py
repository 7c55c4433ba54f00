"""The exercises of the chapter on decoding speed. Used from chapter 16 on."""

import torch

from attn_course.exercises.engine.convert_output import as_integers
from attn_course.exercises.engine.exercise import Exercise

# ---------------------------------------------------------------- guesses of a speculative call


def _guesses(draw):
    def state(right, V, pad_id):
        B, k = right.shape
        logits = draw(B, k + 1, V)
        own = logits[:, :k].argmax(dim=-1)
        other = (own + 1 + draw.ints(B, k, high=V - 1)) % V
        return logits, own.where(right, other), pad_id

    def rows(*rows):
        return torch.tensor(rows, dtype=torch.bool, device=draw.device)

    yield "a wrong guess between right ones", *state(rows([1, 1, 0, 1], [1, 0, 1, 1], [0, 1, 1, 0]), 7, 0)
    yield "only right guesses", *state(rows([1, 1, 1], [1, 1, 1]), 5, 11)
    yield "only wrong guesses", *state(rows([0, 0, 0], [0, 0, 0]), 5, 11)
    yield "a batch of one", *state(rows([1, 1, 0, 1, 1]), 7, -1)
    yield "one guess", *state(rows([1], [0], [1]), 5, 11)
    yield "no guess", *state(torch.ones(3, 0, dtype=torch.bool, device=draw.device), 5, 0)
    yield "many texts", *state(draw.ints(11, 3, high=4) > 0, 13, 2)


def _accept(logits, guesses, pad_id):
    own = logits.argmax(dim=-1)  # (B, k + 1)
    right = guesses == own[:, :-1]
    accepted = right.long().cumprod(dim=1).sum(dim=1)
    places = torch.arange(own.size(1), device=own.device)
    tokens = own.masked_fill(places > accepted[:, None], pad_id)
    return tokens, accepted + 1


def _of_integers(answer, logits, guesses, pad_id):
    found = answer(logits, guesses, pad_id)
    return tuple(map(as_integers, found)) if isinstance(found, tuple | list) else found


accept_guesses = Exercise(
    name="accept_guesses",
    trials=_guesses,
    right=_accept,
    use=_of_integers,
    result_names=("tokens", "counts"),
    chapter=16,
)


# ---------------------------------------------------------------- cost


def _calls(draw):
    # layers, width, key-value heads, their width, weights, texts, tokens in the cache, new tokens, bytes of a number
    yield "a decoding step of one text", 6, 384, 2, 64, 11_000_000, 1, 255, 1, 4
    yield "a prompt of one text", 2, 64, 1, 16, 120_000, 1, 0, 32, 4
    yield "a decoding step of a batch", 3, 128, 2, 32, 700_000, 7, 99, 1, 4
    yield "a chunk of a batch", 5, 96, 3, 16, 600_000, 3, 20, 11, 4
    yield "keys and values for every head", 2, 256, 4, 64, 1_600_000, 2, 40, 3, 2
    sizes = [int(draw.ints(high=high)) + 1 for high in (9, 99, 9, 99, 9_999, 9, 99, 9)]
    yield "other sizes", *sizes, 8


def _cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    T, S = num_new, cached + num_new
    kv_width = num_kv_heads * head_dim
    flops = batch * (2 * num_weights * T + 4 * num_layers * d_model * T * S)
    fetched = num_weights + 2 * num_layers * kv_width * S * batch
    return flops, size * fetched


def _whole_numbers(answer, *sizes):
    found = answer(*sizes)
    if not isinstance(found, tuple | list):
        return found
    return tuple(int(n) if isinstance(n, float) and n.is_integer() else n for n in found)


call_cost = Exercise(
    name="call_cost",
    trials=_calls,
    right=_cost,
    use=_whole_numbers,
    result_names=("flops", "bytes"),
    chapter=16,
)


# ---------------------------------------------------------------- block tables


def _tables(draw):
    def state(lengths, block_size, num_new, num_spare=1):
        """Return the block tables of sequences with these lengths, and the positions of their newest tokens."""
        sizes = [-(-length // block_size) for length in lengths]
        order = torch.randperm(sum(sizes) + num_spare, generator=draw.rng)
        tables = torch.zeros(len(lengths), max(sizes), dtype=torch.long)
        for b, size in enumerate(sizes):
            tables[b, :size], order = order[:size], order[size:]
        positions = torch.tensor(lengths)[:, None] + torch.arange(-num_new, 0)
        return tables.to(draw.device), positions.clamp(min=-1).to(draw.device), block_size

    yield "one new token of one sequence", *state([21], 4, 1)
    yield "a chunk of one sequence", *state([23], 5, 11)
    yield "one new token of three sequences", *state([14, 5, 9], 4, 1, num_spare=3)
    yield "chunks of different lengths, padded in front", *state([17, 2, 8], 3, 6)
    yield "the first token of a sequence", *state([1, 12], 4, 1)
    yield "blocks of one slot", *state([7, 4], 1, 3)
    yield "blocks of 16 slots", *state([70, 33, 48, 16], 16, 20, num_spare=5)


def _slots(block_tables, positions, block_size):
    number = positions.clamp(min=0) // block_size
    blocks = block_tables.gather(1, number)
    slots = blocks * block_size + positions % block_size
    return slots.masked_fill(positions < 0, -1)


def _slots_as_integers(answer, block_tables, positions, block_size):
    return as_integers(answer(block_tables, positions, block_size))


slots_of = Exercise(
    name="slots_of",
    trials=_tables,
    right=_slots,
    use=_slots_as_integers,
    result_names=("slots",),
    chapter=16,
)
