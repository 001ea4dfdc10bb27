"""Programs made at random, with branches and loops inside each other, against plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbuild.qualify.simt.contract import Buffer

VARIABLES = 3
WORD = 0xFFFF_FFFF

Statement = tuple[Any, ...]


def assignments() -> st.SearchStrategy[Statement]:
    variable = st.integers(0, VARIABLES - 1)
    return st.tuples(
        st.sampled_from(["add", "xor", "mul", "shr", "sum"]), variable, variable, st.integers(0, 9)
    )


def programs(inner: st.SearchStrategy[list[Statement]]) -> st.SearchStrategy[list[Statement]]:
    test = st.tuples(st.integers(0, VARIABLES - 1), st.integers(1, 7), st.integers(0, 7))
    branch = st.tuples(st.just("if"), test, inner, inner)
    loop = st.tuples(st.just("loop"), st.integers(0, VARIABLES - 1), inner)
    leave = st.tuples(st.just("exit"), test)
    guarded = st.tuples(st.just("guard"), test, assignments())
    return st.lists(st.one_of(assignments(), branch, loop, leave, guarded), max_size=4)


PROGRAMS = st.recursive(st.lists(assignments(), max_size=3), programs, max_leaves=8)


class Left(Exception):  # noqa: N818  no error: the thread has exited
    pass


def holds(test: tuple[int, int, int], values: list[int]) -> bool:
    variable, mask, wanted = test
    return values[variable] & mask == wanted & mask


def interpret(program: list[Statement], values: list[int]) -> None:
    for statement in program:
        match statement:
            case ("if", test, yes, no):
                interpret(yes if holds(test, values) else no, values)
            case ("loop", variable, body):
                for _ in range(values[variable] & 3):
                    interpret(body, values)
            case ("exit", test):
                if holds(test, values):
                    raise Left
            case ("guard", test, assignment):
                if holds(test, values):
                    interpret([assignment], values)
            case (operation, to, source, number):
                given_ = values[source]
                values[to] = {
                    "add": given_ + number,
                    "xor": given_ ^ number,
                    "mul": given_ * (2 * number + 1),
                    "shr": given_ >> number,
                    "sum": values[to] + given_,
                }[operation] & WORD


class Writer:
    """PTX of a program: variables in %r10 on, tests in %p1, loop counters from %r30 on."""

    def __init__(self) -> None:
        self._labels = (f"L{number}" for number in count())
        self._depth = 30

    def block(self, program: list[Statement]) -> Iterator[str]:
        for statement in program:
            yield from self.statement(statement)

    def statement(self, statement: Statement) -> Iterator[str]:
        match statement:
            case ("if", test, yes, no):
                other, done = next(self._labels), next(self._labels)
                yield from self.test(test)
                yield f"@!%p1 bra {other};"
                yield from self.block(yes)
                yield f"bra.uni {done}; {other}:"
                yield from self.block(no)
                yield f"{done}:"
            case ("loop", variable, body):
                again, done, left = next(self._labels), next(self._labels), f"%r{self._depth}"
                self._depth += 1
                yield f"and.b32 {left}, %r{10 + variable}, 3; {again}:"
                yield f"setp.eq.s32 %p1, {left}, 0; @%p1 bra {done};"
                yield from self.block(body)
                yield f"sub.s32 {left}, {left}, 1; bra {again}; {done}:"
                self._depth -= 1
            case ("exit", test):
                yield from self.test(test)
                yield "@%p1 exit;"
            case ("guard", test, assignment):
                yield from self.test(test)
                yield f"@%p1 {self.assignment(assignment)}"
            case _:
                yield self.assignment(statement)

    def test(self, test: tuple[int, int, int]) -> Iterator[str]:
        variable, mask, wanted = test
        yield f"and.b32 %r5, %r{10 + variable}, {mask}; setp.eq.s32 %p1, %r5, {wanted & mask};"

    def assignment(self, statement: Statement) -> str:
        operation, to, source, number = statement
        target, given_ = f"%r{10 + to}", f"%r{10 + source}"
        return {
            "add": f"add.s32 {target}, {given_}, {number};",
            "xor": f"xor.b32 {target}, {given_}, {number};",
            "mul": f"mul.lo.s32 {target}, {given_}, {2 * number + 1};",
            "shr": f"shr.u32 {target}, {given_}, {number};",
            "sum": f"add.s32 {target}, {target}, {given_};",
        }[operation]


@settings(max_examples=120, deadline=None)
@given(PROGRAMS, st.integers(0, 2**32 - 1), st.sampled_from([(1, 7), (1, 64), (3, 40)]))
def test_any_program_does_what_each_thread_would(
    kit: Any, program: list[Statement], seed: int, shape: tuple[int, int]
) -> None:
    grid, block = shape
    values = np.random.default_rng(seed).integers(0, 16, (grid * block, VARIABLES), dtype=np.uint32)
    body = f"""{kit.thread}
        ld.param.u64 %rd2, [given]; mul.wide.s32 %rd3, %r3, 12;
        add.s64 %rd2, %rd2, %rd3; add.s64 %rd4, %rd0, %rd3;
        ld.global.u32 %r10, [%rd2]; ld.global.u32 %r11, [%rd2+4]; ld.global.u32 %r12, [%rd2+8];
        {" ".join(Writer().block(program))}
        st.global.u32 [%rd4], %r10; st.global.u32 [%rd4+4], %r11; st.global.u32 [%rd4+8], %r12;
    """
    expected = np.zeros_like(values)
    for thread, row in enumerate(values.tolist()):
        try:
            interpret(program, row)
        except Left:
            continue
        expected[thread] = row
    out = Buffer("out", np.zeros_like(values), writable=True)
    result = kit.run(
        body,
        out,
        Buffer("given", values),
        grid=grid,
        block=block,
        parameters=("u64 out", "u64 given"),
    )
    assert (result.buffers["out"] == expected).all()
