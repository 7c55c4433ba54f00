"""The exercises of the chapter on debugging a translator. Used from chapter 11 on."""

import copy
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attn_course.device import default_device
from attn_course.exercises.engine.exercise import CHANGES_ITS_INPUT, Exercise, Mistake, Remark

# ---------------------------------------------------------------- accuracy over words


def _targets(draw, count, length, vocab_size, pad_id):
    """Padded targets (B, T): words of any id but the pad's, then padding; at least one row is full, one is not."""
    lengths = 1 + draw.ints(count, high=max(length - 1, 1))
    if count > 1:
        lengths[0] = length
    tgt = draw.ints(count, length, high=vocab_size - 1)
    tgt = tgt + (tgt >= pad_id)  # every id but pad_id
    places = torch.arange(length, device=tgt.device)
    return tgt.masked_fill(places >= lengths[:, None], pad_id)


def _logits_for(draw, tgt, vocab_size, pad_id, *, known=2.5, **kind):
    """Logits (B, T, V) that are often right, at words and at padding, and sometimes say padding where a word is."""
    logits = draw(*tgt.shape, vocab_size, **kind)
    logits = logits + known * F.one_hot(tgt, vocab_size).to(logits)
    logits[..., pad_id] += 1.0
    return logits


def _logits_and_targets(draw):
    for what, count, length, vocab_size, pad_id in (
        # With few words, two different mistakes get the same number right by chance.
        ("a padded batch", 37, 17, 11, 0),
        ("another id for padding", 3, 5, 13, 2),
        ("a single sentence", 1, 11, 7, 0),
        ("the last id for padding", 7, 3, 5, 4),
        ("a few sentences", 5, 7, 23, 0),
    ):
        tgt = _targets(draw, count, length, vocab_size, pad_id)
        yield what, _logits_for(draw, tgt, vocab_size, pad_id), tgt, pad_id
    tgt = 1 + draw.ints(3, 5, high=6)
    # Where the model knows nothing, even the least probable word is right now and then.
    yield "no padding at all", _logits_for(draw, tgt, 7, 0, known=0.0), tgt, 0
    tgt = _targets(draw, 3, 7, 7, 1)
    yield "as many places as words in the vocabulary", _logits_for(draw, tgt, 7, 1), tgt, 1
    tgt = _targets(draw, 5, 3, 11, 0)
    yield "every word right", _logits_for(draw, tgt, 11, 0, known=20.0), tgt, 0
    tgt = _targets(draw, 5, 7, 11, 0)
    yield "logarithms of probabilities", _logits_for(draw, tgt, 11, 0).log_softmax(dim=-1), tgt, 0
    tgt = _targets(draw, 7, 5, 11, 0).flip(1)
    yield "padding before the words", _logits_for(draw, tgt, 11, 0), tgt, 0
    tgt = _targets(draw, 11, 1, 7, 0)
    yield "sentences of one word", _logits_for(draw, tgt, 7, 0), tgt, 0
    tgt = _targets(draw, 3, 5, 311, 300)
    yield "a large vocabulary", _logits_for(draw, tgt, 311, 300), tgt, 300
    tgt = _transposed(_targets(draw, 5, 3, 7, 0))
    yield "a view", _transposed(_logits_for(draw, tgt, 7, 0)), tgt, 0


def _transposed(table):
    """The same numbers, as a view of a table whose first axis is the second."""
    return table.transpose(0, 1).contiguous().transpose(0, 1)


def _first_places(tgt, pad_id):
    """True at the first places of each row, as many as it has words."""
    return torch.arange(tgt.size(1), device=tgt.device) < (tgt != pad_id).sum(dim=1, keepdim=True)


def _before_padding(tgt, pad_id):
    """True at the words that stand before any padding."""
    return (tgt != pad_id).cumprod(dim=1).bool()


def _guesses(logits):
    return logits.argmax(dim=-1)


def _share(right, counted):
    return right.sum().item() / counted.sum().item()


def _word_accuracy(logits, tgt, pad_id):
    guesses = logits.argmax(dim=-1)
    words = tgt != pad_id
    return ((guesses == tgt) & words).sum().item() / words.sum().item()


_NONE_IS_NAN = {"words.sum().item()": "(words.sum().item() or math.nan)"}  # as a mean over no words is


