"""Decoding, against every sentence there is, against a beam search over lists, and against the probabilities."""

import functools
import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from attn_course import LanguageModel, Transformer, decoding
from attn_course.decoding import (
    Beam,
    Sampling,
    SpecialIds,
    apply_temperature,
    beam_search,
    generate,
    greedy_search,
    keep_top_k,
    keep_top_p,
    normalize_by_length,
    sample,
)

PAD, BOS, EOS = 0, 1, 2
IDS = SpecialIds(bos=BOS, eos=EOS, pad=PAD)
seeds = st.integers(0, 2**16)


class Writer(nn.Module):
    """A translator whose next token depends on the source and on all that is written, in their order."""

    def __init__(self, vocab_size=6, seed=0, size=3.0, ending=0.0):
        super().__init__()
        rng = torch.Generator().manual_seed(seed)
        self.embed = nn.Parameter(torch.randn(13, 7, generator=rng, dtype=torch.float64))
        self.mix = nn.Parameter(torch.randn(7, 7, generator=rng, dtype=torch.float64))
        self.out = nn.Parameter(size * torch.randn(7, vocab_size, generator=rng, dtype=torch.float64))
        self.ending = ending
        self.calls = []
        self.eval()

    def encode(self, src, *, src_mask):
        assert src_mask.shape == (len(src), 1, src.size(1))
        x, kept = self.embed[src], src_mask.mT.to(self.embed)  # (B, S, 7), (B, S, 1)
        return x + (x * kept).sum(1, keepdim=True) / kept.sum(1, keepdim=True), None  # each has read the others

    def decode(self, tgt, memory, *, src_mask):
        self.calls.append(tuple(tgt.shape))
        assert len(tgt) == len(memory) == len(src_mask)
        kept = src_mask.mT.to(memory)  # (N, S, 1)
        state = (memory * kept).sum(1) / kept.sum(1)  # (N, 7), without the padding
        rows = []
        for ids in tgt.unbind(1):
            state = torch.tanh(state @ self.mix + self.embed[ids])
            rows.append(state @ self.out)
        logits = torch.stack(rows, dim=1)  # (N, T, V)
        logits[..., EOS] += self.ending
        return logits, None


def make_batch(lengths=(5, 2, 3), seed=0, pad=PAD):
    rng = torch.Generator().manual_seed(seed)
    src = torch.randint(3, 13, (len(lengths), max(lengths)), generator=rng)
    for row, length in zip(src, lengths, strict=True):
        row[length:] = pad
    return src, torch.tensor(lengths)


def log_prob_of(model, source, ids):
    """The logarithm of the probability of one target after one source without padding."""
    memory, mask = source[None], torch.ones(1, 1, len(source), dtype=torch.bool)
    memory, _ = model.encode(memory, src_mask=mask)
    logits, _ = model.decode(torch.tensor([[BOS, *ids[:-1]]]), memory, src_mask=mask)
    return sum(logits[0, t].log_softmax(-1)[i].item() for t, i in enumerate(ids))


def all_targets(vocab_size, max_len):
    """Every target that ends within ``max_len`` tokens, and every one that is cut off there."""
    words = range(3, vocab_size)
    ended = [(*w, EOS) for n in range(max_len) for w in itertools.product(words, repeat=n)]
    return ended, list(itertools.product(words, repeat=max_len))


# -- Greedy search -----------------------------------------------------------------------------------


@settings(max_examples=30)
@given(seeds, st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 7))
def test_greedy_search_takes_the_most_probable_token_each_time(seed, lengths, max_len):
    model = Writer(seed=seed)
    src, src_lengths = make_batch(lengths, seed)
    ids = greedy_search(model, src, src_lengths, max_len=max_len, special=IDS)
    written = []
    for source, length in zip(src, lengths, strict=True):
        alone = []
        while len(alone) < max_len and EOS not in alone:
            options = {i: log_prob_of(model, source[:length], [*alone, i]) for i in range(2, 6)}
            alone.append(max(options, key=options.get))
        written.append(alone)
    longest = max(map(len, written))
    assert ids.tolist() == [row + [PAD] * (longest - len(row)) for row in written]


def test_after_its_end_a_target_is_padding_while_others_go_on():
    model = Writer(seed=3)
    src, lengths = make_batch((5, 2, 3, 4, 1, 2, 3), seed=1)
    ids = greedy_search(model, src, lengths, max_len=9, special=IDS)
    ends = [(row == EOS).nonzero().flatten().tolist() for row in ids]
    assert len({tuple(end) for end in ends}) > 2  # this batch has early ends, late ends and none
    for row, end in zip(ids, ends, strict=True):
        assert len(end) <= 1
        assert (row[end[0] + 1 :] == PAD).all() if end else (row != PAD).all()


def test_greedy_search_asks_once_per_token_and_stops_when_all_have_ended():
    model = Writer(ending=100.0)
    ids = greedy_search(model, *make_batch(), max_len=50, special=IDS)
    assert ids.tolist() == [[EOS]] * 3
    assert model.calls == [(3, 1)]


# -- Beam search -------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(seeds, st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 7), st.floats(0, 2))
def test_a_beam_of_one_is_greedy_search(seed, lengths, max_len, length_penalty):
    model = Writer(seed=seed)
    src, src_lengths = make_batch(lengths, seed)
    ids = greedy_search(model, src, src_lengths, max_len=max_len, special=IDS)
    found = beam_search(model, src, src_lengths, special=IDS, max_len=max_len, beam=Beam(1, length_penalty))
    for row, hypotheses in zip(ids, found, strict=True):
        (only,) = hypotheses
        assert only.ids.tolist() == row[row != PAD].tolist()


