"""The tiny model's byte-level BPE: a vocabulary small enough to read, and our own encoder."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# GPT-2's byte alphabet: printable Latin-1 bytes stand for themselves, the others take the code
# points from 256 on, in byte order. llama.cpp's "gpt2" tokenizer reads its vocabulary that way.
_PRINTABLE: Final = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}

END: Final = "<|end|>"
USER: Final = "<|user|>"
ASSISTANT: Final = "<|assistant|>"
SYSTEM: Final = "<|system|>"
SPECIAL: Final = (END, USER, ASSISTANT, SYSTEM)

# Letters only, with at most one space before them: no merge can then cross a border of the
# pre-tokenizer's pattern, so that plain BPE over the whole text is exact.
_MERGES: Final = tuple(
    line.replace("_", "Ġ")
    for line in (
        "t h", "th e", "_ the", "i n", "a n", "_ a", "_ t", "o n", "e r", "r e", "an d", "_ and",
        "_ o", "o u", "in g", "_ w", "_ s", "e n", "a t", "e s", "o r", "_ b", "_ in", "_ f",
        "i t", "_ c", "_ h", "e d", "_o f", "i s", "a l", "a r", "_ p", "_ m", "_ d", "s t",
        "l l", "_ is", "v e", "r o", "_t o", "l e", "_ re", "l y", "y ou", "_s t", "o w", "i c",
        "_b e", "a s", "c h", "_ on", "s e", "_w h", "_ it", "o t", "_ l", "en t", "_f or", "_ n",
    )
)  # fmt: skip

CHAT_TEMPLATE: Final = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@dataclass(frozen=True)
class Vocabulary:
    """Token texts by id, merges by rank, the count of ordinary tokens before the special ones."""

    tokens: tuple[str, ...]
    merges: tuple[str, ...]
    ordinary: int

    @property
    def end(self) -> int:
        """The end-of-sequence token's id."""
        return self.tokens.index(END)


def byte_alphabet() -> list[str]:
    """The character that stands for each byte value, 0 to 255."""
    taken = iter(range(256, 512))
    return [chr(byte) if byte in _PRINTABLE else chr(next(taken)) for byte in range(256)]


def vocabulary() -> Vocabulary:
    """256 bytes, 60 merges, 4 special tokens: 320 ids."""
    merged = tuple(merge.replace(" ", "") for merge in _MERGES)
    ordinary = (*byte_alphabet(), *merged)
    return Vocabulary(tokens=(*ordinary, *SPECIAL), merges=_MERGES, ordinary=len(ordinary))


def encode(text: str) -> list[int]:
    """Token ids of ``text``; special tokens' names in it are ordinary text."""
    known = vocabulary()
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(known.merges)}
    alphabet = byte_alphabet()
    parts = [alphabet[byte] for byte in text.encode()]
    while True:
        ranked = [
            (ranks.get(pair, len(ranks)), at) for at, pair in enumerate(itertools.pairwise(parts))
        ]
        rank, at = min(ranked, default=(len(ranks), 0))
        if rank == len(ranks):
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    ids = {token: index for index, token in enumerate(known.tokens)}
    return [ids[part] for part in parts]


def decode(ids: Sequence[int]) -> bytes:
    """The bytes that ordinary token ids stand for; special tokens stand for none."""
    known = vocabulary()
    values = {character: byte for byte, character in enumerate(byte_alphabet())}
    texts = (known.tokens[index] for index in ids if index < known.ordinary)
    return bytes(values[character] for text in texts for character in text)


def chat_prompt(user: str) -> list[int]:
    """Token ids of one user message under the model's chat template."""
    ids = vocabulary().tokens.index
    return [ids(USER), *encode(user), ids(END), ids(ASSISTANT)]
