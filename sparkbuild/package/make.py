"""Pack the tested files as a wheel, twice, and let it out only when both are the same and right."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild import process
from sparkbuild.build.model import Binaries, Binary, BinaryFacts
from sparkbuild.errors import PackageError
from sparkbuild.files import (
    disk_full,
    disk_full_refused,
    fsync_directory,
    sha256_file,
)
from sparkbuild.package import archive, identity
from sparkbuild.package.earned import earned_tag
from sparkbuild.package.info import as_json, build_info
from sparkbuild.package.model import Wheel
from sparkbuild.package.project import Plan, licence_files, write_project
from sparkbuild.package.provenance import Extra, enclose
from sparkbuild.package.verify import mismatches
from sparkbuild.source.model import PatchedTree
from sparkbuild.toolkit.model import Toolkit

_SCRATCH: Final = ".packing-"

_HOOK: Final = """\
import sys
from scikit_build_core.build import build_wheel
build_wheel(sys.argv[1], {"wheel.tags": sys.argv[2]})
"""
"""The PEP 517 hook, as a front end without isolation calls it. The platform tag is given because
it follows the ELF files, not the interpreter that packs them."""

_TAIL: Final = 4000
"""Characters of the second log that a refusal shows: about as much as ``process.TAIL_LINES``."""

_AGAIN: Final = "run the same command again; if it repeats, this is a defect of sparkbuild"


def package(  # noqa: PLR0913 - one argument for each thing that a wheel is made of
    *,
    binaries: Binaries,
    facts: BinaryFacts,
    tree: PatchedTree,
    toolkit: Toolkit,
    variant: str,
    source_dir: Path,
    workdir: Path,
    log: Path,
    requires: Sequence[str] = (),
    keep_open: Sequence[int] = (),
    extra: Extra | None = None,
) -> Wheel:
    """Make ``workdir/<wheel>`` from the install tree, through scikit-build-core.

    The wheel holds the very files whose digests are in ``facts``, and is packed twice in two
    directories: different bytes are a refusal. A file of that name in ``workdir`` is a finished
    wheel; unfinished ones never get that name. The caller holds ``workdir`` for itself alone.
    ``extra`` gives members that tell of the others by digest: provenance and SBOM. ``requires`` are
    the wheels that must be installed beside it. Raises PackageError, or DiskFullError.
    """
    plan = plan_wheel(
        binaries=binaries,
        facts=facts,
        tree=tree,
        toolkit=toolkit,
        variant=variant,
        source_dir=source_dir,
        requires=requires,
    )
    with _scratch(workdir) as scratch:
        first, second = _pack_twice(plan, scratch, log=log, keep_open=keep_open)
        if extra is not None:
            for packed in (first, second):
                enclose(packed, extra)
        digest = sha256_file(first)
        _refuse_wrong(first, plan, log)
        if digest != sha256_file(second):
            raise PackageError(
                "packing the same files twice gave two different wheels",
                problems=[
                    f"first {digest}",
                    f"second {sha256_file(second)}",
                    *_differing(first, second),
                ],
                evidence=[log],
                next_step=_AGAIN,
            )
        wheel = workdir / plan.name
        size = first.stat().st_size
        _release(first, wheel)
    return Wheel(
        path=str(wheel),
        sha256=digest,
        size=size,
        version=plan.version,
        tag=plan.tag,
        scripts=tuple(sorted(plan.executables)),
    )


def plan_wheel(
    *,
    binaries: Binaries,
    facts: BinaryFacts,
    tree: PatchedTree,
    toolkit: Toolkit,
    variant: str,
    source_dir: Path,
    requires: Sequence[str] = (),
) -> Plan:
    """Decide everything about the wheel before a byte of it is written.

    ``requires`` are the wheels that bring what the files need and neither they nor the system have.
    Raises PackageError where the install tree and the inspected files are not the same set.
    """
    inspected = {binary.name: binary for binary in facts.binaries}
    _refuse_names(binaries, inspected)
    version = identity.wheel_version(
        build=tree.build, label=toolkit.label, variant=variant, tree=tree.tree
    )
    info = build_info(version=version, variant=variant, tree=tree, toolkit=toolkit, facts=facts)
    generic = identity.platform_tag(binary.machine for binary in facts.binaries)
    return Plan(
        version=version,
        tag=earned_tag(Path(binaries.directory), sorted(inspected), generic),
        requires=tuple(sorted(requires)),
        description=_description(tree, toolkit, variant),
        payload=Path(binaries.directory),
        executables={name: inspected[name].sha256 for name in binaries.executables},
        libraries={name: inspected[name].sha256 for name in binaries.libraries},
        licences=licence_files(source_dir),
        info=as_json(info),
    )


def _description(tree: PatchedTree, toolkit: Toolkit, variant: str) -> str:
    """The one line that installers show of a wheel: it names what was accepted."""
    ids = ", ".join(accepted.id for accepted in toolkit.accepted)
    return (
        f"llama.cpp {tree.build or 0} ({variant}, {toolkit.label}), "
        "the very binaries that sparkbuild tested"
        + (f"; made with a toolkit KNOWN BAD and accepted: {ids}" if ids else "")
    )


def _refuse_names(binaries: Binaries, inspected: dict[str, Binary]) -> None:
    built = [*binaries.executables, *binaries.libraries]
    problems = [
        *(f"{name} was built and never inspected" for name in built if name not in inspected),
        *(f"{name} was inspected and is not to be packed" for name in inspected.keys() - {*built}),
        *identity.name_problems(built),
    ]
    if not binaries.executables:
        problems.append("there is no executable to pack")
    if problems:
        raise PackageError(
            "the install tree is not what was inspected",
            problems=sorted(problems),
            evidence=[Path(binaries.directory)],
            next_step="run the same command again: inspection is repeated",
        )


def _pack_twice(
    plan: Plan, scratch: Path, *, log: Path, keep_open: Sequence[int]
) -> tuple[Path, Path]:
    """Two runs of scikit-build-core at once, in two directories: compressing takes one core."""
    one, two = scratch / "first", scratch / "the" / "second"
    first, second = _prepare(plan, one), _prepare(plan, two)
    again = log.with_name(f"{log.stem}-again{log.suffix}")
    other = process.start(
        second.argv, log=again, env=second.env, cwd=second.cwd, keep_open=keep_open
    )
    try:
        done = process.run(first.argv, log=log, env=first.env, cwd=first.cwd, keep_open=keep_open)
        wheel = _made(plan, one, done.returncode, done.tail, log)
        returncode = other.wait()
        tail = again.read_text(errors="replace")[-_TAIL:]
        return wheel, _made(plan, two, returncode, tail, again)
    finally:
        if other.poll() is None:
            process.stop_session(other)


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A run of the packer, ready to start."""

    argv: list[str]
    env: dict[str, str]
    cwd: Path


