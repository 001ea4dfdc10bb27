"""Findings as a shell script that mends them; a person reads it, then runs it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Final

from sparkbuild.doctor.model import Command, Diagnosis, Finding
from sparkbuild.process import quoted

_WIDTH: Final = 96
_HEAD: Final = (
    "Made by `sparkbuild doctor --fix`, which changed nothing. Read it, take out what you do not "
    "want, then run it with sh."
)


def script(diagnosis: Diagnosis) -> str:
    """One step for each warning and fault that commands mend, its finding above it.

    What needs a person's hand or judgement is a comment. Ends with a line break.
    """
    lines = ["#!/bin/sh", *_comment(_HEAD), *_comment(f"Machine: {diagnosis.name}"), "set -eu"]
    steps = [one for one in diagnosis.findings if one.state in {"warning", "fault"}]
    written: set[Command] = set()
    for number, one in enumerate(steps, 1):
        lines += ["", *_step(number, one, written)]
        written.update(one.mend)
    if not steps:
        lines += ["", "# Nothing to mend."]
    return "\n".join(lines) + "\n"


def _step(number: int, one: Finding, written: set[Command]) -> Iterator[str]:
    """A finding as comments, then its commands; ``written`` are those of earlier steps."""
    yield from _comment(f"{number}. {one.name} ({one.state}): found {one.found}")
    yield from _comment(f"expected {one.expected}; {one.reason}")
    if one.advice:
        yield from _comment(f"by hand: {one.advice}")
    new = [command for command in one.mend if command not in written]
    if new:
        yield from (quoted(command) for command in new)
    elif one.mend:
        yield from _comment("mended above")
    elif not one.advice:
        yield from _comment("by hand: see above")


def _comment(text: str) -> list[str]:
    """Text as comment lines: wrapping leaves no line break of its own in it."""
    return textwrap.wrap(
        text, _WIDTH, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False
    )
