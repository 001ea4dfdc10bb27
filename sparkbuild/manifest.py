"""Recipes: TOML to typed, frozen manifests; what the schema does not know is refused by name."""

from __future__ import annotations

import difflib
import platform
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from sparkbuild.errors import ManifestError, UnknownNameError
from sparkbuild.schema import explained

Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Commit = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{7,40}$")]
FullCommit = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40}$")]
Name = Annotated[str, msgspec.Meta(pattern="^[a-z0-9][a-z0-9.-]*$")]
RelativePath = Annotated[str, msgspec.Meta(pattern=r"^(?!/)(?!.*(^|/)\.\.?(/|$)).+$")]


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a manifest."""


Table = _Table
"""For data files that a room keeps beside its code and reads with ``load``."""


class GitOrigin(_Table, frozen=True, tag_field="kind", tag="git"):
    """A git repository: ``commit`` (40 digits are fetched as they are), ``tag`` or ``branch``.

    An abbreviated commit needs the branch that holds it. A tag is believed only through the
    pin's digest. ``url`` may be a local bare mirror.
    """

    url: str
    commit: Commit | None = None
    tag: str | None = None
    branch: str | None = None


class SdistOrigin(_Table, frozen=True, tag_field="kind", tag="sdist"):
    """A source archive from the Python package index, with the tree in ``subdirectory``."""

    project: Name
    version: str
    file: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*\.tar\.gz$")]
    sha256: Sha256
    size: int
    subdirectory: RelativePath


class PathOrigin(_Table, frozen=True, tag_field="kind", tag="path"):
    """A directory with the tree, relative to the manifest or absolute.

    A bare git repository there (a mirror) is asked for what the pin's first git origin names, for
    its ``HEAD`` where the pin has none. ``digest`` decides in every case.
    """

    path: str


Origin = GitOrigin | SdistOrigin | PathOrigin


class SourcePin(_Table, frozen=True):
    """What the source must be (``digest`` over ``paths``) and where to look for it, in order.

    ``digest`` may be left out only where every origin is a git commit: git's own id then is the
    pin. ``build`` is the number that ``llama-server --version`` must print; where it is not known
    it is left out, and whatever the binary prints is recorded.
    """

    paths: tuple[RelativePath, ...]
    origins: tuple[Origin, ...]
    build: int | None = None
    digest: Sha256 | None = None


class RemotePatch(_Table, frozen=True):
    """A commit of a git repository that serves as a patch: its diff to ``base``, or to its parent.

    The commit must be in the history of ``ref`` (``refs/pull/123/head``) when it is fetched.
    """

    url: str
    commit: FullCommit
    ref: Annotated[str, msgspec.Meta(pattern=r"^refs/[A-Za-z0-9][A-Za-z0-9._/-]*$")]
    base: FullCommit | None = None


class PatchEntry(_Table, frozen=True):
    """One patch of a set: its file beside the manifest, the digest of its bytes, why it exists.

    ``needs`` are files of patches before it. Each of ``proof`` is a program beside the manifest or
    the id of a pytest test (it holds a ``::``); a build is proved by it, see ``patch drop-check``.
    With ``remote`` the file is made from a commit, and only its name stands here. ``lifts`` are ids
    of advisories that it works around: such a toolkit is then taken if qualification is right.
    """

    file: RelativePath
    sha256: Sha256
    reason: str
    needs: tuple[RelativePath, ...] = ()
    proof: tuple[str, ...] = ()
    lifts: tuple[str, ...] = ()
    remote: RemotePatch | None = None


class PatchedSection(_Table, frozen=True):
    """What the source must be with all patches: git's id of the tree, over the declared paths."""

    tree: FullCommit


class BuildSection(_Table, frozen=True):
    """Targets to build, and CMake options that belong to the sources (values as CMake reads)."""

    targets: tuple[str, ...]
    cmake: dict[str, str] = {}


Ability = Literal["glm5-next-drafts", "media-drafts"]
"""What a build may be able to do that its base is not: compute glm5-next's draft block; draft after
pictures whatever the positions of its target and draft are."""


class SmokeSection(_Table, frozen=True):
    """Which smoke suite decides, and what it asks beyond what the variant's base can do."""

    suite: Name
    abilities: tuple[Ability, ...] = ()
    """What the patches bring: it is asked, and a build that lacks it fails."""


class Patchset(_Table, frozen=True):
    """``patchsets/<variant>/patchset.toml``."""

    schema: Literal[1]
    name: Name
    summary: str
    source: SourcePin
    build: BuildSection
    smoke: SmokeSection
    patches: tuple[PatchEntry, ...] = ()
    patched: PatchedSection | None = None

    @property
    def lifts(self) -> tuple[str, ...]:
        """Ids of advisories that some patch works around, each once."""
        return tuple(dict.fromkeys(name for patch in self.patches for name in patch.lifts))


class CudaSection(_Table, frozen=True):
    """A CUDA release: the exact versions of its parts, and the architectures built by default.

    ``accepts`` are further versions that belong to it, by group of parts: NVIDIA renews cuBLAS
    within a release.
    """

    release: str
    nvcc: str
    cudart: str
    architectures: tuple[Annotated[str, msgspec.Meta(pattern="^[0-9]{2,3}[af]?$")], ...]
    accepts: dict[Literal["compiler", "runtime", "cublas", "cccl"], tuple[str, ...]] = {}


class PlatformSection(_Table, frozen=True):
    """CMake options for one platform only."""

    cmake: dict[str, str] = {}


