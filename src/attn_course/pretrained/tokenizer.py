"""Load the tokenizer of a model with the library ``tokenizers``. Used from chapter 22 on."""

from pathlib import Path
from typing import Any


def load_tokenizer(folder: str | Path) -> Any:
    """Read ``tokenizer.json`` as a ``tokenizers.Tokenizer`` that cuts and pads nothing until told to.

    The file may hold a length that every text is cut at or padded to, which is not that of the model.

    Raises:
        ModuleNotFoundError: if the library ``tokenizers`` is not installed.
        FileNotFoundError: if there is no tokenizer.json.
        ValueError: if it is damaged.
    """
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError:
        raise ModuleNotFoundError("reading a tokenizer needs the library tokenizers: pip install tokenizers") from None
    path = Path(folder) / "tokenizer.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no tokenizer.json")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more special
        raise ValueError(f"{path} is damaged: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
