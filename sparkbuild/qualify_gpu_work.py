"""``sparkbuild toolkit qualify --on gpu``: here, or assembled here and run where the GPU is."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec

from sparkbuild.build.jobs import usable_cores
from sparkbuild.errors import UsageError
from sparkbuild.files import digest_of, exclusive, sha256_file
from sparkbuild.qualify import verdict
from sparkbuild.qualify.bench import Found, Gather, Order
from sparkbuild.qualify.catalogue import Given
from sparkbuild.qualify.compile import Nvcc
from sparkbuild.qualify.gpu.bench import (
    Prepared,
    gather_on,
    judge_all,
    prepare,
    refuse_foreign,
    target_named,
)
from sparkbuild.qualify.gpu.carried import MANIFEST, SOURCE, Carried, carry, unpacked
from sparkbuild.qualify.gpu.driver import Device, Opener
from sparkbuild.qualify.kept import Subject, code_digest
from sparkbuild.qualify.model import Compiler, Qualification
from sparkbuild.qualify_work import WAIT, order_of
from sparkbuild.stages import Observer
from sparkbuild.toolkit.model import HostCompiler


def subject_on(subject: Subject, device: Device) -> Subject:
    """The same compiler, its code to be run on a device."""
    return replace(subject, compiler=_on(subject.compiler, device))


def gather_with(opener: Opener, device: Device) -> Gather:
    """What ``qualify_work.qualify`` takes to judge on a device."""
    return functools.partial(gather_on, opener, device)


def assemble(
    subject: Subject,
    device: str,
    out: Path,
    *,
    folder: Path,
    live: Observer,
    at_once: int | None = None,
    only: tuple[str, ...] = (),
) -> Carried:
    """Fill ``out`` with what a machine needs that has ``device`` (``90a``); no GPU takes part.

    Only the main thread may call this. Raises UsageError where ``device`` is none.
    """
    target = target_named(subject.compiler.architecture, device)
    key = f"{subject.key[:16]}-{target.architecture}"
    with exclusive(folder / f"{key}.lock", what="these probes", wait=WAIT):
        order = order_of(subject, folder / key, folder, only)
        prepared = prepare(order, target, at_once=_cores(at_once), progress=live.progress)
        return carry(
            out,
            Path(subject.source),
            subject.compiler,
            target.architecture,
            prepared.units,
            prepared.failed,
        )


def only_one(subjects: Iterable[Subject]) -> Subject:
    """The one that is meant. Raises UsageError where there are more."""
    found = list({subject.key: subject for subject in subjects}.values())
    if len(found) != 1:
        raise UsageError(
            f"--assemble takes one compiler and one target, and {len(found)} are meant",
            problems=[f"{one.root} {one.compiler.architecture}" for one in found],
            next_step="name one ROOT and one --arch",
        )
    return found[0]


def carried_facts(made: Carried, folder: Path) -> dict[str, object]:
    """What was written, for a person."""
    return {
        "folder": str(folder),
        "compiler": f"{made.compiler.toolkit}, cicc {made.compiler.cicc}",
        "architecture": made.compiler.architecture,
        "assembled for": f"sm_{made.target}",
        "units": len(made.units) + len(made.failed),
        "kernels left out": sum(len(unit.left_out) for unit in made.units),
        "units without code": [
            *(unit.name for unit in made.units if unit.error),
            *(unit.name for unit in made.failed),
        ],
    }


def qualify_carried(  # noqa: PLR0913 - one argument for each thing that decides
    carried: Path,
    opener: Opener,
    host: HostCompiler,
    *,
    folder: Path,
    live: Observer,
    at_once: int | None = None,
    only: tuple[str, ...] = (),
    first: bool = False,
    found: Found = lambda _: None,
) -> Qualification:
    """Judge what ``assemble`` wrote; the verdict is not kept.

    Only the main thread may call this. Raises ArchiveError where the folder is not what was
    written, GpuError where there is no device or it was assembled for another one.
    """
    began = time.monotonic()
    device, there = opener.look(), unpacked(carried)
    refuse_foreign(there.units, device)
    known = {unit.name for unit in there.units} | {unit.name for unit in there.failed}
    order = _order(carried.resolve(), there, host, folder, only)
    order = replace(order, only=only or _held(order, known))
    gathered = judge_all(
        order,
        Prepared(units=there.units, failed=there.failed),
        opener,
        at_once=_cores(at_once),
        progress=live.progress,
        found=found,
        first=first,
    )
    return verdict.conclude(
        _on(there.compiler, device),
        gathered,
        uncovered=order.catalogue().uncovered,
        coverage=(),
        seconds=time.monotonic() - began,
        key=digest_of({"carried": sha256_file(carried / MANIFEST), "code": code_digest()}),
    )


def _order(
    carried: Path, there: Carried, host: HostCompiler, folder: Path, only: tuple[str, ...]
) -> Order:
    """The same probes, from the carried source; no compiler is there, and none is needed."""
    nvcc = Nvcc(
        root="",
        host=host.cxx,
        source=str(carried / SOURCE),
        architecture=there.compiler.architecture,
        flags=there.compiler.flags,
        folder=str(carried),
    )
    return Order(nvcc=nvcc, given=Given(host=host, folder=str(folder / "reference")), only=only)


def _held(order: Order, units: set[str]) -> tuple[str, ...]:
    """Probes of the units that were carried, where those are not all."""
    probes = order.catalogue().probes
    if all(probe.unit in units for probe in probes):
        return ()
    return tuple(probe.name for probe in probes if probe.unit in units)


def _on(compiler: Compiler, device: Device) -> Compiler:
    return msgspec.structs.replace(compiler, executor="gpu", device=str(device))


def _cores(at_once: int | None) -> int:
    return at_once or max(1, int(usable_cores()))
