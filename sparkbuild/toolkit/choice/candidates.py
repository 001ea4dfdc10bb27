"""Several roots, one release: which of them is taken, and why the others are not."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparkbuild.errors import (
    SparkbuildError,
    ToolkitMiscompilesError,
    ToolkitMismatchError,
    UsageError,
)
from sparkbuild.manifest import Toolchain, current_platform
from sparkbuild.toolkit.advisories import Advisory
from sparkbuild.toolkit.book import Book, cuda
from sparkbuild.toolkit.choice.found import Found
from sparkbuild.toolkit.choice.releases import installable, nearest_good, refused, short_name
from sparkbuild.toolkit.identity.advise import matching


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A root of the wanted release: why it is no whole toolkit, what is known against it."""

    found: Found
    faults: tuple[str, ...]
    advisories: tuple[Advisory, ...]
    """All that match its parts and the wanted targets."""
    refused: tuple[Advisory, ...]
    """Those of them that refuse and were not accepted."""

    @property
    def whole(self) -> bool:
        """One release throughout, for this machine."""
        return not self.faults

    @property
    def name(self) -> str:
        """Its root, as a path."""
        return str(self.found.root)


def weigh(
    found: Found, book: Book, architectures: tuple[str, ...], accepted: Sequence[str]
) -> Candidate:
    """Judge one root by its identity and by the known-bad list."""
    identity = found.identity
    faults = [problem.text for problem in identity.problems]
    if not faults and identity.state not in {"good", "known bad"}:
        faults.append(f"{identity.state}: of no release that the recipes know")
    if identity.platform != current_platform():
        faults.append(f"made for {identity.platform}, this machine is {current_platform()}")
    advisories = matching(book.known_bad, identity.parts, architectures)
    return Candidate(
        found=found,
        faults=tuple(faults),
        advisories=advisories,
        refused=tuple(a for a in advisories if a.action == "refuse" and a.id not in accepted),
    )


def take(
    toolchain: Toolchain,
    candidates: Sequence[Candidate],
    *,
    book: Book,
    architectures: tuple[str, ...],
    elsewhere: Sequence[str] = (),
) -> tuple[Candidate, tuple[str, ...]]:
    """The one root to build with, and what must be said of the others.

    ``candidates`` come in order of preference. ``elsewhere`` describes toolkits of other releases,
    for the refusal of a machine that lacks this one. Raises ToolkitMismatchError where none is
    whole, ToolkitMiscompilesError where a whole one is known bad and not accepted, UsageError where
    two usable ones differ.
    """
    whole = [candidate for candidate in candidates if candidate.whole]
    usable = [candidate for candidate in whole if not candidate.refused]
    if not whole:
        raise _none_whole(toolchain, candidates, book, architectures, elsewhere)
    if not usable:
        raise _miscompiles(toolchain, whole[0], book, architectures)
    first = usable[0]
    differing = [other for other in usable[1:] if _bytes(other) != _bytes(first)]
    if differing:
        raise _ambiguous(toolchain, first, differing)
    notes = [f"passed over {other.name}: {'; '.join(other.faults)}"
             for other in candidates if not other.whole]  # fmt: skip
    if len(usable) > 1:
        rest = ", ".join(other.name for other in usable[1:])
        notes.insert(0, f"taken: {first.name}; the same toolkit is also at {rest}")
    return first, tuple(notes)


def _bytes(candidate: Candidate) -> dict[str, tuple[str, str]]:
    parts = candidate.found.identity.parts
    return {part.name: (part.version, part.sha256) for part in parts}


def _ambiguous(
    toolchain: Toolchain, first: Candidate, differing: Sequence[Candidate]
) -> SparkbuildError:
    problems = [first.name]
    for other in differing:
        ours, theirs = _bytes(first), _bytes(other)
        names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
        said = ", ".join(
            f"{name} {_version(theirs, name)} there and {_version(ours, name)} in the first"
            for name in names
        )
        problems.append(f"{other.name}: {said}")
    roots = [first, *differing]
    return UsageError(
        f"CUDA {cuda(toolchain).release} (nvcc {cuda(toolchain).nvcc}) is on this machine more "
        "than once, and not in the same bytes",
        problems=problems,
        evidence=[root.found.root for root in roots],
        next_step="say which: " + " or ".join(_option(root.found.root) for root in roots),
    )


