"""A provisioned root on disk: where it lies, its links, what was put there, whether it still is.

``<toolkits>/<toolchain>/<platform>/`` is the root. Beside it lie ``<platform>.lock`` (one writer),
``<platform>.seal`` (the state in which the root was last found whole) and, while it is made,
``<platform>.part``, ``<platform>.old``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from sparkbuild.files import files_below, sha256_file, tree_fingerprint, write_atomic
from sparkbuild.toolkit.lock import PLATFORMS, LockedWheel

MANIFEST: Final = "sparkbuild-toolkit.json"
"""File inside a root that says what was put there."""

STUB: Final = "lib/stubs/libcuda.so"
"""The driver stub, where CMake and nvcc's profile look for it (as ``lib64/stubs``)."""

_SHARED: Final = re.compile(r"(?P<plain>lib[^/]+\.so)\.\d+")
_MODES: Final = {False: 0o644, True: 0o755}


class TreeFile(msgspec.Struct, frozen=True, array_like=True):
    """One file of a root."""

    sha256: str
    size: int
    program: bool


class Installed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``sparkbuild-toolkit.json``: every file and link of the root but itself."""

    schema: Literal[1]
    toolchain: str
    platform: str
    lock: str
    """Digest of what was asked for; another digest, another root."""
    licence: str
    wheels: tuple[LockedWheel, ...]
    links: dict[str, str]
    files: dict[str, TreeFile]
    notes: tuple[str, ...] = ()


class _Seal(msgspec.Struct, frozen=True, kw_only=True):
    """A root as it was when every digest was right."""

    lock: str
    tree: str


def default_root(toolkits: Path, toolchain: str, platform: str) -> Path:
    """Where a toolchain's root for a platform lies below the folder of provisioned toolkits."""
    return toolkits / toolchain / platform


def provisioned_roots(toolkits: Path) -> tuple[Path, ...]:
    """The roots below ``toolkits`` that were finished, sorted."""
    places = (place for name in PLATFORMS for place in toolkits.glob(f"*/{name}"))
    return tuple(sorted(place for place in places if (place / MANIFEST).is_file()))


def beside(root: Path, what: Literal["lock", "seal", "part", "old"]) -> Path:
    """A root's neighbour."""
    return root.with_name(f"{root.name}.{what}")


def links_wanted(paths: Iterable[str]) -> dict[str, str]:
    """The links that turn unpacked wheels into a root, by path: what CMake 3.25 to 4.x ask for.

    ``lib64`` is where FindCUDAToolkit and nvcc's profile look, and ``libX.so`` is what a linker
    takes; the wheels have ``lib`` and ``libX.so.N`` only.
    """
    libraries: dict[str, str] = {}
    present = set(paths)
    for path in sorted(present):
        folder, _, name = path.rpartition("/")
        match = _SHARED.fullmatch(name)
        if folder == "lib" and match and f"lib/{match['plain']}" not in present:
            libraries[f"lib/{match['plain']}"] = name
    return {"lib64": "lib", **libraries}


def make_links(root: Path, links: Mapping[str, str]) -> None:
    """Make relative links below ``root``."""
    for path, target in links.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)


def write_manifest(root: Path, installed: Installed) -> None:
    """Write the manifest of a root, the last file to come."""
    text = msgspec.json.format(msgspec.json.encode(installed, order="sorted"), indent=1)
    write_atomic(root / MANIFEST, text)


def read_manifest(root: Path) -> Installed | None:
    """What was put into ``root``, None where it is not one that was provisioned."""
    try:
        return msgspec.json.decode((root / MANIFEST).read_bytes(), type=Installed)
    except (OSError, msgspec.DecodeError):
        return None


def seal(root: Path, installed: Installed) -> None:
    """Remember the state of a root whose every digest was found right."""
    state = _Seal(lock=installed.lock, tree=tree_fingerprint(root))
    write_atomic(beside(root, "seal"), msgspec.json.encode(state))


def sealed(root: Path, installed: Installed) -> bool:
    """True where nothing below ``root`` was touched since ``seal``."""
    try:
        known = msgspec.json.decode(beside(root, "seal").read_bytes(), type=_Seal)
        return known == _Seal(lock=installed.lock, tree=tree_fingerprint(root))
    except (OSError, msgspec.DecodeError):
        return False


def differences(root: Path, installed: Installed) -> Iterator[str]:
    """Every file or link of a root that is not as its manifest says; reads all of them."""
    found = {path.relative_to(root).as_posix() for path in files_below(root)}
    wanted = installed.files.keys() | installed.links.keys()
    yield from (f"{path} was added" for path in sorted(found - wanted - {MANIFEST}))
    yield from (f"{path} is gone" for path in sorted(wanted - found))
    for path, target in sorted(installed.links.items()):
        place = root / path
        if path in found and not (place.is_symlink() and str(place.readlink()) == target):
            yield f"{path} is no longer a link to {target}"
    for path, file in sorted(installed.files.items()):
        if path in found and not _same(root / path, file):
            yield f"{path} was changed"


def _same(place: Path, wanted: TreeFile) -> bool:
    state = os.lstat(place)
    return (
        stat.S_ISREG(state.st_mode)
        and state.st_size == wanted.size
        and bool(state.st_mode & 0o111) == wanted.program
        and sha256_file(place) == wanted.sha256
    )


def file_mode(*, program: bool) -> int:
    """The permission bits of a root's file."""
    return _MODES[program]
