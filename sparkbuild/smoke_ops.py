"""``sparkbuild smoke --suite ops``: upstream's operator tests, for what a model really uses."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import msgspec

from sparkbuild import process
from sparkbuild.canary.catalogue import Catalogue
from sparkbuild.canary.forms import possible
from sparkbuild.canary.gguf.typemap import load_map
from sparkbuild.canary_desk import Desk
from sparkbuild.errors import HostError, ManifestError
from sparkbuild.files import sha256_file
from sparkbuild.manifest import Recipes
from sparkbuild.model.read import read_model
from sparkbuild.model.types import BY_NAME
from sparkbuild.report.model import StageReport
from sparkbuild.report.ops import BAD, OpGroup, OpsReport, Wrong
from sparkbuild.smoke.ops.ask import Answers, Asked, ask, ask_again, batches, resolve
from sparkbuild.smoke.ops.console import Case
from sparkbuild.smoke.ops.need import Need, need_of, together
from sparkbuild.smoke.ops.session import Ran, Session
from sparkbuild.smoke.ops.suite import SUITE, Question, Suite, load_suite
from sparkbuild.smoke_ops_program import NAME, Program, program_for
from sparkbuild.smoke_ops_tally import crash_of, groups_of
from sparkbuild.workspace import Workspace

SUITE_NAME: Final = "ops"
_DEVICES: Final = {"cpu": "CPU", "cuda": "CUDA0"}
_STAGE: Final = "operators"
_KEPT: Final = 20
"""Wrong cases of a group in the report; all are in the log."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What upstream's program knows: names of operators, its cases in their order."""

    names: frozenset[str]
    order: tuple[tuple[str, str], ...]

    @property
    def cases(self) -> dict[str, list[str]]:
        """Parameters by operator."""
        found: dict[str, list[str]] = {}
        for op, parameters in self.order:
            found.setdefault(op, []).append(parameters)
        return found