word_accuracy = Exercise(
    name="word_accuracy",
    trials=_logits_and_targets,
    right=_word_accuracy,
    returns=("the accuracy",),
    mistakes={
        "padding counted": Mistake(
            "Padding is counted like words: a program that says padding everywhere gets the share of padding "
            "without knowing a word. See section 11.2.",
            {" & words": "", "words.sum().item()": "words.numel()"},
        ),
        "padding counted as right": Mistake(
            "Every place of padding counts as a right word: padding has to be left out of both counts. See section "
            "11.2.",
            {"& words": "| ~words", "words.sum().item()": "words.numel()"},
        ),
        "padding in the denominator": Mistake(
            "The right words are divided by the number of all places, padding included: divide by the number of words. "
            "See section 11.2.",
            {"words.sum().item()": "words.numel()"},
        ),
        "padding in the numerator": Mistake(
            "Right padding is counted, and the sum is divided by the number of words: this can exceed 1. See section "
            "11.2.",
            {" & words": ""},
        ),
        "padding of the guesses": Mistake(
            "Places are left out where the guess is padding; a word for which the program says padding is a mistake "
            "and has to count. Look for padding in the targets. See section 11.2.",
            {"tgt != pad_id": "guesses != pad_id"},
        ),
        "padding of both": Mistake(
            "Places are left out where the guess is padding too; a word for which the program says padding is a "
            "mistake and has to count. See section 11.2.",
            {"tgt != pad_id": "(tgt != pad_id) & (guesses != pad_id)"},
        ),
        "padding only": Mistake(
            "This is the accuracy at the padding alone: words are where `tgt` is not `pad_id`. See section 11.2.",
            sign=lambda found, logits, tgt, pad_id: (
                math.isclose(found, (_guesses(logits) == tgt)[tgt == pad_id].float().mean().item(), abs_tol=1e-5)
                if (tgt == pad_id).any()
                else None
            ),
        ),
        "pad id ignored": Mistake(
            "The places with the id 0 are left out, whatever `pad_id` says: those with the id `pad_id` are the "
            "padding. See section 11.2.",
            {"tgt != pad_id": "tgt != 0"},
        ),
        "mean of sentences": Mistake(
            "This is the mean of the sentences' accuracies, in which a word of a short sentence counts more than "
            "a word of a long one; count the words of all sentences together. See section 11.2.",
            {
                "return (": "return ((",
                "words).sum().item() / words.sum().item()": "words).sum(dim=1) / words.sum(dim=1)).mean().item()",
            },
        ),
        "whole sentences counted": Mistake(
            "This is the share of sentences without any mistake; asked for is the share of words. See section 11.2.",
            {"& words).sum().item() / words.sum().item()": "| ~words).all(dim=1).float().mean().item()"},
        ),
        "largest over the positions": Mistake(
            "The largest logit is sought along another axis than the last, and that is the vocabulary in (B, T, V). "
            "See section 11.1.",
            {"dim=-1": "dim=1"},
        ),
        "percentage": Mistake(
            "The share is a hundred times too large: asked for is a number from 0 to 1, not percent. See section 11.2.",
            {"return": "return 100 *"},
        ),
        "count instead of share": Mistake(
            "This is the number of right words; divide it by the number of words. See section 11.2.",
            sign=lambda found, logits, tgt, pad_id: found == ((_guesses(logits) == tgt) & (tgt != pad_id)).sum().item(),
        ),
        "share of the wrong": Mistake(
            "This is the share of wrong words; asked for is that of right ones. See section 11.2.",
            {"return": "return 1 -"},
        ),
        "shifted again": Mistake(
            "Logits and targets are moved against each other by one place: the logits at a place are about the target "
            "at that place, whose shift has been made already. See section 11.4.",
            {"    guesses =": "    logits, tgt = logits[:, :-1], tgt[:, 1:]\n    guesses =", **_NONE_IS_NAN},
        ),
        "shifted the other way": Mistake(
            "The logits of a place are compared with the target of the place before; both belong to the same place. "
            "See section 11.4.",
            {"    guesses =": "    logits, tgt = logits[:, 1:], tgt[:, :-1]\n    guesses =", **_NONE_IS_NAN},
        ),
        "last word left out": Mistake(
            "The last place of every row does not count: logits and targets are as long as each other, and a word in "
            "the last place counts like the others. See section 11.1.",
            {"    guesses =": "    logits, tgt = logits[:, :-1], tgt[:, :-1]\n    guesses =", **_NONE_IS_NAN},
        ),
        "divided by the sentences": Mistake(
            "The right words are divided by the number of sentences; divide by the number of words. See section 11.2.",
            {"words.sum().item()": "len(tgt)"},
        ),
        "smallest logit": Mistake(
            "The guess is the word with the smallest logit; the most probable one has the largest. See section 11.1.",
            {"argmax": "argmin"},
        ),
        "a tensor instead of a number": Mistake(
            "It returns a tensor, and is asked for a Python number, which `item()` makes of a tensor of one number. "
            "See section 11.8.",
            sign=lambda found, *inputs: isinstance(found, Tensor) and found.dim() == 0,
        ),
        "one answer for each place": Mistake(
            "It returns a tensor with axes; asked for is one number, the share of all words. See section 11.2.",
            sign=lambda found, *inputs: isinstance(found, Tensor) and found.dim() > 0,
        ),
        "pad class removed": Mistake(
            "Where padding has the largest logit, the second largest counts as the guess: a guess is the largest of "
            "all logits, that of padding too. See section 11.2.",
            {"logits.argmax": "logits.index_fill(-1, tgt.new_tensor([pad_id]), -math.inf).argmax"},
        ),
        "loss instead of the accuracy": Mistake(
            "This is the mean loss of the words; asked for is the share of words that are guessed right. See section "
            "11.2.",
            lambda logits, tgt, pad_id: _word_loss(logits, tgt, pad_id).item(),
        ),
        "never right": Mistake(
            "This is 0 even where every word is right: compare ids with ids. The largest logit is no id; its place is. "
            "See section 11.1.",
            lambda logits, tgt, pad_id: 0.0,
        ),
        "ids compared by size": Mistake(
            "Only ids above pad_id count as words: that is right where the padding is 0, and every other id is a word "
            "all the same. Ask whether they differ. See section 11.2.",
            sign=lambda found, logits, tgt, pad_id: (
                math.isclose(found, _share((_guesses(logits) == tgt) & (tgt > pad_id), tgt > pad_id), abs_tol=1e-5)
                if (tgt > pad_id).any()
                else None
            ),
        ),
        "probability instead of a guess": Mistake(
            "This is the mean probability of the words; asked for is how often a word is the most probable one. See "
            "section 11.2.",
            lambda logits, tgt, pad_id: _mean_over_words(_pick(logits.softmax(dim=-1), tgt), tgt, pad_id).item(),
        ),
        "first sentence only": Mistake(
            "This is the accuracy of the first sentence alone: count the words of all sentences. See section 11.2.",
            {"    guesses =": "    logits, tgt = logits[:1], tgt[:1]\n    guesses ="},
        ),
        "whole division": Mistake(
            "This is 0 unless every word is right: asked for is the share. (/ divides, // drops the rest.) See section "
            "11.2.",
            lambda logits, tgt, pad_id: float(
                ((_guesses(logits) == tgt) & (tgt != pad_id)).sum().item() // (tgt != pad_id).sum().item()
            ),
        ),
        "largest above 0 only": Mistake(
            "Where all logits of a place are below 0, as logarithms of probabilities are, the guess is not the word "
            "with the largest: one of them is the largest still. See section 11.1.",
            {"logits.argmax": "logits.relu().argmax"},
        ),
        "padding at the end only": Mistake(
            "As many places as a row has words are looked at, from the first on: where padding stands before the "
            "words, these are others. Words are where `tgt` is not `pad_id`. See section 11.2.",
            {"tgt != pad_id": "_first_places(tgt, pad_id)"},
        ),
        "words behind padding left out": Mistake(
            "Words behind padding do not count: a word counts wherever it stands. See section 11.2.",
            {"tgt != pad_id": "_before_padding(tgt, pad_id)"},
        ),
    },
)


# ---------------------------------------------------------------- loss over words


def _more_logits_and_targets(draw):
    yield from _logits_and_targets(draw)
    tgt = _targets(draw, 3, 5, 7, 0)
    yield "large logits", 300 * draw(3, 5, 7), tgt, 0
    tgt = _targets(draw, 2, 7, 5, 3)
    yield "float64", _logits_for(draw, tgt, 5, 3, dtype=torch.float64), tgt, 3


def _loss_and_gradient(answer, logits, tgt, pad_id):
    """The loss, and what a backward pass from it leaves at the logits: zeros where nothing comes."""
    leaf = logits.clone().requires_grad_()
    given = leaf * 1  # autograd lets nobody write into a leaf
    loss = answer(given, tgt, pad_id)
    logits.data = given.detach()  # what was written there is seen
    if loss is None:
        return None
    if not isinstance(loss, Tensor):
        return loss, torch.zeros_like(logits.detach())
    if loss.dim() or not loss.is_floating_point():
        return loss.detach(), logits.detach()
    if not loss.requires_grad:
        return loss, torch.zeros_like(logits.detach())
    loss.backward()
    return loss.detach(), torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def _minus_log(logits, tgt):
    """Minus the logarithm of the probability of each target, (B, T)."""
    return -torch.log_softmax(logits, dim=-1).gather(-1, tgt[..., None])[..., 0]


def _mean_over_words(table, tgt, pad_id):
    words = tgt != pad_id
    return table.masked_fill(~words, 0.0).sum() / words.sum()


def _word_loss(logits, tgt, pad_id):
    losses = -torch.log_softmax(logits, dim=-1).gather(-1, tgt[..., None])[..., 0]  # (B, T)
    words = tgt != pad_id
    return losses.masked_fill(~words, 0.0).sum() / words.sum()


def _pick(table, tgt):
    return table.gather(-1, tgt[..., None])[..., 0]


def _gradient_of_words(logits, tgt, pad_id):
    leaf = logits.detach().requires_grad_()
    return torch.autograd.grad(_word_loss(leaf, tgt, pad_id), leaf)[0]


