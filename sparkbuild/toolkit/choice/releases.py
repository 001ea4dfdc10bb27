"""What the recipes alone say of a release: its advisories, whether it installs, the next best."""

from __future__ import annotations

from sparkbuild.manifest import Toolchain, current_platform
from sparkbuild.toolkit.advisories import Advisory
from sparkbuild.toolkit.book import Book, cuda
from sparkbuild.toolkit.identity.advise import matching
from sparkbuild.toolkit.lock import PLATFORMS, LockedPlatform
from sparkbuild.toolkit.model import Part
from sparkbuild.toolkit.parts import SPECS


def short_name(toolchain: str) -> str:
    """``13.2.1``, as a user asks for the toolchain ``cuda-13.2.1``."""
    return toolchain.removeprefix("cuda-")


def release_advisories(
    book: Book, toolchain: Toolchain, architectures: tuple[str, ...] = ()
) -> tuple[Advisory, ...]:
    """The advisories that match a release as its lock has it, without a root at hand.

    Parts of the compiler that no wheel brings have nvcc's version. ``architectures`` are the
    toolchain's own where empty.
    """
    targets = architectures or cuda(toolchain).architectures
    return matching(book.known_bad, _parts(book, toolchain), targets)


def refused(
    book: Book, toolchain: Toolchain, architectures: tuple[str, ...] = ()
) -> tuple[Advisory, ...]:
    """Those of ``release_advisories`` that refuse."""
    found = release_advisories(book, toolchain, architectures)
    return tuple(advisory for advisory in found if advisory.action == "refuse")


def installable(book: Book, toolchain: Toolchain) -> bool:
    """Whether ``sparkbuild toolkit install`` can make this release on this machine."""
    locked = _locked(book, toolchain, current_platform())
    return locked is not None and not locked.missing


def nearest_good(
    book: Book, toolchain: Toolchain, architectures: tuple[str, ...] = ()
) -> str | None:
    """The toolchain to take instead: the closest release that nothing refuses for these targets.

    One that can be installed goes before one that cannot; then a newer one of the same minor
    release, then an older one of it, then the closest other, the newer of two equally close.
    """
    line = sorted(book.toolchains.values(), key=_number)
    here = line.index(toolchain)

    def rank(place: int) -> tuple[bool, int, int, bool]:
        other = line[place]
        minor = _number(other)[:2] == _number(toolchain)[:2]
        group = (0 if place > here else 1) if minor else 2
        return (not installable(book, other), group, abs(place - here), place < here)

    good = [
        place
        for place, other in enumerate(line)
        if place != here and not refused(book, other, architectures)
    ]
    return line[min(good, key=rank)].name if good else None


def _number(toolchain: Toolchain) -> tuple[int, ...]:
    return tuple(int(digits) for digits in cuda(toolchain).release.split("."))


def _locked(book: Book, toolchain: Toolchain, platform: str) -> LockedPlatform | None:
    return next(
        (book.locked(toolchain.name, known) for known in PLATFORMS if known == platform), None
    )


def _parts(book: Book, toolchain: Toolchain) -> tuple[Part, ...]:
    """The lock's parts, and those that no wheel brings with the version of the compiler."""
    locked = _locked(book, toolchain, current_platform())
    known = (
        {name: (part.version, part.sha256) for name, part in locked.parts.items()} if locked else {}
    )
    compiler = [spec.name for spec in SPECS if spec.group == "compiler" and spec.name not in known]
    known |= dict.fromkeys(compiler, (cuda(toolchain).nvcc, ""))
    return tuple(
        Part(name=name, version=version, read_from="recipe", path="", sha256=sha256)
        for name, (version, sha256) in known.items()
    )
