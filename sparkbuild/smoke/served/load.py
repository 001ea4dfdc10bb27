"""Served suites from their files, and whether what they name is there."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from sparkbuild.errors import ManifestError
from sparkbuild.manifest import Table, load, unknown_name
from sparkbuild.model.types import CACHE_TYPES
from sparkbuild.smoke.plan import Cause
from sparkbuild.smoke.served.suite import KIND, Drafts, Expected, Suite

FOLDER: Final = Path(__file__).parent / "suites"
_HINTS: Final = Path(__file__).with_name("causes.toml")


class Hint(Cause, frozen=True, kw_only=True):
    """What is likely where certain groups failed, and what to do next."""

    next_step: Annotated[str, msgspec.Meta(min_length=1)]


class Hints(Table, frozen=True, kw_only=True):
    """``causes.toml``: the first entry that fits decides; it is the same for every suite."""

    schema: Literal[1]
    causes: Annotated[tuple[Hint, ...], msgspec.Meta(min_length=1)]


def names(folder: Path = FOLDER) -> list[str]:
    """The suites that exist."""
    return sorted(file.stem for file in folder.glob("*.toml"))


def is_served(name: str) -> bool:
    """Whether a suite's name or file is one of a real model; False where there is no such file."""
    if not name.endswith(".toml"):
        return name in names()
    try:
        return tomllib.loads(Path(name).read_text(encoding="utf-8")).get("kind") == KIND
    except (OSError, ValueError):
        return False


def suite_file(name: str) -> Path:
    """The file of a suite that comes with sparkbuild, or ``name`` itself where that ends in .toml.

    Raises UnknownNameError.
    """
    path = Path(name).absolute() if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.is_file():
        known = names(path.parent)
        raise unknown_name("suite of a served model", name, known, path.parent)
    return path


def load_suite(path: Path) -> Suite:
    """A suite from its file. Raises ManifestError naming the file and everything that is wrong."""
    suite = load(path, Suite)
    problems = list(_problems(suite, path.stem))
    if problems:
        raise ManifestError(
            f"{path}: the suite is not whole",
            problems=problems,
            evidence=[path],
            next_step=f"correct {path}",
        )
    return suite


def load_hints(path: Path = _HINTS) -> tuple[Hint, ...]:
    """Likely causes and next steps by what failed. Raises ManifestError."""
    return load(path, Hints).causes


def _problems(suite: Suite, name: str) -> Iterator[str]:
    if suite.name != name:
        yield f"`name` is {suite.name!r}, its place says {name!r}"
    asked = [one.name for one in suite.questions]
    yield from (f"two questions are named {one!r}" for one in _twice(asked))
    yield from (f"two ways are named {one!r}" for one in _twice([w.name for w in suite.ways]))
    again = [*suite.twice.ask, *suite.together.ask]
    again += [suite.long_run.short] if suite.long_run else []
    yield from (f"no question is named {one!r}" for one in again if one not in asked)
    if len(suite.together.ask) > suite.server.slots:
        yield f"`together.ask` has more requests than {suite.server.slots} slots"
    for way in suite.ways:
        bounded = way.nmse is not None and way.agreement is not None
        if (way is suite.ways[0]) == bounded:
            yield f"way {way.name!r}: `nmse` and `agreement` belong to all but the first"
        unknown = {way.cache_k, way.cache_v} - set(CACHE_TYPES)
        yield from (f"way {way.name!r}: no cache type {kind!r}" for kind in sorted(unknown))
    yield from _vision_problems(suite)
    yield from _draft_problems(suite, suite.drafts) if suite.drafts else ()
    patterns = [pattern for _, one in _expectations(suite) for pattern in (one.matches, one.lacks)]
    patterns += [entry.pattern for entry in suite.log]
    for pattern in filter(None, patterns):
        try:
            re.compile(pattern)
        except re.error as error:
            yield f"{pattern!r} is no regular expression: {error}"
    for where, one in _expectations(suite):
        if one == Expected():
            yield f"{where}: nothing is expected"


def _expectations(suite: Suite) -> Iterator[tuple[str, Expected]]:
    yield from ((one.name, one.expect) for one in suite.questions)
    for look in suite.vision.looks if suite.vision else ():
        yield from [(look.name, look.expect)] if look.expect else ()
    yield from ((one.name, one.expect) for one in (suite.drafts.texts if suite.drafts else ()))


def _vision_problems(suite: Suite) -> Iterator[str]:
    looks = suite.vision.looks if suite.vision else ()
    yield from (f"two looks are named {one!r}" for one in _twice([look.name for look in looks]))
    for look in looks:
        if bool(look.reads) == (look.expect is not None):
            yield f"look {look.name!r}: either `reads` or `expect`"
        for index in look.reads:
            if index >= len(look.pictures) or not look.pictures[index].text:
                yield f"look {look.name!r}: picture {index} has no text to be read"


def _draft_problems(suite: Suite, drafts: Drafts) -> Iterator[str]:
    kinds = {text.kind for text in drafts.texts}
    for depth in drafts.depths:
        lacking = kinds - {band.kind for band in drafts.bands if band.depth == depth}
        yield from (f"no band for {kind!r} at depth {depth}" for kind in sorted(lacking))
    among = drafts.among
    if among is None:
        return
    texts = {text.name for text in drafts.texts}
    looks = {look.name for look in suite.vision.looks} if suite.vision else set()
    yield from (f"`among`: no text {one!r}" for one in among.texts if one not in texts)
    yield from (f"`among`: no look {one!r}" for one in among.looks if one not in looks)


def _twice(found: list[str]) -> list[str]:
    return sorted({one for one in found if found.count(one) > 1})
