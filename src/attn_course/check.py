"""The checks of the exercises, which know the mistakes that learners make. Used from chapter 0 on.

``check.NAME(NAME)`` runs the function or class that you wrote on fresh random inputs and prints a verdict.
"""

from attn_course.exercises.chapter_00 import CausalMultiHead, causal_weights, self_attention
from attn_course.exercises.chapter_01 import (
    exact_match,
    gru_step,
    last_state,
    look_back,
    shift_targets,
)
from attn_course.exercises.chapter_02 import (
    all_contexts,
    context_of,
    log_softmax,
    three_bad_scores,
    weights_at,
)
from attn_course.exercises.chapter_03 import (
    WideValues,
    as_linear,
    row_entropy,
    scaled_dot_product,
    scaled_scores,
)
from attn_course.exercises.chapter_04 import (
    general_scores,
    lookup,
    max_sim,
    table_gradient,
    weighted_sum,
)
from attn_course.exercises.chapter_05 import (
    WindowAttention,
    drop_weights,
    mask_for_new_tokens,
    masked_softmax,
    who_sees_whom,
)
from attn_course.exercises.chapter_06 import (
    MultiHead,
    count_parameters,
    fuse_qkv,
    move_to_torch,
    split_heads,
)
from attn_course.exercises.chapter_07 import (
    TwoMemoryBlock,
    alignment_share,
    concat_scores,
    cross_attend,
    make_decoder_masks,
)
from attn_course.exercises.chapter_08 import (
    count_positions,
    linear_bias,
    rotary_attention,
    sinusoids_at,
    turn_halves,
)
from attn_course.exercises.chapter_09 import (
    TiedTable,
    count_transformer,
    decode_layer,
    layer_norm,
    run_stack,
)
from attn_course.exercises.chapter_10 import (
    build_vocabulary,
    fill_buckets,
    merge_step,
    pad_pairs,
    remove_leaks,
)
from attn_course.exercises.chapter_11 import (
    evaluate,
    keep_best,
    swapped_accuracy,
    word_accuracy,
    word_loss,
)
from attn_course.exercises.chapter_12 import (
    accumulated_gradient,
    adamw_step,
    clip_together,
    plateau_rate,
    smoothed_loss,
)
from attn_course.exercises.chapter_13 import (
    beam_step,
    clipped_precision,
    keep_min_p,
    link_error,
    write_greedily,
)
from attn_course.exercises.chapter_14 import (
    attend_with_sinks,
    course_mask,
    from_burn_record,
    stable_quiet,
    tells_quiet,
)
from attn_course.exercises.chapter_15 import (
    accept_guesses,
    cache_step,
    call_cost,
    place_chunk,
    rotary_step,
)
from attn_course.exercises.chapter_16 import (
    attend_in_blocks,
    cache_bytes,
    grouped_attention,
    join_blocks,
    streaming_mask,
)
from attn_course.exercises.chapter_17 import (
    load_renamed,
    mean_pool,
    share_on_previous,
    split_fused,
    to_neighbours,
)
from attn_course.exercises.chapter_18 import (
    ablate_heads,
    hide_copy,
    induction_score,
    rollout,
)
from attn_course.exercises.chapter_19 import (
    cuts_squares,
    deletion_curve,
    from_patches,
    resize_table,
)
from attn_course.exercises.chapter_20 import (
    heads_of_rank,
    shard_loss,
    simulate_ring,
    zigzag_shard,
)
from attn_course.exercises.chapter_21 import delta_step, stack_bytes, window_and_best

__all__ = [
    "CausalMultiHead",
    "MultiHead",
    "TiedTable",
    "TwoMemoryBlock",
    "WideValues",
    "WindowAttention",
    "ablate_heads",
    "accept_guesses",
    "accumulated_gradient",
    "adamw_step",
    "alignment_share",
    "all_contexts",
    "as_linear",
    "attend_in_blocks",
    "attend_with_sinks",
    "beam_step",
    "build_vocabulary",
    "cache_bytes",
    "cache_step",
    "call_cost",
    "causal_weights",
    "clip_together",
    "clipped_precision",
    "concat_scores",
    "context_of",
    "count_parameters",
    "count_positions",
    "count_transformer",
    "course_mask",
    "cross_attend",
    "cuts_squares",
    "decode_layer",
    "deletion_curve",
    "delta_step",
    "drop_weights",
    "evaluate",
    "exact_match",
    "fill_buckets",
    "from_burn_record",
    "from_patches",
    "fuse_qkv",
    "general_scores",
    "grouped_attention",
    "gru_step",
    "heads_of_rank",
    "hide_copy",
    "induction_score",
    "join_blocks",
    "keep_best",
    "keep_min_p",
    "last_state",
    "layer_norm",
    "linear_bias",
    "link_error",
    "load_renamed",
    "log_softmax",
    "look_back",
    "lookup",
    "make_decoder_masks",
    "mask_for_new_tokens",
    "masked_softmax",
    "max_sim",
    "mean_pool",
    "merge_step",
    "move_to_torch",
    "pad_pairs",
    "place_chunk",
    "plateau_rate",
    "remove_leaks",
    "resize_table",
    "rollout",
    "rotary_attention",
    "rotary_step",
    "row_entropy",
    "run_stack",
    "scaled_dot_product",
    "scaled_scores",
    "self_attention",
    "shard_loss",
    "share_on_previous",
    "shift_targets",
    "simulate_ring",
    "sinusoids_at",
    "smoothed_loss",
    "split_fused",
    "split_heads",
    "stable_quiet",
    "stack_bytes",
    "streaming_mask",
    "swapped_accuracy",
    "table_gradient",
    "tells_quiet",
    "three_bad_scores",
    "to_neighbours",
    "turn_halves",
    "weighted_sum",
    "weights_at",
    "who_sees_whom",
    "window_and_best",
    "word_accuracy",
    "word_loss",
    "write_greedily",
    "zigzag_shard",
]
