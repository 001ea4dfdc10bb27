"""From prepared sources and one numpy function to what a lane runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparkbuild.qualify.alu.contract import Bits, LaneOp
from sparkbuild.qualify.alu.form import Prepare, Source


def lane(
    function: Callable[..., Any], sources: list[Source], finish: Prepare | None = None
) -> LaneOp:
    """``function`` of the prepared sources, then ``finish``; one destination."""
    if finish is not None:
        return LaneOp(_finished(function, sources, finish))
    if len(sources) == 1:
        return LaneOp(_unary(function, sources[0]))
    if len(sources) == 2:
        return LaneOp(_binary(function, *sources))
    return LaneOp(_general(function, sources))


def _unary(function: Callable[..., Any], source: Source) -> Callable[..., tuple[Bits, ...]]:
    prepare = source.prepare
    if prepare is None:
        return lambda a: (function(a),)
    return lambda a: (function(prepare(a)),)


def _binary(
    function: Callable[..., Any], first: Source, second: Source
) -> Callable[..., tuple[Bits, ...]]:
    constant, left, right = second.constant, first.reader, second.reader
    if first.prepare is None and second.prepare is None:
        return lambda a, b: (function(a, b),)
    if constant is None:
        return lambda a, b: (function(left(a), right(b)),)
    if first.prepare is None:
        return lambda a, _: (function(a, constant),)
    return lambda a, _: (function(left(a), constant),)


def _general(
    function: Callable[..., Any], sources: list[Source]
) -> Callable[..., tuple[Bits, ...]]:
    if all(source.prepare is None for source in sources):
        return lambda *bits: (function(*bits),)
    if len(sources) == 3:
        one, two, three = (source.reader for source in sources)
        return lambda a, b, c: (function(one(a), two(b), three(c)),)
    readers = [source.reader for source in sources]
    return lambda *bits: (
        function(*[read(value) for read, value in zip(readers, bits, strict=True)]),
    )


def _finished(
    function: Callable[..., Any], sources: list[Source], finish: Prepare
) -> Callable[..., tuple[Bits, ...]]:
    readers = [source.reader for source in sources]
    if len(readers) == 1:
        one = readers[0]
        return lambda a: (finish(function(one(a))),)
    if len(readers) == 2:
        one, two = readers
        return lambda a, b: (finish(function(one(a), two(b))),)
    if len(readers) == 3:
        one, two, three = readers
        return lambda a, b, c: (finish(function(one(a), two(b), three(c))),)
    return lambda *bits: (
        finish(function(*[read(value) for read, value in zip(readers, bits, strict=True)])),
    )