def _version(parts: dict[str, tuple[str, str]], name: str) -> str:
    version, digest = parts.get(name, ("none", ""))
    return f"{version} (sha256 {digest[:12]})" if digest else version


def _option(root: Path) -> str:
    return f"--toolkit {shlex.quote(str(root))}"


def _none_whole(
    toolchain: Toolchain,
    candidates: Sequence[Candidate],
    book: Book,
    architectures: tuple[str, ...],
    elsewhere: Sequence[str],
) -> SparkbuildError:
    release, nvcc = cuda(toolchain).release, cuda(toolchain).nvcc
    name = short_name(toolchain.name)
    problems = [line for candidate in candidates for line in _case(candidate)]
    if not candidates:
        problems = [*elsewhere] or ["no CUDA toolkit was found on this machine"]
    bad = refused(book, toolchain, architectures)
    problems += [f"mind: {name} is known bad, {advisory.id}: {advisory.effect}" for advisory in bad]
    better = nearest_good(book, toolchain, architectures) if bad else None
    step = f"sparkbuild toolkit install {short_name(better) if better else name}"
    if better is None and not installable(book, toolchain):
        step = (
            f"no wheels bring the whole of CUDA {release}: install it with NVIDIA's own installer, "
            "then --toolkit /path/to/cuda"
        )
    if len(candidates) == 1:
        message = f"{candidates[0].found.root} is not a whole CUDA {release} toolkit (nvcc {nvcc})"
    elif candidates:
        message = f"no root on this machine is a whole CUDA {release} toolkit (nvcc {nvcc})"
    else:
        message = f"CUDA {release} (nvcc {nvcc}) is not on this machine"
    return ToolkitMismatchError(
        message, problems=problems, evidence=[c.found.root for c in candidates], next_step=step
    )


def _case(candidate: Candidate) -> Iterable[str]:
    """Every fault of a root, and the names that led to it."""
    yield from (f"{candidate.name}: {fault}" for fault in candidate.faults)
    more = [name for name in candidate.found.where if name != candidate.name]
    if more:
        yield f"{candidate.name} was found as {', '.join(more)}"


def _miscompiles(
    toolchain: Toolchain, candidate: Candidate, book: Book, architectures: tuple[str, ...]
) -> SparkbuildError:
    parts = {part.name: part for part in candidate.found.identity.parts}
    ids = [advisory.id for advisory in candidate.refused]
    better = nearest_good(book, toolchain, architectures)
    problems = [line for a in candidate.refused for line in _charge(a, parts[a.part].version)]
    problems.append(f"nearest good release: {short_name(better) if better else 'none is known'}")
    accept = " ".join(f"--accept {name}" for name in ids)
    steps = [f"or build in the knowledge that it is wrong: {accept}"]
    if better:
        name = short_name(better)
        steps.insert(
            0, f"sparkbuild toolkit install {name} && sparkbuild make ... --toolkit {name}"
        )
    return ToolkitMiscompilesError(
        f"CUDA {cuda(toolchain).release} at {candidate.found.root} is whole, and known to emit "
        f"wrong code for {' '.join(architectures)}",
        problems=problems,
        evidence=[
            candidate.found.root / parts[advisory.part].path for advisory in candidate.refused
        ],
        next_step="\n".join(steps),
    )


def _charge(advisory: Advisory, version: str) -> Iterable[str]:
    """One advisory in full: the effect, whom it strikes, how it is known, who says so."""
    yield f"{advisory.id}: {advisory.part} {version}: {advisory.effect}"
    targets = " ".join(advisory.architectures) or "every target"
    types = f"; tensor types {' '.join(advisory.tensor_types)}" if advisory.tensor_types else ""
    yield f"{advisory.id}, strikes {targets}{types}"
    yield from (f"{advisory.id}, evidence: {text}" for text in advisory.evidence)
    yield f"{advisory.id}, read more: {' '.join(advisory.source)}"
