"""The numpy dequantisers against values worked out by hand, and what a disagreement says."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sparkbuild.errors import HostError
from sparkbuild.qualify.reference import numpy_quants
from sparkbuild.qualify.reference.references import References

TWO = [0x00, 0x40]
"""2.0 in f16."""


def block(*parts: Sequence[int]) -> NDArray[np.uint8]:
    return np.array([[byte for part in parts for byte in part]], np.uint8)


def test_q4_0_is_two_nibbles_less_eight() -> None:
    values = numpy_quants.dequantize("q4_0", block(TWO, [0x9F] * 16))
    assert values.tolist() == [[14.0] * 16 + [2.0] * 16]


def test_q8_0_is_signed_bytes() -> None:
    values = numpy_quants.dequantize("q8_0", block(TWO, [0x80, 0xFF, 1, 127] * 8))
    assert values[0, :4].tolist() == [-256.0, -2.0, 2.0, 254.0]


def test_mxfp4_is_a_power_of_two_and_e2m1() -> None:
    values = numpy_quants.dequantize("mxfp4", block([128], [0xF7] * 16))
    assert values.tolist() == [[12.0] * 16 + [-12.0] * 16]


def test_q2_k_has_scales_and_minima() -> None:
    values = numpy_quants.dequantize("q2_K", block([0x53] * 16, [0b11100100] * 64, TWO, TWO))
    # 2 * 3 * quant - 2 * 5, the quants of one byte lying 32 apart
    assert values[0, ::32].tolist() == [-10.0, -4.0, 2.0, 8.0] * 2


def test_iq4_nl_is_a_table() -> None:
    values = numpy_quants.dequantize("iq4_nl", block(TWO, [0xF0] * 16))
    assert values.tolist() == [[-254.0] * 16 + [226.0] * 16]


@pytest.mark.parametrize(("name", "can"), [("iq3_s", True), ("q4_K", True), ("q9_9", False)])
def test_types_that_gguf_knows(name: str, *, can: bool) -> None:
    assert numpy_quants.numpy_can(name) is can


class Twisted:
    """A library that says what numpy says, but for one element of one type."""

    def __init__(self, wrong: str) -> None:
        self.wrong = wrong
        self.path = Path("reference.so")
        self.types = {
            "q4_0": SimpleNamespace(size=18, elements=32),
            "q8_0": SimpleNamespace(size=34, elements=32),
            "unknown": SimpleNamespace(size=1, elements=1),
        }

    def dequantize(self, name: str, blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
        values = numpy_quants.dequantize(name, blocks)
        if name == self.wrong:
            values[3, 7] = np.nextafter(values[3, 7], np.float32(9e9))
        return values


def test_references_that_agree_are_let_through() -> None:
    library: Any = Twisted("")
    assert numpy_quants.disagreements(library, library.types) == []


def test_a_single_bit_is_a_disagreement_and_the_type_is_named() -> None:
    library: Any = Twisted("q8_0")
    with pytest.raises(HostError, match="disagree") as refused:
        numpy_quants.require_agreement(library, library.types)
    (problem,) = refused.value.problems
    assert problem.startswith("q8_0: element 7 of the block ")


def test_a_library_that_disagrees_is_never_used() -> None:
    library: Any = Twisted("q4_0")
    references = References(lambda: library)
    assert references.values("q4_0", block(TWO, [0x88] * 16)).tolist() == [[0.0] * 32]
    with pytest.raises(HostError, match="disagree"):
        references.values("unknown", block([0]))


def test_without_a_library_only_gguf_is_asked() -> None:
    references = References()
    assert references.can("iq2_s")
    assert not references.can("q9_9")
    with pytest.raises(HostError, match="was not built"):
        references.values("q9_9", block([0]))


def test_the_library_is_built_once() -> None:
    made: list[Any] = []

    def build() -> Any:
        made.append(Twisted(""))
        return made[-1]

    references = References(build)
    assert not made
    assert references.library is references.library
    assert len(made) == 1
