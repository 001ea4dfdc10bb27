"""What is asked of upstream's test-backend-ops, as data beside this module, each with a reason."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from sparkbuild.errors import ManifestError
from sparkbuild.manifest import Table, load

SUITE: Final = Path(__file__).with_name("ops.toml")
TYPES: Final = "{types}"
HEADS: Final = "{heads}"

Text = Annotated[str, msgspec.Meta(min_length=1)]
OpName = Annotated[str, msgspec.Meta(pattern="^[A-Z][A-Z0-9_]*$")]
Role = Literal["matrices", "experts", "embeddings", "cache"]


class Limit(Table, frozen=True):
    """A limit and why it is neither tighter nor wider."""

    limit: Annotated[float, msgspec.Meta(gt=0)]
    reason: Text


class Limits(Table, frozen=True, kw_only=True):
    """Patience with the program: seconds without a case that ended, seconds in all, crashes."""

    silence: Limit
    whole: Limit
    crashes: Limit
    """After so many the rest is not asked."""
    near: Limit
    """Times upstream's bound: a case that is wrong by less is asked again, with other numbers."""


class Cache(Table, frozen=True):
    """Types that a KV cache is served with."""

    types: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    reason: Text


class Question(Table, frozen=True, kw_only=True):
    """One operator; of every architecture where none is named.

    ``pattern``, a regular expression over the parameters as upstream prints them, says which of its
    cases are asked; ``small`` takes its place on the CPU. In both ``{types}`` stands for the
    model's types in ``role``, ``{heads}`` for the sizes of its attention heads. ``key`` is the
    parameter that holds the type: results are told apart by it. ``fused``: upstream runs the whole
    graph of several operators, and names its cases nowhere but where they ran.
    """

    op: OpName
    architectures: tuple[Text, ...] = ()
    role: Role | None = None
    key: Text | None = None
    pattern: str = ""
    small: str | None = None
    backends: Annotated[tuple[Literal["cpu", "cuda"], ...], msgspec.Meta(min_length=1)] = (
        "cpu",
        "cuda",
    )
    fused: bool = False
    reason: Text

    def type_of(self, parameters: str) -> str:
        """The type that a case is about; empty where results are not told apart."""
        match = (
            re.search(rf"(?:^|,){re.escape(self.key)}=([^,]+)", parameters) if self.key else None
        )
        return match[1] if match else ""


class Cause(Table, frozen=True, kw_only=True):
    """What is likely where certain operators are wrong, or where the process ended somehow.

    ``wrong``: every group that is wrong matches it, as ``MUL_MAT q4_K``. ``crash``: found in the
    kind of the crash, or in what was printed before it. Regular expressions both.
    """

    wrong: str = ""
    crash: str = ""
    likely: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    """The most likely first."""


class Suite(Table, frozen=True, kw_only=True):
    """``ops.toml``."""

    schema: Literal[1]
    name: Text
    summary: Text
    cache: Cache
    limits: Limits
    architectures: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    """Those whose operators were looked up."""
    questions: Annotated[tuple[Question, ...], msgspec.Meta(min_length=1)]
    causes: tuple[Cause, ...]

    def asked(self, architectures: Collection[str], backend: str) -> tuple[Question, ...]:
        """The questions for models of these architectures."""
        return tuple(
            one
            for one in self.questions
            if backend in one.backends
            and (not one.architectures or set(one.architectures) & set(architectures))
        )

    def likely_wrong(self, groups: Collection[str]) -> tuple[str, ...]:
        """Kinds of cause where these groups are wrong; of the first entry that fits."""
        for cause in self.causes:
            if cause.wrong and all(re.fullmatch(cause.wrong, name) for name in groups):
                return cause.likely
        return ()

    def likely_crash(self, kind: str, printed: str) -> tuple[str, ...]:
        """Kinds of cause of a process's end; of the first entry that fits."""
        for cause in self.causes:
            if cause.crash and re.search(cause.crash, f"{kind}\n{printed}"):
                return cause.likely
        return ()


def load_suite(path: Path = SUITE) -> Suite:
    """The suite. Raises ManifestError naming the file and what is wrong."""
    suite = load(path, Suite)
    problems = list(_problems(suite))
    if problems:
        raise ManifestError(
            f"{path}: {problems[0]}",
            problems=problems,
            evidence=[path],
            next_step=f"correct {path}",
        )
    return suite


def _problems(suite: Suite) -> list[str]:
    problems = []
    for at, one in enumerate(suite.questions):
        where = f"`questions[{at}]` ({one.op})"
        patterns = [one.pattern, *([] if one.small is None else [one.small])]
        problems += [f"{where} {text}" for text in map(_pattern_problem, patterns) if text]
        problems += [f"{where}: {p!r} must begin with ^" for p in patterns if p and p[0] != "^"]
        typed = any(TYPES in pattern for pattern in patterns)
        if typed != (one.role is not None) or (typed and one.key is None):
            problems.append(f"{where} needs `role`, `key` and {TYPES}, or none of them")
        strangers = set(one.architectures) - set(suite.architectures)
        problems += [f"{where} names {name}, which `architectures` lacks" for name in strangers]
    named = [(one.op, name) for one in suite.questions for name in one.architectures or ("",)]
    problems += [
        f"{op} is asked twice{of and f' of {of}'}"
        for op, of in sorted({pair for pair in named if named.count(pair) > 1})
    ]
    for at, cause in enumerate(suite.causes):
        problems += [
            f"`causes[{at}]` {text}"
            for text in map(_pattern_problem, (cause.wrong, cause.crash))
            if text
        ]
        if bool(cause.wrong) == bool(cause.crash):
            problems.append(f"`causes[{at}]` needs either `wrong` or `crash`")
    return problems


def _pattern_problem(pattern: str) -> str:
    try:
        re.compile(pattern.replace(TYPES, "x").replace(HEADS, "x"))
    except re.error as error:
        return f"has no regular expression in {pattern!r}: {error}"
    return ""
