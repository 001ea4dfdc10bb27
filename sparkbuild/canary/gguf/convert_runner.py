"""Child process of ``convert``: runs a llama.cpp tree's converter with a named pre-tokenizer.

usage: convert_runner.py PRE_TOKENIZER CONVERTER ARGUMENTS...

The converter recognises pre-tokenizers by the digest of what a tokenizer makes of a test text, and
refuses tokenizers that it has never seen. Ours has a pattern of GLM-4's and a vocabulary of its
own, so the name is told instead. Every architecture gets the vocabulary by the GLM way, which alone
makes end tokens of <|user|> and <|observation|>.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from typing import Any


def main() -> None:
    """Name the pre-tokenizer, then run the converter as if it had been started itself."""
    pre_tokenizer, converter, *arguments = sys.argv[1:]
    base = importlib.import_module("conversion.base")
    base.TextModel.get_vocab_base_pre = lambda _model, _tokenizer: pre_tokenizer
    base.TextModel.__init_subclass__ = classmethod(_with_glm_vocabulary)
    sys.argv = [converter, *arguments]
    runpy.run_path(converter, run_name="__main__")


def _with_glm_vocabulary(cls: Any, /, **_: Any) -> None:
    cls.set_vocab = cls._set_vocab_glm


if __name__ == "__main__":
    main()