class Toolchain(_Table, frozen=True):
    """``toolchains/<name>.toml``."""

    schema: Literal[1]
    name: Name
    summary: str
    label: Annotated[str, msgspec.Meta(pattern="^[a-z0-9]+$")]
    """The toolchain in a wheel's local version: ``cpu``, ``cu130``."""
    cuda: CudaSection | None = None
    cmake: dict[str, str] = {}
    platform: dict[Literal["linux-x86_64", "linux-aarch64"], PlatformSection] = {}

    def options(self) -> dict[str, str]:
        """CMake options of this toolchain on this machine's platform."""
        here = self.platform.get(current_platform(), PlatformSection())  # type: ignore[call-overload]
        return {**self.cmake, **here.cmake}


def current_platform() -> str:
    """``linux-x86_64`` or ``linux-aarch64``: the names that manifests use."""
    return f"{sys.platform}-{platform.machine()}"


class Recipes:
    """A directory with ``patchsets/`` and ``toolchains/``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def patchset(self, name: str) -> tuple[Patchset, Path]:
        """A variant's manifest and its file. Raises UnknownNameError or ManifestError."""
        if name not in (names := self.patchset_names()):
            raise unknown_name("variant", name, names, self.root / "patchsets")
        path = self.root / "patchsets" / name / "patchset.toml"
        manifest = load(path, Patchset)
        _check_name(path, manifest.name, name)
        return manifest, path

    def toolchain(self, name: str) -> tuple[Toolchain, Path]:
        """A toolchain's manifest and its file. Raises UnknownNameError or ManifestError."""
        if name not in (names := self.toolchain_names()):
            raise unknown_name("toolchain", name, names, self.root / "toolchains")
        path = self.root / "toolchains" / f"{name}.toml"
        manifest = load(path, Toolchain)
        _check_name(path, manifest.name, name)
        return manifest, path

    def patchset_names(self) -> list[str]:
        """The variants that exist here."""
        return sorted(file.parent.name for file in self.root.glob("patchsets/*/patchset.toml"))

    def toolchain_names(self) -> list[str]:
        """The toolchains that exist here."""
        names = {file.stem for file in self.root.glob("toolchains/*.toml")}
        return sorted(names - {"known-bad"})


def _check_name(path: Path, inside: str, outside: str) -> None:
    if inside != outside:
        raise ManifestError(
            f"{path}: `name` is {inside!r}, its place says {outside!r}",
            evidence=[path],
            next_step="make the two the same",
        )


def unknown_name(noun: str, name: str, names: Sequence[str], place: Path) -> UnknownNameError:
    """The refusal for a name that nothing answers to, with the nearest names."""
    near = difflib.get_close_matches(name, names, n=3)
    return UnknownNameError(
        f"there is no {noun} {name!r}",
        problems=[f"known here: {', '.join(names) or 'none'}"],
        evidence=[place],
        next_step=f"did you mean {' or '.join(near)}?" if near else "run `sparkbuild list`",
    )


def find_recipes(given: Path | None) -> Recipes:
    """``given``, or the recipes installed with sparkbuild, or those of a source checkout."""
    package = Path(__file__).parent
    # Programs that are given files of it run in folders of their own.
    for root in [given.absolute()] if given else [package / "_recipes", package.parent]:
        if (root / "patchsets").is_dir() and (root / "toolchains").is_dir():
            return Recipes(root)
    raise UnknownNameError(
        f"no recipes in {given or package}",
        problems=["expected the folders patchsets/ and toolchains/ there"],
        next_step="name the folder that holds both: --recipes DIR",
    )


_T = TypeVar("_T", bound=_Table)


def load(path: Path, kind: type[_T]) -> _T:
    """Read one manifest. Raises ManifestError naming the file, the key and a suggestion."""
    try:
        manifest = msgspec.toml.decode(path.read_bytes(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
        raise explained(path, kind, str(error)) from error
    if isinstance(manifest, Patchset):
        _check_pin(path, manifest.source)
        _check_patches(path, manifest.patches)
    return manifest


def _check_patches(path: Path, patches: tuple[PatchEntry, ...]) -> None:
    before: set[str] = set()
    for index, patch in enumerate(patches):
        if patch.file in before:
            raise _refused(path, f"patches[{index}].file", f"names {patch.file} a second time")
        for name in patch.needs:
            if name not in before:
                raise _refused(path, f"patches[{index}].needs", f"{name!r} is no patch before it")
        if patch.remote is not None and patch.remote.url.startswith("-"):
            raise _refused(path, f"patches[{index}].remote.url", "must not start with a dash")
        before.add(patch.file)


def _check_pin(path: Path, pin: SourcePin) -> None:
    for index, origin in enumerate(pin.origins):
        if isinstance(origin, GitOrigin):
            _check_git(f"source.origins[{index}]", path, origin, digest=pin.digest)
        elif pin.digest is None:
            raise _refused(path, f"source.origins[{index}]", "needs `source.digest` to be checked")
    if not pin.origins:
        raise _refused(path, "source.origins", "names no place to get the source from")


def _check_git(key: str, path: Path, origin: GitOrigin, *, digest: str | None) -> None:
    if origin.url.startswith("-"):
        raise _refused(path, f"{key}.url", "must not start with a dash")
    for ref in (origin.tag, origin.branch):
        if ref is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]*", ref):
            raise _refused(path, key, f"{ref!r} is not a plain tag or branch name")
    if origin.commit is None and origin.tag is None:
        raise _refused(path, key, "needs `commit` or `tag`")
    if origin.commit is None and digest is None:
        raise _refused(path, key, "a tag can be moved: it needs `source.digest` to be checked")
    if origin.commit and len(origin.commit) < 40 and not origin.branch:
        raise _refused(path, key, "an abbreviated `commit` needs the `branch` that holds it")


def _refused(path: Path, key: str, text: str) -> ManifestError:
    return ManifestError(
        f"{path}: `{key}` {text}", evidence=[path], next_step=f"correct `{key}` in {path}"
    )
