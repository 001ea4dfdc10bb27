"""A history of seven weeks: real reports of a make, its smoke and a fault matrix, nights around."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from sparkbuild.history.figures import figures_of
from sparkbuild.history.model import Figure, Night, Role, Run, Trouble, What
from sparkbuild.history.store import History

DATA = Path(__file__).parent.parent.parent / "data" / "history"
BEGAN = datetime(2026, 10, 5, 1, 30, tzinfo=UTC)
NIGHTS = 49
NO_NIGHT = {17, 18}
REPINNED = 24
"""From this night on, the control is the newer base."""
BROKEN = 44
"""The candidate's make fails in this night and the one after."""
SLOW_BUILD = 47
"""The candidate's build is a tenth slower from this night on."""
SECOND = BEGAN + timedelta(days=34)
"""From then on there is a second variant."""
WORDS = "<b>warning</b> \x1b[31mllama_decode returned -1\x1b[0m </pre><script>alert(1)</script>"


def figure(value: float, *, name: str = "build.seconds", restart: int = 0) -> Figure:
    return Figure(name=name, value=value, unit="s", more_is="worse", restart=restart)


def run_of(id_: str, **more: object) -> Run:
    """A run of which only what a test is about need be said."""
    given: dict[str, object] = {
        "night": None, "what": "make", "role": "control", "variant": "vision", "toolchain": "cpu",
        "base": "b11434", "source": "0f834b00", "key": "6ac410c8", "seconds": 10.0,
        "started": "2026-11-01T01:00:00+00:00", "state": "passed", "exit_code": 0,
    }  # fmt: skip
    return msgspec.convert({"id": id_, **given, **more}, type=Run)


def fill(root: Path, *, nights: int = NIGHTS) -> History:
    """Write it: a re-pinned control, a night that is red, a slow candidate, two days without."""
    chance = random.Random(11434)  # noqa: S311 - the same every time
    history = History(root)
    make = (DATA / "make-vision-cpu.json").read_bytes()
    smoke = (DATA / "smoke-canary-cpu.json").read_bytes()
    measured = figures_of(make, smoke=smoke, wheel_bytes=6_700_000)
    for number in range(nights):
        if number in NO_NIGHT:
            continue
        began = BEGAN + timedelta(days=number, minutes=chance.randrange(20))
        id_ = f"{began:%Y%m%dT%H%M%SZ}"
        base, newer = (
            ("b11401", "b11434") if number < REPINNED else ("b11434", f"b{11440 + number}")
        )
        machine = chance.gauss(1.0, 0.01)
        broken = number in {BROKEN, BROKEN + 1}
        _make(history, id_, began, "control", base, make, _noisy(measured, chance, machine))
        later = began + timedelta(minutes=35)
        if broken:
            _broken(history, id_, later, newer, make)
        else:
            slow = 1.1 if number >= SLOW_BUILD else 1.0
            noisy = _noisy(measured, chance, machine, slow=slow)
            _make(history, id_, later, "candidate", newer, make, noisy)
        if number == nights - 1:
            _faults(history, id_, later, base)
        history.night(
            Night(
                id=id_,
                started=began.isoformat(),
                ended=(began + timedelta(hours=2)).isoformat(),
                plan="5f0c",
                state="red" if broken else "green",
                blame="upstream" if broken else "nothing",
                reason="the control passed, the newer base fails at smoke"
                if broken
                else "4 steps passed",
                base=base,
                candidate=newer,
                published=() if broken else ("sparkbuild_llama_cpp-11434.0.0.whl",),
            )
        )
    _troubles(history)
    return history