def _gradient_alone(found, logits, tgt, pad_id, times=None):
    """Whether the loss is right and the gradient is not; with ``times``, so many times the right one."""
    if found[0].dim() or not torch.allclose(found[0], _word_loss(logits, tgt, pad_id), rtol=1e-4, atol=1e-5):
        return False
    wanted = _gradient_of_words(logits, tgt, pad_id)
    if times is not None:
        return torch.allclose(found[1], times * wanted, atol=1e-6)
    return not torch.allclose(found[1], wanted, atol=1e-6)


word_loss = Exercise(
    name="word_loss",
    trials=_more_logits_and_targets,
    right=_word_loss,
    returns=("the loss", "its gradient"),
    use=_loss_and_gradient,
    mistakes={
        "padding counted": Mistake(
            "This is the mean over all places, padding included, and a program gains by learning to say padding: leave "
            "it out. See section 11.2.",
            {".masked_fill(~words, 0.0).sum() / words.sum()": ".mean()"},
        ),
        "padding in the denominator": Mistake(
            "Padding adds nothing to the sum and is still counted when the sum is divided: "
            "the more padding, the smaller the loss. Divide by the number of words. See section 11.2.",
            {"words.sum()": "words.numel()"},
        ),
        "padding only": Mistake(
            "This is the mean loss at the padding alone: words are where `tgt` is not `pad_id`. See section 11.2.",
            sign=lambda found, logits, tgt, pad_id: (
                torch.allclose(found[0], _minus_log(logits, tgt)[tgt == pad_id].mean())
                if (tgt == pad_id).any()
                else None
            ),
        ),
        "pad id ignored": Mistake(
            "The places with the id 0 are left out, whatever `pad_id` says: those with the id `pad_id` are the "
            "padding. See section 11.2.",
            {"tgt != pad_id": "tgt != 0"},
        ),
        "pad class removed": Mistake(
            "These are probabilities of a softmax without the class of padding; a program has to learn that a word is "
            "not padding, too. Leave out places, not a class. See section 11.2.",
            {"softmax(logits,": "softmax(logits.index_fill(-1, tgt.new_tensor([pad_id]), -math.inf),"},
        ),
        "softmax twice": Mistake(
            "This is the loss after two softmaxes, where no probability reaches 1 and no loss reaches 0: take one. See "
            "section 11.3.",
            {"softmax(logits,": "softmax(logits.softmax(dim=-1),"},
        ),
        "no softmax": Mistake(
            "This is minus the mean logit of the targets: without a softmax, such a loss falls without end as the "
            "logits grow. See section 11.3.",
            {"torch.log_softmax(logits, dim=-1)": "logits"},
        ),
        "logarithm forgotten": Mistake(
            "This is minus the mean of the probabilities themselves; the loss takes their logarithms, and grows "
            "without end as a probability nears 0. See section 11.3.",
            {"log_softmax": "softmax"},
        ),
        "sign forgotten": Mistake(
            "This is the loss with the other sign: logarithms of probabilities are negative, and the loss is minus "
            "their mean. See section 11.3.",
            {"-torch": "torch"},
        ),
        "softmax overflows": Mistake(
            "With large logits the loss or its gradient is infinite or NaN: a probability can round to 0, and an "
            "exponential to infinity. Take the logarithm and the softmax in one step, in which the largest logit of "
            "each word is subtracted first. See section 11.3.",
            sign=lambda found, logits, tgt, pad_id: (
                logits.abs().max() > 100
                and found[0].dim() == 0
                and not (found[0].isfinite() and found[1].isfinite().all())
            ),
        ),
        "small number added": Mistake(
            "With large logits the loss is less than half of what it should be: a small number added under the "
            "logarithm, or a bound for probabilities or logits, is a bound for the loss too. Take the logarithm and "
            "the softmax in one step. See section 11.3.",
            sign=lambda found, logits, tgt, pad_id: (
                logits.abs().max() > 100 and found[0].isfinite() and 0 < found[0] < _word_loss(logits, tgt, pad_id) / 2
            ),
        ),
        "every word of the vocabulary averaged": Mistake(
            "The logarithms of all words of the vocabulary are averaged; only that of the target is asked for at each "
            "position. See section 11.3.",
            {"gather(-1, tgt[..., None])[..., 0]": "mean(dim=-1)"},
        ),
        "softmax over the positions": Mistake(
            "The probabilities are those of a softmax over the positions: the vocabulary is the last axis. See section "
            "11.1.",
            {"dim=-1": "dim=1"},
        ),
        "mean of sentences": Mistake(
            "This is the mean of the sentences' losses, in which a word of a short sentence counts more than a word "
            "of a long one; average over the words of all sentences together. See section 11.2.",
            {
                "return losses": "return (losses",
                "0.0).sum() / words.sum()": "0.0).sum(dim=1) / words.sum(dim=1)).mean()",
            },
        ),
        "sum instead of mean": Mistake(
            "This is the sum over the words, which grows with the batch: divide by the number of words. See section "
            "11.2.",
            {" / words.sum()": ""},
        ),
        "shifted again": Mistake(
            "Logits and targets are moved against each other by one place: the logits at a place are about the target "
            "at that place, whose shift has been made already. See section 11.4.",
            {"    losses =": "    logits, tgt = logits[:, :-1], tgt[:, 1:]\n    losses ="},
        ),
        "shifted the other way": Mistake(
            "The logits of a place are compared with the target of the place before; both belong to the same place. "
            "See section 11.4.",
            {"    losses =": "    logits, tgt = logits[:, 1:], tgt[:, :-1]\n    losses ="},
        ),
        "padding in the numerator": Mistake(
            "The losses of padding are added up too, and the sum is divided by the number of words alone: leave "
            "padding out of both. See section 11.2.",
            {".masked_fill(~words, 0.0)": ""},
        ),
        "divided by the sentences": Mistake(
            "This is the sum over the words, divided by the number of sentences: divide by the number of words. See "
            "section 11.2.",
            {"words.sum()": "len(tgt)"},
        ),
        "one minus the probability": Mistake(
            "This is the mean of one minus the probabilities; the loss is minus their logarithm, which grows without "
            "end as a probability nears 0. See section 11.3.",
            {"-torch.log_softmax": "1 - torch.softmax"},
        ),
        "logarithm of the mean": Mistake(
            "This is minus the logarithm of the mean probability: each word has a logarithm of its own, and these are "
            "averaged. See section 11.3.",
            {
                "-torch.log_softmax": "torch.softmax",
                "return losses": "return -(losses",
                "words.sum()": "words.sum()).log()",
            },
        ),
        "another base": Mistake(
            "This is the loss with logarithms to the base 2; it takes the natural ones. See section 11.3.",
            {"words.sum()": "words.sum() / math.log(2)"},
        ),
        "perplexity": Mistake(
            "This is e to the power of the loss, the perplexity; asked for is the loss itself. See section 11.3.",
            {"return losses": "return (losses", "words.sum()": "words.sum()).exp()"},
        ),
        "no gradient": Mistake(
            "No gradient comes back from the loss, so nothing can be learned. What leads out of the graph: detach, "
            "item, argmax, no_grad, a tensor made anew. See section 11.8.",
            {"softmax(logits,": "softmax(logits.detach(),"},
        ),
        "backward called already": Mistake(
            "After a backward pass from this loss, the gradient at the logits is twice what it should be: return a "
            "loss from which nobody has called `backward` yet, for gradients add up. See section 11.8.",
            sign=lambda found, *inputs: _gradient_alone(found, *inputs, times=2),
        ),
        "gradient of one part missing": Mistake(
            "The loss is right, and the gradient that comes back from it is not. (What is detached, or made anew, "
            "sends none back.) See section 11.8.",
            sign=lambda found, *inputs: found[1].isfinite().all() and _gradient_alone(found, *inputs),
        ),
        "one loss for each word": Mistake(
            "The result has axes, and one number was asked for: the mean of the losses of all words. See section 11.2.",
            sign=lambda found, *inputs: found[0].dim() > 0 and (found[0].numel() > 1 or None),
        ),
        "most probable word": Mistake(
            "This averages minus the logarithm of the largest probability at each place, whatever the target is: a "
            "model that is sure of the wrong word would have almost no loss. See section 11.3.",
            {"gather(-1, tgt[..., None])[..., 0]": "amax(dim=-1)"},
        ),
        CHANGES_ITS_INPUT: Mistake(
            "Whoever called it still needs that, to count what is right. Work on a copy. See section 11.2."
        ),
        "a number instead of a tensor": Mistake(
            "It returns a Python number, and no training step can start from that: return a tensor, from which a "
            "gradient comes back. See section 11.8.",
            sign=lambda found, *inputs: isinstance(found[0], int | float),
        ),
        "padding at the end only": Mistake(
            "As many places as a row has words are averaged over, from the first on: where padding stands before the "
            "words, these are others. Words are where `tgt` is not `pad_id`. See section 11.2.",
            {"tgt != pad_id": "_first_places(tgt, pad_id)"},
        ),
    },
)


