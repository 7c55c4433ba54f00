"""The exercises of the chapter on debugging a translator. Used from chapter 11 on."""

import copy
import math
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attn_course._device import default_device
from attn_course.exercises.engine.exercise import Exercise
from attn_course.exercises.engine.runner import AnswerError

# ---------------------------------------------------------------- accuracy over words


def _targets(draw, count, length, vocab_size, pad_id):
    """Return padded targets (B, T). At least one row is full, and at least one is padded."""
    lengths = 1 + draw.ints(count, high=max(length - 1, 1))
    if count > 1:
        lengths[0] = length
    tgt = draw.ints(count, length, high=vocab_size - 1)
    tgt = tgt + (tgt >= pad_id)  # every id but pad_id
    places = torch.arange(length, device=tgt.device)
    return tgt.masked_fill(places >= lengths[:, None], pad_id)


def _logits_for(draw, tgt, vocab_size, pad_id, *, known=2.5, **kind):
    """Return logits (B, T, V) that are often right and sometimes predict padding for a word."""
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
    """Return the same numbers as a non-contiguous view."""
    return table.transpose(0, 1).contiguous().transpose(0, 1)


def _first_places(tgt, pad_id):
    """Return True at the first positions of each row, as many as the row has words."""
    return torch.arange(tgt.size(1), device=tgt.device) < (tgt != pad_id).sum(dim=1, keepdim=True)


def _word_accuracy(logits, tgt, pad_id):
    guesses = logits.argmax(dim=-1)
    words = tgt != pad_id
    return ((guesses == tgt) & words).sum().item() / words.sum().item()


