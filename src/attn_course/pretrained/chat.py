"""The tokenizer of a chat model: byte-level BPE, special tokens that no text can fake, and the chat template. Used from
chapter 14 on."""

import json
import re
import secrets
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

_MAX_SECONDS = 1  # of the processor, for a template
_MAX_BYTES = 2**29
_MAX_TEXT = 2**20
_ROLES = ("system", "user", "assistant", "tool")


class ChatTokenizer:
    """Byte-level BPE (Radford et al. 2019) with the special tokens and the chat template of a model.

    A special token such as ``<|im_end|>`` tells the model who speaks. In the text of a user it is text: only a template
    writes special tokens.

    Args:
        tokens: spelled with one letter for each byte, as GPT-2 does it.
        merges: pairs of tokens with a space between them, in the order in which they were learned.
        special_ids: the ids of the special tokens.
        eos_id: the id that ends an answer.
        bos_id: the id before every text; None for models without it.
        split_digits: make each digit a token of its own.
        template: the chat template, in the language Jinja; None for a model that does not chat.

    Raises:
        ModuleNotFoundError: if the library ``tokenizers`` is not installed.
        ValueError: if the tokens, the merges or the ids do not fit each other.

    Example:
        >>> tokenizer = ChatTokenizer(["<s>", "h", "i", "!", "hi"], ["h i"], special_ids=[0], eos_id=0)
        >>> tokenizer.encode("hi!"), tokenizer.decode([4, 3])
        ([4, 3], 'hi!')
    """

    def __init__(
        self,
        tokens: Sequence[str],
        merges: Sequence[str],
        *,
        special_ids: Iterable[int],
        eos_id: int,
        bos_id: int | None = None,
        split_digits: bool = False,
        template: str | None = None,
    ) -> None:
        try:
            from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
        except ModuleNotFoundError:
            raise ModuleNotFoundError("a tokenizer needs the library tokenizers: pip install tokenizers") from None
        if len({*tokens}) != len(tokens) or not all(isinstance(token, str) for token in tokens):
            raise ValueError(f"the {len(tokens)} tokens must be different strings")
        for name, i in (("eos_id", eos_id), ("bos_id", 0 if bos_id is None else bos_id)):
            if not 0 <= i < len(tokens):
                raise ValueError(f"{name} ({i}) must be from 0 to {len(tokens) - 1}")
        pairs = [tuple(merge.split(" ")) if isinstance(merge, str) else () for merge in merges]
        if wrong := [merge for merge, pair in zip(merges, pairs, strict=True) if len(pair) != 2]:
            raise ValueError(
                f"{len(wrong)} merges are no two tokens with a space between them, such as {wrong[0]!r:.40}"
            )
        vocab = {token: i for i, token in enumerate(tokens)}
        if wrong := [pair for pair in pairs if not {*pair, "".join(pair)} <= vocab.keys()]:
            raise ValueError(f"{len(wrong)} merges do not fit the tokens, such as {' '.join(wrong[0])!r:.40}")
        special_ids = list(special_ids)
        if not all(0 <= i < len(tokens) for i in special_ids):
            raise ValueError(f"special_ids {special_ids[:8]} must be from 0 to {len(tokens) - 1}")
        merged = {"".join(pair) for pair in pairs}
        if wrong := [tokens[i] for i in special_ids if len(tokens[i]) < 2 or tokens[i] in merged]:
            raise ValueError(f"the special token {wrong[0]!r:.40} could be written by an ordinary text")
        try:
            model = models.BPE(vocab=vocab, merges=pairs)
        except Exception as error:  # the library raises nothing more special
            raise ValueError(f"the merges do not fit the tokens: {error}") from None
        self._tokenizer = Tokenizer(model)
        # Words as GPT-2 cuts them, before the merges.
        cut_words = pre_tokenizers.ByteLevel(add_prefix_space=False)
        if split_digits:
            cut_words = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), cut_words])
        self._tokenizer.pre_tokenizer = cut_words
        self._tokenizer.decoder = decoders.ByteLevel()
        self.special = {tokens[i]: i for i in special_ids}
        self._tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in self.special])
        self._tokenizer.encode_special_tokens = True  # in a text they are text
        self.eos_id = eos_id
        self.bos_id = bos_id
        self.template = template

    def __len__(self) -> int:
        return self._tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text. Special tokens in it are cut like any other text.

        Raises:
            ValueError: if the text has half of a surrogate pair, which is no character.
        """
        start = [] if self.bos_id is None else [self.bos_id]
        return start + self._encode(text)

    def _encode(self, text: str) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"the text cannot be encoded as UTF-8: {error.reason} at {error.start}") from None
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the ids of a conversation, up to the point where the answer of the assistant begins.

        Only the template can write special tokens. It sees each content between two marks, so a template that looks
        into a content, such as ``content | length``, sees the marks, too.

        Args:
            messages: such as ``[{"role": "user", "content": "Hello!"}]``, the oldest first. The roles are "system",
                "user", "assistant" and "tool".

        Raises:
            ValueError: if the model has no template, a message has other keys or another role, or the template fails,
                cuts a content, takes more than a second or 512 MiB, or writes more than a million characters.
        """
        if self.template is None:
            raise ValueError("this model has no chat template, so it was not trained to answer; use encode")
        for row in messages:
            content = row.get("content") if isinstance(row, Mapping) else None
            if not isinstance(content, str) or {*row} != {"role", "content"} or row["role"] not in _ROLES:
                raise ValueError(
                    f"a message must be a role ({', '.join(_ROLES)}) and a content, a text, not {str(row)[:60]}"
                )
        secret = "".join(secrets.choice("0123456789") for _ in range(24))  # upper and lower case are the same
        begin, end = f"\ue000{secret}\ue001", f"\ue001{secret}\ue000"
        marked = [{**row, "content": begin + row["content"] + end} for row in messages]
        names = {i: name for name, i in self.special.items()}
        tokens = {"bos_token": names.get(self.bos_id, ""), "eos_token": names.get(self.eos_id, "")}
        rendered = _render(self.template, marked, tokens)
        special = "|".join(map(re.escape, sorted(self.special, key=len, reverse=True)))
        ids: list[int] = []
        plain, is_content, is_damaged = "", False, False
        for part in re.split("|".join(filter(None, (f"({begin}|{end}", special))) + ")", rendered):
            if part in (begin, end):
                is_damaged |= is_content == (part == begin)  # a mark is missing
                is_content = part == begin
            elif part in self.special and not is_content:
                ids += [*self._encode(plain), self.special[part]]
                plain = ""
            else:
                is_damaged |= secret in part or (not is_content and not {*part}.isdisjoint("\ue000\ue001"))
                plain += part
        if is_content or is_damaged:
            raise ValueError("the chat template changes or cuts the content of a message, which is not possible here")
        return ids + self._encode(plain)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, without special tokens. Bytes that are no UTF-8 become �."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def decode_stream(self, ids: Iterable[int]) -> Iterator[str]:
        """Yield the text of ids as they come, each character as soon as all of its bytes are there."""
        from tokenizers.decoders import DecodeStream

        stream, ids_so_far, length = DecodeStream(skip_special_tokens=True), [], 0
        for i in ids:
            ids_so_far.append(i)
            if text := stream.step(self._tokenizer, i):
                length += len(text)
                yield text
        if rest := self.decode(ids_so_far)[length:]:  # a character without its last bytes
            yield rest

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the text of each token alone, special tokens too, with ␣ for a space and ⏎ for a line break."""
        names = {i: name for name, i in self.special.items()}
        texts = (names.get(i) or self._tokenizer.decode([i]) for i in ids)
        return [text.replace(" ", "␣").replace("\n", "⏎") for text in texts]


_RENDER = f"""
import json, sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, ({_MAX_SECONDS}, {_MAX_SECONDS} + 1))
    resource.setrlimit(resource.RLIMIT_AS, ({_MAX_BYTES}, {_MAX_BYTES}))