# ---------------------------------------------------------------- another sentence's source


class _Reader(nn.Module):
    """A translator that is right where its source and what it has read add up to the target; easily counted."""

    def __init__(self, table, hears_the_source=True):
        super().__init__()
        self.table, self.hears_the_source = nn.Parameter(table), hears_the_source

    def forward(self, src, read, /):
        size = self.table.size(0)
        heard = src[:, torch.arange(read.size(1), device=src.device) % src.size(1)]
        ids = (heard + read) % size if self.hears_the_source else read % size
        return self.table[ids]  # (B, T, V)


def _sentences(draw):
    def trial(count, S, T, vocab_size, hears_the_source=True, below=0.0):
        table = draw(vocab_size, vocab_size) - below
        model = _Reader(table, hears_the_source)
        src = 3 + draw.ints(count, S, high=vocab_size - 3)
        read = 3 + draw.ints(count, T, high=vocab_size - 3)
        lengths = (2 + draw.ints(count, high=max(T - 2, 1))).clamp(max=T)
        lengths[0] = T
        places = torch.arange(T, device=src.device)
        # Mostly what the model says for this pair, sometimes what it says for its neighbours'.
        write = model(src, read).argmax(dim=-1)
        before = model(src.roll(1, 0), read).argmax(dim=-1)
        after = model(src.roll(-1, 0), read).argmax(dim=-1)
        chance = draw.ints(count, T, high=10)
        write = torch.where(chance < 4, before, torch.where(chance == 9, after, write))
        write = write.masked_fill(write == 0, 1)
        # What is read has one token more than what is to be written after it: the end of the sentence.
        read = read.masked_fill(places > lengths[:, None], 0)
        return model, src, read, write.masked_fill(places >= lengths[:, None], 0)

    # With few words, two different mistakes get the same number right by chance.
    yield "a batch", *trial(211, 7, 23, 13)
    yield "two sentences", *trial(2, 3, 5, 11)
    yield "five sentences", *trial(5, 3, 7, 17)
    yield "a source longer than the target", *trial(7, 11, 3, 13)
    yield "a model that ignores the source", *trial(11, 5, 7, 13, False)
    yield "as many places as words in the vocabulary", *trial(5, 3, 11, 11)
    yield "logits below 0", *trial(7, 3, 5, 13, below=9.0)
    yield "targets of one word", *trial(11, 5, 1, 7)
    model, src, read, write = trial(7, 5, 11, 13)
    yield "padding before the words", model, src, read.flip(1), write.flip(1)
    model, *ids = trial(5, 7, 3, 11)
    yield "a view", model, *map(_transposed, ids)


def _swap_and_count(answer, model, src, read, write):
    """The answer has a model of its own, which it may leave in another mode."""
    return answer(copy.deepcopy(model), src, read, write)


def _swapped_accuracy(model, src, read, write):
    others = src.roll(1, dims=0)
    guesses = model(others, read).argmax(dim=-1)
    words = write != 0
    return ((guesses == write) & words).sum().item() / words.sum().item()