word_accuracy = Exercise(
    name="word_accuracy",
    trials=_logits_and_targets,
    right=_word_accuracy,
    result_names=("the accuracy",),
    chapter=11,
    signs={
        "a tensor instead of a number": lambda found, *inputs: isinstance(found, Tensor) and found.dim() == 0,
        "one answer for each place": lambda found, *inputs: isinstance(found, Tensor) and found.dim() > 0,
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
    """Return the loss and the gradient of the logits, with zeros where no gradient arrives."""
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
    """Return the negative log-probability of each target, (B, T)."""
    return -torch.log_softmax(logits, dim=-1).gather(-1, tgt[..., None])[..., 0]


def _word_loss(logits, tgt, pad_id):
    losses = -torch.log_softmax(logits, dim=-1).gather(-1, tgt[..., None])[..., 0]  # (B, T)
    words = tgt != pad_id
    loss = losses.masked_fill(~words, 0.0).sum() / words.sum()
    return loss


def _gradient_alone(found, logits, tgt, pad_id):
    """Return whether the loss is right and the gradient is wrong."""
    leaf = logits.detach().requires_grad_()
    loss = _word_loss(leaf, tgt, pad_id)
    if found[0].dim() or not torch.allclose(found[0], loss, rtol=1e-4, atol=1e-5):
        return False
    return not torch.allclose(found[1], torch.autograd.grad(loss, leaf)[0], atol=1e-6)


word_loss = Exercise(
    name="word_loss",
    trials=_more_logits_and_targets,
    right=_word_loss,
    result_names=("the loss", "its gradient"),
    use=_loss_and_gradient,
    chapter=11,
    signs={
        "softmax overflows": lambda found, logits, tgt, pad_id: (
            logits.abs().max() > 100 and found[0].dim() == 0 and not (found[0].isfinite() and found[1].isfinite().all())
        ),
        "small number added": lambda found, logits, tgt, pad_id: (
            logits.abs().max() > 100 and found[0].isfinite() and 0 < found[0] < _word_loss(logits, tgt, pad_id) / 2
        ),
        "gradient of one part missing": lambda found, *inputs: (
            found[1].isfinite().all() and _gradient_alone(found, *inputs)
        ),
        "one loss for each word": lambda found, *inputs: found[0].dim() > 0 and (found[0].numel() > 1 or None),
        "a number instead of a tensor": lambda found, *inputs: isinstance(found[0], int | float),
    },
)


# ---------------------------------------------------------------- another sentence's source


class _Reader(nn.Module):
    """A translator that is right where its source and its input add up to the target."""

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
    """Call the answer with a copy of the model, because the answer may leave the model in another mode."""
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
    result_names=("the accuracy",),
    use=_swap_and_count,
    chapter=11,
    signs={
        "a tensor instead of a number": lambda found, *inputs: isinstance(found, Tensor) and found.dim() == 0,
    },
)


# ---------------------------------------------------------------- the best weights


class _Counts(nn.Module):
    """A layer with a buffer, like a normalisation layer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("running", torch.zeros(2))


class _Moves(nn.Module):
    """A model with parameters and buffers of its own and in its layers."""

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
    """``run_epoch``: change parameters and buffers in place, as an optimizer does, and return a loss."""

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


class _Trained(NamedTuple):
    """The state after training. A parameter or buffer has moved by k + 1 after epoch k."""

    weight: float
    bias: float
    buffer: float
    best_epoch: int  # as it was returned
    num_epochs: int  # calls of run_epoch
    overwritten: str  # methods of the model
    own_parameter: float  # of the model itself
    layer_buffer: float


def _train_and_look(answer, losses, width):
    """Return the final weights and buffer, the returned epoch, and the calls."""
    model = _Moves(width).to(default_device(torch.float64))
    start = copy.deepcopy(model.state_dict())
    run_epoch = _Epochs(model, losses)
    try:
        best = answer(model, run_epoch, len(losses))
    except UnboundLocalError:
        if min(losses) > 0 and run_epoch.epoch == len(losses):
            raise AnswerError(
                "A variable has no value after the last epoch, because no loss was below your initial lowest loss. "
                "Start with infinity. See section 11.8."
            ) from None
        raise
    if best is None and run_epoch.epoch == 0:
        return None
    if not all(isinstance(value, Tensor) for value in nn.Module.state_dict(model).values()):
        raise AnswerError("The model's state is no longer made of tensors. See section 11.8.")
    overwritten = sorted(name for name in vars(model) if callable(getattr(nn.Module, name, None)))
    best = int(best) if isinstance(best, np.integer) else best
    state = nn.Module.state_dict(model)
    weight, bias, seen, scale, running = (
        _moved_by(state[name] - start[name])
        for name in ("linear.weight", "linear.bias", "seen", "scale", "counts.running")
    )
    return _Trained(weight, bias, seen, best, run_epoch.epoch, ", ".join(overwritten), scale, running)


def _moved_by(moves):
    """Return how far all numbers of a tensor have moved (k + 1 after epoch k); NaN if not all moved equally."""
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
    """Return whether the weights are those before the first epoch, although the epochs ran."""
    return found.weight == found.buffer == 0 and found.num_epochs == len(losses) and min(losses) > 0


keep_best = Exercise(
    name="keep_best",
    trials=_curves,
    right=_keep_best,
    result_names=(
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
    in_parts=True,
    chapter=11,
    signs={
        "model returned": lambda found, losses, width: isinstance(found.best_epoch, nn.Module),
        "too few epochs": lambda found, losses, width: found.num_epochs < len(losses),
        "lowest starts too low": _nothing_kept,
    },
)


# ---------------------------------------------------------------- evaluation


class _Record:
    """How a model and its copies were called."""

    def __init__(self):
        self.dropped, self.recorded, self.calls = False, False, 0

    def __deepcopy__(self, memo):
        return self


class _Watched(nn.Module):
    """A model that returns logits from a table and records its calls."""

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


class _Evaluated(NamedTuple):
    loss: float
    dropped: bool  # dropout was on while the model ran
    recorded: bool  # a graph was recorded
    gradients: bool  # these are on afterwards
    training: bool  # the model's mode afterwards
    dropout_training: bool
    learns: bool  # the weights still require a gradient


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
    return _Evaluated(loss, record.dropped, record.recorded, gradients, model.training, model.dropout.training, learns)


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
    result_names=(
        "the loss",
        "whether dropout was on while the model ran",
        "whether a graph was recorded while the model ran",
        "whether gradients are on afterwards",
        "the training mode afterwards",
        "the training mode of the dropout afterwards",
        "whether the weights still require a gradient",
    ),
    use=_evaluate_and_look,
    chapter=11,
    signs={
        "a tensor instead of a number": lambda found, *inputs: isinstance(found.loss, Tensor) and found.loss.dim() == 0,
    },
)
