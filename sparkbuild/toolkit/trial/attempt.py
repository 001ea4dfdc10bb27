"""One attempt: ask nvcc, plan, compile, link, run; then every witness is heard."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from sparkbuild import process
from sparkbuild.toolkit.identity import versions
from sparkbuild.toolkit.model import Toolkit, Trial
from sparkbuild.toolkit.trial import cubin, dryrun, failure, preprocessed, story
from sparkbuild.toolkit.trial.bench import NAME, SOURCE, Bench, failed, mismatch
from sparkbuild.toolkit.trial.ptx import read_ptx

_RAN: Final = re.compile(r"runtime (\d+) driver (\d+) compiled (\d+) library (.+)\n?")


def attempt(
    toolkit: Toolkit, folder: Path, *, keep_open: Sequence[int] = ()
) -> tuple[Trial, frozenset[str]]:
    """Try ``toolkit`` in the empty ``folder``; the trial, and every file that it was made with.

    Raises ToolkitMismatchError, HostError.
    """
    root = Path(toolkit.root or "")
    bench = Bench(toolkit=toolkit, root=root, folder=folder, keep_open=tuple(keep_open))
    (folder / f"{NAME}.cu").write_text(SOURCE)
    told, plan = _planned(bench)
    status, lines = bench.run([*bench.nvcc, "-c", f"{NAME}.cu", "-o", f"{NAME}.o"])
    witnesses, headers = _witnesses(bench)
    problems = list(story.differences(toolkit, told, witnesses))
    problems += _foreign_headers(bench, headers)
    if problems:
        raise mismatch(bench, problems)
    if status != 0:
        raise failed(bench, "compile", status, lines)
    problems = list(story.unfinished(toolkit, witnesses))
    if problems:
        raise mismatch(bench, problems)
    runtime, driver, library = _executed(bench, witnesses.table["CUDART_VERSION"])
    trial = Trial(
        nvcc=told.version or "",
        nvcc_build=told.build,
        cudacc=story.cudacc(witnesses.table),
        cudart=witnesses.table["CUDART_VERSION"],
        cublas=story.cublas(witnesses.table),
        codes=story.codes(witnesses),
        object_targets=witnesses.object_targets,
        host_compiler=story.host_compiler(witnesses.table),
        glibc=story.joined(witnesses.table, "__GLIBC__", "__GLIBC_MINOR__"),
        runtime=runtime,
        driver=driver,
        folder=str(folder),
    )
    used = {*headers, *plan.programs(), toolkit.host.c, str(root / "bin/nvcc"), *library}
    _tidy(folder)
    return trial, frozenset(os.path.realpath(name) for name in used)


def _planned(bench: Bench) -> tuple[story.Told, dryrun.Plan]:
    """Ask before anything compiles: a foreign program must not even be started."""
    told, problems = _asked(bench, "nvcc", bench.nvcc[0])
    real = os.path.realpath(bench.nvcc[0])
    if not real.startswith(os.path.realpath(bench.root) + "/"):
        problems.append(f"{bench.nvcc[0]} is {real}, which is not below {bench.root}")
    if told.version is None:
        raise mismatch(bench, problems)
    argv = [*bench.nvcc, "--dryrun", "-cudart", "shared", f"{NAME}.cu", "-o", NAME]
    status, lines = bench.run(argv)
    plan = dryrun.read_plan("\n".join(lines))
    host, own = bench.toolkit.host.cxx, (str(bench.folder),)
    problems += dryrun.foreign(plan, root=str(bench.root), host=host, own=own)
    if not problems:
        programs = {Path(place).name: place for place in plan.programs()}
        for name in story.ANSWERING:
            if name in programs:
                problems += _asked(bench, name, programs[name])[1]
    if problems:
        raise mismatch(bench, problems)
    if status != 0 or not plan.commands:
        raise failed(bench, "plan a compile", status, lines)
    return told, plan


def _asked(bench: Bench, name: str, program: str) -> tuple[story.Told, list[str]]:
    """What a program says of itself, and what is wrong with that."""
    argv = [program, "--version"]
    answer = process.capture(argv, env=bench.environment(), cwd=bench.folder)
    lines = (answer.stdout + answer.stderr).splitlines()
    with process.open_log(bench.log, argv) as out:
        out.writelines(f"{line}\n" for line in [*lines, f"# exit status {answer.returncode}"])
    if answer.returncode != 0 and failure.is_hosts(lines, str(bench.root)):
        raise failed(bench, f"answer as {name}", answer.returncode, lines)
    told = story.read_version("\n".join(lines))
    problems = list(story.told_problems(bench.toolkit, name, told))
    if answer.returncode != 0:
        said = (answer.stderr or answer.stdout).strip() or "nothing"
        problems.append(f"`{name} --version` ended with status {answer.returncode}, saying {said}")
    return told, problems


def _witnesses(bench: Bench) -> tuple[story.Witnesses, frozenset[str]]:
    """Everything that the compile kept, as far as it came."""
    folder, damaged = bench.folder, []
    notes, tables = {}, {}
    for path in sorted(folder.glob("*.cubin")):
        try:
            notes[path.name] = cubin.read_note(path.read_bytes())
        except ValueError as error:
            damaged.append(f"{path.name}: {error}")
    headers: set[str] = set()
    for path in sorted(folder.glob("*.ii"), key=lambda path: ("cpp4" not in path.name, path.name)):
        content = path.read_bytes()
        headers.update(preprocessed.headers(content))
        table = preprocessed.seen(content.decode(errors="replace"))
        if table is not None:
            tables[path.name] = table
    targets: tuple[str, ...] = ()
    made = folder / f"{NAME}.o"
    if made.is_file():
        try:
            targets = cubin.object_targets(made.read_bytes())
        except ValueError as error:
            damaged.append(f"{made.name}: {error}")
    witnesses = story.Witnesses(
        ptx={path.name: read_ptx(path.read_text()) for path in sorted(folder.glob("*.ptx"))},
        cubins=notes,
        tables=tables,
        object_targets=targets,
        damaged=tuple(damaged),
    )
    return witnesses, frozenset(name for name in headers if name.startswith("/"))


def _foreign_headers(bench: Bench, headers: Iterable[str]) -> list[str]:
    """Headers of NVIDIA's that come from anywhere but the root, by what is written in them."""
    top = os.path.realpath(bench.root)
    problems = []
    for name in sorted(headers):
        real = os.path.realpath(name)
        if not real.startswith(f"{top}/") and _is_nvidias(real):
            problems.append(f"a CUDA header was read from {name}, which is not below {bench.root}")
    return problems