def run_ops(
    desk: Desk,
    work: Workspace,
    recipes: Recipes,
    need: Need,
    *,
    models: Sequence[Path],
    file: Path = SUITE,
    wheel: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> OpsReport:
    """Every question of the suite that concerns the models, on the desk's back end.

    ``wheel`` is what the build was unpacked from, where it was; ``environment`` is added to that
    of the program. Only the main thread may call this. Raises
    ManifestError where the suite names an operator that the build does not have, HostError where
    the device is not there, SmokeError where memory ends it, and what ``program_for`` raises.
    """
    suite, began = load_suite(file), time.monotonic()
    desk.live.started(_STAGE)
    program = program_for(desk.programs.server, work, recipes, desk.live)
    desk.live.started(_STAGE)  # it may have been compiled
    session = _session(program, suite, work, desk.backend, environment or {})
    device = _DEVICES[desk.backend]
    listing = _listing(session, device)
    questions = suite.asked(need.architectures, desk.backend)
    _check(questions, listing, file)
    asked = resolve(questions, need, listing.cases, desk.backend)
    answers = _answered(asked, device, session, suite, listing, desk)
    groups = tuple(
        group for one in asked for group in groups_of(one, answers, cpu=desk.backend == "cpu")
    )
    wrong = [one.name for one in groups if one.failed]
    return _ended(
        desk,
        OpsReport(
            suite=suite.name,
            suite_sha256=sha256_file(file),
            backend=desk.backend,
            device=device,
            build=program.version,
            program=str(program.path),
            witness=program.witness,
            models=tuple(map(str, models)),
            architectures=tuple(sorted(need.architectures)),
            unknown=tuple(sorted(need.architectures - set(suite.architectures))),
            groups=groups,
            crashes=tuple(crash_of(one, suite) for one in answers.crashes),
            near=tuple(Wrong(case=name, told=one.told) for name, one in answers.near.items()),
            stopped=answers.stopped,
            likely=suite.likely_wrong(wrong) if wrong else (),
            next_step=_next_step(groups, answers, program, device, wheel),
            logs=str(session.log.parent),
            seconds=round(time.monotonic() - began, 3),
        ),
    )


def need_of_models(paths: Iterable[Path]) -> Need:
    """What models ask for, and their vision towers, with every type of cache that is served."""
    return together((need_of(read_model(path)) for path in paths), cache=load_suite().cache.types)


def need_of_canaries(data: Path, catalogue: Catalogue) -> tuple[Need, list[Path]]:
    """What all canaries ask for in all their forms, and their files."""
    needs, paths = [], []
    for entry in catalogue.canaries:
        model = read_model(data / entry.model)
        forms = possible(entry)
        plain_types = {form for form in forms if form in {"f32", "f16", "bf16"}}
        mixed = load_map() if "mix" in forms else None
        also = {
            name: {*plain_types, *({_name(mixed.of(name))} if mixed else set())}
            for name, tensor in model.tensors.items()
            if tensor.type == "q8_0"
        }
        needs.append(need_of(model, also=also))
        paths.append(data / entry.model)
        if entry.vision:
            needs.append(need_of(read_model(data / entry.vision)))
            paths.append(data / entry.vision)
    return together(needs, cache=load_suite().cache.types), paths


def _name(kind: str) -> str:
    """A type as ggml spells it: ``q5_K`` for ``q5_k``."""
    return next(name for name in BY_NAME if name.lower() == kind.lower())


def _session(
    program: Program, suite: Suite, work: Workspace, backend: str, environment: Mapping[str, str]
) -> Session:
    """How the program is run; logs of an earlier run are removed."""
    log = work.root / SUITE_NAME / "logs" / f"{backend}.log"
    for old in log.parent.glob(f"{log.stem}-*.log"):
        old.unlink(missing_ok=True)
    return Session(
        program=program.path,
        environment={**program.environment, **environment},
        log=log,
        silence=suite.limits.silence.limit,
        deadline=time.monotonic() + suite.limits.whole.limit,
    )


def _listing(session: Session, device: str) -> Listing:
    """What the program knows, and whether it sees the device."""
    argv = [str(session.program), "--list-ops"]
    told = process.capture(argv, env=session.environment, cwd=Path("/"))
    names = {line.strip() for line in told.stdout.splitlines() if line.startswith("  ")}
    order: list[tuple[str, str]] = []
    ran = session.run(
        ("support", "-b", device), lambda case: order.append((case.op, case.parameters))
    )
    if device not in ran.devices or ran.crash is not None:
        printed = ran.crash.printed if ran.crash else ()
        raise HostError(
            f"{NAME} does not see the device {device}",
            problems=[
                f"expected {device}, found {', '.join(ran.devices) or 'none'}",
                *([f"it ended before its end: {ran.crash.kind}"] if ran.crash else []),
            ],
            evidence=[session.log.parent],
            next_step="run on a machine with a GPU and with a CUDA build, or --backend cpu",
            detail="\n".join(printed),
        )
    return Listing(names=frozenset(names) | {op for op, _ in order}, order=tuple(order))


def _check(questions: Sequence[Question], listing: Listing, file: Path) -> None:
    """Refuse operators that the build does not have: a typing error would pass for a test."""
    names = sorted(listing.names)
    lacking = [one.op for one in questions if not one.fused and one.op not in listing.names]
    if lacking:
        problems = []
        for op in lacking:
            near = difflib.get_close_matches(op, names, n=3)
            problems.append(f"{op}: no such operator; near: {', '.join(near) or 'none'}")
        raise ManifestError(
            "the operator suite asks for what this build does not have",
            problems=[*problems, f"this build has {', '.join(names)}"],
            evidence=[file],
            next_step=f"correct {file}, or test a build that has them",
        )


def _answered(
    asked: Sequence[Asked],
    device: str,
    session: Session,
    suite: Suite,
    listing: Listing,
    desk: Desk,
) -> Answers:
    """All batches, one after another, with what goes on shown."""
    answers, total, shown = Answers(), sum(len(one.planned) for one in asked), set[str]()
    wrong = 0

    def told(case: Case) -> None:
        nonlocal wrong
        shown.add(case.name)
        if case.state == "fail":
            wrong += 1
            desk.live.note(f"wrong: {case.op} {case.told}")
        desk.live.progress(min(len(shown), total), total, f"{case.op}, {wrong} wrong")

    def run(arguments: tuple[str, ...]) -> Ran:
        ran = session.run(arguments, told)
        if ran.crash and not ran.crash.over:
            desk.live.note(f"the process ended: {ran.crash.kind} {ran.crash.message}")
        return ran

    most = int(suite.limits.crashes.limit)
    for batch in batches(asked).values():
        if answers.stopped:
            break
        ask(batch, device, run, crashes=most, answers=answers, order=listing.order)
    ask_again(device, run, near=suite.limits.near.limit, answers=answers)
    return answers


def _next_step(
    groups: Sequence[OpGroup],
    answers: Answers,
    program: Program,
    device: str,
    wheel: Path | None,
) -> str:
    """The command that shows the first fault again."""
    cases = [one.case for one in answers.crashes if one.case]
    cases += [wrong.case for group in groups for wrong in group.wrong[:1]]
    if cases:
        place = f"unpack {wheel.name} to DIR and " if wheel else ""
        folder = f"DIR/.../{program.libraries.name}" if wheel else program.libraries
        argv = ["env", f"LD_LIBRARY_PATH={folder}", str(program.path), "-b", device, "-o", cases[0]]
        return f"{place}see it again: {process.quoted(argv)}; do not use these binaries"
    if answers.stopped:
        return "run the same command again on a machine with less to do"
    if not any(group.passed for group in groups):
        return "run it with a GPU: --backend cuda"
    return ""


def _ended(desk: Desk, report: OpsReport) -> OpsReport:
    bad = sum(group.state in BAD for group in report.groups)
    summary = f"{report.compared} cases compared, {len(report.groups)} groups, {bad} not well"
    desk.live.finished(
        StageReport(
            name=_STAGE,
            state="failed" if report.exit_code else "done",
            seconds=report.seconds,
            summary=summary,
        )
    )
    return report


def ops_answer(found: OpsReport) -> dict[str, object]:
    """Everything, for ``--json``."""
    facts = cast("dict[str, object]", msgspec.to_builtins(found))
    code = found.exit_code
    state = "failed" if code else "passed"
    return {"result": state, "exit_code": code, "told": found.result, **facts}