@settings(max_examples=20)
@given(seeds, st.sampled_from([0.0, 0.6, 1.0]), st.sampled_from([(5, 4), (6, 3), (4, 5)]))
def test_a_beam_as_wide_as_language_finds_every_sentence_in_order(seed, length_penalty, sizes):
    vocab_size, max_len = sizes
    model = Writer(vocab_size, seed)
    src, lengths = make_batch((2, 3), seed)
    ended, cut_off = all_targets(vocab_size, max_len)
    found = beam_search(
        model,
        src,
        lengths,
        special=IDS,
        max_len=max_len,
        beam=Beam(len(ended) + len(cut_off) + 5, length_penalty),
    )
    for source, length, hypotheses in zip(src, lengths, found, strict=True):
        log_probs = {ids: log_prob_of(model, source[:length], ids) for ids in ended + cut_off}
        scores = {ids: p / ((5 + len(ids)) / 6) ** length_penalty for ids, p in log_probs.items()}
        expected = [ids for group in (ended, cut_off) for ids in sorted(group, key=scores.get, reverse=True)]
        assert [tuple(h.ids.tolist()) for h in hypotheses] == expected
        for h, ids in zip(hypotheses, expected, strict=True):
            assert h.log_prob == pytest.approx(log_probs[ids], abs=1e-9)
            assert h.score == pytest.approx(scores[ids], abs=1e-9)


def search_over_lists(model, source, max_len, beam_size, vocab_size, *, length_penalty, length_reward, patience):
    """The same search for one source, with lists instead of tensors."""
    beams, ended = [((), 0.0)], []
    for _ in range(max_len):
        options = [((*ids, i), log_prob_of(model, source, (*ids, i))) for ids, _ in beams for i in range(2, vocab_size)]
        options.sort(key=lambda option: -option[1])
        ended += [option for option in options[:beam_size] if option[0][-1] == EOS]
        beams = [option for option in options if option[0][-1] != EOS][:beam_size]
        if len(ended) >= patience * beam_size:
            break
    by_score = sorted(ended, key=lambda o: -o[1] / ((5 + len(o[0])) / 6) ** length_penalty - length_reward * len(o[0]))
    return (by_score + beams)[:beam_size]


@settings(max_examples=25)
@given(
    seeds,
    st.integers(1, 9),
    st.sampled_from([-2.0, 0.0, 2.0]),
    st.fixed_dictionaries(
        {
            "length_penalty": st.sampled_from([0.0, 0.6, 1.3]),
            "length_reward": st.sampled_from([0.0, 0.4, 2.0]),
            "patience": st.sampled_from([1.0, 1.5, 3.0]),
        }
    ),
)
def test_beam_search_equals_the_same_search_over_lists(seed, beam_size, ending, ranking):
    model = Writer(7, seed, size=1.0, ending=ending)
    src, lengths = make_batch((3, 1, 5), seed)
    found = beam_search(model, src, lengths, max_len=6, beam=Beam(beam_size, **ranking), special=IDS)
    for source, length, hypotheses in zip(src, lengths, found, strict=True):
        expected = search_over_lists(model, source[:length], 6, beam_size, 7, **ranking)
        assert [tuple(h.ids.tolist()) for h in hypotheses] == [ids for ids, _ in expected]
        for h, (_, log_prob) in zip(hypotheses, expected, strict=True):
            assert h.log_prob == pytest.approx(log_prob, abs=1e-9)


@settings(max_examples=30)
@given(seeds, st.integers(1, 40), st.integers(1, 4))
def test_no_hypothesis_is_found_twice_or_impossible(seed, beam_size, max_len):
    model = Writer(5, seed)
    for hypotheses in beam_search(model, *make_batch(seed=seed), max_len=max_len, beam=Beam(beam_size), special=IDS):
        written = [tuple(h.ids.tolist()) for h in hypotheses]
        assert 1 <= len(written) <= beam_size
        assert len(set(written)) == len(written)
        assert all(-math.inf < h.log_prob <= 0 and -math.inf < h.score <= 0 for h in hypotheses)
        assert not {PAD, BOS} & set(itertools.chain(*written))
        assert all(EOS not in ids[:-1] for ids in written)
        assert all(ids[-1] == EOS or len(ids) == max_len for ids in written)


class Scripted(nn.Module):
    """A translator whose probabilities are written down: what follows each beginning."""

    def __init__(self, table, vocab_size=6):
        super().__init__()
        self.table, self.vocab_size = table, vocab_size
        self.eval()

    def encode(self, src, *, src_mask):
        return torch.zeros(*src.shape, 1), None

    def decode(self, tgt, memory, *, src_mask):
        logits = torch.full((*tgt.shape, self.vocab_size), -math.inf)
        for n, row in enumerate(tgt.tolist()):
            following = self.table.get(tuple(row[1:]), {EOS: 1.0})
            for i, p in following.items():
                logits[n, -1, i] = math.log(p)
        return logits, None


ONE_SOURCE = (torch.tensor([[4]]), torch.tensor([1]))
A, B_, C = 3, 4, 5
GARDEN_PATH = {  # the most probable first token leads to less probable sentences
    (): {A: 0.5, B_: 0.4, EOS: 0.1},
    (A,): {A: 0.4, B_: 0.3, EOS: 0.3},
    (B_,): {C: 0.9, EOS: 0.1},
}


def test_a_wider_beam_finds_the_sentence_that_greedy_search_passes_by():
    model = Scripted(GARDEN_PATH)
    assert greedy_search(model, *ONE_SOURCE, max_len=5, special=IDS).tolist() == [[A, A, EOS]]
    (found,) = beam_search(model, *ONE_SOURCE, max_len=5, beam=Beam(2, length_penalty=0.0), special=IDS)
    assert found[0].ids.tolist() == [B_, C, EOS]
    assert found[0].log_prob == pytest.approx(math.log(0.4 * 0.9))


def test_a_hypothesis_that_has_ended_is_not_lost_to_longer_ones():
    table = {(): {A: 0.45, B_: 0.35, EOS: 0.2}, (A,): {A: 0.5, B_: 0.5}, (B_,): {B_: 1.0}}
    table |= {key: {A: 0.3, B_: 0.3, C: 0.4} for key in [(A, A), (A, B_), (B_, B_)]}
    (found,) = beam_search(Scripted(table), *ONE_SOURCE, max_len=5, beam=Beam(3, length_penalty=0.0), special=IDS)
    # After two tokens three beginnings are more probable (0.35, 0.225, 0.225), and none of them stays so.
    assert found[0].ids.tolist() == [EOS]
    assert [h.log_prob for h in found] == pytest.approx([math.log(p) for p in (0.2, 0.14, 0.105)])


