"""What ``sparkbuild toolkit qualify`` and the qualify stage do: a subject, its verdict, kept."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild.build.jobs import usable_cores
from sparkbuild.errors import ToolkitMismatchError
from sparkbuild.files import exclusive
from sparkbuild.manifest import Patchset, current_platform
from sparkbuild.qualify import kept, verdict
from sparkbuild.qualify.bench import Found, Gather, Gathered, Order, gather
from sparkbuild.qualify.catalogue import Given
from sparkbuild.qualify.compile import Nvcc
from sparkbuild.qualify.coverage import DeviceFunction, covered
from sparkbuild.qualify.emulated import emulation, shadow
from sparkbuild.qualify.flags import foretold
from sparkbuild.qualify.kept import Subject
from sparkbuild.qualify.model import Compiler, FileCoverage, Qualification, Sowed
from sparkbuild.qualify.seeded import seeded
from sparkbuild.source.model import PatchedTree
from sparkbuild.source.patching.scopes import chains
from sparkbuild.stages import Observer
from sparkbuild.toolkit.model import HostCompiler, Identity, Part, Toolkit

WAIT: Final = 900.0
"""Seconds that a second command waits for the first one's verdict on the same subject."""
NEEDED: Final = ("nvcc", "cicc", "ptxas", "cudafe++")
"""Parts without which nothing can be compiled."""
_FILES: Final = re.compile(
    r"(mmq.*|mma|vecdotq|mmvq|mmvf|mmf|dequantize|convert|quantize|cpy-utils|getrows|set-rows"
    r"|fattn.*|gated_delta_net|lightning-indexer)\.cuh?"
)
"""Files of ggml-cuda that a model's products, conversions and attention are made of."""
_OTHER_VENDORS: Final = re.compile(r"mmq-config-(cdna|gcn|rdna).*\.cuh")
_DEVICE: Final = re.compile(r"\b__(device|global)__\b")
_NAME: Final = re.compile(r"([A-Za-z_]\w*) ?$")
_LIBRARY: Final = re.compile(r"libcu|cublas")
"""Parts that device code does not depend on."""


@dataclass(frozen=True)
class _Root:
    """A toolkit as far as it is judged."""

    name: str
    folder: str
    platform: str
    parts: tuple[Part, ...]


def subject_of(
    toolkit: Toolkit, patchset: Patchset, tree: PatchedTree, architecture: str
) -> Subject:
    """A build's toolkit, as it will compile ``tree`` for one of its targets."""
    return _subject(
        _Root(toolkit.toolchain, toolkit.root or "", current_platform(), toolkit.parts),
        toolkit.host,
        tree,
        architecture,
        foretold({**patchset.build.cmake, **toolkit.options}),
    )


def subject_of_root(
    identity: Identity,
    options: Mapping[str, str],
    host: HostCompiler,
    tree: PatchedTree,
    architecture: str,
) -> Subject:
    """A root on this machine, whole or compilers alone.

    Raises ToolkitMismatchError where its parts disagree or a compiler is missing.
    """
    missing = [name for name in NEEDED if identity.part(name) is None]
    if missing or identity.state == "mixed":
        raise ToolkitMismatchError(
            f"{identity.root} is {identity.state}: there is no one compiler to judge",
            problems=[problem.text for problem in identity.problems]
            or [f"{name} is missing" for name in missing],
            next_step=f"sparkbuild toolkit show {identity.root}",
        )
    return _subject(
        _Root(identity.toolchain or "unknown", identity.root, identity.platform, identity.parts),
        host,
        tree,
        architecture,
        foretold(options),
    )


def qualify(  # noqa: PLR0913 - one argument for each thing that decides
    subject: Subject,
    *,
    folder: Path,
    live: Observer,
    at_once: int | None = None,
    only: tuple[str, ...] = (),
    first: bool = False,
    fresh: bool = False,
    found: Found = lambda _: None,
    gather: Gather = gather,
) -> Qualification:
    """Judge, or give the verdict that is known.

    ``folder`` is ``Workspace.qualifications``. ``only`` and ``first`` judge less than all, so that
    what comes of them is not kept; ``fresh`` judges again. Only the main thread may call this.
    """
    key = subject.key
    place = folder / key[:16]
    record = folder / f"{key[:16]}.json"
    whole = not only and not first
    if whole and not fresh and (known := kept.known(record, key)):
        return known
    with exclusive(folder / f"{key[:16]}.lock", what="this compiler's verdict", wait=WAIT):
        if whole and not fresh and (known := kept.known(record, key)):
            return known  # another command may have judged meanwhile
        began = time.monotonic()
        order = order_of(subject, place, folder, only)
        gathered = gather(
            order,
            at_once=at_once or max(1, int(usable_cores())),
            progress=live.progress,
            found=found,
            first=first,
        )
        result = verdict.conclude(
            subject.compiler,
            gathered,
            uncovered=order.catalogue().uncovered,
            coverage=coverage_of(subject, gathered),
            seconds=time.monotonic() - began,
            key=key,
        )
        if whole:
            kept.keep(record, result)
    return result


