"""The loss of a translator. Derived in chapter 12."""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from attn_course.data.subwords import PAD_ID


def translation_loss(
    logits: Float[Tensor, "B T V"], tgt_out: Int[Tensor, "B T"], *, label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Return the cross-entropy, in nats, summed over all real target tokens.

    With label smoothing, a share of the target's probability is spread evenly over the vocabulary (Szegedy et al.
    2016, arXiv:1512.00567, section 7). The loss is a sum, because the divisor of a mean can depend on several batches
    or processes.

    Args:
        logits: scores of every next token.
        tgt_out: the next tokens, with ``PAD_ID`` after the end. Padding does not count.
        label_smoothing: the share, at least 0 and below 1.

    Raises:
        ValueError: if the shapes do not fit together.

    Example:
        >>> import torch
        >>> logits = torch.zeros(1, 3, 8)  # all 8 tokens equally probable
        >>> loss = translation_loss(logits, torch.tensor([[5, 2, 0]]))  # two tokens and one padding token
        >>> loss / torch.tensor(8).log()
        tensor(2.)
    """
    if logits.shape[:-1] != tgt_out.shape:
        raise ValueError(
            f"logits {tuple(logits.shape)} must be (B, T, V) for targets (B, T), here {tuple(tgt_out.shape)}"
        )
    return F.cross_entropy(
        logits.flatten(0, 1), tgt_out.flatten(), ignore_index=PAD_ID, label_smoothing=label_smoothing, reduction="sum"
    )
