"""Make a lock: ask the package index what a CUDA release is, wheel by wheel and part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import httpx
import msgspec
from packaging.metadata import Metadata
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from sparkbuild.errors import SourceUnavailableError, ToolkitMismatchError
from sparkbuild.manifest import CudaSection, Toolchain
from sparkbuild.net.address import OriginUnavailableError
from sparkbuild.net.index import files_of
from sparkbuild.toolkit.lock import (
    PLATFORMS,
    Lock,
    LockedPart,
    LockedPlatform,
    LockedWheel,
    Metapackage,
    Platform,
)
from sparkbuild.toolkit.parts import SPECS, canonical, part_digests
from sparkbuild.toolkit.provision.index_wheel import (
    IndexFile,
    read_index_wheel,
    read_metadata,
    sha256_of,
)
from sparkbuild.toolkit.provision.pins import OTHER_RELEASE, choose_wheel, exactly, pinned
from sparkbuild.toolkit.provision.remote_wheel import new_client
from sparkbuild.toolkit.provision.wheel import Wheel

METAPACKAGE: Final = "cuda-toolkit"
"""NVIDIA's package without files: its metadata names the version of every part of a release."""

Progress = Callable[[int, int, str], None]

_SUFFIXES: Final = ("", "-cu12")
"""What NVIDIA's project names end with: nothing from CUDA 13 on, the major release before."""


def make_lock(toolchain: Toolchain, version: str | None, progress: Progress) -> Lock:
    """Ask the index for a toolchain's wheels on every platform, and read what is in them.

    ``version`` is the metapackage's; without one it is the newest release that pins exactly the
    toolchain's nvcc. Of each wheel only the directory and RECORD are fetched, so a part's digest
    is RECORD's word here; an installation checks it against the bytes. ``progress`` gets wheels
    read, wheels in all and what is done. Raises ToolkitMismatchError where the index's answer is
    no release or more than one, SourceUnavailableError where it does not answer.
    """
    if toolchain.cuda is None:
        raise ToolkitMismatchError(
            f"{toolchain.name} is no CUDA toolchain", next_step="name one: `sparkbuild list`"
        )
    with _unavailable_refused(toolchain.name), new_client() as client:
        return _Locking(toolchain.name, toolchain.cuda, client, progress).lock(version)


def kept_version(lock: Lock | None, *, asked: str | None, update: bool) -> str | None:
    """The metapackage version to lock again: the one asked for, else the one that is locked.

    None (the newest) where there is no lock yet or ``update`` says so.
    """
    return asked or (None if update or lock is None else lock.metapackage.version)


def lock_text(lock: Lock) -> str:
    """A lock as its file holds it: TOML, sorted, the same text for the same lock."""
    head = f"# Made by `sparkbuild toolkit lock {lock.name}`; do not edit, run it again.\n"
    data = msgspec.toml.encode(lock, order="sorted").decode()
    return head + data


