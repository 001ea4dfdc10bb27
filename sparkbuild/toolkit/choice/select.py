"""From what the user asked for to one toolchain and one root; ambiguity is asked back."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparkbuild.errors import UsageError
from sparkbuild.files import DigestCache
from sparkbuild.manifest import Recipes, Toolchain, unknown_name
from sparkbuild.toolkit.host import find_host_compiler
from sparkbuild.toolkit.model import Toolkit

if TYPE_CHECKING:
    from sparkbuild.toolkit.book import Book
    from sparkbuild.toolkit.choice.places import System

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
    chains = {name: recipes.toolchain(name) for name in recipes.toolchain_names()}
    for name, (toolchain, manifest) in chains.items():
        names = {name}
        if toolchain.cuda is not None:
            names |= {toolchain.cuda.release, toolchain.cuda.nvcc}
        if asked in names:
            reason = f"asked for: --toolkit {asked}"
            return Choice(toolchain=toolchain, manifest=manifest, root=None, reason=reason)
    from sparkbuild.toolkit.choice.asked import refuse_several  # noqa: PLC0415 - for a refusal only

    refuse_several(recipes, asked, [toolchain for toolchain, _ in chains.values()])
    releases = [name.removeprefix("cuda-") for name in chains]
    raise unknown_name("toolkit", asked, releases, recipes.root / "toolchains")


def _by_root(recipes: Recipes, given: Path) -> Choice:
    from sparkbuild.toolkit.choice.asked import nvcc_of  # noqa: PLC0415 - a CPU build needs none of it

    root = given.resolve()
    version = nvcc_of(given, root)
    for name in recipes.toolchain_names():
        toolchain, manifest = recipes.toolchain(name)
        if toolchain.cuda is not None and toolchain.cuda.nvcc == version:
            reason = f"asked for by its root, nvcc {version}"
            return Choice(toolchain=toolchain, manifest=manifest, root=root, reason=reason)
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


def settle(  # noqa: PLR0913 - one argument for each thing that decides
    choice: Choice,
    architectures: tuple[str, ...],
    digests: DigestCache,
    *,
    book: Book,
    provisioned: Path,
    accepted: tuple[str, ...] = (),
    lifted: tuple[str, ...] = (),
    env: Mapping[str, str] = os.environ,
    system: System | None = None,
) -> Toolkit:
    """One root for the chosen toolchain, whole and not known to be bad, or a refusal.

    ``architectures`` replaces the toolchain's own (``121a``) where not empty. ``provisioned`` is
    ``Workspace.toolkits``, ``accepted`` are ids of advisories that the user takes upon himself,
    ``lifted`` those that patches work around; one that strikes nothing here says nothing.
    Where no root was named, those of this machine with that exact nvcc are looked at, in the order
    of ``places``; bytes decide, never the order. Raises UsageError, HostError,
    ToolkitMismatchError, ToolkitMiscompilesError.
    """
    toolchain = choice.toolchain
    if toolchain.cuda is None:
        return _cpu(toolchain, architectures, accepted, book)
    # A build without CUDA needs none of these, and starts the sooner for it.
    from sparkbuild.toolkit.choice.places import THIS_MACHINE, Place, places  # noqa: PLC0415
    from sparkbuild.toolkit.choice.settling import settle_cuda  # noqa: PLC0415

    if choice.root is not None:
        there: tuple[Place, ...] = (Place(root=choice.root, where=(str(choice.root),)),)
    else:
        there = places(provisioned=provisioned, env=env, system=system or THIS_MACHINE)
    targets = architectures or toolchain.cuda.architectures
    return settle_cuda(
        toolchain, there, targets, digests, book=book, accepted=accepted, lifted=lifted
    )


def _cpu(
    toolchain: Toolchain, architectures: tuple[str, ...], accepted: tuple[str, ...], book: Book
) -> Toolkit:
    if architectures:
        raise UsageError(
            f"--arch {' '.join(architectures)} means nothing to the toolchain {toolchain.name}",
            next_step="leave --arch out, or choose a CUDA toolkit: --toolkit 13.0",
        )
    if accepted:
        from sparkbuild.toolkit.choice.acceptance import (  # noqa: PLC0415 - for a refusal only
            refuse_pointless,
            refuse_unknown,
        )

        refuse_unknown(accepted, book)
        refuse_pointless(accepted, {}, toolchain, ())
    return Toolkit(
        toolchain=toolchain.name,
        label=toolchain.label,
        kind="cpu",
        host=find_host_compiler(),
        options=toolchain.options(),
    )
