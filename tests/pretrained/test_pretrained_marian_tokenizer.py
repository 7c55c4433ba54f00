"""The tokenizer of Marian, against that of transformers."""

import json
import warnings

import pytest
import sentencepiece
import torch

from attn_course.pretrained import MarianTokenizer

TEXTS = ["the cat sat on the mat", "a dog ran to the cat", "cats and dogs run and sit", "sit down, dog!"] * 20
ASKED = [*TEXTS[:4], "the zebra ⁇", "", "  the   cat ", ">>jpn<< the cat", ">> the cat", "a << b"]


def save_vocabulary(folder, separate=False):
    for side, texts in (("source", TEXTS), ("target", [text.upper() for text in TEXTS])):
        with open(folder / f"{side}.spm", "wb") as file:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(texts), model_writer=file, vocab_size=28, minloglevel=2
            )
    lists = []
    for side in ("source", "target"):
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
        lists.append([model.id_to_piece(n) for n in range(model.vocab_size())])
    # Where what is unknown and padding stand must not matter, so they stand differently in each list.
    if separate:
        source, target = (dict.fromkeys(pieces) for pieces in lists)
        for name, pieces in (("vocab.json", ["<pad>", *source]), ("target_vocab.json", ["ZZ", *target, "<pad>"])):
            (folder / name).write_text(json.dumps({p: n for n, p in enumerate(pieces)}), "utf-8")
    else:
        pieces = dict.fromkeys([">>jpn<<", *lists[1], *lists[0], "<pad>"])
        (folder / "vocab.json").write_text(json.dumps({p: n for n, p in enumerate(pieces)}), "utf-8")


@pytest.fixture(params=[False, True], ids=["one vocabulary", "two vocabularies"])
def folder(request, tmp_path):
    save_vocabulary(tmp_path, request.param)
    return tmp_path


@pytest.fixture
def theirs(folder):
    transformers = pytest.importorskip("transformers")
    files = {"source_spm": folder / "source.spm", "target_spm": folder / "target.spm", "vocab": folder / "vocab.json"}
    if (folder / "target_vocab.json").exists():
        files |= {"target_vocab_file": folder / "target_vocab.json", "separate_vocabs": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends another package
        return transformers.MarianTokenizer(**{name: str(f) if f is not True else f for name, f in files.items()})


def test_texts_get_the_ids_that_theirs_gives(folder, theirs):
    ours = MarianTokenizer(folder)
    for text in ASKED:
        assert ours.encode(text) == theirs(text)["input_ids"], text
    src, lengths = ours.batch(ASKED)
    padded = theirs(ASKED, padding=True, return_tensors="pt")
    assert torch.equal(src, padded["input_ids"])
    assert torch.equal(lengths, padded["attention_mask"].sum(-1))


@pytest.mark.parametrize("text", ["THE CAT SAT ON THE MAT", "DOGS, AND CATS", "THE ☃ CAT"])
def test_ids_become_the_text_that_theirs_gives(text, folder, theirs):
    ours = MarianTokenizer(folder)
    ids = theirs(text_target=text)["input_ids"]
    expected = text.replace("☃", "")
    if not (folder / "target_vocab.json").exists():  # theirs drops what is special by the numbers of the source
        assert theirs.decode(ids, skip_special_tokens=True, use_source_tokenizer=False) == expected
    for written in (ids, [ours.pad_id, *ids, ours.pad_id], torch.tensor(ids)):
        assert ours.decode(written) == expected
    assert ours.decode([]) == ""


@pytest.mark.parametrize("name", ["source.spm", "target.spm", "vocab.json"])
def test_a_missing_file_and_a_damaged_one_are_named(name, folder):
    (folder / name).write_bytes(b"[1]")
    with pytest.raises(ValueError, match=r"the vocabulary in .* is damaged: "):
        MarianTokenizer(folder)
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"holds no {name}"):
        MarianTokenizer(folder)
