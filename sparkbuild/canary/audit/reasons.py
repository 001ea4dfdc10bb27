"""Why some perturbations are not noticed: reasons recorded beside a canary's suite."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from sparkbuild.canary.audit.records import Probe
from sparkbuild.errors import ManifestError
from sparkbuild.manifest import Table, load

REASONS: Final = "unnoticed.toml"
Text = Annotated[str, msgspec.Meta(min_length=1)]


class Reason(Table, frozen=True, kw_only=True):
    """Perturbations by target and kind, and why no check notices them."""

    match: Text
    """A regular expression for the whole of ``target kind``, such as ``blk\\.0\\.x rolled``."""
    alters: bool
    """Whether the perturbed model computes something else at all: on the pinned llama.cpp, a
    tensor that no graph uses does not."""
    reason: Text


class Reasons(Table, frozen=True, kw_only=True):
    """``unnoticed.toml``; the first that matches is taken."""

    schema: Literal[1]
    reasons: tuple[Reason, ...] = ()

    def of(self, probe: Probe) -> Reason | None:
        """The reason for a perturbation, where one is recorded."""
        name = f"{probe.target} {probe.kind}"
        return next((r for r in self.reasons if re.fullmatch(r.match, name)), None)


NONE: Final = Reasons(schema=1)


def load_reasons(suite: Path) -> Reasons:
    """The reasons in a suite's folder; none where it has no such file. Raises ManifestError."""
    path = suite / REASONS
    if not path.is_file():
        return NONE
    found = load(path, Reasons)
    problems = _problems(found.reasons)
    if problems:
        raise ManifestError(
            f"{path} is not valid",
            problems=problems,
            evidence=[path],
            next_step="correct the expressions",
        )
    return found


def _problems(reasons: Sequence[Reason]) -> list[str]:
    problems = []
    for entry in reasons:
        try:
            re.compile(entry.match)
        except re.error as error:
            problems.append(f"{entry.match!r} is no regular expression: {error}")
    return problems
