"""The checks of the exercises, which know the mistakes that learners make. Used from chapter 0 on.

``check.NAME(NAME)`` runs the function or class that you wrote on fresh random inputs and prints a verdict. The
exercises of a chapter are imported when one of them is first used.
"""

from importlib import import_module
from typing import Any

_CHAPTERS = {
    0: "CausalMultiHead causal_weights self_attention",
    1: "exact_match gru_step look_back shift_targets",
    2: "context_of log_softmax three_bad_scores weights_at",
    3: "WideValues as_linear scaled_dot_product scaled_scores",
    4: "general_scores lookup max_sim weighted_sum",
    5: "WindowAttention mask_for_new_tokens masked_softmax who_sees_whom",
    6: "MultiHead fuse_qkv move_to_torch split_heads",
    7: "TwoMemoryBlock alignment_share concat_scores cross_attend make_decoder_masks",
    8: "count_positions linear_bias rotary_attention sinusoids_at turn_halves",
    9: "TiedTable count_transformer decode_layer layer_norm run_stack",
    10: "build_vocabulary fill_buckets merge_step pad_pairs remove_leaks",
    11: "evaluate keep_best swapped_accuracy word_accuracy word_loss",
    12: "accumulated_gradient adamw_step clip_together plateau_rate smoothed_loss",
    13: "beam_step clipped_precision keep_min_p link_error write_greedily",
    14: "dequantize_blocks our_name previous_token_head",
    15: "cache_step place_chunk rotary_step",
    16: "accept_guesses call_cost slots_of",
    17: "attend_in_blocks bytes_moved join_blocks",
    18: "cache_bytes grouped_attention streaming_mask",
    19: "delta_step stack_bytes window_and_best",
    20: "heads_of_rank shard_loss simulate_ring zigzag_shard",
    21: "ablate_heads hide_copy induction_score",
    22: "load_renamed mean_pool share_on_previous",
    23: "cuts_squares deletion_curve from_patches resize_table",
    24: "attend_with_sinks course_mask stable_quiet tells_quiet",
}
MODULE_OF = {
    name: f"attn_course.exercises.chapter_{chapter:02d}"
    for chapter, names in _CHAPTERS.items()
    for name in names.split()
}

__all__ = sorted(MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