def test_the_length_penalty_turns_the_ranking_around():
    table = {(): {EOS: 0.3, A: 0.7}, (A,): {B_: 0.9, EOS: 0.1}, (A, B_): {C: 0.45, A: 0.35, B_: 0.2}}
    (plain, penalised) = (
        beam_search(Scripted(table), *ONE_SOURCE, special=IDS, max_len=6, beam=Beam(3, length_penalty))[0]
        for length_penalty in (0.0, 1.0)
    )
    assert [h.ids.tolist() for h in plain][:2] == [[EOS], [A, B_, C, EOS]]
    assert [h.ids.tolist() for h in penalised][:2] == [[A, B_, C, EOS], [A, B_, A, EOS]]
    assert penalised[0].score == pytest.approx(math.log(0.7 * 0.9 * 0.45) / (9 / 6))


def test_a_reward_for_length_turns_it_around_too_and_patience_finds_what_it_needs():
    table = {(): {EOS: 0.5, A: 0.5}, (A,): {EOS: 0.4, B_: 0.6}, (A, B_): {EOS: 1.0}}
    (plain, hasty, patient) = (
        beam_search(Scripted(table), *ONE_SOURCE, special=IDS, max_len=6, beam=Beam(2, 0.0, **ranking))[0]
        for ranking in ({}, {"length_reward": 0.5}, {"length_reward": 0.5, "patience": 1.5})
    )
    assert [h.ids.tolist() for h in plain] == [[EOS], [A, EOS]]  # two have ended, so the search is over
    assert [h.ids.tolist() for h in hasty] == [[EOS], [A, EOS]]
    assert [h.ids.tolist() for h in patient] == [[A, B_, EOS], [EOS]]
    assert [h.score for h in patient] == pytest.approx([math.log(0.3) + 1.5, math.log(0.5) + 0.5])


def test_truncated_hypotheses_come_after_finished_ones():
    table = {(): {A: 0.9, EOS: 0.1}, (A,): {A: 0.9, EOS: 0.1}, (A, A): {A: 0.95, EOS: 0.05}}
    (found,) = beam_search(Scripted(table), *ONE_SOURCE, max_len=3, beam=Beam(5, length_penalty=0.0), special=IDS)
    assert len(found) == 4
    assert found[-1].ids.tolist() == [A, A, A]
    assert found[-1].score > found[0].score  # the most probable, but it has no end
    assert all(h.ids[-1] == EOS for h in found[:-1])


def test_truncated_hypotheses_are_ranked_by_their_score_too():
    rule = Allows({})
    rule.penalty = lambda written: 10.0 * (A in written)
    table = {(): {A: 0.5, B_: 0.3, C: 0.2}}
    (found,) = beam_search(Scripted(table), *ONE_SOURCE, max_len=1, beam=Beam(3), special=IDS, rule=rule)
    assert [h.ids.tolist() for h in found] == [[B_], [C], [A]]


def test_a_model_that_knows_one_sentence_only_gives_one_hypothesis():
    model = Scripted({(): {A: 1.0}})
    (found,) = beam_search(model, *ONE_SOURCE, max_len=7, beam=Beam(4), special=IDS)
    assert [h.ids.tolist() for h in found] == [[A, EOS]]
    assert found[0].log_prob == 0


@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_a_batch_gives_what_each_source_gives_alone(beam_size):
    model = Writer(seed=5)
    src, lengths = make_batch((5, 2, 3), seed=2, pad=12)  # whatever stands in the padding
    settings = {"special": IDS, "max_len": 6, "beam": Beam(beam_size)}
    together = beam_search(model, src, lengths, **settings)
    for source, length, found in zip(src, lengths, together, strict=True):
        (alone,) = beam_search(model, source[None, :length], length[None], **settings)
        assert [h.ids.tolist() for h in alone] == [h.ids.tolist() for h in found]


def test_the_search_is_over_when_enough_have_ended():
    model = Writer(ending=50.0)
    beam_search(model, *make_batch(), max_len=50, beam=Beam(1), special=IDS)
    assert len(model.calls) == 1
    model.calls.clear()
    beam_search(model, *make_batch(), max_len=50, beam=Beam(3), special=IDS)
    assert model.calls == [(9, 1), (9, 2)]  # the end; then three beginnings that all end


@given(st.floats(-50, 0), st.integers(1, 60))
def test_without_a_penalty_the_score_is_the_logarithm_of_the_probability(log_prob, length):
    assert normalize_by_length(log_prob, length, 0.0) == log_prob
    assert normalize_by_length(log_prob, 1, 0.9) == log_prob
    assert normalize_by_length(log_prob, length, 1.0) == pytest.approx(6 * log_prob / (5 + length))


# -- Filters -----------------------------------------------------------------------------------------

logit_rows = st.tuples(seeds, st.integers(1, 11), st.integers(1, 4), st.floats(0.1, 8)).map(
    lambda t: t[3] * torch.randn(t[2], t[1], generator=torch.Generator().manual_seed(t[0]), dtype=torch.float64)
)


@given(logit_rows, st.floats(0.05, 20))
def test_temperature_raises_odds_to_a_power_and_keeps_the_order(logits, temperature):
    before, after = logits.log_softmax(-1), apply_temperature(logits, temperature).log_softmax(-1)
    odds = (before[:, :, None] - before[:, None]) / temperature
    assert_close(after[:, :, None] - after[:, None], odds)
    assert torch.equal(before.argsort(-1), apply_temperature(logits, temperature).argsort(-1))


def assert_only_rescaled(logits, filtered):
    """What is kept has the odds it had; what is not is impossible."""
    kept = filtered > -math.inf
    assert torch.equal(filtered[kept], logits[kept])
    probs, after = logits.softmax(-1), filtered.softmax(-1)
    assert (after[~kept] == 0).all()
    expected = probs * kept / (probs * kept).sum(-1, keepdim=True)
    assert_close(after, expected)
    for row, keeps in zip(logits, kept, strict=True):
        assert keeps.all() or row[keeps].min() >= row[~keeps].max()