except (ImportError, ValueError, OSError):  # Windows has no such limits; the clock is left
    pass
from jinja2.sandbox import ImmutableSandboxedEnvironment
def refuse(message):
    raise ValueError(message)
try:
    task = json.loads(sys.stdin.buffer.read())
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    template = environment.from_string(task["template"])
    text = template.render(messages=task["messages"], add_generation_prompt=True, **task["tokens"])
except MemoryError:
    sys.exit("it needs more memory than {_MAX_BYTES // 2**20} MiB")
except Exception as error:
    sys.exit(f"{{type(error).__name__}}: {{error}}"[:300])
if len(text) > {_MAX_TEXT}:
    sys.exit(f"it writes {{len(text)}} characters, more than {_MAX_TEXT}")
sys.stdout.buffer.write(json.dumps(text).encode())
"""


def _render(template: str, messages: list[dict[str, str]], tokens: dict[str, str]) -> str:
    """Fill in a template in a process of its own, which may read nothing and ends after a second.

    A template is a program, and it may come from a stranger. The sandbox of Jinja keeps it from files and from Python's
    internals, but not from a loop without an end or a string of gigabytes.
    """
    task = json.dumps({"template": template, "messages": messages, "tokens": tokens})
    try:
        process = subprocess.run(
            [sys.executable, "-I", "-c", _RENDER],
            input=task.encode("utf-8", "surrogatepass"),
            capture_output=True,
            timeout=20 * _MAX_SECONDS,  # of the clock; on a busy machine a second of work takes longer
        )
    except subprocess.TimeoutExpired:
        raise ValueError("the chat template takes too long") from None
    if process.returncode < 0:
        raise ValueError(f"the chat template takes more than {_MAX_SECONDS} s, so it was stopped")
    if process.returncode:
        reason = process.stderr.decode(errors="replace").strip().splitlines() or ["it failed"]
        raise ValueError(f"the chat template cannot be filled in: {reason[-1]}")
    return json.loads(process.stdout)
