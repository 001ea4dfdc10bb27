"""Thresholds and reasons of the checks: data, in ``rules.toml``, each with its source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from sparkbuild.doctor.model import Ability, Command, Finding
from sparkbuild.manifest import Table, load
from sparkbuild.model.finding import State
from sparkbuild.process import quoted

FILE: Final = Path(__file__).with_name("rules.toml")
Text = Annotated[str, msgspec.Meta(min_length=1)]


class Entry(Table, frozen=True, kw_only=True):
    """What the file has on one check.

    ``spark``: it is advice for a Spark, and a note on any other machine.
    """

    concerns: Annotated[tuple[Ability, ...], msgspec.Meta(min_length=1)]
    why: Text
    source: Text
    spark: bool = False
    numbers: dict[str, float] = msgspec.field(default_factory=dict)
    words: dict[str, tuple[Text, ...]] = msgspec.field(default_factory=dict)


class Book(Table, frozen=True, kw_only=True):
    """``rules.toml``: check to entry."""

    schema: Literal[1]
    rules: dict[str, Entry]

    def rule(self, name: str, *, here: bool) -> Rule:
        """The rule of a check. Raises KeyError for a check that the file does not know."""
        return Rule(name=name, entry=self.rules[name], on_spark=here)


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A check's entry, which makes its findings."""

    name: str
    entry: Entry
    on_spark: bool
    """Whether the machine is one."""

    def number(self, key: str) -> float:
        """A threshold."""
        return self.entry.numbers[key]

    def size(self, key: str) -> int:
        """A threshold that is written in GiB, in bytes."""
        return int(self.entry.numbers[key] * (1 << 30))

    def words(self, key: str) -> tuple[str, ...]:
        """A list of names."""
        return self.entry.words[key]

    def ok(self, expected: str, found: str) -> Finding:
        """All is well."""
        return self._finding("ok", expected, found)

    def note(
        self, expected: str, found: str, reason: str, *, blocks: tuple[Ability, ...] = ()
    ) -> Finding:
        """Nothing is wrong, or it could not be judged."""
        return self._finding("note", expected, found, reason=reason, blocks=blocks)

    def warning(
        self, expected: str, found: str, *, mend: tuple[Command, ...] = (), step: str = ""
    ) -> Finding:
        """It works, and may work badly."""
        return self._finding("warning", expected, found, mend=mend, step=step)

    def fault(
        self,
        expected: str,
        found: str,
        *,
        mend: tuple[Command, ...] = (),
        step: str = "",
        blocks: tuple[Ability, ...] | None = None,
    ) -> Finding:
        """What it concerns cannot be done; ``blocks`` where that is less than all of it."""
        taken = self.entry.concerns if blocks is None else blocks
        return self._finding("fault", expected, found, mend=mend, step=step, blocks=taken)

    @property
    def is_advice(self) -> bool:
        """Whether it says nothing about a machine like this one."""
        return self.entry.spark and not self.on_spark

    def _finding(
        self,
        state: State,
        expected: str,
        found: str,
        *,
        reason: str = "",
        mend: tuple[Command, ...] = (),
        step: str = "",
        blocks: tuple[Ability, ...] = (),
    ) -> Finding:
        if self.is_advice and state in {"warning", "fault"}:
            reason = f"applies to a Spark: {reason or self.entry.why}"
            state, mend, step, blocks = "note", (), "", ()
        commands = " && ".join(quoted(one) for one in mend)
        return Finding(
            name=self.name,
            state=state,
            expected=expected,
            found=found,
            reason=reason or self.entry.why,
            next_step=": ".join(part for part in (step, commands) if part),
            concerns=self.entry.concerns,
            blocks=blocks,
            mend=mend,
            advice=step,
            source=self.entry.source,
        )


def read_rules(path: Path = FILE) -> Book:
    """The rules of a file. Raises ManifestError naming the file and what is wrong."""
    return load(path, Book)