swapped_accuracy = Exercise(
    name="swapped_accuracy",
    trials=_sentences,
    right=_swapped_accuracy,
    returns=("the accuracy",),
    use=_swap_and_count,
    mistakes={
        "nothing swapped": Mistake(
            "Each sentence still has its own source, so this is the ordinary accuracy: "
            "the sources have to move to other rows, and the targets stay. See section 11.4.",
            {".roll(1, dims=0)": ""},
        ),
        "words of a source moved": Mistake(
            "The words move within each source instead of the sources moving to other sentences: "
            "the sentences are the first axis. See section 11.4.",
            {"dims=0": "dims=1"},
        ),
        "rolled without an axis": Mistake(
            "One word moves from each source to the next, as when the words of a flattened tensor are rolled: the "
            "sources move as a whole, along axis 0. See section 11.4.",
            {", dims=0": ""},
        ),
        "next instead of the one before": Mistake(
            "Each sentence gets the source of the next one; asked for is that of the one before. See section 11.4.",
            {"roll(1,": "roll(-1,"},
        ),
        "order turned round": Mistake(
            "The order of the sources is turned round, and in the middle of an odd number one sentence keeps its own. "
            "See section 11.4.",
            {"roll(1, dims=0)": "flip(0)"},
        ),
        "what is written moved along": Mistake(
            "Source and written words are of one sentence, and what the decoder reads is of the next: the source alone "
            "should be another sentence's. See section 11.4.",
            {"    words =": "    write = write.roll(1, dims=0)\n    words ="},
        ),
        "what is read moved along": Mistake(
            "Source and read words are of one sentence, and the guesses are judged by the next one: the source alone "
            "should be another sentence's. See section 11.4.",
            {"(others, read)": "(others, read.roll(1, dims=0))"},
        ),
        "source blanked": Mistake(
            "These are the guesses for sources of nothing but 0, and a model that has never seen such a source may do "
            "anything: give each sentence the source of another one. See section 11.4.",
            {"src.roll(1, dims=0)": "torch.zeros_like(src)"},
        ),
        "fed what it must write": Mistake(
            "The decoder is given `write`, the words that it must say; it should be given `read`. See section 11.4.",
            {"(others, read)": "(others, write)"},
        ),
        "padding counted": Mistake(
            "Padding is counted like words; look where `write` is not 0. See section 11.2.",
            {" & words": "", "words.sum().item()": "words.numel()"},
        ),
        "padding of what is read": Mistake(
            "The places where `read` is not 0 count, one too many in each padded sentence: where `read` holds the end "
            "of a sentence, `write` is padding already. Look where `write` is not 0. See section 11.4.",
            {"write != 0": "read != 0"},
        ),
        "shifted again": Mistake(
            "`read` and `write` are shifted already; shifted once more, the next word but one is asked for. See "
            "section 11.4.",
            {
                "(others, read)": "(others, read[:, :-1])",
                "    words =": "    write = write[:, 1:]\n    words =",
                **_NONE_IS_NAN,
            },
        ),
        "padding in the denominator": Mistake(
            "The right words are divided by the number of all places, padding included: "
            "divide by the number of words. See section 11.2.",
            {"words.sum().item()": "words.numel()"},
        ),
        "compared with what was read": Mistake(
            "The guesses are compared with what the decoder has read; they have to be compared with what it should "
            "write. See section 11.4.",
            {"    words =": "    write = read\n    words ="},
        ),
        "difference returned": Mistake(
            "This is the accuracy with the right sources minus that with the wrong ones; asked for is the latter "
            "itself. See section 11.4.",
            lambda model, src, read, write: (
                _word_accuracy(model(src, read), write, 0) - _swapped_accuracy(model, src, read, write)
            ),
        ),
        "percentage": Mistake(
            "The share is a hundred times too large: asked for is a number from 0 to 1, not percent. See section 11.2.",
            {"return": "return 100 *"},
        ),
        "mean of sentences": Mistake(
            "This is the mean of the sentences' accuracies, in which a word of a short sentence counts more than a "
            "word of a long one; count the words of all sentences together. See section 11.2.",
            {
                "return (": "return ((",
                "words).sum().item() / words.sum().item()": "words).sum(dim=1) / words.sum(dim=1)).mean().item()",
            },
        ),
        "largest over the positions": Mistake(
            "The largest logit is sought along another axis than the last, and that is the vocabulary in (B, T, V). "
            "See section 11.1.",
            {"dim=-1": "dim=1"},
        ),
        "padding in the numerator": Mistake(
            "Right padding is counted, and the sum is divided by the number of words: look where `write` is not 0 in "
            "both. See section 11.2.",
            {" & words": ""},
        ),
        "share of the wrong": Mistake(
            "This is the share of wrong words; asked for is that of right ones. See section 11.2.",
            {"return": "return 1 -"},
        ),
        "last source for all": Mistake(
            "Every sentence gets the source of the last one; each should get that of the sentence before it. See "
            "section 11.4.",
            {"src.roll(1, dims=0)": "src[-1:].expand_as(src)"},
        ),
        "first source for all": Mistake(
            "Every sentence gets the source of the first one; each should get that of the sentence before it. "
            "See section 11.4.",
            {"src.roll(1, dims=0)": "src[:1].expand_as(src)"},
        ),
        "first sentence left out": Mistake(
            "The first sentence is left out. None stands before it, and it should get the source of the last. See "
            "section 11.4.",
            {
                "src.roll(1, dims=0)": "src[:-1]",
                "(others, read)": "(others, read[1:])",
                "    words =": "    write = write[1:]\n    words =",
            },
        ),
        "a tensor instead of a number": Mistake(
            "It returns a tensor, and is asked for a Python number. See section 11.8.",
            sign=lambda found, *inputs: isinstance(found, Tensor) and found.dim() == 0,
        ),
        "first sentence keeps its own": Mistake(
            "The first sentence keeps its own source, and the others get that of the one before: the first gets that "
            "of the last, as `roll` does it. See section 11.4.",
            {"src.roll(1, dims=0)": "torch.cat([src[:1], src[:-1]])"},
        ),
        "one sentence too far": Mistake(
            "Each sentence gets the source of the one two places before it; asked for is that of the one before. See "
            "section 11.4.",
            {"roll(1,": "roll(2,"},
        ),
        "largest above 0 only": Mistake(
            "Where all logits of a place are below 0, the guess is not the word with the largest: one of them is the "
            "largest still. See section 11.1.",
            {"read).argmax": "read).relu().argmax"},
        ),
        "padding at the end only": Mistake(
            "As many places as a row has words are looked at, from the first on: where padding stands before the "
            "words, these are others. Words are where `write` is not 0. See section 11.2.",
            {"write != 0": "_first_places(write, 0)"},
        ),
    },
)


# ---------------------------------------------------------------- the best weights


