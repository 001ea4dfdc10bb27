"""The canaries' byte-level BPE: one vocabulary of 512 tokens, built the same everywhere.

Merges join lower-case ASCII letters and a space before them, nothing else. So every digit, every
capital, every other byte is one token whatever stands beside it, and spelling costs one token a
character in copies, needles and pictures of text.
"""

from __future__ import annotations

import collections
import functools
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sparkbuild.canary.tasks.sample import Tokenizer
from sparkbuild.files import write_atomic

VOCABULARY: Final = 512
"""A multiple of 64, so that no converter and no kernel has to pad."""

END: Final = "<|endoftext|>"
CONTROL: Final = (
    END, "[MASK]", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>",
    "<|begin_of_image|>", "<|end_of_image|>", "<|image|>",
    "<|begin_of_video|>", "<|end_of_video|>", "<|video|>",
)  # fmt: skip
"""Never shown as text by llama-server; the converter and mtmd look several of them up by name."""
MARKS: Final = (
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>",
    "<arg_value>", "</arg_value>", "<tool_response>", "</tool_response>",
)  # fmt: skip
"""Single tokens that are text all the same: llama-server's chat parser has to see them."""

# GLM-4's split into pieces; llama.cpp's pre-tokenizer of that name ("glm4") has the same.
_PIECES: Final = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
    r"|[^\r\n\p{L}\p{N}]?\p{L}+"
    r"|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)
# The same for Python's own expressions, which know no \p{L}. Other numbers than digits (Roman ones,
# fractions) count as letters here: no merge has them, so the tokens are the same.
_PIECE: Final = re.compile(
    r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
    r"|(?:[^\r\n\w]|_)?[^\W\d_]+"
    r"|\d{1,3}"
    r"| ?(?:[^\s\w]|_)+[\r\n]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)
_KNOWN_AT_MOST: Final = 100_000
"""Pieces to remember: random strings must not fill the memory."""
# GPT-2's byte alphabet: printable Latin-1 bytes stand for themselves, the others take the code
# points from 256 on, in byte order.
_PRINTABLE: Final = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_SPACE: Final = "\u0120"
_WORD: Final = re.compile(r" ?[a-z]+")

Merge = tuple[str, str]


def merges(texts: Iterable[str]) -> list[Merge]:
    """The most frequent pairs of ``texts``, one after another, until the vocabulary is full.

    Of two pairs of the same count the one that sorts first is taken. Raises ValueError where the
    texts have too few words.
    """
    found = collections.Counter(word for text in texts for word in _WORD.findall(text))
    words = [(tuple(word.replace(" ", _SPACE)), count) for word, count in found.items()]
    pairs: collections.Counter[Merge] = collections.Counter()
    for parts, count in words:
        _add(pairs, parts, count)
    wanted = VOCABULARY - 256 - len(CONTROL) - len(MARKS)
    result: list[Merge] = []
    while len(result) < wanted:
        best = min(pairs, key=lambda pair: (-pairs[pair], pair), default=None)
        if best is None or not pairs[best]:
            raise ValueError(f"{len(result)} merges in these texts, {wanted} are needed")
        result.append(best)
        for place, (parts, count) in enumerate(words):
            if best in itertools.pairwise(parts):
                _add(pairs, parts, -count)
                words[place] = (_merged(parts, best), count)
                _add(pairs, words[place][0], count)
    return result


def build(texts: Iterable[str]) -> bytes:
    """``tokenizer.json`` with the merges of ``texts``; raises ValueError as ``merges`` does.

    Ids: 0 to 255 the bytes, then the merges by rank, then ``CONTROL``, then ``MARKS``.
    """
    pairs = merges(texts)
    ordinary = [*_alphabet(), *(left + right for left, right in pairs)]
    if len(set(ordinary)) != len(ordinary):
        raise ValueError("two merges make the same token")
    named = [*CONTROL, *MARKS]
    added = [
        {
            "id": len(ordinary) + index,
            "content": name,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": name in CONTROL,
        }
        for index, name in enumerate(named)
    ]
    return _json(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": _PRE_TOKENIZER,
            "post_processor": None,
            "decoder": _BYTE_LEVEL,
            "model": {
                **_MODEL,
                "vocab": {token: index for index, token in enumerate([*ordinary, *named])},
                "merges": [list(pair) for pair in pairs],
            },
        }
    )


