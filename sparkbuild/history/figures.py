"""Figures of a report: what was measured in make, smoke, a served model, the fault matrix.

Only what is needed of each form is named here; the forms themselves belong to the commands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, TypeVar

import msgspec

from sparkbuild.history.model import Figure

_T = TypeVar("_T", bound=msgspec.Struct)
_TIMED: Final = frozenset({"qualify", "configure", "build", "inspect", "smoke", "package"})
"""Stages that work; the others look things up, within milliseconds."""


class _Stage(msgspec.Struct, frozen=True):
    name: str
    state: str
    seconds: float


class _Make(msgspec.Struct, frozen=True):
    stages: tuple[_Stage, ...]


class _Ran(msgspec.Struct, frozen=True):
    form: str
    load_seconds: float
    seconds: float


class _Draft(msgspec.Struct, frozen=True):
    depth: int
    head: str
    state: str
    drafted: int
    accepted: int
    pictures: bool = False
    exact: bool = False


class _Canary(msgspec.Struct, frozen=True):
    canary: str
    ran: tuple[_Ran, ...] = ()
    drafts: tuple[_Draft, ...] = ()


class _Part(msgspec.Struct, frozen=True):
    name: str
    result: _Canary


class _Smoke(msgspec.Struct, frozen=True):
    parts: tuple[_Part, ...]


class _Check(msgspec.Struct, frozen=True):
    way: str
    name: str
    figures: dict[str, float] = {}


class _Served(msgspec.Struct, frozen=True):
    checks: tuple[_Check, ...]


class _Found(msgspec.Struct, frozen=True):
    verdict: str


class _Faults(msgspec.Struct, frozen=True):
    found: tuple[_Found, ...]
    seconds: float


def figures_of(
    document: bytes, *, smoke: bytes | None = None, wheel_bytes: int | None = None, restart: int = 0
) -> tuple[Figure, ...]:
    """Figures of a command's JSON; none of a document that is not of a form known here.

    ``smoke`` is the ``canaries.json`` of the same make, of use where its smoke ran now.
    ``restart`` numbers the start of the server where one command of many is read.
    """
    figures = [*_of(document, restart)]
    if wheel_bytes is not None:
        figures.append(_figure("wheel.bytes", wheel_bytes, "B", "worse"))
    if smoke is not None and any(one.name == "smoke.seconds" for one in figures):
        figures += _of(smoke, restart)
    return tuple(figures)


def _of(document: bytes, restart: int) -> Iterator[Figure]:
    if (made := _as(document, _Make)) is not None:
        yield from _make(made)
    elif (smoked := _as(document, _Smoke)) is not None:
        yield from _smoke(smoked, restart)
    elif (served := _as(document, _Served)) is not None:
        yield from _served(served, restart)
    elif (faults := _as(document, _Faults)) is not None:
        yield from _matrix(faults)


def _as(document: bytes, kind: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(document, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _make(made: _Make) -> Iterator[Figure]:
    """Seconds of stages that did their work now: a reused one measured nothing."""
    for stage in made.stages:
        if stage.state == "done" and stage.name in _TIMED:
            yield _figure(f"{stage.name}.seconds", stage.seconds, "s", "worse")


def _smoke(smoked: _Smoke, restart: int) -> Iterator[Figure]:
    ran = [one for part in smoked.parts for one in part.result.ran]
    if ran:
        load, asked = sum(one.load_seconds for one in ran), sum(one.seconds for one in ran)
        yield _figure("load.seconds", load, "s", "worse", restart)
        yield _figure("questions.seconds", asked, "s", "worse", restart)
    for part in smoked.parts:
        if part.name != part.result.canary:
            continue  # another way to serve a canary, in the sums above
        for one in part.result.ran:
            name = f"questions.{part.name}.{one.form}"
            yield _figure(name, one.seconds, "s", "worse", restart)
        for draft in part.result.drafts:
            if draft.head == "healthy" and draft.state != "unsupported" and draft.drafted:
                more = (".exact" if draft.exact else "") + (".pictures" if draft.pictures else "")
                name = f"drafts.{part.name}.depth{draft.depth}{more}"
                yield _figure(name, draft.accepted / draft.drafted, "share", "better", restart)


def _served(served: _Served, restart: int) -> Iterator[Figure]:
    for check in served.checks:
        for name, value in check.figures.items():
            if name == "tokens a second":
                yield _figure(f"speed.{check.way}", value, "tokens/s", "better", restart)
            elif name == "speed ratio":
                yield _figure(f"drafts.speed.{check.way}", value, "ratio", "better", restart)
            elif name.startswith("accepted"):
                full = f"drafts.{check.way}.{check.name}.{name}"
                yield _figure(full, value, "share", "better", restart)
            elif name == "start seconds":
                yield _figure(f"start.{check.way}", value, "s", "worse", restart)


def _matrix(faults: _Faults) -> Iterator[Figure]:
    caught = sum(one.verdict == "caught" for one in faults.found)
    yield _figure("faults.seconds", faults.seconds, "s", "neither")
    yield _figure("faults.caught", caught, "faults", "better")


def _figure(
    name: str,
    value: float,
    unit: str,
    more_is: Literal["better", "worse", "neither"],
    restart: int = 0,
) -> Figure:
    return Figure(name=name, value=float(value), unit=unit, more_is=more_is, restart=restart)
