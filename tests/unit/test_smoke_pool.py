"""Which units of a plan run when, and what each is told of those before it."""

from __future__ import annotations

import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparkbuild import smoke_pool
from sparkbuild.canary.catalogue import DATA, Canary, load_catalogue
from sparkbuild.canary.forms import Programs
from sparkbuild.canary.model import CanaryReport, Item
from sparkbuild.canary_desk import Desk
from sparkbuild.errors import HostError
from sparkbuild.llama.log import LogReport
from sparkbuild.report.canaries import Result
from sparkbuild.smoke_pool import Unit, _ended, _Kept, _ready, worked

DESK = Desk(
    data=Path("/d"), root=Path("/r"), live=_Kept(), label="so",
    programs=Programs(server=Path("/s"), quantiser=Path("/q")),
)  # fmt: skip
CANARY = Canary(
    name="toy", architecture="toy", summary="x", model="m", suite="s", files=(), drafts=True
)


def unit(part: int, *forms: Any, drafts: bool = False) -> Unit:
    return Unit(part=part, desk=DESK, entry=CANARY, forms=forms, drafts=drafts)


def test_drafts_wait_for_the_forms_of_their_part_and_for_nothing_else() -> None:
    f16, q8, drafts, other = unit(0, "f16"), unit(0, "q8_0"), unit(0, drafts=True), unit(1, "f16")
    assert _ready([f16, q8, drafts, other], []) == [f16, q8, other]
    assert _ready([drafts, other], [q8]) == [other]
    assert _ready([drafts], [other]) == [drafts]
    assert (f16.name, drafts.name) == ("toy f16, so", "toy drafts, so")


def test_drafts_are_told_what_was_missed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[tuple[str, ...], bool, frozenset[str]]] = []

    def run(
        desk: Desk, entry: Canary, forms: tuple[str, ...], *, drafts: bool, missed: frozenset[str]
    ) -> Result:
        del desk
        asked.append((forms, drafts, missed))
        item = Item(name="lost", group="w", passed=False, expected="a", found="b", seconds=0)
        report = CanaryReport(
            canary=entry.name, form="f16", backend="cpu", cache="f16", load_seconds=0, seconds=0,
            items=(item,), groups=(), log=LogReport(lines=1),
        )  # fmt: skip
        return Result(canary=entry.name, ran=() if drafts else (report,))

    monkeypatch.setattr(smoke_pool, "run_canary", run)
    units = [unit(0, drafts=True), unit(0, "f16"), unit(1, drafts=True)]
    found = [one for one, _ in worked(units, at_once=1, live=_Kept())]
    assert [one.part for one in found] == [0, 0, 1]
    assert asked == [
        (("f16",), False, frozenset()),
        ((), True, frozenset({"lost"})),
        ((), True, frozenset()),
    ]


def test_a_process_that_was_killed_is_no_finding_about_the_build() -> None:
    future: Future[Any] = Future()
    future.set_exception(BrokenProcessPool("gone"))
    with pytest.raises(HostError, match="while toy f16, so and others were asked"):
        _ended(future, unit(0, "f16"))


def test_there_is_a_process_for_each_core_that_has_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    class Memory:
        available = 5 << 30

    monkeypatch.setattr("psutil.virtual_memory", lambda: Memory)
    for cores, wanted in ((1, 1), (2, 2), (64, 2)):
        monkeypatch.setattr(smoke_pool, "usable_cores", lambda cores=cores: cores)
        assert smoke_pool.processes() == wanted
    Memory.available = 1 << 40
    assert smoke_pool.processes() == 8


def test_who_wants_no_more_ends_what_still_runs(tmp_path: Path) -> None:
    hanging = tmp_path / "llama-server"
    hanging.write_text("#!/bin/sh\nexec sleep 97.531\n")
    hanging.chmod(0o755)
    entry = load_catalogue(DATA).canary("llama")

    def asked(server: Path, root: str) -> Unit:
        desk = Desk(
            data=DATA, root=tmp_path / root, live=_Kept(), held=True,
            programs=Programs(server=server, quantiser=server),
        )  # fmt: skip
        (desk.root / "llama").mkdir(parents=True)
        return Unit(part=0, desk=desk, entry=entry, forms=("q8_0",))

    units = [asked(hanging, "hangs"), asked(Path("/bin/false"), "fails")]
    asking = worked(units, at_once=2, live=_Kept())
    unit, result = next(asking)
    assert unit is units[1]
    assert result.failures
    waited = time.monotonic()
    while not _sleeping():  # the other server is up by now, or about to be
        assert time.monotonic() - waited < 60
        time.sleep(0.05)
    asking.close()
    assert time.monotonic() - waited < 60
    assert not _sleeping()


def _sleeping() -> list[psutil.Process]:
    found = psutil.process_iter(["cmdline"])
    return [one for one in found if "97.531" in (one.info["cmdline"] or ())]
