"""The recurrent translators, against loops over one sentence with one GRU cell, and against each other."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from attn_course import softmax
from attn_course.translation.recurrent import AttendingTranslator, RecurrentTranslator

SRC_VOCAB, TGT_VOCAB, E, D_EMBED, D = 13, 11, 6, 5, 7
B, T, S = 3, 4, 5
IDS = {"bos_id": 1, "eos_id": 2, "pad_id": 0}
both = pytest.mark.parametrize("kind", [RecurrentTranslator, AttendingTranslator])


def make(kind, seed=0):
    torch.manual_seed(seed)
    sizes = {"d_score": D} if kind is AttendingTranslator else {}
    model = kind(SRC_VOCAB, TGT_VOCAB, d_model=E, d_embed=D_EMBED, **sizes).double()
    for parameter in model.parameters():  # a fresh network hardly tells one source from another
        nn.init.normal_(parameter, std=0.7)
    return model


def make_batch(lengths=(5, 2, 3), tgt_len=T, pad_id=0, seed=0, width=None):
    rng = torch.Generator().manual_seed(seed)
    src = torch.randint(3, SRC_VOCAB, (len(lengths), width or max(lengths)), generator=rng)
    for row, length in zip(src, lengths, strict=True):
        row[length:] = pad_id
    tgt = torch.randint(1, TGT_VOCAB, (len(lengths), tgt_len), generator=rng)
    return src, torch.tensor(lengths), tgt


lengths_of_a_batch = st.lists(st.integers(1, 6), min_size=1, max_size=4)


# -- Against loops -----------------------------------------------------------------------------------


def one_cell(gru, suffix=""):
    """The cell of one direction of a GRU."""
    cell = nn.GRUCell(gru.input_size, gru.hidden_size).double()
    cell.load_state_dict({name: getattr(gru, f"{name}_l0{suffix}") for name in cell.state_dict()})
    return cell


def read_alone(model, tokens):
    """The states (S, E) and the summary (E,) of one source without padding, one token after the other."""
    forward, backward = one_cell(model.encoder), one_cell(model.encoder, "_reverse")
    h, g = torch.zeros(2, 1, E // 2, dtype=torch.float64)
    hs, gs = [], []
    for s in range(len(tokens)):
        h = forward(model.src_embed.weight[tokens[s]][None], h)
        g = backward(model.src_embed.weight[tokens[-1 - s]][None], g)
        hs.append(h[0])
        gs.append(g[0])
    return torch.stack([torch.cat(pair) for pair in zip(hs, reversed(gs), strict=True)]), torch.cat([h[0], g[0]])


def gru_by_hand(cell, x, h):
    r, z, n = (cell.weight_ih @ x + cell.bias_ih).chunk(3)
    hr, hz, hn = (cell.weight_hh @ h + cell.bias_hh).chunk(3)
    reset, keep = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
    return (1 - keep) * torch.tanh(n + reset * hn) + keep * h


def write_alone(model, states, summary, tokens):
    """Logits (T, V) and weights (T, S) of one target that is known."""
    state = torch.tanh(model.start.weight @ summary + model.start.bias)
    logits, rows = [], []
    for token in tokens:
        context = summary
        if isinstance(model, AttendingTranslator):
            query = model.query_proj.weight @ state
            scores = [model.score_weight @ torch.tanh(query + model.key_proj.weight @ h) for h in states]
            rows.append(softmax(torch.stack(scores)))
            context = sum(weight * h for weight, h in zip(rows[-1], states, strict=True))
        state = gru_by_hand(model.decoder, torch.cat([model.tgt_embed.weight[token], context]), state)
        logits.append(model.to_logits.weight @ state + model.to_logits.bias)
    return torch.stack(logits), torch.stack(rows) if rows else None


@both
@given(lengths=lengths_of_a_batch, seed=st.integers(0, 2**16))
def test_a_padded_batch_gives_what_loops_over_each_sentence_give(kind, lengths, seed):
    model = make(kind, seed)
    src, src_lengths, tgt = make_batch(lengths, seed=seed)
    memory = model.encode(src, src_lengths)
    logits, weights = model(src, src_lengths, tgt)
    for i, length in enumerate(lengths):
        states, summary = read_alone(model, src[i, :length])
        assert_close(memory.states[i, :length], states)
        assert_close(memory.summary[i], summary)
        expected_logits, expected_weights = write_alone(model, states, summary, tgt[i])
        assert_close(logits[i], expected_logits)
        if weights is not None:
            assert_close(weights[i, :, :length], expected_weights)


@both
def test_greedy_writing_takes_the_best_token_each_time_and_stops_at_the_end(kind):
    written = []
    for seed in range(8):
        model = make(kind, seed)
        src, src_lengths, _ = make_batch((5, 2, 3, 1), seed=seed)
        ids, weights = model.generate(src, src_lengths, max_len=9, **IDS)
        assert weights is None or weights.shape == (4, ids.size(1), 5)
        for i, length in enumerate(src_lengths.tolist()):
            states, summary = read_alone(model, src[i, :length])
            tokens = [1]
            while len(tokens) <= 9 and tokens[-1] != 2:
                logits, rows = write_alone(model, states, summary, tokens)
                tokens.append(int(logits[-1].argmax()))
            expected = tokens[1:]
            assert ids[i].tolist() == expected + [0] * (ids.size(1) - len(expected))
            if weights is not None:
                assert_close(weights[i, : len(expected), :length], rows)
            written.append(tuple(expected))
        assert ids.size(1) == max(map(len, written[-4:]))
    assert any(tokens[-1] == 2 and len(tokens) < 9 for tokens in written)
    assert any(len(tokens) == 9 for tokens in written)


class Echo(RecurrentTranslator):
    """Writes the token 3 as often as its source has tokens, then the end; what it has left to write is its state."""

    def __init__(self):
        super().__init__(7, 5, d_model=6)
        self.to_logits = nn.Linear(6, 5, bias=False)
        self.to_logits.weight.data.copy_(torch.eye(5, 6))

    def first_state(self, memory):
        return nn.functional.pad(memory.mask.sum(-1), (5, 0)).float()  # (B, 6)

    def step(self, ids, state, memory):
        left = state[:, -1:] - 1
        return torch.cat([nn.functional.one_hot((left[:, 0] >= 0) + 2, 5), left], dim=1), None


def test_a_target_that_has_ended_does_not_stop_the_others_and_none_is_written_beyond_its_end():
    src = torch.tensor([[6, 5, 4], [6, 0, 0], [5, 4, 0]])
    ids, _ = Echo().generate(src, torch.tensor([3, 1, 2]), max_len=9, **IDS)
    assert ids.tolist() == [[3, 3, 3, 2], [3, 2, 0, 0], [3, 3, 2, 0]]
    ids, _ = Echo().generate(src, torch.tensor([3, 1, 2]), max_len=3, **IDS)
    assert ids.tolist() == [[3, 3, 3], [3, 2, 0], [3, 3, 2]]


# -- Padding -----------------------------------------------------------------------------------------


@both
@given(lengths=lengths_of_a_batch, more=st.integers(1, 4), seed=st.integers(0, 2**16))
def test_padding_does_not_change_the_recurrent_translators(kind, lengths, more, seed):
    model = make(kind, seed)
    src, src_lengths, tgt = make_batch(lengths, seed=seed)
    wider, _, _ = make_batch(lengths, seed=seed, width=max(lengths) + more)
    for i, length in enumerate(lengths):
        wider[i, :length], wider[i, length:] = src[i, :length], 5
    logits, weights = model(src, src_lengths, tgt)
    same, wider_weights = model(wider, src_lengths, tgt)
    assert_close(logits, same)
    if weights is not None:
        assert_close(weights, wider_weights[..., : weights.size(-1)])
        assert (wider_weights[..., weights.size(-1) :] == 0).all()


@given(lengths=lengths_of_a_batch, seed=st.integers(0, 2**16), tgt_len=st.integers(1, 5))
def test_the_weights_are_a_distribution_over_real_source_positions_only(lengths, seed, tgt_len):
    model = make(AttendingTranslator, seed)
    src, src_lengths, tgt = make_batch(lengths, tgt_len, seed=seed, width=max(lengths) + 2)
    _, forced = model(src, src_lengths, tgt)
    _, greedy = model.generate(src, src_lengths, max_len=4, **IDS)
    for weights in (forced, greedy):
        assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:2], dtype=torch.float64))
        for i, length in enumerate(lengths):
            assert (weights[i, :, length:] == 0).all()
            assert (weights[i, :, :length] > 0).all()


@both
def test_padding_gets_no_gradient(kind):
    model = make(kind)
    src, src_lengths, tgt = make_batch((5, 2, 3), pad_id=12)  # 12 is found in the padding only
    src[src == 12] = 4
    for i, length in enumerate(src_lengths):
        src[i, length:] = 12
    model(src, src_lengths, tgt)[0].square().sum().backward()
    assert (model.src_embed.weight.grad[12] == 0).all()
    assert (model.src_embed.weight.grad[4] != 0).any()


# -- What the two share ------------------------------------------------------------------------------


def test_both_recurrent_translators_share_everything_but_the_attention():
    plain, attending = make(RecurrentTranslator), make(AttendingTranslator)
    assert attending.state_dict().keys() - plain.state_dict().keys() == {
        *("query_proj.weight", "key_proj.weight", "score_weight")
    }
    own = {name for name in vars(AttendingTranslator) if not name.startswith("__")}
    assert own == {"encode", "look"}  # encode adds the keys


@pytest.mark.parametrize("sizes", [{}, {"d_model": 128}, {"d_model": 256, "d_embed": 64, "d_score": 64}])
def test_parameter_counts_differ_by_less_than_a_tenth(sizes):
    attending = AttendingTranslator(71, 14, **sizes)
    sizes.pop("d_score", None)
    plain = RecurrentTranslator(71, 14, **sizes)
    a, b = (sum(parameter.numel() for parameter in model.parameters()) for model in (plain, attending))
    assert a < b < 1.1 * a


def test_attention_to_one_token_returns_its_state():
    model = make(AttendingTranslator)
    src, src_lengths, _ = make_batch((1, 1))
    memory = model.encode(src, src_lengths)
    context, weights = model.look(model.first_state(memory), memory)
    assert_close(context, memory.states[:, 0])
    assert_close(context, memory.summary)  # which is then all that is to be known
    assert_close(weights, torch.ones(2, 1, dtype=torch.float64))


def test_without_scores_attention_is_the_mean_of_the_real_states():
    model = make(AttendingTranslator)
    nn.init.zeros_(model.score_weight)
    src, src_lengths, _ = make_batch((5, 2, 3))
    memory = model.encode(src, src_lengths)
    context, _ = model.look(model.first_state(memory), memory)
    expected = torch.stack([memory.states[i, :n].mean(dim=0) for i, n in enumerate((5, 2, 3))])
    assert_close(context, expected)


@both
def test_recurrent_logits_do_not_depend_on_later_tokens(kind):
    model = make(kind)
    src, src_lengths, tgt = make_batch()
    other = tgt.clone()
    other[:, 2] = (tgt[:, 2] + 1) % TGT_VOCAB
    logits, same = model(src, src_lengths, tgt)[0], model(src, src_lengths, other)[0]
    assert torch.equal(logits[:, :2], same[:, :2])
    assert (logits[:, 2:] != same[:, 2:]).any(dim=-1).all()


@both
def test_every_parameter_learns(kind):
    model = make(kind)
    logits, _ = model(*make_batch())
    logits.square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())


@both
def test_gradcheck(kind):
    model = make(kind)
    src, src_lengths, tgt = make_batch((3, 2), 2)
    names, values = zip(*model.named_parameters(), strict=True)

    def logits(*values):
        parameters = dict(zip(names, values, strict=True))
        return torch.func.functional_call(model, parameters, (src, src_lengths, tgt))[0]

    values = [value.detach().clone().requires_grad_() for value in values]
    assert torch.autograd.gradcheck(logits, values, fast_mode=True)


@both
def test_writing_needs_no_gradient_and_stores_nothing_on_the_model(kind):
    model = make(kind)
    src, src_lengths, tgt = make_batch()
    before = set(vars(model))
    model(src, src_lengths, tgt)
    ids, weights = model.generate(src, src_lengths, max_len=3, **IDS)
    assert ids.dtype == torch.long
    assert weights is None or not weights.requires_grad
    assert set(vars(model)) == before


# -- Errors ------------------------------------------------------------------------------------------


@pytest.mark.bad_input
@both
def test_what_does_not_fit_is_refused(kind):
    model = make(kind)
    src, src_lengths, tgt = make_batch()
    with pytest.raises(ValueError, match=r"d_model \(7\) must be even"):
        kind(SRC_VOCAB, TGT_VOCAB, d_model=7)
    with pytest.raises(ValueError, match=r"src_lengths of shape \(2,\) must hold one length for each of the 3 sources"):
        model(src, src_lengths[:2], tgt)
    with pytest.raises(ValueError, match=r"src_lengths \(from 0 to 5\) must lie from 1 to 5, the width of src"):
        model(src, torch.tensor([5, 0, 2]), tgt)
    with pytest.raises(ValueError, match=r"src_lengths \(from 2 to 6\) must lie from 1 to 5"):
        model(src, torch.tensor([5, 6, 2]), tgt)
    with pytest.raises(ValueError, match=r"as many targets \(2\) as sources \(3\)"):
        model(src, src_lengths, tgt[:2])
    with pytest.raises(ValueError, match=r"max_len \(0\) must be at least 1"):
        model.generate(src, src_lengths, max_len=0, **IDS)