def load(data: bytes) -> Tokenizer:
    """The tokenizer of a ``tokenizer.json`` that ``build`` made; ValueError for any other."""
    return _Loaded(json.loads(data))


def save(folder: Path, data: bytes, *, chat_template: str) -> None:
    """Write what the pinned llama.cpp's converter reads beside ``config.json``."""
    write_atomic(folder / "tokenizer.json", data)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": END,
        "extra_special_tokens": list(CONTROL[1:]),
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1 << 20,
        "chat_template": chat_template,
    }
    write_atomic(folder / "tokenizer_config.json", _json(config))


class _Loaded:
    """Our own encoder: pieces are looked up, so that text of known words costs next to nothing."""

    def __init__(self, described: Mapping[str, Any]) -> None:
        if described["pre_tokenizer"] != _PRE_TOKENIZER or described["normalizer"] is not None:
            raise ValueError("this tokenizer splits text in another way than the canaries' own")
        model = described["model"]
        self._ids: dict[str, int] = model["vocab"]
        self._ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
        self._special = {token["content"]: token["id"] for token in described["added_tokens"]}
        self._names = re.compile("(" + "|".join(map(re.escape, self._special)) + ")")
        self._known: dict[str, list[int]] = {}
        values = {character: byte for byte, character in enumerate(_alphabet())}
        self._bytes = {
            index: token.encode()
            if token in self._special
            else bytes(map(values.__getitem__, token))
            for token, index in self._ids.items()
        }
        self._sizes = {index: len(text) for index, text in self._bytes.items()}

    def encode(self, text: str) -> list[int]:
        """Ids; names of special tokens in ``text`` become those tokens."""
        result: list[int] = []
        for index, part in enumerate(self._names.split(text)):
            if index % 2:
                result.append(self._special[part])
                continue
            for piece in _PIECE.findall(part):
                ids = self._known.get(piece)
                result += self._encoded(piece) if ids is None else ids
        return result

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids, special tokens by name; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(self._bytes[index] for index in ids).decode(errors="replace")

    def sizes(self, ids: Iterable[int]) -> list[int]:
        """Bytes of each token's text, of a special token those of its name."""
        return list(map(self._sizes.__getitem__, ids))

    def id_of(self, token: str) -> int:
        """The id of one special token; raises KeyError for any other text."""
        return int(self._special[token])

    def _encoded(self, piece: str) -> list[int]:
        parts: tuple[str, ...] = tuple(_alphabet()[byte] for byte in piece.encode())
        whole = self._ids.get("".join(parts))
        if whole is None:
            while pairs := self._ranks.keys() & set(itertools.pairwise(parts)):
                parts = _merged(parts, min(pairs, key=self._ranks.__getitem__))
            ids = [self._ids[part] for part in parts]
        else:
            ids = [whole]
        if len(self._known) > _KNOWN_AT_MOST:
            self._known.clear()
        self._known[piece] = ids
        return ids


_SPLIT: Final[Mapping[str, Any]] = {
    "type": "Split",
    "pattern": {"Regex": _PIECES},
    "behavior": "Isolated",
    "invert": False,
}
_BYTE_LEVEL: Final[Mapping[str, Any]] = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": False,
}
_PRE_TOKENIZER: Final[Mapping[str, Any]] = {
    "type": "Sequence",
    "pretokenizers": [_SPLIT, _BYTE_LEVEL],
}
_MODEL: Final[Mapping[str, Any]] = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    # llama.cpp's "glm4" takes a piece that is a token as it is, without the merges' order.
    "ignore_merges": True,
}


@functools.cache
def _alphabet() -> tuple[str, ...]:
    """The character that stands for each byte value, 0 to 255."""
    taken = iter(range(256, 512))
    return tuple(chr(byte) if byte in _PRINTABLE else chr(next(taken)) for byte in range(256))


def _add(pairs: collections.Counter[Merge], parts: Sequence[str], count: int) -> None:
    for pair in itertools.pairwise(parts):
        pairs[pair] += count


def _merged(parts: Sequence[str], pair: Merge) -> tuple[str, ...]:
    """``parts`` with each occurrence of ``pair``, from the left, made one."""
    result: list[str] = []
    for part in parts:
        if result and (result[-1], part) == pair:
            result[-1] += part
        else:
            result.append(part)
    return tuple(result)


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1).encode() + b"\n"
