"""Do a root's parts belong together: every part against the release of its nvcc, none skipped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sparkbuild.manifest import Toolchain
from sparkbuild.toolkit.advisories import Advisory
from sparkbuild.toolkit.book import cuda
from sparkbuild.toolkit.identity.reading import Reading
from sparkbuild.toolkit.identity.versions import agree, shortened
from sparkbuild.toolkit.lock import LockedPlatform
from sparkbuild.toolkit.model import UNSTATED, Problem, State
from sparkbuild.toolkit.parts import SPECS, Group

_GROUPS: Final[dict[str, Group]] = {part.name: part.group for part in SPECS}

_OWN_NUMBERS: Final = {"CCCL"}
"""Parts whose files count versions otherwise than their packages do (3.0.1 comes as 13.0.85)."""

_SIGNED: Final = ("nvcc", "cicc", "ptxas", "fatbinary", "nvlink")
"""Programs that name the compiler build they are of; cudafe++ does not."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a part of this release is: acceptable versions, the first one its own."""

    versions: tuple[str, ...]
    locked: bool
    """True where the release's lock knows the part's bytes."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """All that disagrees, and what must be said although it does not."""

    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()


def judge(
    readings: Sequence[Reading],
    *,
    platform: str,
    toolchain: Toolchain | None,
    locked: LockedPlatform | None,
    provisioned: str | None = None,
) -> Verdict:
    """Compare every part with what the toolchain of this root's nvcc says, and with its group.

    ``locked`` is that toolchain's lock for the root's platform. ``provisioned`` names the
    toolchain that the root was made from: there every byte must be the lock's.
    """
    faults: dict[str, list[Problem]] = {}
    notes: list[str] = []

    def note_all(found: Iterator[tuple[str, str]]) -> None:
        for name, text in found:
            faults.setdefault(name, []).append(Problem(kind="mixed", text=text))

    note_all(_machines(readings))
    sound = [reading for reading in readings if reading.sound]
    note_all(_self_contradictions(sound))
    if toolchain is None:
        note_all(_unknown_release(sound))
    else:
        note_all(_against(sound, toolchain, wanted(toolchain, locked), platform))
    note_all(_groups([reading for reading in sound if reading.part.name not in faults]))
    note_all(_builds([reading for reading in sound if reading.part.name not in faults]))
    strangers = [
        reading
        for reading in sound
        if reading.part.name not in faults and not _recognised(reading, toolchain, platform)
    ]
    if strangers and provisioned is not None:
        for reading in strangers:
            text = f"{reading.part.path} is not what was installed: {_is(reading)}, and its bytes "
            text += f"are not those of the lock of {provisioned}"
            faults[reading.part.name] = [Problem(kind="damaged", text=text)]
    elif strangers and toolchain is not None:
        notes.append(f"not recognised by any lock: {', '.join(map(_is, strangers))}")
    return Verdict(
        problems=tuple(problem for found in faults.values() for problem in found),
        notes=tuple(notes),
    )


def state_of(
    problems: Sequence[Problem], toolchain: Toolchain | None, advisories: Sequence[Advisory]
) -> State:
    """The one word for a root: mixed before incomplete, before unknown, before known bad."""
    if any(problem.kind == "mixed" for problem in problems):
        return "mixed"
    if problems:
        return "incomplete"
    if toolchain is None:
        return "unknown"
    return "known bad" if any(one.action == "refuse" for one in advisories) else "good"


def wanted(toolchain: Toolchain, locked: LockedPlatform | None) -> dict[str, Wanted]:
    """What each part must be, from the lock, else from the recipe; nothing where neither says."""
    recipe = cuda(toolchain)
    plain = {"compiler": recipe.nvcc, "runtime": recipe.cudart}
    result = {}
    for part in SPECS:
        known = locked.parts.get(part.name) if locked else None
        version = known.version if known else plain.get(part.group)
        if version is not None:
            also = recipe.accepts.get(part.group, ())
            result[part.name] = Wanted(versions=(version, *also), locked=known is not None)
    return result


def _recognised(reading: Reading, toolchain: Toolchain | None, platform: str) -> bool:
    return any(
        toolchain is not None and one.toolchain == toolchain.name and one.platform == platform
        for one in reading.origins
    )


def _is(reading: Reading) -> str:
    """``nvcc 13.0.88 (embedded in bin/nvcc)``."""
    part = reading.part
    return f"{part.name} {part.version} ({part.read_from})"


def _machines(readings: Sequence[Reading]) -> Iterator[tuple[str, str]]:
    """Programs and libraries for another machine than nvcc's."""
    stated = [reading for reading in readings if reading.machine]
    for reading in stated[1:]:
        if reading.machine != stated[0].machine:
            text = f"{_is(reading)} is for {reading.machine}, "
            yield reading.part.name, f"{text}{_is(stated[0])} for {stated[0].machine}"


