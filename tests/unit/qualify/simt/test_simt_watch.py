"""Who wrote a value: the last instruction that stored it, and its thread."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest

from sparkbuild.qualify.judge import judge
from sparkbuild.qualify.probes.model import Case, Expected, Probe
from sparkbuild.qualify.simt.contract import Buffer, Launch
from sparkbuild.qualify.simt.launch import execute
from sparkbuild.qualify.simt.watch import Watch

from .conftest import THREAD, Kit

STORES = f"""{THREAD}
    st.global.u32 [%rd1], 1;
    setp.eq.u32 %p0, %r0, 5;
    @%p0 st.global.u32 [%rd1], 2;
    setp.eq.u32 %p1, %r3, 40;
    @%p1 red.global.add.u32 [%rd0 + 28], 9;
"""


def launch_of() -> tuple[Buffer, Launch]:
    out = Buffer("out", np.zeros(96, dtype=np.int32), writable=True)
    return out, Launch("k", (3, 1, 1), (32, 1, 1), (out,))


@pytest.mark.parametrize(
    ("element", "name", "thread"),
    [
        (3, "st.global.u32", (0, 3)),
        (5, "st.global.u32", (0, 5)),
        (7, "red.global.add.u32", (1, 8)),
        (69, "st.global.u32", (2, 5)),
    ],
)
def test_the_last_writer_of_an_element_is_told(
    kit: Kit, element: int, name: str, thread: tuple[int, int]
) -> None:
    module, (_, launch) = kit.module(STORES), launch_of()
    for part in (0, 3):  # any byte of it
        watch = Watch(buffer="out", offset=4 * element + part)
        execute(module, launch, watch=watch)
        assert watch.writer is not None
        assert watch.writer.name == name
        assert watch.thread == thread
        assert watch.writer in module.functions["k"].body


def test_what_is_not_written_has_no_writer(kit: Kit) -> None:
    watch = Watch(buffer="out", offset=0)
    out = Buffer("out", np.zeros(96, dtype=np.int32), writable=True)
    execute(kit.module("ld.param.u64 %rd0, [out];\n st.global.u32 [%rd0 + 4], 1;"),
            Launch("k", (1, 1, 1), (32, 1, 1), (out,)), watch=watch)  # fmt: skip
    assert watch.writer is None


def test_a_verdict_names_the_instruction_that_stored_the_wrong_value(kit: Kit) -> None:
    _, launch = launch_of()
    right = np.ones(96, dtype=np.int32)
    right[7] += 9
    expected = Expected(values=right, bound=np.zeros(1), why="whole numbers")
    case = Case(label="toy", launch=launch, expected=MappingProxyType({"out": expected}))
    probe = Probe(
        name="toy", kind="toy", unit="toy", entry="k", functions=(), cases=lambda _: (case,)
    )
    mistake = judge(probe, kit.module(STORES)).probed.mistake
    assert mistake is not None
    assert mistake.index == (5,)
    assert "written by thread 5 of block 0" in mistake.text
    assert mistake.where.instruction == "st.global.u32"
    assert mistake.where.ptx_line
