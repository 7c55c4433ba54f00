"""Mistakes made in the package on purpose: each must fail at least one of its tests.

The mistakes are those that attention code really makes. A mutation that no test notices means that the
tests, not the code, have a hole.
"""

import multiprocessing
import os
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import Phase, settings

PACKAGE = Path(__file__).parents[2] / "src" / "attn_course"
TESTS = Path(__file__).parents[1]
FINISHED = 100

MUTATIONS = {
    # name: (file, what stands there, what a mistake would put there)
    "no scale": ("functional/attention.py", "scale_queries(q, scale) @ k.mT", "q @ k.mT"),
    "scaled by the width instead of its root": (
        "functional/attention.py",
        "q / math.sqrt(q.size(-1))",
        "q / q.size(-1)",
    ),
    "multiplied instead of divided": (
        "functional/attention.py",
        "q / math.sqrt(q.size(-1))",
        "q * math.sqrt(q.size(-1))",
    ),
    "sign of the mask": ("functional/attention.py", "masked_fill(~mask, -math.inf)", "masked_fill(mask, -math.inf)"),
    "softmax over the queries": (
        "functional/attention.py",
        "weights = softmax(scores)",
        "weights = softmax(scores, dim=-2)",
    ),
    "softmax without the maximum": ("functional/attention.py", "torch.exp(x - largest", "torch.exp(x - 0 * largest"),
    "a row of -inf not caught before exp": ("functional/attention.py", ".masked_fill(largest == -math.inf, 0.0)", ""),
    "a row of -inf not caught before dividing": (
        "functional/attention.py",
        " / total.masked_fill(total == 0, 1.0)",
        " / total",
    ),
    "fused: scaled by the padded width": (
        "functional/sdpa.py",
        "scale = 1 / math.sqrt(q.size(-1))",
        "scale = max(q.size(-1), v.size(-1)) ** -0.5",
    ),
    "fused: causal mode when T != S": (
        "functional/sdpa.py",
        "elif is_causal and num_queries != num_keys:",
        "elif False:",
    ),
    "fused: causal forgotten beside a mask": (
        "functional/sdpa.py",
        "mask, is_causal = (causal if mask is None else mask & causal), False",
        "mask, is_causal = (causal if mask is None else mask), False",
    ),
    "fused: dropout ignored": (
        "functional/sdpa.py",
        "run_sdpa(inputs, dropout_p)",
        "run_sdpa(inputs, 0.0)",
    ),
    "bias ignored": (
        "functional/attention.py",
        "softcap)\n    if bias is not None:\n        scores = scores + bias.to(scores.dtype)",
        "softcap)\n    if bias is not None:\n        scores = scores + 0",
    ),
    "soft cap behind the bias": (
        "functional/attention.py",
        "        scores = soft_cap(scores, softcap)\n    if bias is not None:\n"
        "        scores = scores + bias.to(scores.dtype)",
        "        scores = soft_cap(scores + (0 if bias is None else bias), softcap)\n    elif bias is not None:\n"
        "        scores = scores + bias.to(scores.dtype)",
    ),
    "fused: bias ignored": (
        "functional/sdpa.py",
        "bias=None if bias is None else to_4d(bias.to(q.dtype), leading)",
        "bias=None",
    ),
    "fused: mask ignored beside a bias": (
        "functional/sdpa.py",
        "mask=None if mask is None else to_4d(mask, leading)",
        "mask=None if mask is None or bias is not None else to_4d(mask, leading)",
    ),
    "fused: causal mode beside a bias": (
        "functional/sdpa.py",
        "        is_causal=is_causal,\n        sink=",
        "        is_causal=is_causal and bias is None,\n        sink=",
    ),
    "sinusoidal: sines and cosines in halves": (
        "functional/positions.py",
        "torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)",
        "torch.cat([angles.sin(), angles.cos()], dim=-1)",
    ),
    "sinusoidal: each column its own speed": (
        "functional/positions.py",
        "torch.arange(0, width, 2, ",
        "torch.arange(width // 2, ",
    ),
    "rotary: halves instead of neighbours": (
        "functional/positions.py",
        ".unflatten(-1, (-1, 2))\n",
        ".unflatten(-1, (2, -1)).mT.contiguous()\n",
    ),
    "rotary: turned backwards": (
        "functional/positions.py",
        "* positions.phases",
        "* positions.phases.conj()",
    ),
    "rotary: angles in half precision": (
        "functional/positions.py",
        "torch.promote_types(x.dtype, torch.float32)",
        "x.dtype",
    ),
    "rotary: positions not heard": (
        "functional/positions.py",
        "positions.unsqueeze(-1) * inv_freq",
        "torch.arange(length)[:, None] * inv_freq",
    ),
    "YaRN: fast and slow exchanged": (
        "functional/positions.py",
        "inv_freq * (1 - ramp) + inv_freq / yarn.factor * ramp",
        "inv_freq * ramp + inv_freq / yarn.factor * (1 - ramp)",
    ),
    "ALiBi: near is lowered": ("functional/positions.py", "* -distance", "* distance"),
    "ALiBi: slopes counted from 0": (
        "functional/positions.py",
        "torch.arange(1, num_heads + 1, ",
        "torch.arange(num_heads, ",
    ),
    "ALiBi: aligned top-left": (
        "functional/positions.py",
        "torch.arange(num_keys - num_queries, num_keys)",
        "torch.arange(num_queries)",
    ),
    "rotary: keys not turned": ("nn/multi_head_attention.py", "rotate(k, positions)", "k"),
    "rotary: values turned": (
        "nn/multi_head_attention.py",
        "k = rotate(k, positions)",
        "k, v = (rotate(x, positions) for x in (k, v))",
    ),
    "causal mask hides the diagonal": (
        "functional/masks.py",
        "return key_position <= query_position",
        "return key_position < query_position",
    ),
    "causal mask shows one future token": (
        "functional/masks.py",
        "return key_position <= query_position",
        "return key_position <= query_position + 1",
    ),
    "causal mask aligned top-left": ("functional/masks.py", "[:, None] + num_keys - num_queries", "[:, None]"),
    "window off by one": (
        "functional/masks.py",
        "position > query_position - window",
        "position >= query_position - window",
    ),
    "window shows the future": ("functional/masks.py", "visible & (key_position <= query_position)", "visible"),
    "padding on the wrong side": ("functional/masks.py", 'if side == "left":', 'if side == "right":'),
    "padding mask inverted": ("functional/masks.py", "(position < lengths[:, None])", "(position >= lengths[:, None])"),
    "padding mask on the queries": (
        "functional/masks.py",
        "[:, None, :]  # (B, 1, S)\n\n",
        "[:, :, None]  # (B, 1, S)\n\n",
    ),
    "polarity not converted": ("functional/masks.py", "return ~mask[:, 0]", "return mask[:, 0]"),
    "view instead of transpose in splitting": (
        "nn/multi_head_attention.py",
        "return x.transpose(1, 2)",
        "return x.reshape(len(x), self.num_heads, x.size(1), -1)",
    ),
    "view instead of transpose in merging": (
        "nn/multi_head_attention.py",
        "out.transpose(1, 2).flatten(2)",
        "out.reshape(len(out), out.size(2), -1)",
    ),
    "heads interleaved": (
        "nn/multi_head_attention.py",
        "x.unflatten(-1, (num_heads, -1))",
        "x.unflatten(-1, (-1, num_heads)).mT",
    ),
    "output projection forgotten": ("nn/multi_head_attention.py", "return self.out_proj(out", "return (out"),
    "keys and values swapped": ("nn/multi_head_attention.py", "self.v_proj(value)", "self.v_proj(key)"),
    "dropout on in evaluation": (
        "nn/multi_head_attention.py",
        "self.dropout if self.training else 0.0",
        "self.dropout",
    ),
    "weights returned before dropout": (
        "functional/attention.py",
        "        weights = F.dropout(weights, dropout_p)\n    return weights @ v, weights",
        "        return F.dropout(weights, dropout_p) @ v, weights\n    return weights @ v, weights",
    ),
    "mask per sequence taken as per head": ("nn/multi_head_attention.py", "mask = mask[:, None]", "mask = mask[None]"),
    "additive attention without tanh": ("functional/additive.py", "torch.tanh(q[", "(q["),
    "leak detector looks one step too far": ("testing/causality.py", "size[t + 1 :] == 0", "size[t + 2 :] == 0"),
    "leak detector sums the features": ("testing/causality.py", "(out * mixture).select", "out.select"),
    "leak detector leaves the next input as it is": (
        "testing/causality.py",
        "[past[..., : t + 1, :], future[..., t + 1 :, :]]",
        "[past[..., : t + 2, :], future[..., t + 2 :, :]]",
    ),
    "leak detector takes NaN for no leak": (
        "testing/causality.py",
        "if not (moved <= atol).all():",
        "if (moved > atol).any():",
    ),
    "leak detector takes an infinity that stays for a leak": ("testing/causality.py", ".masked_fill(a == b, 0)", ""),
    "leak detector draws whatever the seed": ("testing/causality.py", "manual_seed(seed)", "manual_seed(0)"),
    "leak detector puts ids in another order only": (
        "testing/causality.py",
        "return (low + steps).to(x.dtype)",
        "return x[..., torch.randperm(x.size(-2), generator=rng), :]",
    ),
    "leak detector tries no extremes of ids": ("testing/causality.py", ", *extremes]", "]"),
    "leak detector tries no extremes of numbers": (
        "testing/causality.py",
        "for bound in (low - 3, high + 3)",
        "for bound in ()",
    ),
    "leak detector differentiates by ids": (
        "testing/causality.py",
        "if example.requires_grad and out.requires_grad:",
        "if out.requires_grad:",
    ),
    "leak detector finds no gradient without gradients": (
        "testing/causality.py",
        "with torch.inference_mode(False):",
        "if True:",
    ),
    "recurrent: attends to padding": (
        "translation/recurrent.py",
        "self.score_weight, memory.mask",
        "self.score_weight, None",
    ),
    "recurrent: reads padding as tokens": (
        "translation/recurrent.py",
        "self.src_embed(src), src_lengths.cpu()",
        "self.src_embed(src), torch.full_like(src_lengths, src.size(1)).cpu()",
    ),
    "recurrent: writes on after the end": ("translation/recurrent.py", ".masked_fill(done, pad_id)", ""),
    "recurrent: stops at the first end of a batch": ("translation/recurrent.py", "not done.all()", "not done.any()"),
    "transformer: the mask in the first layer only": (
        "nn/transformer.py",
        "layer(x, mask=src_mask, need_weights=need_weights)",
        "layer(x, mask=None if weights else src_mask, need_weights=need_weights)",
    ),
    "transformer: embeddings not scaled": ("nn/transformer.py", "tokens * math.sqrt(self.d_model) +", "tokens +"),
    "transformer: the source's padding read across": ("nn/transformer.py", "mask=memory_mask,", "mask=None,"),
    "transformer: no final norm": ("nn/transformer.py", "self.to_logits(self.decoder_norm(x))", "self.to_logits(x)"),
    "transformer: the memory normalised again": (
        "nn/transformer.py",
        "memory, mask=memory_mask",
        "self.cross_attention_norm(memory), mask=memory_mask",
    ),
    "transformer: tied by copying": (
        "nn/transformer.py",
        "self.to_logits.weight = self.tgt_embed.weight",
        "self.to_logits.weight.data.copy_(self.tgt_embed.weight)",
    ),
    "decoding: an end counts wherever it stands": ("decoding.py", "-math.inf))[:, :K]", "-math.inf))"),
    "decoding: all beams begin": ("decoding.py", "log_probs[:, 0] = 0.0", "log_probs[:] = 0.0"),
    "decoding: the first row of the logits": (
        "decoding.py",
        "logits = logits[:, -1].masked_fill(~live",
        "logits = logits[:, 0].masked_fill(~live",
    ),
    "decoding: the source's padding read": (
        "decoding.py",
        "model.encode(src, src_mask=src_mask)",
        "model.encode(src, src_mask=torch.ones_like(src_mask))",
    ),
    "decoding: beams moved without their past": ("decoding.py", "layer.reorder(rows)", "layer.reorder(rows * 0)"),
    "decoding: everything read again": ("decoding.py", "new = ids[:, self.cache.length :]", "new = ids"),
    "decoding: padding seen by what is generated": (
        "decoding.py",
        "return None if mask is None else mask[:, :, :num_keys]",
        "return None",
    ),
    "copying: a number used twice": ("translation/copy_numbers.py", " and not before & spelling.uses", ""),
    "copying: a number left unfinished": (
        "translation/copy_numbers.py",
        "str.startswith if match.end() == len(text) else str.__eq__",
        "str.startswith",
    ),
    "copying: a missing number costs nothing": ("translation/copy_numbers.py", "len(missing - used)", "0"),
    "copying: minutes without their zero": (
        "translation/copy_numbers.py",
        "int(value_of(minute[0])):02}",
        "int(value_of(minute[0]))}",
    ),
    "copying: a year with a comma": ("translation/copy_numbers.py", ' or behind.startswith("年")', ""),
    "cache: written before it is checked": (
        "caching/base.py",
        "self._check(x, name, buffer)\n",
        "self._check(x, name, buffer)\n            buffer[:, :, self._length : self._length + x.size(2)] = x\n",
    ),
    "cache: the past of the first row for all": ("caching/base.py", "filled.index_select(0, rows)", "filled[:1]"),
    "cache: values that stay behind": (
        "caching/base.py",
        "self._buffers:\n            filled =",
        "self._buffers[:1]:\n            filled =",
    ),
    "cache: a failed call half kept": ("caching/decoder.py", "if error is not None:", "if False:"),
    "cache: a reset that forgets nothing": (
        "caching/decoder.py",
        "            layer.reset()",
        "            layer.truncate(layer.length)",
    ),
    "cache in blocks: a shared block is written into": (
        "caching/paged.py",
        "self.pool.num_users(self.block_table[full]) > 1",
        "False",
    ),
    "cache: the memory of another row": (
        "caching/decoder.py",
        "(k[rows], v[rows]) for k, v in self.memory",
        "(k, v) for k, v in self.memory",
    ),
    "language model: every piece at the beginning": (
        "nn/language_model.py",
        "return torch.arange(start, S, device=ids.device)",
        "return torch.arange(T, device=ids.device)",
    ),
    "language model: padding counted as a position": (
        "nn/language_model.py",
        "return (mask[:, 0].cumsum(-1) - 1).clamp(min=0)[:, start:]",
        "return torch.arange(start, S, device=ids.device).expand(B, T)",
    ),
    "language model: no last norm": ("nn/language_model.py", "self.to_logits(self.norm(x))", "self.to_logits(x)"),
    "evaluation: hypotheses and references swapped": (
        "translation/metrics.py",
        "metric.corpus_score(hypotheses, [references]",
        "metric.corpus_score(references, [hypotheses]",
    ),
    "alignment: every word linked": (
        "translation/alignment.py",
        "linked = largest > 1 - weights.sum(dim=-1)",
        "linked = largest > 0",
    ),
    "a check that accepts anything": (
        "exercises/engine/runner.py",
        "self.is_right = self.error is None and self._is_right()",
        "self.is_right = self.error is None",
    ),
    "a check that looks at shapes only": ("exercises/engine/compare.py", "if close.all():", "if close is not None:"),
    "a check that ignores the type": ("exercises/engine/compare.py", "if found.dtype != expected.dtype:", "if False:"),
    "a check that names any mistake": ("exercises/engine/exercise.py", "if run is first and not agrees:", "if False:"),
    "a check that misses earlier successes": (
        "exercises/engine/exercise.py",
        "(run.is_right or run.found is not None):",
        "(not run.is_right and run.found is not None):",
    ),
    "a check that looks at the first failure only": (
        "exercises/engine/exercise.py",
        "(run.is_right or run.found is not None):",
        "run.is_right:",
    ),
    "a check that misses a changed input": (
        "exercises/engine/runner.py",
        "not identical(before, after) and",
        "False and",
    ),
    "a check that overlooks a default": ("exercises/engine/exercise.py", "others.append((name, has, says))", "pass"),
    "a check that tells the first row for the batch": (
        "exercises/engine/diagnose_input.py",
        "t[:1].expand_as(t).clone()",
        "t.clone()",
    ),
    "a check that keeps what an answer spoiled": (
        "exercises/engine/exercise.py",
        "if all(is_copied(value) for trial, _ in trials for value in trial):",
        "if trials:",
    ),
    "a check that spoils the random state": ("exercises/engine/exercise.py", "random.setstate(python)", "pass"),
}


