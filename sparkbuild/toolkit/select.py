"""From what the user asked for to one toolchain and one root; ambiguity is asked back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild.errors import ToolkitMismatchError, UsageError
from sparkbuild.files import DigestCache
from sparkbuild.manifest import Recipes, Toolchain, unknown_name
from sparkbuild.toolkit.cuda import candidate_roots, identify, tool_version
from sparkbuild.toolkit.host import find_host_compiler
from sparkbuild.toolkit.model import Toolkit

_DRIVER: Final = Path("/proc/driver/nvidia/version")
"""Exists where NVIDIA's kernel driver is loaded."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A toolchain, its manifest's place, the root where one was named, and why it was chosen."""

    toolchain: Toolchain
    manifest: Path
    root: Path | None
    reason: str


def choose(recipes: Recipes, asked: str | None, *, driver: Path = _DRIVER) -> Choice:
    """The toolchain for ``--toolkit``: a name, a release, an exact nvcc version, or a root.

    Nothing asked for means the ``cpu`` toolchain on a machine without an NVIDIA driver; with one
    it is a question, since a silent CPU build on a GPU machine is a fault users have met.
    Raises UnknownNameError, UsageError.
    """
    if asked is None:
        if driver.exists():
            raise UsageError(
                "this machine has an NVIDIA GPU, and no toolkit was asked for",
                problems=[f"known toolkits: {', '.join(recipes.toolchain_names())}"],
                evidence=[driver],
                next_step="say which: --toolkit 13.0, or --toolkit cpu for no GPU code",
            )
        toolchain, manifest = recipes.toolchain("cpu")
        reason = "no toolkit was asked for and no NVIDIA driver is loaded: CPU only"
        return Choice(toolchain=toolchain, manifest=manifest, root=None, reason=reason)
    if "/" in asked:
        return _by_root(recipes, Path(asked))
    for name in recipes.toolchain_names():
        toolchain, manifest = recipes.toolchain(name)
        names = {name}
        if toolchain.cuda is not None:
            names |= {toolchain.cuda.release, toolchain.cuda.nvcc}
        if asked in names:
            reason = f"asked for: --toolkit {asked}"
            return Choice(toolchain=toolchain, manifest=manifest, root=None, reason=reason)
    releases = [name.removeprefix("cuda-") for name in recipes.toolchain_names()]
    raise unknown_name("toolkit", asked, releases, recipes.root / "toolchains")


def _by_root(recipes: Recipes, root: Path) -> Choice:
    version = tool_version(root / "bin/nvcc")
    if version is None:
        raise ToolkitMismatchError(
            f"{root} is not a CUDA toolkit",
            problems=[f"{root / 'bin/nvcc'} is missing or prints no version"],
            next_step="name the folder that holds bin/nvcc",
        )
    for name in recipes.toolchain_names():
        toolchain, manifest = recipes.toolchain(name)
        if toolchain.cuda is not None and toolchain.cuda.nvcc == version:
            reason = f"asked for by its root, nvcc {version}"
            return Choice(
                toolchain=toolchain, manifest=manifest, root=root.resolve(), reason=reason
            )
    raise unknown_name(
        f"toolchain for the nvcc {version} of {root}:", version, [], recipes.root / "toolchains"
    )


_ARCHITECTURE: Final = re.compile(r"[1-9][0-9]{1,2}[af]?")


def plain_architectures(asked: tuple[str, ...]) -> tuple[str, ...]:
    """``--arch`` as CMake knows it, each once: ``sm_121a`` and ``121a-real`` mean ``121a``.

    Raises UsageError with every word that names no architecture.
    """
    plain = [word.removeprefix("sm_").removesuffix("-real") for word in asked]
    wrong = [word for word, name in zip(asked, plain, strict=True) if not _plain(name)]
    if wrong:
        raise UsageError(
            f"--arch {wrong[0]}: no GPU architecture",
            problems=[f"{word!r} is not of the form 90, 121a, 120f" for word in wrong],
            next_step="GB10 is --arch 121a, an H100 or H200 is --arch 90",
        )
    return tuple(dict.fromkeys(plain))


def _plain(name: str) -> bool:
    return _ARCHITECTURE.fullmatch(name) is not None


def settle(choice: Choice, architectures: tuple[str, ...], digests: DigestCache) -> Toolkit:
    """Identify every part of the chosen toolkit.

    ``architectures`` replaces the toolchain's own (``121a``) where not empty. Raises UsageError,
    HostError, ToolkitMismatchError.
    """
    toolchain = choice.toolchain
    if toolchain.cuda is None:
        if architectures:
            raise UsageError(
                f"--arch {' '.join(architectures)} means nothing to the toolchain {toolchain.name}",
                next_step="leave --arch out, or choose a CUDA toolkit: --toolkit 13.0",
            )
        return Toolkit(
            toolchain=toolchain.name,
            label=toolchain.label,
            kind="cpu",
            host=find_host_compiler(),
            options=toolchain.options(),
        )
    root = choice.root or _only_root(toolchain)
    return Toolkit(
        toolchain=toolchain.name,
        label=toolchain.label,
        kind="cuda",
        host=find_host_compiler(),
        root=str(root),
        parts=identify(root, toolchain.cuda, digests),
        architectures=architectures or toolchain.cuda.architectures,
        options=toolchain.options(),
    )


def _only_root(toolchain: Toolchain) -> Path:
    assert toolchain.cuda is not None  # noqa: S101 - the caller looked
    wanted = toolchain.cuda.nvcc
    found = {
        root: tool_version(root / "bin/nvcc") for root in candidate_roots(toolchain.cuda.release)
    }
    matching = [root for root, version in found.items() if version == wanted]
    if not matching:
        raise ToolkitMismatchError(
            f"CUDA {toolchain.cuda.release} (nvcc {wanted}) is not on this machine",
            problems=[
                f"{root}: nvcc {version or 'does not run'}" for root, version in found.items()
            ]
            or ["no CUDA toolkit under /usr/local, /opt, CUDA_HOME or CUDA_PATH"],
            next_step=f"install CUDA {toolchain.cuda.release}, or name its root: "
            "--toolkit /path/to/cuda",
        )
    if len(matching) > 1:
        raise UsageError(
            f"nvcc {wanted} is on this machine more than once",
            problems=[str(root) for root in matching],
            next_step=f"say which: --toolkit {matching[0]}",
        )
    return matching[0]