def _self_contradictions(readings: Sequence[Reading]) -> Iterator[tuple[str, str]]:
    """Known bytes under a version that is not theirs."""
    for reading in readings:
        if not reading.origins or reading.stated is None or reading.part.name in _OWN_NUMBERS:
            continue
        if not any(agree(reading.stated, version) for version in _possible(reading)):
            text = f"{reading.part.name} states {reading.stated} ({reading.stated_from}), "
            yield reading.part.name, f"{text}its bytes are of {_of(reading)}"


def _of(reading: Reading) -> str:
    """``cuda-13.2.0 (13.2.51) and cuda-13.2.1 (13.2.75)``: the releases that hold these bytes."""
    found = {f"{one.toolchain} ({one.version})": None for one in reading.origins}
    return " and ".join(found)


def _possible(reading: Reading) -> tuple[str, ...]:
    """The versions that a part may be of: bytes can be the same in several releases."""
    return tuple(dict.fromkeys(one.version for one in reading.origins)) or (reading.part.version,)


def _against(
    readings: Sequence[Reading],
    toolchain: Toolchain,
    expected: Mapping[str, Wanted],
    platform: str,
) -> Iterator[tuple[str, str]]:
    """Parts that are not this toolchain's."""
    for reading in readings:
        want = expected.get(reading.part.name)
        if want is None or _recognised(reading, toolchain, platform):
            continue
        found = _other_bytes(reading, toolchain, want) or _other_version(reading, want)
        if found:
            text = f"{found}, expected {want.versions[0]} of {toolchain.name}"
            yield reading.part.name, f"{text} for {platform}" if "linux-" in found else text


def _other_bytes(reading: Reading, toolchain: Toolchain, want: Wanted) -> str | None:
    """Bytes that a lock knows, and not as this release's for this platform."""
    part = reading.part
    if not part.known or not want.locked:
        return None
    if toolchain.name in part.known:
        places = " and ".join(
            one.platform for one in reading.origins if one.toolchain == toolchain.name
        )
        return f"{part.name} {part.version} is that of {places} ({part.read_from})"
    if set(_possible(reading)) & set(want.versions):
        return None
    locks = "its lock" if len(part.known) == 1 else "their locks"
    return f"{part.name} is of {_of(reading)}, bytes known from {locks}"


def _other_version(reading: Reading, want: Wanted) -> str | None:
    """A stated version that is none of the wanted, as far as it goes."""
    stated = reading.stated
    if stated is None or reading.part.name in _OWN_NUMBERS:
        return None
    if any(agree(stated, version) for version in want.versions):
        return None
    return f"{reading.part.name} is {stated} ({reading.stated_from})"


def _unknown_release(readings: Sequence[Reading]) -> Iterator[tuple[str, str]]:
    """What must hold in any release: the compiler's programs are one, the runtime is theirs.

    Packages of the compiler and of the runtime share a release's first two numbers; those of
    cuBLAS and CCCL go their own ways.
    """
    compilers = [one for one in readings if _GROUPS[one.part.name] == "compiler" and one.stated]
    if not compilers:
        return
    leader, version = compilers[0], compilers[0].stated or UNSTATED
    for reading in readings:
        group, own = _GROUPS[reading.part.name], reading.stated
        if group == "compiler" and own is not None:
            fits = agree(own, version)
        elif group in {"compiler", "runtime"} and (own or reading.part.known):
            versions = (own,) if own else _possible(reading)
            fits = any(agree(shortened(one), shortened(version)) for one in versions)
        else:
            continue
        if not fits:
            yield reading.part.name, f"{_is(reading)} does not belong to {_is(leader)}"


def _groups(readings: Sequence[Reading]) -> Iterator[tuple[str, str]]:
    """Headers and libraries that were released together and are not the same version here."""
    for group in ("runtime", "cublas"):
        members = [
            one
            for one in readings
            if _GROUPS[one.part.name] == group and one.part.version != UNSTATED
        ]
        versions = [version for one in members for version in _possible(one)]
        exact = [one for one in versions if not any(_refines(other, one) for other in versions)]
        best = max(exact, key=lambda version: _followers(version, members), default="")
        leader = next((one for one in members if best in _possible(one)), None)
        for one in members:
            if leader and not any(agree(version, best) for version in _possible(one)):
                yield one.part.name, f"{_is(one)} does not belong to {_is(leader)}"


def _refines(version: str, other: str) -> bool:
    return agree(version, other) and version.count(".") > other.count(".")


def _followers(version: str, members: Sequence[Reading]) -> int:
    """How many may be of a version."""
    return sum(any(agree(other, version) for other in _possible(one)) for one in members)


def _builds(readings: Sequence[Reading]) -> Iterator[tuple[str, str]]:
    """Programs of another compiler build than most, or of none: a stand-in knows no build."""
    signed = [one for one in readings if one.part.name in _SIGNED]
    named = [one.builds for one in signed if one.builds]
    most = max(named, key=named.count, default=())
    leader = next((one for one in signed if one.builds == most), None)
    for one in signed:
        if leader is not None and one.builds != most:
            says = f"names the build {' and '.join(one.builds)}" if one.builds else "names no build"
            text = f"{_is(one)} {says}, {_is(leader)} {' and '.join(most)}"
            yield one.part.name, text
