"""The words that the canaries' vocabulary is made for."""

from __future__ import annotations

import functools
from typing import Final

from sparkbuild.canary.tasks import answers, tokenizer

WORDS: Final = tuple(
    """
    air and apple are arm autumn back ball bank bear bell bird blue boat book bread bridge bring
    brown call car cat chair circle cloud coat cold corn day door down dry ear east egg evening eye
    farm field fire fish flower for forest friend from garden gold grass green hand hat have heart
    hill home horse house ice in is island key lake lamp leaf left letter light line little long
    many map meadow milk moon morning mountain near new night north of old on open over paper path
    pen rain red right river road room sail salt sand sea seed ship shore sky small snow song south
    spring star stone street summer sun table the time to top tower town tree under wall warm water
    west white wind window winter with wood yellow
    """.split()  # noqa: SIM905 - a list of them would fill pages
)
"""Common words, each of which has to be cheap: most text of the long tasks is made of them."""
_WEIGHT: Final = 4
"""How often each of ``WORDS`` counts beside the fixed answers."""


def texts() -> list[str]:
    """What the merges are counted in: the words above, and every fixed question and answer."""
    words = " ".join(["", *WORDS]) * _WEIGHT
    return [words, *answers.texts()]


@functools.cache
def tokenizer_json() -> bytes:
    """``tokenizer.json`` of all canaries."""
    return tokenizer.build(texts())