def _is_nvidias(path: str) -> bool:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - hundreds of them, by name
            return b"nvidia corporation" in file.read(4096).lower()
    except OSError:
        return False


def _executed(bench: Bench, cudart: int) -> tuple[int | None, int | None, tuple[str, ...]]:
    """Link as CMake does, against the root's shared run time, and run; versions and library."""
    toolkit, libraries = bench.toolkit, bench.libraries
    argv = [toolkit.host.cxx, f"{NAME}.o", str(libraries / "libcudart.so"), "-ldl", "-o", NAME]
    status, lines = bench.run(argv)
    if status != 0:
        raise failed(bench, "link", status, lines)
    program = bench.folder / NAME
    env = {**bench.environment(), "LD_LIBRARY_PATH": str(libraries)}
    answer = process.capture([str(program)], env=env, cwd=Path("/"))
    if answer.returncode in {126, 127} and "error while loading" not in answer.stderr:
        return None, None, ()  # a folder that forbids programs, for instance
    match = _RAN.fullmatch(answer.stdout)
    if match is None or answer.returncode != 0:
        lines = (answer.stderr or answer.stdout).splitlines()
        raise failed(bench, "run what it linked", answer.returncode, lines)
    runtime, driver, compiled, library = int(match[1]), int(match[2]), int(match[3]), match[4]
    wanted, found = versions.thousands(cudart), versions.thousands(runtime)
    problems = []
    if runtime != cudart or compiled != cudart:
        problems.append(
            f"libcudart: expected {wanted} (CUDART_VERSION {cudart}), found {found} at run time "
            f"(cudaRuntimeGetVersion {runtime}, {library})"
        )
    if not os.path.realpath(library).startswith(os.path.realpath(bench.root) + "/"):
        problems.append(f"libcudart: expected below {bench.root}, the loader took {library}")
    if problems:
        raise mismatch(bench, problems)
    return runtime, driver, (library,)


def _tidy(folder: Path) -> None:
    """Keep the witnesses, drop megabytes of preprocessed text."""
    for pattern in ("*.ii", "*.cudafe1.*", "*.fatbin*", "*.module_id"):
        for path in folder.glob(pattern):
            path.unlink()