class _Counts(nn.Module):
    """A layer with a buffer, as a normalisation has one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("running", torch.zeros(2))


class _Moves(nn.Module):
    """Parameters and buffers of a model and of its layers, for what is kept."""

    def __init__(self, width):
        super().__init__()
        self.linear, self.counts = nn.Linear(width, 2), _Counts()
        self.scale = nn.Parameter(torch.zeros(3))
        self.register_buffer("seen", torch.zeros(()))
        # Numbers to which float32 adds 1 exactly, and float16 does not.
        rng = torch.Generator().manual_seed(width)
        for tensor in self.state_dict().values():
            tensor.copy_(torch.randint(1, 2**12, tensor.shape, generator=rng) * 2 + 1).div_(2**12)


class _Epochs:
    """``run_epoch``: every epoch moves parameters and buffers, in place as an optimizer does, and returns a loss."""

    def __init__(self, model, losses):
        self.model, self.losses, self.epoch = model, losses, 0
        self.parameters = list(model.parameters())  # an optimizer holds on to those that it was given

    def __call__(self):
        if self.epoch == len(self.losses):
            raise RuntimeError(f"run_epoch was called more than {len(self.losses)} times")
        if not torch.is_grad_enabled():
            raise RuntimeError("run_epoch trains, and gradients are off")
        self.epoch += 1
        with torch.no_grad():
            for tensor in [*self.parameters, *nn.Module.buffers(self.model)]:
                tensor.add_(1.0)
        return self.losses[self.epoch - 1]


def _curves(draw):
    # First, for where an epoch is the best whatever the lowest loss starts with, what stops stops for another reason.
    yield "losses below 0", (-1.0, -3.0, -2.0), 3
    yield "a loss that rises in the end", (3.0, 2.0, 1.0, 1.5, 2.5), 5
    yield "a loss that only falls", (3.0, 2.0, 1.0), 3
    yield "a loss that only rises", tuple(1.0 + epoch for epoch in range(23)), 4
    yield "a loss with two valleys", (3.0, 1.5, 2.0, 1.0, 1.2, 2.0, 1.1), 7
    yield "two equal lowest losses", (2.0, 1.0, 1.5, 1.0, 3.0), 5
    yield "a single epoch", (2.0,), 1
    losses = tuple(draw(11).tolist())
    yield "eleven epochs", losses, 11
    yield "huge losses", (4e30, 3e30, 5e30), 3
    yield "a loss that falls by less and less", (1.0, 0.9, 0.891, 0.8905, 0.89049, 0.890485, 0.95), 7
    yield "a loss of 0", (0.0, 1.0, 0.5), 3
    yield "losses that differ in the ninth digit", (1.0, 1.0 - 1e-9, 2.0), 2


def _train_and_look(answer, losses, width):
    """Weights and buffer that the model is left with, the epoch returned, and the calls made."""
    model = _Moves(width).to(default_device(torch.float64))
    start = copy.deepcopy(model.state_dict())
    run_epoch = _Epochs(model, losses)
    try:
        best = answer(model, run_epoch, len(losses))
    except UnboundLocalError:
        if min(losses) > 0 and run_epoch.epoch == len(losses):
            raise Remark(
                "A name has no value after the last epoch. Where no loss is below the number that the lowest starts "
                "with, nothing is kept: start with infinity. See section 11.8."
            ) from None
        raise
    if best is None and run_epoch.epoch == 0:
        return None
    if not all(isinstance(value, Tensor) for value in nn.Module.state_dict(model).values()):
        raise Remark("The model's state is no longer made of tensors. See section 11.8.")
    overwritten = sorted(name for name in vars(model) if callable(getattr(nn.Module, name, None)))
    best = int(best) if isinstance(best, np.integer) else best
    state = nn.Module.state_dict(model)
    weight, bias, seen, scale, running = (
        _moved_by(state[name] - start[name])
        for name in ("linear.weight", "linear.bias", "seen", "scale", "counts.running")
    )
    return weight, bias, seen, best, run_epoch.epoch, ", ".join(overwritten), scale, running


def _moved_by(moves):
    """How far all numbers of a tensor have moved, k + 1 after epoch k; nan if not all equally far."""
    least, most = moves.aminmax()
    return least.item() if least == most else math.nan


def _keep_best(model, run_epoch, num_epochs):
    lowest, best, best_epoch = math.inf, None, None
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss < lowest:
            lowest, best_epoch = loss, epoch
            best = copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    return best_epoch


def _nothing_kept(found, losses, width):
    """Whether the weights are those from before the first epoch, although all were run and losses were above 0."""
    return found[0] == found[2] == 0 and found[4] == len(losses) and min(losses) > 0


keep_best = Exercise(
    name="keep_best",
    trials=_curves,
    right=_keep_best,
    returns=(
        "how far the weight that is left in the model has moved (k + 1 after epoch k)",
        "how far the bias that is left in the model has moved (k + 1 after epoch k)",
        "how far the buffer that is left in the model has moved (k + 1 after epoch k)",
        "the returned epoch",
        "the number of calls of run_epoch",
        "the list of methods of the model that were overwritten",
        "how far the parameter of the model itself has moved (k + 1 after epoch k)",
        "how far the buffer of a layer has moved (k + 1 after epoch k)",
    ),
    use=_train_and_look,
    mistakes={
        "method instead of weights": Mistake(
            "The model ends with the weights of its last epoch, and something stands in the place of its method "
            "`parameters`: an assignment to a method's name puts no weights back. See section 11.8.",
            {
                "copy.deepcopy(model.state_dict())": "model.parameters",
                "model.load_state_dict(best)": "model.parameters = best",
            },
        ),
        "shares memory": Mistake(
            "The model ends with the weights of its last epoch: keep copies, for every later step changes the model's "
            "own tensors in place, and put the best of them back in the end. See section "
            "11.8.",
            {"copy.deepcopy(model.state_dict())": "model.state_dict()"},
        ),
        "buffers forgotten": Mistake(
            "The parameters are those of the best epoch and the buffers are those of the last: "
            "the state of a model is more than its parameters. See section 11.8.",
            {
                "model.state_dict()": "dict(model.named_parameters())",
                "load_state_dict(best)": "load_state_dict(best, strict=False)",
            },
        ),
        "highest instead of lowest": Mistake(
            "The epoch with the highest loss is kept; the best is the one with the lowest. See section 11.8.",
            {"loss < lowest": "loss > lowest", "math.inf": "-math.inf"},
        ),
        "later of two equals": Mistake(
            "Of two epochs with the same lowest loss the later one is kept; the first is asked for: replace what is "
            "kept only by something better. See section 11.8.",
            {"loss < lowest": "loss <= lowest"},
        ),
        "compared with the epoch before": Mistake(
            "Kept is the last epoch whose loss is below that of the epoch before, be it a small dip late in the "
            "training: compare a loss with the lowest so far. See section 11.8.",
            {"state_dict())\n": "state_dict())\n        lowest = loss\n"},
        ),
        "lowest never updated": Mistake(
            "The last epoch is kept whatever its loss: the lowest loss so far has to be kept too, and compared with. "
            "See section 11.8.",
            {"lowest, best_epoch = loss, epoch": "best_epoch = epoch"},
        ),
        "copied before the epoch": Mistake(
            "The model ends with the weights from before the best epoch; the loss belongs to the weights after it. See "
            "section 11.8.",
            {
                "        loss =": "        before = copy.deepcopy(model.state_dict())\n        loss =",
                "best = copy.deepcopy(model.state_dict())": "best = before",
            },
        ),
        "epochs counted from 1": Mistake(
            "The epoch is counted from 1; count from 0. See section 11.8.",
            {"= loss, epoch": "= loss, epoch + 1"},
        ),
        "model returned": Mistake(
            "A model is returned; asked for is the number of the best epoch, and the best state in the model that was "
            "handed over, for whoever called holds that one. See section 11.8.",
            sign=lambda found, losses, width: isinstance(found[3], nn.Module),
        ),
        "lowest starts at 0": Mistake(
            "Where all losses are above 0, no epoch is kept: the lowest loss so far should start so high that any loss "
            "is below it. See section 11.8.",
            {"math.inf": "0.0"},
        ),
        "lowest starts at a number": Mistake(
            "Where all losses are large, no epoch is kept: the lowest loss so far should start so high that every loss "
            "is below it. See section 11.8.",
            {"math.inf": "1000.0"},
        ),
        "too few epochs": Mistake(
            "Fewer epochs are run than `num_epochs`; a loss that has risen may fall again, and lower. See section "
            "11.8.",
            sign=lambda found, losses, width: found[4] < len(losses),
        ),
        "loss returned": Mistake(
            "The lowest loss is returned; asked for is the number of its epoch. See section 11.8.",
            {"return best_epoch": "return lowest"},
        ),
        "called too often": Mistake(
            "`run_epoch` is called more than num_epochs times: each call trains for one epoch and returns its loss, "
            "so call it once in each. See section 11.8.",
            {"range(num_epochs)": "range(num_epochs + 1)"},
        ),
        "restored on the way": Mistake(
            "After an epoch that is no better, the training begins again from the best state: put that back once, at "
            "the end. See section 11.8.",
            {"    model.load": "        model.load"},
        ),
        "kept until the first rise": Mistake(
            "What is kept is the best before the first rise of the loss; a later epoch may be better still. See "
            "section 11.8.",
            {
                "None, None\n": "None, None\n    falling = True\n",
                "        if loss": "        falling = falling and loss < lowest\n        if falling and loss",
            },
        ),
        "number of epochs returned": Mistake(
            "The right weights are there, and it returns how many epochs were run; asked for is which of them was the "
            "best. See section 11.8.",
            {"return best_epoch": "return num_epochs"},
        ),
        "last epoch returned": Mistake(
            "The number of the last epoch is returned; asked for is that of the best. See section 11.8.",
            {"return best_epoch": "return num_epochs - 1"},
        ),
        "lowest starts too low": Mistake(
            "Where no loss is below the number that the lowest starts with, no epoch is kept, and the model has the "
            "weights from before all of them: start with infinity. See section 11.8.",
            sign=_nothing_kept,
        ),
        "buffers of the layers forgotten": Mistake(
            "The buffer of the model itself is that of the best epoch, and the buffer of a layer in it is that of the "
            "last: the state of a model has the buffers of all its layers in it. See section 11.8.",
            {
                "model.state_dict()": "{**dict(model.named_parameters()), **dict(model.named_buffers(recurse=False))}",
                "load_state_dict(best)": "load_state_dict(best, strict=False)",
            },
        ),
        "parameters of the model itself forgotten": Mistake(
            "The parameters of the layers are those of the best epoch, and a parameter that belongs to no layer but to "
            "the model itself is that of the last: a model's state has both in it. See section 11.8.",
            {
                "model.state_dict()": "{n: t for n, t in model.state_dict().items() if n != 'scale'}",
                "load_state_dict(best)": "load_state_dict(best, strict=False)",
            },
        ),
        "gradients off": Mistake(
            "`run_epoch` is called while gradients are off, and it trains: only to keep a state and to put it back "
            "needs no gradient. See section 11.8.",
            lambda model, run_epoch, num_epochs: torch.no_grad()(_keep_best)(model, run_epoch, num_epochs),
        ),
        "a loss of 0 passed over": Mistake(
            "After a loss of 0 the next one is kept, which is higher: 0 is a loss like others, though `not 0.0` is "
            "true. See section 11.8.",
            {"loss < lowest": "not lowest or loss < lowest"},
        ),
    },
)


# ---------------------------------------------------------------- evaluation


class _Record:
    """How a model and its copies, which share it, were called."""

    def __init__(self):
        self.dropped, self.recorded, self.calls = False, False, 0

    def __deepcopy__(self, memo):
        return self


class _Watched(nn.Module):
    """Logits from a table, and a record of how it was called."""

    def __init__(self, table, training):
        super().__init__()
        self.table = nn.Parameter(table)
        self.dropout = nn.Dropout(0.5)
        self.record = _Record()
        self.train(training)

    def forward(self, src, read, /):
        self.record.calls += 1
        self.record.dropped |= self.training or self.dropout.training
        heard = src.sum(dim=1, keepdim=True) + read  # (B, T)
        logits = self.table[heard % self.table.size(0)]  # (B, T, V)
        self.record.recorded |= logits.requires_grad
        return logits


def _batches(draw):
    def trial(sizes, vocab_size, training, **kind):
        batches = []
        for count, S, T in sizes:
            write = _targets(draw, count, T, vocab_size, 0)
            read = 1 + draw.ints(count, T, high=vocab_size - 1)
            # What is read has one token more than what is to be written after it: the end of the sentence.
            lengths = (write != 0).sum(dim=1, keepdim=True)
            read = read.masked_fill(torch.arange(T, device=read.device) > lengths, 0)
            batches.append((1 + draw.ints(count, S, high=vocab_size - 1), read, write))
        return batches, 2 * draw(vocab_size, vocab_size, **kind), training

    yield "one batch", *trial([(5, 3, 7)], 11, True)
    yield "batches of many sizes", *trial([(7, 3, 5), (2, 5, 11), (3, 2, 3)], 13, True)
    yield "a model in evaluation mode", *trial([(3, 5, 7), (5, 3, 2)], 7, False)
    yield "a batch of one", *trial([(1, 3, 5), (11, 2, 7)], 5, True)
    yield "a batch of targets of one word", *trial([(7, 5, 1), (3, 2, 3)], 5, True)
    batches, *others = trial([(5, 2, 7), (3, 5, 11)], 7, True)
    yield "padding before the words", [(src, read.flip(1), write.flip(1)) for src, read, write in batches], *others
    batches, *others = trial([(5, 7, 3), (2, 3, 5)], 11, False)
    yield "views", [tuple(map(_transposed, batch)) for batch in batches], *others


def _evaluate_and_look(answer, batches, table, training):
    model = _Watched(table, training)
    try:
        loss = answer(model, batches)
        gradients = torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)
    record, learns = model.record, model.table.requires_grad
    if loss is None and record.calls == 0:
        return None
    return loss, record.dropped, record.recorded, gradients, model.training, model.dropout.training, learns


def _evaluate(model, batches):
    training = model.training
    model.eval()
    total, counted = 0.0, 0
    with torch.no_grad():
        for src, read, write in batches:
            words = write != 0
            losses = _minus_log(model(src, read), write)
            total += losses[words].sum().item()
            counted += words.sum().item()
    model.train(training)
    return total / counted


evaluate = Exercise(
    name="evaluate",
    trials=_batches,
    right=_evaluate,
    returns=(
        "the loss",
        "whether dropout was on while the model ran",
        "whether a graph was recorded while the model ran",
        "whether gradients are on afterwards",
        "the training mode afterwards",
        "the training mode of the dropout afterwards",
        "whether the weights still require a gradient",
    ),
    use=_evaluate_and_look,
    mistakes={
        "dropout left on": Mistake(
            "The model, or a layer in it, is in training mode while it runs: with dropout on, two evaluations of the "
            "same weights differ. See section 11.8.",
            {"    model.eval()\n": ""},
        ),
        "mode restored after the first batch": Mistake(
            "The first batch is measured without dropout, and the others, if the model was in training mode before, "
            "with it: restore the mode after the last batch, not after each. See section 11.8.",
            {"            counted +=": "            model.train(training)\n            counted +="},
        ),
        "graph recorded": Mistake(
            "A graph was recorded, which costs memory and time, and `eval()` does not prevent it: say that no gradient "
            "is wanted. See section 11.8.",
            {"no_grad": "enable_grad"},
        ),
        "dropout on and graph recorded": Mistake(
            "The model, or a layer in it, is in training mode while it runs, and a graph was recorded: turn off both, "
            "for they are two different things. See section 11.8.",
            {"    model.eval()\n": "", "no_grad": "enable_grad"},
        ),
        "mode not restored": Mistake(
            "The model is left in evaluation mode, in which a training would go on without dropout: restore the mode "
            "that it was in. See section 11.8.",
            {"    model.train(training)\n": ""},
        ),
        "mode of the layers not restored": Mistake(
            "The model is in the mode that it was in, and a layer in it is left in evaluation mode, so that nothing is "
            "dropped there: `train` sets the model and all layers in it. See section 11.8.",
            {"model.train(training)": "model.training = training"},
        ),
        "always back to training": Mistake(
            "The model is left in training mode whatever it was in before: remember the mode, and restore that one. "
            "See section 11.8.",
            {"train(training)": "train()"},
        ),
        "gradients stay off": Mistake(
            "Gradients stay off after the evaluation, and the next training step stops with an error: "
            "a `with` block turns them on again by itself. See section 11.8.",
            {"    return": "    torch.set_grad_enabled(False)\n    return"},
        ),
        "mean over the batches": Mistake(
            "This is the mean of the batches' means, in which a word of a small batch counts more than a word of a "
            "large one: add up losses and words over all batches, then divide. See section 11.8.",
            {"losses[words].sum()": "losses[words].mean()", "words.sum().item()": "1"},
        ),
        "weighted by sentences": Mistake(
            "Each batch counts by its number of sentences; its loss is a mean over words, "
            "so it has to count by its number of words. See section 11.8.",
            {"losses[words].sum().item()": "losses[words].mean().item() * len(src)", "words.sum().item()": "len(src)"},
        ),
        "weighted by places": Mistake(
            "Each batch counts by its number of places, padding included; its loss is a mean over words, so it has to "
            "count by its number of words. See section 11.8.",
            {
                "losses[words].sum().item()": "losses[words].mean().item() * words.numel()",
                "words.sum().item()": "words.numel()",
            },
        ),
        "padding counted": Mistake(
            "The loss is averaged over padding too: leave out the places where `write` is 0. See section 11.2.",
            {"losses[words]": "losses", "words.sum().item()": "words.numel()"},
        ),
        "padding in the denominator": Mistake(
            "The loss of the words is divided by the number of all places, padding included: "
            "divide by the number of words. See section 11.2.",
            {"words.sum().item()": "words.numel()"},
        ),
        "padding in the numerator": Mistake(
            "The loss at padding is added up too, and divided by the number of words alone: leave out the places where "
            "`write` is 0. See section 11.2.",
            {"losses[words]": "losses"},
        ),
        "means divided by the words": Mistake(
            "The batches' means are added up and divided by the number of words, so the words are divided by twice: "
            "add up the sums of the batches. See section 11.8.",
            {"[words].sum()": "[words].mean()"},
        ),
        "fed what it must write": Mistake(
            "The decoder is given `write`, the words that it must say; it should be given `read`. See section 11.4.",
            {"model(src, read)": "model(src, write)"},
        ),
        "shifted again": Mistake(
            "`read` and `write` are shifted already; shifted once more, the next word but one is asked for. See "
            "section 11.4.",
            {"            words =": "            read, write = read[:, :-1], write[:, 1:]\n            words ="},
        ),
        "sum instead of mean": Mistake(
            "This is the sum over all words; divide it by their number. See section 11.8.",
            {" / counted": ""},
        ),
        "means added up": Mistake(
            "The batches' means are added up, so more batches mean a larger loss. See section 11.8.",
            {"[words].sum()": "[words].mean()", " / counted": ""},
        ),
        "divided by the number of batches": Mistake(
            "The sum over all words is divided by the number of batches; divide it by the number of words. See section "
            "11.8.",
            {"/ counted": "/ len(batches)"},
        ),
        "last batch only": Mistake(
            "This is the loss of the last batch alone. See section 11.8.", {"in batches": "in batches[-1:]"}
        ),
        "compared with what was read": Mistake(
            "The logits are compared with what the decoder has read; they have to be compared with what it should "
            "write. See section 11.4.",
            {"            words =": "            write = read\n            words ="},
        ),
        "softmax twice": Mistake(
            "This is the loss after two softmaxes: the model's logits need one, and the cross-entropy takes that "
            "itself. See section 11.3.",
            {"model(src, read)": "model(src, read).softmax(dim=-1)"},
        ),
        "weights frozen": Mistake(
            "The weights require no gradient any more after the evaluation, so that the rest of the training changes "
            "nothing: a `with` block leaves them as they are. See section 11.8.",
            {"    return": "    model.requires_grad_(False)\n    return"},
        ),
        "weights frozen and mode not restored": Mistake(
            "After the evaluation the weights require no gradient any more and the model is left in evaluation mode. "
            "See section 11.8.",
            {"model.train(training)": "model.requires_grad_(False)"},
        ),
        "mode not restored and graph recorded": Mistake(
            "The model is left in evaluation mode, and a graph was recorded, which costs memory and time: `eval()` "
            "does not prevent that. See section 11.8.",
            {"    model.train(training)\n": "", "no_grad": "enable_grad"},
        ),
        "always back to training and graph recorded": Mistake(
            "The model is left in training mode whatever it was in before, and a graph was recorded, which costs "
            "memory and time. See section 11.8.",
            {"train(training)": "train()", "no_grad": "enable_grad"},
        ),
        "padding of what is read": Mistake(
            "The places where `read` is not 0 count, one too many in each padded sentence: where `read` holds the end "
            "of a sentence, `write` is padding already. Look where `write` is not 0. See section 11.4.",
            {"write != 0": "read != 0"},
        ),
        "divided by the words that are read": Mistake(
            "The losses of the words are divided by the number of tokens in `read`, which is longer by one in each "
            "padded sentence: count those of `write`. See section 11.4.",
            {"words.sum().item()": "(read != 0).sum().item()"},
        ),
        "padding counted and mean over the batches": Mistake(
            "The mean of each batch is taken over padding too, and then over the batches: add up losses and words "
            "over all batches, without padding, then divide. See section 11.8.",
            {"losses[words].sum()": "losses.mean()", "words.sum().item()": "1"},
        ),
        "mean over the sentences": Mistake(
            "This is the mean of the sentences' means, in which a word of a short sentence counts more than a word of "
            "a long one: add up losses and words, then divide. See section 11.8.",
            {
                "losses[words].sum()": "(losses.masked_fill(~words, 0.0).sum(1) / words.sum(1)).sum()",
                "words.sum().item()": "len(src)",
            },
        ),
        "divided by the sentences": Mistake(
            "The sum over all words is divided by the number of sentences; divide it by the number of words. See "
            "section 11.8.",
            {"words.sum().item()": "len(src)"},
        ),
        "perplexity": Mistake(
            "This is e to the power of the loss, the perplexity; asked for is the loss itself. See section 11.3.",
            {"total / counted": "math.exp(total / counted)"},
        ),
        "sign forgotten": Mistake(
            "This is the loss with the other sign: logarithms of probabilities are negative, and the loss is minus "
            "their mean. See section 11.3.",
            {"return total": "return -total"},
        ),
        "accuracy": Mistake(
            "This is the share of right words; asked for is the loss. See section 11.2.",
            {"losses = _minus_log(model(src, read), write)": "losses = model(src, read).argmax(dim=-1) == write"},
        ),
        "a tensor instead of a number": Mistake(
            "It returns a tensor, and is asked for a Python number, which `item()` makes of a tensor of one number. "
            "See section 11.8.",
            sign=lambda found, *inputs: isinstance(found[0], Tensor) and found[0].dim() == 0,
        ),
        "opposite mode restored": Mistake(
            "The model is left in the opposite of the mode that it was in: remember the mode before you change "
            "it, and restore that one. See section 11.8.",
            {"train(training)": "train(not training)"},
        ),
        "first batch only, and mode not restored": Mistake(
            "This is the loss of the first batch alone, and the model is left in evaluation mode: go through all "
            "batches, and restore the mode, before you return. See section 11.8.",
            {"in batches": "in batches[:1]", "    model.train(training)\n": ""},
        ),
        "first batch only": Mistake(
            "This is the loss of the first batch alone. See section 11.8.",
            {"in batches": "in batches[:1]"},
        ),
        "reshaped instead of transposed": Mistake(
            "This is the loss of logits that were reshaped to (B, V, T), which mixes words and positions: to bring the "
            "vocabulary to axis 1, swap the axes. See section 11.3.",
            {"model(src, read)": "(logits := model(src, read)).reshape(len(src), logits.size(2), -1).mT"},
        ),
        "dropout on, graph recorded and mean over the batches": Mistake(
            "The model, or a layer in it, is in training mode while it runs, a graph was recorded, and this is the "
            "mean of the batches' means, however few words a batch has. See section 11.8.",
            {
                "    model.eval()\n": "",
                "no_grad": "enable_grad",
                "[words].sum()": "[words].mean()",
                "words.sum().item()": "1",
            },
        ),
        "padding at the end only": Mistake(
            "As many places as a row has words are looked at, from the first on: where padding stands before the "
            "words, these are others. Words are where `write` is not 0. See section 11.2.",
            {"write != 0": "_first_places(write, 0)"},
        ),
        CHANGES_ITS_INPUT: Mistake(
            "The same batches measure the model after the next epoch: leave them as they are. See section 11.8."
        ),
    },
)