def _prepare(plan: Plan, place: Path) -> _Run:
    project, out, temporary = place / "project", place / "out", place / "tmp"
    with disk_full_refused(place):
        for directory in (project, out, temporary):
            directory.mkdir(parents=True)
        write_project(plan, project)
    environment = {
        "SOURCE_DATE_EPOCH": str(archive.SOURCE_DATE_EPOCH),
        "TMPDIR": str(temporary),
    }
    return _Run(
        argv=[sys.executable, "-I", "-c", _HOOK, str(out), plan.tag],
        env=process.environment(extra=environment),
        cwd=project,
    )


def _made(plan: Plan, place: Path, returncode: int, tail: str, log: Path) -> Path:
    """The one wheel of a finished run, in canonical form. Raises PackageError, DiskFullError."""
    if returncode != 0 and "No space left on device" in tail:
        raise disk_full(place)
    made = sorted(path.name for path in (place / "out").iterdir())
    if returncode != 0 or made != [plan.name]:
        raise PackageError(
            f"scikit-build-core ended with status {returncode} and no such wheel",
            problems=[f"expected {plan.name}", f"found {', '.join(made) or 'nothing'}"],
            evidence=[log],
            next_step=f"read {log}; then {_AGAIN}",
            detail=tail,
        )
    return _canonical(place / "out" / plan.name, plan)


def _canonical(wheel: Path, plan: Plan) -> Path:
    """The wheel in canonical form: licence texts come in the order of the file system's listing."""
    record = f"{identity.dist_info(plan.version)}/RECORD"
    with zipfile.ZipFile(wheel) as opened:
        if archive.is_canonical(opened.infolist(), record):
            return wheel
    target = wheel.with_name(f"{wheel.name}.rewritten")
    with disk_full_refused(target):
        archive.rewrite(wheel, target, record)
        target.replace(wheel)
    return wheel


def _refuse_wrong(wheel: Path, plan: Plan, log: Path) -> None:
    problems = mismatches(wheel, plan)
    if problems:
        raise PackageError(
            "the wheel is not what was tested",
            problems=problems,
            evidence=[plan.payload, log],
            next_step="if a file of the install tree was changed by hand, build again; if not: "
            + _AGAIN,
        )


def _differing(first: Path, second: Path) -> list[str]:
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as two:
        left = {member.filename: member for member in one.infolist()}
        right = {member.filename: member for member in two.infolist()}
        return [
            f"{name} differs"
            for name in sorted(left.keys() | right.keys())
            if _header(left.get(name)) != _header(right.get(name))
        ]


def _header(member: zipfile.ZipInfo | None) -> tuple[object, ...]:
    if member is None:
        return ()
    return (member.CRC, member.file_size, member.date_time, member.external_attr)


@contextlib.contextmanager
def _scratch(workdir: Path) -> Iterator[Path]:
    """An empty directory inside ``workdir``; those that killed runs left there are removed."""
    with disk_full_refused(workdir):
        workdir.mkdir(parents=True, exist_ok=True)
        for left in workdir.glob(f"{_SCRATCH}*"):
            shutil.rmtree(left, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(dir=workdir, prefix=_SCRATCH))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _release(finished: Path, target: Path) -> None:
    """Give a verified wheel its name: the last act, and the only one that a later run trusts."""
    with disk_full_refused(target):
        finished.chmod(0o644)
        handle = os.open(finished, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        finished.replace(target)
        fsync_directory(target.parent)
