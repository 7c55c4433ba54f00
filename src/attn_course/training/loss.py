"""The loss of a translator."""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from attn_course.data.subwords import PAD_ID


def translation_loss(
    logits: Float[Tensor, "B T V"],
    tgt_out: Int[Tensor, "B T"],
    *,
    label_smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Cross-entropy summed over all real target tokens, in nats; padding counts for nothing.

    With label smoothing, a share of the target's probability is spread evenly over the vocabulary (Szegedy et al.
    2016, arXiv:1512.00567, section 7).
    """
    return F.cross_entropy(
        logits.flatten(0, 1),
        tgt_out.flatten(),
        ignore_index=PAD_ID,
        label_smoothing=label_smoothing,
        reduction="sum",
    )