def find_tests(file: str) -> Path:
    """Return the tests of a module, or of its folder where one file tests them together."""
    if file.startswith("exercises/engine/"):
        name = {"compare.py": "exercise.py", "runner.py": "exercise.py"}.get(Path(file).name, Path(file).name)
        return TESTS / "exercises" / f"test_{name}"
    path = TESTS / Path(file).parent / f"test_{Path(file).name}"
    return path if path.exists() else path.parent


def run_tests_on(mutated: Path, file: str) -> None:
    """Run the tests of one file in this fresh process, on the mutated package, until one fails."""
    sys.path.insert(0, str(mutated))
    os.dup2(os.open(mutated / "log", os.O_CREAT | os.O_WRONLY), 1)
    # A failure is all that is wanted, not the smallest example of it.
    settings.register_profile("mutations", max_examples=30, phases=[Phase.generate], database=None, deadline=None)
    settings.load_profile("mutations")
    # Without the plugins of this environment, whose import takes longer than the tests.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # Nor is the garbage collected for a warning about it.
    plain = [
        "-o",
        "addopts=",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:unraisableexception",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    ]
    code = pytest.main(["-x", "-q", *plain, f"--rootdir={TESTS.parent}", str(find_tests(file))])
    import attn_course

    assert Path(attn_course.__file__).is_relative_to(mutated), attn_course.__file__
    os._exit(FINISHED + code)  # so that a crash cannot be taken for a failing test


@pytest.fixture(scope="module")
def processes():
    """Processes that start from one which has imported what takes long already, but run nothing yet."""
    context = multiprocessing.get_context("forkserver")
    # The tests import these in turn; assert_close imports torch.distributed.tensor.
    heavy = ["torch", "torch.distributed.tensor", "torch.nn.attention.bias", "nbformat", "hypothesis", "pytest"]
    context.set_forkserver_preload(heavy)
    return context


def outcome(processes, tmp_path: Path, file: str, old: str, new: str) -> int:
    stale = f"{Path(file).stem}.*.pyc"  # all other modules come compiled
    shutil.copytree(PACKAGE, tmp_path / "attn_course", ignore=shutil.ignore_patterns(stale))
    mutated = tmp_path / "attn_course" / file
    source = mutated.read_text("utf-8")
    assert source.count(old) == 1, f"{old!r} must occur once in {file}, not {source.count(old)} times"
    mutated.write_text(source.replace(old, new), "utf-8")
    process = processes.Process(target=run_tests_on, args=(tmp_path, file))
    process.start()
    process.join(300)
    return process.exitcode


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mistake_in_the_package_fails_a_test(name, processes, tmp_path):
    code = outcome(processes, tmp_path, *MUTATIONS[name])
    assert code == FINISHED + pytest.ExitCode.TESTS_FAILED, (
        f"no test notices {name!r}:\n{(tmp_path / 'log').read_text('utf-8')}"
    )


def test_without_a_mistake_the_tests_pass(processes, tmp_path):
    code = outcome(
        processes, tmp_path, "functional/attention.py", "return weights @ v, weights", "return weights @ v, weights"
    )
    assert code == FINISHED + pytest.ExitCode.OK, (tmp_path / "log").read_text("utf-8")