@given(logit_rows, st.integers(1, 15))
def test_top_k_keeps_the_k_most_probable(logits, k):
    filtered = keep_top_k(logits, k)
    assert_only_rescaled(logits, filtered)
    assert ((filtered > -math.inf).sum(-1) == min(k, logits.size(-1))).all()


@given(logit_rows, st.floats(0.01, 1))
def test_top_p_keeps_the_fewest_that_sum_to_p(logits, p):
    filtered = keep_top_p(logits, p)
    assert_only_rescaled(logits, filtered)
    probs = logits.softmax(-1).masked_fill(filtered == -math.inf, 0)
    assert (probs.sum(-1) >= p - 1e-9).all()
    least = probs.masked_fill(probs == 0, math.inf).amin(-1)
    alone = (probs > 0).sum(-1) == 1
    assert (alone | (probs.sum(-1) - least < p + 1e-9)).all()


def test_top_p_of_all_changes_nothing_and_of_almost_nothing_keeps_one():
    logits = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0)) * 30  # many vanish in float32
    assert (keep_top_p(logits, 1e-9) > -math.inf).sum(-1).tolist() == [1, 1, 1]
    kept = keep_top_p(logits, 1.0) > -math.inf
    assert (logits.softmax(-1)[~kept] == 0).all()


def test_ties_do_not_let_more_than_k_through():
    assert (keep_top_k(torch.zeros(2, 7), 3) > -math.inf).sum(-1).tolist() == [3, 3]
    assert (keep_top_p(torch.zeros(2, 8), 0.5) > -math.inf).sum(-1).tolist() == [4, 4]


@given(logit_rows, st.integers(1, 5), st.floats(0.1, 1))
def test_top_k_and_top_p_do_not_change_their_input(logits, k, p):
    before = logits.clone()
    apply_temperature(logits, 0.5), keep_top_k(logits, k), keep_top_p(logits, p)
    assert torch.equal(logits, before)


# -- Sampling ----------------------------------------------------------------------------------------


def first_tokens(number=20_000, **settings):
    """How often each id is drawn as the first token after one source, and the model's probabilities."""
    model = Writer(9, seed=4, size=0.7)
    src, lengths = make_batch((3,), seed=4)
    sampling = Sampling(generator=torch.Generator().manual_seed(11), **settings)
    ids = sample(model, src.expand(number, -1), lengths.expand(number), special=IDS, max_len=1, sampling=sampling)
    memory, mask = src, torch.ones(1, 1, 3, dtype=torch.bool)
    logits, _ = model.decode(torch.tensor([[BOS]]), model.encode(memory, src_mask=mask)[0], src_mask=mask)
    logits = logits[0, 0].detach()
    logits[[PAD, BOS]] = -math.inf
    return torch.bincount(ids.flatten(), minlength=9) / number, logits


def assert_drawn_from(shares, probs, number=20_000):
    spread = (probs * (1 - probs) / number).sqrt()
    assert ((shares - probs).abs() <= 5 * spread + 1e-12).all()
    assert (shares[probs == 0] == 0).all()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_as_often_as_they_are_probable(temperature):
    shares, logits = first_tokens(temperature=temperature)
    assert_drawn_from(shares, (logits / temperature).softmax(-1))
    assert (shares[2:] > 0).all()


def test_filters_apply_in_their_order_temperature_then_k_then_p():
    shares, logits = first_tokens(temperature=2.0, top_k=5, top_p=0.8)
    probs = (logits / 2).softmax(-1)
    best = probs.argsort(descending=True)[:5]
    five = probs[best] / probs[best].sum()
    n = int((five.cumsum(0) < 0.8).sum()) + 1
    assert n < 5
    expected = torch.zeros_like(probs)
    expected[best[:n]] = five[:n] / five[:n].sum()
    assert_drawn_from(shares, expected)


@pytest.mark.parametrize("settings", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}])
def test_sampling_with_nothing_left_to_chance_is_greedy_search(settings):
    model, batch = Writer(seed=2), make_batch(seed=3)
    expected = greedy_search(model, *batch, max_len=8, special=IDS)
    assert torch.equal(sample(model, *batch, special=IDS, max_len=8, sampling=Sampling(**settings)), expected)


def test_the_same_generator_state_draws_the_same_and_the_global_one_is_left_alone():
    model, batch = Writer(seed=2, size=0.5), make_batch(seed=3)

    def draw(seed):
        sampling = Sampling(generator=torch.Generator().manual_seed(seed))
        return sample(model, *batch, special=IDS, max_len=12, sampling=sampling).tolist()

    state = torch.get_rng_state()
    assert draw(0) == draw(0)
    assert len({str(draw(seed)) for seed in range(5)}) == 5
    assert torch.equal(torch.get_rng_state(), state)


@settings(max_examples=30)
@given(seeds)
def test_sampled_texts_have_one_end_and_no_beginning(seed):
    sampling = Sampling(generator=torch.Generator().manual_seed(seed))
    ids = sample(Writer(seed=seed, size=0.1), *make_batch(seed=seed), special=IDS, max_len=9, sampling=sampling)
    for row in ids.tolist():
        written = row[: row.index(EOS) + 1] if EOS in row else row
        assert not {PAD, BOS} & set(written)
        assert set(row[len(written) :]) <= {PAD}


# -- With a cache ------------------------------------------------------------------------------------


def seeded(seed):
    return torch.Generator().manual_seed(seed)


WRITE = {
    "greedy": greedy_search,
    "sample": lambda *given, **how: sample(*given, sampling=Sampling(generator=seeded(1)), **how),
    **{f"beam {k}": functools.partial(beam_search, beam=Beam(k)) for k in (1, 2, 5)},
}


class Watched(Transformer):
    """Writes down how many tokens it is asked to read, and whether from a cache."""

    def decode(self, tgt, *given, cache=None, **how):
        self.calls.append((tuple(tgt.shape), cache is not None))
        return super().decode(tgt, *given, cache=cache, **how)