def _noisy(
    measured: tuple[Figure, ...], chance: random.Random, machine: float, *, slow: float = 1.0
) -> tuple[Figure, ...]:
    made = []
    for one in measured:
        value = one.value
        if one.unit == "s":
            value *= machine * chance.gauss(1.0, 0.01)
        if one.name == "build.seconds":
            value *= slow
        made.append(msgspec.structs.replace(one, value=value))
    for restart in range(3):
        speed = 61.4 / machine * chance.gauss(1.0, 0.006)
        made.append(
            Figure(name="speed.plain", value=speed, unit="tokens/s", more_is="better",
                   restart=restart)
        )  # fmt: skip
    return tuple(made)


def _make(
    history: History,
    night: str,
    began: datetime,
    role: Role,
    base: str,
    report: bytes,
    figures: tuple[Figure, ...],
) -> None:
    cells = [("vision", "cpu"), *([("vision-mtp", "cuda-13.0")] if began >= SECOND else [])]
    for variant, toolchain in cells:
        id_ = f"{night}-{role}-make-{variant}-{toolchain}"
        place, digest = history.keep_report(id_, report)
        log, _ = history.keep(id_, "make.log", f"$ sparkbuild make\n{WORDS}\n".encode())
        history.add(
            run_of(
                id_, night=night, role=role, base=base, variant=variant, toolchain=toolchain,
                started=began.isoformat(), seconds=1311.0, report=place, report_sha256=digest,
                evidence=(log,), figures=figures, machine={"gpu": "NVIDIA GB10"},
            )
        )  # fmt: skip


def _broken(history: History, night: str, began: datetime, base: str, report: bytes) -> None:
    id_ = f"{night}-candidate-make-vision-cpu"
    wrong = "drafts of 1: accepted 1 of 561, 0.2%, expected at least 90.0%"
    document = msgspec.json.decode(report)
    document.update(result="failed", exit_code=14, wheel=None)
    smoke = next(one for one in document["stages"] if one["name"] == "smoke")
    smoke.update(state="failed", failure={
        "title": "smoke", "exit_code": 14, "message": wrong, "problems": ["2 checks failed"],
        "next_step": "read the log", "detail": ""})  # fmt: skip
    document["stages"][-1].update(state="not reached", seconds=0.0)
    place, digest = history.keep_report(id_, msgspec.json.encode(document))
    log, _ = history.keep(id_, "smoke.log", f"first line\n{WORDS}\nlast line\n".encode())
    history.add(
        run_of(
            id_, night=night, role="candidate", base=base, started=began.isoformat(),
            seconds=1404.0, state="failed", exit_code=14, stage="smoke", check="qwen35 drafts",
            message=wrong, report=place, report_sha256=digest, evidence=(log,),
        )
    )  # fmt: skip


def _faults(history: History, night: str, began: datetime, base: str) -> None:
    what: What = "faults"
    id_ = f"{night}-control-faults"
    document = (DATA / "faults-cpu.json").read_bytes()
    place, digest = history.keep_report(id_, document)
    history.add(
        run_of(
            id_, night=night, what=what, base=base, variant="", toolchain="", report=place,
            started=began.isoformat(), seconds=900.0, report_sha256=digest,
            figures=figures_of(document),
        )
    )  # fmt: skip


def _troubles(history: History) -> None:
    failed = history.runs(state="failed")
    if not failed:
        return
    nights = tuple(run.night or "" for run in failed)
    closed = (BEGAN + timedelta(days=BROKEN + 2)).isoformat()
    for key, title, end in (
        ("k1", "make vision cpu: smoke qwen35 drafts (newer base)", closed),
        ("k2", "make vision cpu: build.seconds is larger on two nights (newer base)", None),
    ):
        history.trouble(
            Trouble(
                key=key, title=title, opened=failed[0].started, updated=failed[-1].started,
                closed=end, nights=nights, blame="upstream", first_run=failed[0].id,
                last_run=failed[-1].id, message=failed[0].message,
            )
        )  # fmt: skip


@pytest.fixture(scope="session")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Seven weeks, written once; tests only read it."""
    return fill(tmp_path_factory.mktemp("weeks") / "history")
