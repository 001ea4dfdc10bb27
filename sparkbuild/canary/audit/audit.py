"""Perturb every tensor and hyper-parameter of a canary in turn, and see what its suite notices."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from sparkbuild.canary.audit.probe import ONE_IN, Bench, Worker, prepare, probe
from sparkbuild.canary.audit.records import Probe, Role, append, read, unfinished
from sparkbuild.canary.drafts import draft_block
from sparkbuild.canary.gguf.layout import layout
from sparkbuild.canary.gguf.spoil import spoils
from sparkbuild.canary.suite import SUITE, Limits, load_suite
from sparkbuild.errors import CanaryError
from sparkbuild.files import digest_of, fingerprint, sha256_file

_JOURNAL: Final = "audit.jsonl"


def audit(
    bench: Bench,
    *,
    processes: int,
    on_probe: Callable[[Probe, int, int], None] = lambda *_: None,
    only: Callable[[Probe], bool] = lambda _: True,
) -> list[Probe]:
    """Every perturbation of the float32 model and vision files, with what noticed it.

    Results are kept in the work folder as they come, and a later audit of the same files, suite
    and server goes on from there; ``on_probe`` is told of each, with how many are done of how
    many. ``only`` chooses among them. Only the main thread may call this. Raises CanaryError where
    the healthy canary does not pass its own suite, SmokeError where the machine is short of memory.
    """
    wanted = [entry for entry in probes(bench) if only(entry)]
    journal = bench.workdir / _JOURNAL
    known = read(journal)
    todo = unfinished(wanted, known)
    if todo:
        bench = replace(bench, healthy=_healthy(bench).nmse)
    done = len(wanted) - len(todo)
    for found in _probed(bench, todo, processes):
        append(journal, found)
        known[found.key] = found
        done += 1
        on_probe(found, done, len(wanted))
    return [known[entry.key] for entry in wanted]


def probes(bench: Bench) -> list[Probe]:
    """All perturbations, without results; keys say of what files, suite and server they are."""
    files: dict[Role, Path | None] = {"model": bench.setup.model, "vision": bench.setup.vision}
    suite, limits = load_suite(bench.suite)
    common: dict[str, object] = {
        "suite": sha256_file(bench.suite / SUITE),
        "limits": _judging(limits),
        "numbers": suite.numbers.sha256,
        "server": fingerprint([bench.setup.executable]),
        "quick": bench.quick,
        "run": [bench.setup.form, bench.setup.backend, bench.setup.cache, *bench.setup.flags],
        "files": {role: sha256_file(file) for role, file in files.items() if file},
    }
    found = []
    for role, file in files.items():
        block = draft_block(layout(file)) if file and limits.drafts else ""
        for spoil in spoils(file) if file else ():
            own = {"role": role, "target": spoil.target, "kind": spoil.kind}
            drafts = bool(block) and spoil.target.startswith(block)
            asked = {"drafts": ONE_IN} if drafts else {}
            found.append(
                Probe(
                    key=digest_of({**common, **own, **asked})[:24],
                    role=role,
                    target=spoil.target,
                    kind=spoil.kind,
                    detail=spoil.detail,
                    drafts=drafts,
                )
            )
    return found


def _judging(limits: Limits) -> dict[str, object]:
    """What of limits decides; a reason that is written better changes no finding."""
    found: dict[str, object] = msgspec.to_builtins(limits)
    for entries in found.values():
        for entry in entries if isinstance(entries, list | tuple) else ():
            entry.pop("reason", None)
    return found


def _healthy(bench: Bench) -> Probe:
    """The untouched files; nothing can be said of perturbations where these already fail."""
    try:
        found = Worker(bench).healthy()
    finally:
        _clear(bench.workdir)
    if found.noticed:
        raise CanaryError(
            "the healthy canary does not pass its own suite on this server",
            problems=[found.refused] if found.refused else [f"{g} failed" for g in found.failed],
            next_step="run the canary itself first, and audit once it passes",
        )
    return found


def _probed(bench: Bench, todo: list[Probe], processes: int) -> Iterable[Probe]:
    if not todo:
        return
    # Fresh processes: a copy of this one would take along its threads' locks and its terminal.
    pool = ProcessPoolExecutor(
        min(processes, len(todo)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=prepare,
        initargs=(bench,),
    )
    try:
        jobs: list[Future[Probe]] = [pool.submit(probe, entry) for entry in todo]
        for job in as_completed(jobs):
            yield job.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        _clear(bench.workdir)


def _clear(workdir: Path) -> None:
    for folder in workdir.glob("worker-*"):
        shutil.rmtree(folder, ignore_errors=True)