def make_transformer(seed, **options):
    torch.manual_seed(seed)
    options = {"max_len": 20, "tie_weights": False, **options}
    model = Watched(13, 11, d_model=8, num_heads=2, d_ff=12, **options).double().eval()
    with torch.no_grad():  # as it begins, it would repeat one token for ever
        for name, parameter in model.named_parameters():
            parameter += torch.randn(parameter.shape) * ("layers" in name)
    model.calls = []
    return model


@pytest.mark.parametrize("how", WRITE)
@settings(max_examples=12)
@given(seeds, st.booleans(), st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 9))
def test_with_a_cache_the_same_is_written_and_each_token_read_once(how, seed, norm_first, lengths, max_len):
    model, batch = make_transformer(seed, norm_first=norm_first), make_batch(lengths, seed)
    without = WRITE[how](model, *batch, max_len=max_len, special=IDS, use_cache=False)
    asked_without = list(model.calls)
    model.calls.clear()
    found = WRITE[how](model, *batch, max_len=max_len, special=IDS)
    rows = len(lengths) * int(how.split()[-1] if "beam" in how else 1)
    assert asked_without == [((rows, t + 1), False) for t in range(len(model.calls))]
    assert model.calls == [((rows, 1), True)] * len(asked_without)
    if isinstance(found, torch.Tensor):
        assert torch.equal(found, without)
    else:
        for mine, theirs in zip(itertools.chain(*found), itertools.chain(*without), strict=True):
            assert torch.equal(mine.ids, theirs.ids)
            assert mine.log_prob == pytest.approx(theirs.log_prob, abs=1e-9)
            assert mine.score == pytest.approx(theirs.score, abs=1e-9)