class _Locking:
    """One lock in the making."""

    def __init__(
        self, name: str, cuda: CudaSection, client: httpx.Client, progress: Progress
    ) -> None:
        self._name = name
        self._cuda = cuda
        self._client = client
        self._progress = progress
        self._pages: dict[str, tuple[IndexFile, ...]] = {}

    def lock(self, version: str | None) -> Lock:
        """The lock for one version of the metapackage."""
        self._progress(0, 0, f"choosing the {METAPACKAGE} release")
        file, metadata = self._release(version)
        wanted = {platform: self._wheels(metadata, platform) for platform in PLATFORMS}
        total = sum(len(files) for files in wanted.values())
        done = 0
        platforms = {}
        for platform, files in wanted.items():
            read = []
            for chosen in files:
                self._progress(done, total, chosen.filename)
                read.append(read_index_wheel(chosen, self._client))
                done += 1
            platforms[platform] = locked_platform(read)
        self._progress(total, total, "locked")
        meta = Metapackage(
            project=METAPACKAGE,
            version=str(file.version),
            file=file.filename,
            sha256=sha256_of(file),
        )
        return Lock(schema=1, name=self._name, metapackage=meta, platform=platforms)

    def _page(self, project: str) -> tuple[IndexFile, ...]:
        if project not in self._pages:
            self._pages[project] = files_of(project)
        return self._pages[project]

    def _release(self, version: str | None) -> tuple[IndexFile, Metadata]:
        """The metapackage's wheel and what it requires."""
        wheels = [file for file in self._page(METAPACKAGE) if file.package_type == "wheel"]
        offered = {v: file for file in wheels if (v := _version(file.version)) is not None}
        if version is not None:
            asked = _version(version)
            if asked not in offered:
                known = ", ".join(str(other) for other in sorted(offered))
                raise self._refused(f"the index has no {METAPACKAGE} {version}", [f"has: {known}"])
            candidates = [asked]
        else:
            release = SpecifierSet(f"=={Version(self._cuda.nvcc).major}.*")
            usable = (v for v in offered if v in release and not offered[v].is_yanked)
            candidates = sorted((v for v in usable if not v.is_prerelease), reverse=True)
        seen = []
        for candidate in candidates:
            metadata = read_metadata(offered[candidate], self._client)
            _, pins = _asked(metadata, "cuda-nvcc", PLATFORMS[0])
            if pins and exactly(pins, self._cuda.nvcc):
                return offered[candidate], metadata
            seen.append(f"{METAPACKAGE} {candidate} pins nvcc {pins or 'not at all'}")
        raise self._refused(f"no {METAPACKAGE} release pins nvcc {self._cuda.nvcc}", seen)

    def _wheels(self, release: Metadata, platform: Platform) -> list[IndexFile]:
        chosen = []
        for part in sorted({spec.project for spec in SPECS}):
            project, pins = _asked(release, part, platform)
            if pins is not None:
                chosen.append(choose_wheel(self._page(project), project, pins, platform))
        return chosen

    def _refused(self, message: str, problems: list[str]) -> ToolkitMismatchError:
        return ToolkitMismatchError(
            message,
            problems=problems,
            next_step=f"correct `cuda.nvcc` in the recipe of {self._name}, or name another "
            "release with --version",
        )


def locked_platform(wheels: Iterable[tuple[LockedWheel, Wheel]]) -> LockedPlatform:
    """What a release is on one platform, from its wheels' own RECORDs.

    Raises ToolkitMismatchError where two wheels bring files of one part.
    """
    read = sorted(wheels, key=lambda pair: pair[0].project)
    parts: dict[str, LockedPart] = {}
    for locked, wheel in read:
        digests = {canonical(path): wheel.record[member].sha256
                   for path, member in wheel.toolkit_files().items()}  # fmt: skip
        for name, digest in part_digests(digests).items():
            if name in parts:
                raise ToolkitMismatchError(
                    f"two wheels of one release bring the {name}",
                    problems=[f"{locked.file} is the second"],
                    next_step=OTHER_RELEASE,
                )
            parts[name] = LockedPart(version=locked.version, sha256=digest)
    missing = tuple(spec.name for spec in SPECS if spec.name not in parts)
    files = tuple(locked for locked, _ in read)
    return LockedPlatform(wheels=files, parts=parts, missing=missing)


def _version(text: str | None) -> Version | None:
    try:
        return Version(text or "")
    except InvalidVersion:
        return None


def _asked(release: Metadata, part: str, platform: Platform) -> tuple[str, SpecifierSet | None]:
    """The project that brings a part, and the versions that the release asks for."""
    for suffix in _SUFFIXES:
        pins = pinned(release, f"{part}{suffix}", platform)
        if pins is not None:
            return f"nvidia-{part}{suffix}", pins
    return f"nvidia-{part}", None


@contextmanager
def _unavailable_refused(name: str) -> Iterator[None]:
    try:
        yield
    except OriginUnavailableError as error:
        raise SourceUnavailableError(
            f"{name} cannot be locked: the package index does not deliver",
            problems=[str(error)],
            next_step="check the network, then run the same command again",
        ) from error