def sow(
    subject: Subject,
    found: Qualification,
    *,
    folder: Path,
    live: Observer,
    count: int,
    seed: int,
    at_once: int | None = None,
    only: tuple[str, ...] = (),
) -> Sowed:
    """Make so many instructions wrong, one at a time, in the code that ``found`` judged."""
    order = order_of(subject, folder / subject.key[:16], folder, only)
    return seeded(
        order,
        found.units,
        count=count,
        seed=seed,
        at_once=at_once or max(1, int(usable_cores())),
        progress=live.progress,
    )


def coverage_of(subject: Subject, gathered: Gathered) -> tuple[FileCoverage, ...]:
    """What was executed of the source's files; nothing on a GPU, which does not tell."""
    if subject.compiler.executor == "gpu":
        return ()
    return covered(device_functions(subject.source), gathered.locations)


def device_functions(source: str) -> dict[str, tuple[DeviceFunction, ...]]:
    """The device functions of the files that matter, by file, in their order."""
    folder = Path(source) / "ggml/src/ggml-cuda"
    found = {}
    for path in sorted(folder.iterdir()):
        if _FILES.fullmatch(path.name) and not _OTHER_VENDORS.fullmatch(path.name):
            functions = tuple(_functions(path.read_bytes()))
            if functions:
                found[path.name] = functions
    return found


def _functions(data: bytes) -> list[DeviceFunction]:
    content = data.splitlines(keepends=True)
    by_line = chains(content, range(len(content)), "cpp")
    spans: dict[str, list[int]] = {}
    for line, chain in by_line.items():
        head = next((head for head in chain if _DEVICE.search(head) and "(" in head), None)
        # What is constexpr is worked out by the compiler: no code is made of it.
        name = head and "constexpr" not in head.split("(")[0] and _name_of(head)
        if name:
            spans.setdefault(name, []).append(line)
    return [DeviceFunction(name=n, first=min(at), last=max(at) + 1) for n, at in spans.items()]


def _name_of(head: str) -> str | None:
    """What stands before the parameters, which are the last parentheses outside of all others."""
    depth, opened = 0, -1
    for at, sign in enumerate(head):
        if sign == "(":
            opened = at if depth == 0 else opened
            depth += 1
        elif sign == ")":
            depth -= 1
    found = _NAME.search(head[:opened]) if opened > 0 else None
    return found[1] if found else None


def _subject(
    root: _Root, host: HostCompiler, tree: PatchedTree, architecture: str, flags: tuple[str, ...]
) -> Subject:
    compiler = Compiler(
        toolkit=root.name,
        cicc=next(part.version for part in root.parts if part.name == "cicc"),
        platform=root.platform,
        architecture=architecture,
        flags=flags,
        tree=tree.tree,
    )
    return Subject(
        compiler=compiler,
        root=root.folder,
        parts={part.name: part.sha256 for part in root.parts if not _LIBRARY.match(part.name)},
        host=host,
        source=tree.directory,
    )


def order_of(subject: Subject, place: Path, folder: Path, only: tuple[str, ...]) -> Order:
    """What is to be judged; ``place`` gets units and PTX, ``folder`` the references."""
    root, host = subject.root, subject.host.cxx
    emulator: tuple[str, ...] = ()
    if subject.compiler.platform != current_platform():
        foreign = emulation(subject.compiler.platform)
        root = str(shadow(Path(root), place / "root", foreign))
        host, emulator = foreign.host, foreign.prefix
    nvcc = Nvcc(
        root=root,
        host=host,
        emulator=emulator,
        source=subject.source,
        architecture=subject.compiler.architecture,
        flags=subject.compiler.flags,
        folder=str(place),
    )
    return Order(
        nvcc=nvcc, given=Given(host=subject.host, folder=str(folder / "reference")), only=only
    )