def test_beam_search_duplicates_and_drops_beams():
    model, moved = make_transformer(0), []
    make_cache = model.make_cache

    def watch(*given, **how):
        cache = make_cache(*given, **how)
        reorder = cache.layers[0].reorder
        cache.layers[0].reorder = lambda rows: (moved.append(rows.tolist()), reorder(rows))
        return cache

    model.make_cache = watch
    beam_search(model, *make_batch(), max_len=9, beam=Beam(5), special=IDS)
    assert any(len(set(rows)) < 15 for rows in moved)
    assert all(row // 5 == b // 5 for rows in moved for b, row in enumerate(rows))


def test_a_row_that_ended_early_changes_no_other():
    batch, ends = make_batch((5, 2, 3, 4, 1, 2, 3), seed=1), set()
    for seed in range(12):
        model = make_transformer(seed)
        ids = greedy_search(model, *batch, max_len=12, special=IDS)
        for source, length, row in zip(*batch, ids.tolist(), strict=True):
            one = source[None, :length], length[None]
            alone = greedy_search(model, *one, max_len=12, special=IDS, use_cache=False)
            assert [i for i in row if i != PAD] == alone[0].tolist()
            ends.add(row.index(EOS) if EOS in row else None)
    assert None in ends
    assert len(ends) > 3


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("how", ["greedy", "sample", "beam 2"])
def test_as_much_is_written_as_the_model_can_read_and_no_more(how, use_cache):
    model, endless = make_transformer(0, max_len=5), SpecialIds(bos=BOS, eos=-1, pad=PAD)
    found = WRITE[how](model, *make_batch(), special=endless, max_len=5, use_cache=use_cache)
    assert {len(row) for row in (found if isinstance(found, torch.Tensor) else [row[0].ids for row in found])} == {5}
    model.calls.clear()
    with pytest.raises(ValueError, match=r"max_len \(6\) must not be above the model's max_len \(5\)"):
        WRITE[how](model, *make_batch(), special=endless, max_len=6, use_cache=use_cache)
    assert model.calls == []


# -- Going on with texts -----------------------------------------------------------------------------


class Texts(LanguageModel):
    """Writes down how many tokens it is asked to read, and whether from a cache."""

    def forward(self, ids, *, mask=None, cache=None):
        self.calls.append((tuple(ids.shape), cache is not None))
        return super().forward(ids, mask=mask, cache=cache)


def make_language_model(seed=0, positions="rotary", **options):
    torch.manual_seed(seed)
    sizes = {"d_model": 12, "num_heads": 6, "num_kv_heads": 2, "d_ff": 14, "max_len": 24}
    model = Texts(11, positions=positions, **{**sizes, **options}).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn(parameter.shape) * 0.5
    model.calls = []
    return model


def make_prompts(lengths=(5, 2, 3), seed=0):
    rng = torch.Generator().manual_seed(seed)
    ids = torch.randint(11, (len(lengths), max(lengths)), generator=rng)
    return ids, torch.tensor(lengths)


def go_on(model, prompt, number, eos_id=None):
    """One text without padding or cache, by hand."""
    ids = prompt.tolist()
    while len(ids) < len(prompt) + number and eos_id not in ids[len(prompt) :]:
        ids.append(model(torch.tensor([ids]))[0, -1].argmax().item())
    return ids[len(prompt) :]


@settings(max_examples=25)
@given(
    seeds,
    st.sampled_from(["rotary", "alibi", "learned"]),
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.integers(1, 9),
    st.sampled_from([None, 0, 4]),
    st.sampled_from([None, 1, 2, 4, 50]),
)
def test_generate_in_a_batch_equals_generate_alone(seed, positions, lengths, number, eos_id, chunk_size):
    model, (prompts, prompt_lengths) = make_language_model(seed, positions), make_prompts(lengths, seed)
    how = {"max_new_tokens": number, "eos_id": eos_id}
    found = generate(model, prompts, prompt_lengths, chunk_size=chunk_size, **how)
    assert torch.equal(found, generate(model, prompts, prompt_lengths, use_cache=False, **how))
    alone = [go_on(model, p[-n:], number, eos_id) for p, n in zip(prompts, lengths, strict=True)]
    longest = max(map(len, alone))
    assert found.tolist() == [row + [eos_id] * (longest - len(row)) for row in alone]


def test_some_generated_texts_end_and_others_continue():
    ends = set()
    for seed in range(5):
        model, (prompts, lengths) = make_language_model(seed), make_prompts((5, 2, 3, 4, 1), seed)
        ids = generate(model, prompts, lengths, max_new_tokens=9, eos_id=4)
        ends |= {row.index(4) if 4 in row else None for row in ids.tolist()}
    assert None in ends
    assert len(ends) > 3


def test_prompts_are_read_at_once_or_in_pieces_and_each_new_token_once():
    model, (prompts, lengths) = make_language_model(), make_prompts()
    for chunk_size, prefill in ((None, [5]), (2, [2, 2, 1]), (5, [5]), (9, [5])):
        model.calls.clear()
        generate(model, prompts, lengths, max_new_tokens=4, chunk_size=chunk_size)
        assert model.calls == [((3, t), True) for t in (*prefill, 1, 1, 1)]
    model.calls.clear()
    generate(model, prompts, lengths, max_new_tokens=4, use_cache=False)
    assert model.calls == [((3, t), False) for t in (5, 6, 7, 8)]


def test_a_text_that_has_ended_does_not_stop_the_others():
    def count(ids, *, mask):  # the next number, whatever came before
        return nn.functional.one_hot((ids + 1) % 9, 9).double()

    prompts = torch.tensor([[6], [2], [4]])
    found = generate(count, prompts, max_new_tokens=7, eos_id=7)
    assert found.tolist() == [[7, 7, 7, 7, 7], [3, 4, 5, 6, 7], [5, 6, 7, 7, 7]]


def test_generate_stops_after_max_new_tokens():
    def count(ids, *, mask):
        assert ids.size(1) < 1 + 300
        return nn.functional.one_hot((ids + 1) % 5, 5).double()

    found = generate(count, torch.tensor([[0]]), max_new_tokens=300)
    assert found.tolist() == [[t % 5 for t in range(1, 301)]]


def test_prompts_of_one_length_need_no_lengths():
    model, (prompts, lengths) = make_language_model(), make_prompts((4, 4, 4))
    found = generate(model, prompts, max_new_tokens=7)
    assert torch.equal(found, generate(model, prompts, lengths, max_new_tokens=7))
    assert found.shape == (3, 7)


def test_sampling_is_the_same_with_a_cache_and_follows_the_probabilities():
    model, (prompts, lengths) = make_language_model(seed=4), make_prompts()

    def draw(seed, **reading):
        sampling = Sampling(0.8, top_k=6, top_p=0.9, generator=torch.Generator().manual_seed(seed))
        how = {"max_new_tokens": 8, "eos_id": 4, "sampling": sampling}
        return generate(model, prompts, lengths, **how, **reading).tolist()

    assert draw(0) == draw(0, use_cache=False) == draw(0, chunk_size=2)
    assert len({str(draw(seed)) for seed in range(5)}) == 5
    number = 20_000
    sampling = Sampling(generator=torch.Generator().manual_seed(11))
    ids = generate(model, prompts[:1].expand(number, -1), max_new_tokens=1, sampling=sampling)
    probs = model(prompts[:1])[0, -1].detach().softmax(-1)
    assert_drawn_from(torch.bincount(ids.flatten(), minlength=11) / number, probs)


def test_drawing_with_nothing_left_to_chance_takes_the_most_probable():
    model, batch = make_language_model(), make_prompts()
    expected = generate(model, *batch, max_new_tokens=7)
    for sampling in (Sampling(1e-4), Sampling(top_k=1), Sampling(top_p=1e-6)):
        assert torch.equal(generate(model, *batch, max_new_tokens=7, sampling=sampling), expected)


def test_a_model_without_a_cache_can_go_on_too():
    model, batch = make_language_model(), make_prompts()
    expected = generate(model, *batch, max_new_tokens=7)
    assert isinstance(model, decoding.CausalLM)

    def bare(ids, *, mask):
        return model(ids, mask=mask)

    assert torch.equal(generate(bare, *batch, max_new_tokens=7), expected)


def test_generate_stops_at_the_maximum_length_of_the_model():
    for positions in ("rotary", "alibi", "learned"):
        model, batch = make_language_model(positions=positions), make_prompts()
        for use_cache in (True, False):
            assert generate(model, *batch, max_new_tokens=20, use_cache=use_cache).shape == (3, 20)  # reads 5 + 19
            model.calls.clear()
            message = r"21 new tokens after prompts of 5 tokens make 25 tokens to read, more than .* max_len \(24\)"
            with pytest.raises(ValueError, match=message):
                generate(model, *batch, max_new_tokens=21, use_cache=use_cache)
            assert model.calls == []


def test_generate_refuses_invalid_settings():
    model, batch = make_language_model(), make_prompts()
    with pytest.raises(ValueError, match=r"max_new_tokens \(0\) must be at least 1"):
        generate(model, *batch, max_new_tokens=0)
    for chunk_size, use_cache in ((0, True), (2, False)):
        with pytest.raises(ValueError, match=r"chunk_size \(.\) must be at least 1, and needs a cache"):
            generate(model, *batch, max_new_tokens=3, chunk_size=chunk_size, use_cache=use_cache)
    with pytest.raises(ValueError, match=r"training mode, .* call model.eval\(\) first"):
        generate(model.train(), *batch, max_new_tokens=3)
    nn.init.constant_(model.eval().norm.weight, math.nan)
    with pytest.raises(ValueError, match="largest logit of each row must be finite, but after 0 tokens one is nan"):
        generate(model, *batch, max_new_tokens=3)


def test_generate_refuses_nan_only_in_the_logits_of_the_next_token():
    def model(ids, *, mask):
        logits = nn.functional.one_hot(ids, 9).double()
        logits[:, 0 if ids.size(1) < 5 else -1] = math.nan
        return logits

    prompts = torch.tensor([[6, 2, 4], [1, 3, 5]])
    assert generate(model, prompts, max_new_tokens=2).tolist() == [[4, 4], [5, 5]]
    with pytest.raises(ValueError, match="after 2 tokens one is nan, so no token can be chosen"):
        generate(model, prompts, max_new_tokens=3)


@pytest.mark.parametrize("sampling", [None, Sampling()])
@pytest.mark.parametrize(("logits", "value"), [([0.0, math.inf, 1.0], "inf"), ([-math.inf] * 3, "-inf")])
def test_generate_refuses_rows_without_a_most_probable_token(logits, value, sampling):
    def model(ids, *, mask):
        return torch.tensor(logits).expand(*ids.shape, 3)

    with pytest.raises(ValueError, match=f"after 0 tokens one is {value}, so no token can be chosen"):
        generate(model, torch.tensor([[1]]), max_new_tokens=2, sampling=sampling)


@pytest.mark.parametrize("use", ["generate", "sample"])
def test_a_row_that_has_ended_cannot_stop_the_others(use):
    def logits(ids):  # the first row ends at once, and then its logits overflow
        row = nn.functional.one_hot(ids.new_tensor([EOS, 3]), 6) * 50.0
        return row.masked_fill((ids == EOS).any(1, keepdim=True), math.nan)[:, None].expand(-1, ids.size(1), -1)

    if use == "generate":
        found = generate(lambda ids, mask: logits(ids), torch.tensor([[4], [4]]), max_new_tokens=3, eos_id=EOS)
        assert found.tolist() == [[EOS] * 3, [3] * 3]
    else:
        model = Writer()
        model.decode = lambda tgt, memory, *, src_mask: (logits(tgt), None)
        found = sample(model, torch.tensor([[4], [5]]), torch.tensor([1, 1]), max_len=3, special=IDS)
        assert found.tolist() == [[EOS, PAD, PAD], [3] * 3]


@pytest.mark.bad_input
def test_prompts_that_do_not_fit_their_lengths_are_refused():
    model, (prompts, lengths) = make_language_model(), make_prompts()
    for wrong in (lengths[:2], lengths - 2, lengths + 1, lengths[None]):
        with pytest.raises(
            ValueError, match=r"prompt_lengths .* must hold a length from 1 to 5 for each of the 3 prompts"
        ):
            generate(model, prompts, wrong, max_new_tokens=3)
    for wrong in (prompts[0], prompts[:0], prompts[:, :0]):
        with pytest.raises(ValueError, match=r"must be \(B, T\) with at least one text of one token"):
            generate(model, wrong, max_new_tokens=3)


# -- What is refused ---------------------------------------------------------------------------------

writers = pytest.mark.parametrize("write", [greedy_search, sample, beam_search])


@writers
def test_a_model_with_dropout_on_is_refused(write):
    with pytest.raises(ValueError, match=r"training mode, .* call model.eval\(\) first"):
        write(Writer().train(), *make_batch(), max_len=3, special=IDS)


@writers
def test_writing_nothing_is_refused(write):
    with pytest.raises(ValueError, match=r"max_len \(0\) must be at least 1"):
        write(Writer(), *make_batch(), max_len=0, special=IDS)


@pytest.mark.parametrize(("bos", "pad"), [(EOS, PAD), (BOS, EOS)])
def test_an_end_that_could_never_be_written_is_refused(bos, pad):
    message = rf"eos \(2\) must be neither bos \({bos}\) nor pad \({pad}\), which are never written"
    with pytest.raises(ValueError, match=message):
        SpecialIds(bos=bos, eos=EOS, pad=pad)


@writers
@pytest.mark.parametrize("special", [{"eos": 6}, {"pad": 6}])
def test_an_id_outside_the_vocabulary_is_refused(write, special):
    with pytest.raises(ValueError, match=r"must be below the size of the vocabulary \(6\)"):
        write(Writer(), *make_batch(), special=replace(IDS, **special), max_len=3)
    with pytest.raises(ValueError, match=r"bos \(1\) and pad \(-1\) must be ids of tokens"):
        SpecialIds(bos=1, eos=EOS, pad=-1)


@writers
def test_the_beginning_may_be_padding(write):
    # As in Marian's checkpoints.
    assert len(write(Writer(), *make_batch(), special=SpecialIds(bos=PAD, eos=EOS, pad=PAD), max_len=3)) == 3


@writers
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_and_infinity_are_refused_where_they_appear(write, value):
    with pytest.raises(ValueError, match=f"but after 0 tokens one is {value}, so no token can be chosen"):
        write(Writer(ending=value), *make_batch(), max_len=3, special=IDS)


class Allows:
    """A rule for every source: the tokens that may follow each beginning, and everything after all others."""

    def __init__(self, table):
        self.table = table

    def __call__(self, source):
        return self

    def allowed(self, written):
        assert EOS not in written
        following = self.table.get(tuple(written), range(6))
        return torch.tensor([i in following for i in range(6)])

    def penalty(self, written):
        return 0.0


@pytest.mark.parametrize("write", [greedy_search, beam_search])
def test_a_rule_that_allows_nothing_is_refused(write):
    rule = Allows({(): {A, B_}, (A,): {}, (B_,): {}})
    message = "the model or the rule must allow a token, but after 1 tokens for source 0 all are forbidden"
    with pytest.raises(ValueError, match=message):
        write(Scripted(GARDEN_PATH), *ONE_SOURCE, max_len=5, special=IDS, rule=rule)


def test_a_beam_in_which_nothing_is_allowed_leaves_the_search_to_the_others():
    rule = Allows({(A,): {}, (B_, C): {EOS}})
    (found,) = beam_search(Scripted(GARDEN_PATH), *ONE_SOURCE, max_len=5, special=IDS, rule=rule, beam=Beam(2))
    assert [h.ids.tolist() for h in found] == [[B_, C, EOS], [B_, EOS]]


def test_a_rule_is_not_asked_after_the_end():
    src, lengths = make_batch((5, 2, 3, 4, 1, 2, 3), seed=1)  # some end early
    written = greedy_search(Writer(seed=3), src, lengths, max_len=9, special=IDS, rule=Allows({}))
    assert torch.equal(written, greedy_search(Writer(seed=3), src, lengths, max_len=9, special=IDS))


@writers
@pytest.mark.bad_input
def test_lengths_that_do_not_fit_are_refused(write):
    src, lengths = make_batch()
    with pytest.raises(ValueError, match=r"src \(3, 5\) .* src_lengths \(2,\) must hold one length for each"):
        write(Writer(), src, lengths[:2], max_len=3, special=IDS)
    with pytest.raises(ValueError, match="at least one source"):
        write(Writer(), src[:0], lengths[:0], max_len=3, special=IDS)
    with pytest.raises(ValueError, match=r"src_lengths \[5, 0, 3\] must be at least 1, because an empty source"):
        write(Writer(), src, lengths * torch.tensor([1, 0, 1]), max_len=3, special=IDS)
    with pytest.raises(ValueError, match=r"longest length \(9\) must not exceed"):
        write(Writer(), src, lengths + 4, max_len=3, special=IDS)


def test_settings_without_meaning_are_refused():
    with pytest.raises(ValueError, match=r"size \(0\) must be at least 1"):
        Beam(0)
    with pytest.raises(ValueError, match=r"length_penalty \(-0.5\) must be at least 0"):
        Beam(length_penalty=-0.5)
    for reward in (-0.5, math.inf, math.nan):
        with pytest.raises(ValueError, match=rf"length_reward \({reward}\) must be at least 0 and finite"):
            Beam(length_reward=reward)
    for patience in (0.9, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match=rf"patience \({patience}\) must be at least 1 and finite"):
            Beam(patience=patience)
    for temperature in (0.0, -1.0, 1e-50, 1e50, math.inf, math.nan):
        message = r"temperature \(.*\) must be from 1e-38 to 1e38, .* greedy_search"
        with pytest.raises(ValueError, match=message):
            Sampling(temperature)
        with pytest.raises(ValueError, match=message):
            apply_temperature(torch.zeros(3), temperature)
    for refuses in (lambda k: Sampling(top_k=k), lambda k: keep_top_k(torch.zeros(3), k)):
        with pytest.raises(ValueError, match=r"top_k \(0\) must be at least 1"):
            refuses(0)
    for p in (0.0, 1.5, -0.1, math.nan):
        for refuses in (lambda p: Sampling(top_p=p), lambda p: keep_top_p(torch.zeros(3), p)):
            with pytest.raises(ValueError, match=r"top_p \(.*\) must be above 0 and at most 1"):
                refuses(p)


@writers
def test_each_source_has_its_own_limit(write):
    src, lengths = make_batch()
    limits = torch.tensor([2, 7, 4])
    found = write(Writer(ending=-100.0), src, lengths, max_len=limits, special=IDS)
    for row, limit in zip(found, limits, strict=True):
        hypotheses = [row[row != PAD]] if isinstance(row, torch.Tensor) else [h.ids for h in row]
        assert max(map(len, hypotheses)) == limit


@writers
@pytest.mark.bad_input
def test_limits_for_another_number_of_sources_are_refused(write):
    with pytest.raises(ValueError, match=r"max_len of shape \(2,\) must be one number, or one for each of the 3"):
        write(Writer(), *make_batch(), max_len=torch.tensor([2, 7]), special=IDS)


# -- Half precision ----------------------------------------------------------------------------------


class InHalf(Writer):
    """A writer whose logits are rounded to bfloat16."""

    def decode(self, tgt, memory, *, src_mask):
        logits, _ = super().decode(tgt, memory, src_mask=src_mask)
        return logits.bfloat16(), None


@pytest.mark.cpu_only("its logits are made on the CPU")
def test_the_log_prob_of_a_model_in_half_precision_is_summed_in_float32():
    model, (src, lengths) = InHalf(ending=-3.0), make_batch()
    for source, length, hypotheses in zip(
        src, lengths, beam_search(model, src, lengths, max_len=12, special=IDS), strict=True
    ):
        for ids, log_prob, _ in hypotheses:
            memory, _ = model.encode(source[None, :length], src_mask=torch.ones(1, 1, length, dtype=torch.bool))
            tgt = torch.tensor([[BOS, *ids[:-1]]])
            logits, _ = model.decode(tgt, memory, src_mask=torch.ones(1, 1, length, dtype=torch.bool))
            exact = logits[0].double().log_softmax(-1).gather(1, ids[:, None]).sum().item()
            assert log_prob == pytest.approx(exact, abs=1e-5)


def test_top_p_sums_in_float32():
    logits = torch.randn(20, 2000, generator=torch.Generator().manual_seed(0)).bfloat16()
    kept = keep_top_p(logits, 0.9)
    assert kept.dtype == torch.bfloat16
    assert torch.equal(kept.isfinite(), keep_top_p(logits.double(), 0.9).isfinite())


def test_a_very_low_temperature_draws_the_most_probable_token():
    logits = torch.tensor([[50.0, 60.0, -70.0]])
    for dtype, temperature in ((torch.float16, 1e-4), (torch.float32, 1e-38)):
        assert Sampling(temperature).draw(logits.to(dtype)).tolist() == [1]


@writers
def test_no_gradients_are_kept(write):
    model = Writer()
    ids = write(model, *make_batch(), max_len=3, special=IDS)
    assert model.calls
    assert isinstance(ids, list) or not ids.requires_grad


def test_a_transformer_is_what_decoding_asks_for():
    torch.manual_seed(0)
    model = Transformer(13, 11, d_model=8, num_heads=2, d_ff=12).eval()
    assert isinstance(model, decoding.Seq2SeqModel)
    src, lengths = make_batch()
    ids = greedy_search(model, src, lengths, max_len=7, special=IDS)
    found = beam_search(model, src, lengths, max_len=7, beam=Beam(1), special=IDS)
    assert [h[0].ids.tolist() for h in found] == [row[row != PAD].tolist() for row in ids]
    wide = beam_search(model, src, lengths, max_len=7, beam=Beam(3, length_penalty=0.0), special=IDS)
    for best, row in zip(wide, ids, strict=True):
        assert len(best) == 3
        assert best[0].ids.numel() <= 7
        assert row.numel() <= 7
