"""Whole nights with the answers of real runs: what is asked, what is concluded, what survives."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import shutil
import signal
import subprocess  # noqa: TID251 - a night that is killed
import sys
import time
from pathlib import Path

import msgspec
import pytest

from sparkbuild.errors import BusyError, DiskFullError
from sparkbuild.files import exclusive
from sparkbuild.nightly.alarm import standing
from sparkbuild.nightly.model import Outcome
from sparkbuild.nightly_step import run_step
from sparkbuild.workspace import Workspace

from .conftest import PLAN, Nights, git

FAILED = {"answer": "runs/vision-cuda-13.0-121a-on-sm90.json", "code": 14}
REFUSED = {"answer": "refused-disk-full.json", "code": 17}


def states(nights: Nights, night: str) -> dict[str, str]:
    runs = nights.kept.runs(night=night)
    return {run.id.removeprefix(f"{night}-"): run.state for run in runs}


def test_a_green_night_builds_both_bases_and_publishes_the_control(nights: Nights) -> None:
    nights.release("b101", hours=10)
    nights.release("b102", hours=1)  # too young
    ended = nights.run()
    night = ended.night
    assert (night.state, night.blame, night.base, night.candidate) == (
        "green", "nothing", "b100", "b101",
    )  # fmt: skip
    makes = [line for line in nights.calls if line.startswith("make")]
    assert [("recipes" in line, "/nightly/" in line.partition("--recipes")[2]) for line in makes]
    assert sum("--recipes " + str(nights.root / "recipes") in line for line in makes) == 2
    (index,) = [line for line in nights.calls if line.startswith("wheel index")]
    assert index.count("--add") == 2
    assert len(night.published) == 2
    kept = nights.kept
    assert [one.state for one in kept.nights()] == ["green"]
    runs = kept.runs(night=night.id)
    assert {run.state for run in runs} == {"passed"}
    assert {run.role for run in runs} == {"control", "candidate"}
    made = [run for run in runs if run.what == "make" and run.variant == "vision"]
    assert {run.base for run in made} == {"b100", "b101"}
    figures = {one.name for one in made[0].figures}
    assert {"build.seconds", "wheel.bytes"} <= figures
    assert all((kept.root / run.report).is_file() for run in made)
    table = (ended.folder / "recipes" / "patchsets" / "bases.toml").read_text()
    assert "b101" in table
    assert git(nights.upstream, "rev-parse", "b101") in table


def test_nothing_newer_is_no_failure(nights: Nights) -> None:
    ended = nights.run()
    assert ended.night.state == "green"
    assert "no newer base" in ended.night.reason
    assert not any(line.startswith("patch") for line in nights.calls)


def test_the_control_failing_is_never_upstreams_fault(nights: Nights) -> None:
    nights.release("b101", hours=10)
    nights.scenario({"when": ["make"], **FAILED})
    night = nights.run().night
    assert (night.state, night.blame) == ("red", "machine")
    assert "smoke" in night.reason
    assert night.published == ()
    assert not any(line.startswith("wheel index") for line in nights.calls)


def test_only_the_newer_base_failing_is_upstreams(nights: Nights) -> None:
    nights.release("b101", hours=10)
    once = [{"when": ["make", "--variant", name], "times": 1} for name in ("vision", "vision-mtp")]
    nights.scenario(*once, {"when": ["make"], **FAILED})
    ended = nights.run()
    assert (ended.night.state, ended.night.blame) == ("red", "upstream")
    assert len(ended.night.published) == 2  # the pinned base is whole all the same


def test_only_patched_variants_failing_is_the_patches_fault(nights: Nights) -> None:
    nights.release("b101", hours=10)
    nights.scenario(
        {"when": ["make", "vision-mtp"], "times": 1}, {"when": ["make", "vision-mtp"], **FAILED}
    )
    assert nights.run().night.blame == "patches"


def test_a_conflict_is_told_with_its_hunk_and_leaves_the_worktree(nights: Nights) -> None:
    nights.release("b101", hours=10)
    nights.scenario(
        {"when": ["check", "vision-mtp"], "answer": "patches-vision-mtp-b11401.json", "code": 8},
        {"when": ["refresh", "vision-mtp"], "answer": "refresh-vision-mtp-b11401.json", "code": 8},
    )
    night = nights.run().night
    assert (night.state, night.blame) == ("red", "patches")
    assert "0008-draft-positions.patch" in night.reason
    assert "hunk" in night.reason
    after = states(nights, night.id)
    assert after["candidate_make_vision-mtp_cpu"] == "did not run"
    assert after["candidate_make_vision_cpu"] == "passed"


def test_a_fault_of_the_machine_is_tried_once_more_and_said(nights: Nights) -> None:
    nights.scenario({"when": ["make", "vision"], "times": 1, **REFUSED})
    ended = nights.run()
    assert ended.night.state == "green"
    run = next(one for one in ended.runs if one.variant == "vision")
    assert "tried twice" in run.message


def test_a_disk_that_stays_full_is_a_red_night_of_the_machine(nights: Nights) -> None:
    nights.scenario({"when": ["make"], **REFUSED})
    ended = nights.run()
    assert (ended.night.state, ended.night.blame) == ("red", "machine")
    assert sum(line.startswith("make") for line in nights.calls) == 4


def test_a_wrong_answer_is_never_tried_again(nights: Nights) -> None:
    nights.scenario({"when": ["make", "vision"], "times": 1, **FAILED})
    assert nights.run().night.state == "red"
    assert sum(line.startswith("make") for line in nights.calls) == 2


def test_no_room_on_the_disk_is_said_before_anything_is_built(nights: Nights) -> None:
    nights.plan(PLAN.replace("free_gigabytes = 0", "free_gigabytes = 1e9"))
    night = nights.run().night
    assert (night.state, night.blame) == ("red", "machine")
    assert "GB are free" in night.reason
    assert not any(line.startswith("make") for line in nights.calls)


def test_a_command_without_end_is_ended(nights: Nights) -> None:
    nights.plan(PLAN.replace("[publish]", "make_minutes = 0.01\n[publish]"))
    nights.scenario({"when": ["make", "vision"], "sleep": 60})
    started = time.monotonic()
    night = nights.run().night
    assert time.monotonic() - started < 30
    assert (night.state, night.blame) == ("red", "machine")
    assert states(nights, night.id)["control_make_vision_cpu"] == "timed out"


def test_a_cancelled_command_is_a_failure(nights: Nights) -> None:
    nights.scenario({"when": ["make", "vision"], "answer": "nothing", "code": 130})
    night = nights.run().night
    assert states(nights, night.id)["control_make_vision_cpu"] == "cancelled"
    assert night.state == "red"


@pytest.mark.parametrize("noise", ["", "Traceback", "{\n"])
def test_a_zero_without_a_document_is_a_failure(nights: Nights, noise: str) -> None:
    nights.scenario({"when": ["make", "vision"], "answer": "nothing", "noise": noise})
    assert nights.run().night.state == "red"


def test_a_network_that_is_gone_leaves_the_control(nights: Nights) -> None:
    shutil.move(nights.upstream, nights.root / "elsewhere")
    ended = nights.run()
    assert (ended.night.state, ended.night.blame) == ("red", "machine")
    assert "upstream does not answer" in ended.night.reason
    assert states(nights, ended.night.id)["control_make_vision_cpu"] == "passed"
    assert states(nights, ended.night.id)["candidate_make_vision_cpu"] == "did not run"


def test_a_tag_that_moved_is_refused_and_told(nights: Nights) -> None:
    nights.release("b101", hours=20)
    first = git(nights.upstream, "rev-parse", "b101")
    assert nights.run().night.candidate == "b101"
    (nights.upstream / "a").write_text("other")
    git(nights.upstream, "commit", "--quiet", "-a", "-m", "other", when=time.time() - 40_000)
    git(nights.upstream, "tag", "--force", "b101")
    for _ in range(2):  # it stays refused: the commit that was seen first is what counts
        night = nights.run().night
        assert night.candidate == ""
        (told,) = [text for text in night.notes if "moved" in text]
        assert first in told


def test_two_nightlies_at_once_the_second_says_so(nights: Nights) -> None:
    with exclusive(nights.root / "lock", what="x"), pytest.raises(BusyError) as caught:
        nights.run()
    assert "nightly of this machine" in caught.value.message
    assert not nights.calls


def test_a_night_is_killed_anywhere_and_goes_on(nights: Nights, tmp_path: Path) -> None:
    """SIGKILL at every step in turn: what had ended is not run again, and the night is green."""
    nights.release("b101", hours=10)
    nights.scenario()
    nights.run()
    total = len(nights.calls)
    shutil.rmtree(nights.history)
    nights.scenario()
    script = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[2])\n"
        "from conftest import Nights\n"
        "Nights(Path(sys.argv[1])).run()\n"
    )
    here = str(Path(__file__).parent)
    for number in range(1, total + 1):
        child = subprocess.Popen([sys.executable, "-c", script, str(tmp_path), here], cwd=here)
        while child.poll() is None and len(nights.calls) < number:
            time.sleep(0.005)
        child.send_signal(signal.SIGKILL)
        child.wait()
        time.sleep(0.3)  # its command ends with it
    ended = nights.run()
    assert ended.night.state == "green"
    assert [one.state for one in nights.kept.nights()] == ["green"]
    assert len(nights.kept.runs(night=ended.night.id)) == 10
    assert len(nights.calls) <= 2 * total + 4


def test_a_night_that_is_interrupted_goes_on(nights: Nights) -> None:
    nights.scenario({"when": ["make", "vision-mtp"], "times": 1, "sleep": 60})
    script = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[2])\n"
        "from conftest import Nights\n"
        "Nights(Path(sys.argv[1])).run()\n"
    )
    here = str(Path(__file__).parent)
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(nights.root), here], cwd=here, stderr=subprocess.DEVNULL
    )
    while len(nights.calls) < 2:
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGINT)
    assert child.wait() != 0
    assert nights.kept.nights()[0].state == "running"
    ended = nights.run()
    assert ended.night.state == "green"
    assert sum("make --variant vision " in line for line in nights.calls) == 1
    assert sum("vision-mtp" in line for line in nights.calls if line.startswith("make")) == 2


def test_a_runner_back_after_a_week_closes_the_old_night_and_begins_anew(nights: Nights) -> None:
    first = nights.run().night
    old = msgspec.structs.replace(
        first, state="running", ended=None,
        started=(dt.datetime.now(dt.UTC) - dt.timedelta(days=7)).isoformat(timespec="seconds"),
    )  # fmt: skip
    nights.kept.night(old)
    now = dt.datetime.now(dt.UTC)
    assert standing(nights.kept.nights(), now=now, limit_hours=50).alarm
    second = nights.run().night
    closed = next(one for one in nights.kept.nights() if one.id == first.id)
    assert (closed.state, closed.blame) == ("red", "machine")
    assert second.id != first.id
    assert second.state == "green"
    assert any("not gone on with" in text for text in second.notes)
    assert not standing(nights.kept.nights(), now=now, limit_hours=50).alarm


def test_a_night_from_the_future_is_said(nights: Nights) -> None:
    first = nights.run().night
    to_come = (dt.datetime.now(dt.UTC) + dt.timedelta(days=2)).isoformat(timespec="seconds")
    nights.kept.night(msgspec.structs.replace(first, started=to_come, ended=to_come))
    second = nights.run().night
    assert any("to come" in text for text in second.notes)
    found = standing(nights.kept.nights(), now=dt.datetime.now(dt.UTC), limit_hours=50)
    assert any("to come" in text for text in found.alarm)


def test_a_clock_that_jumps_changes_no_duration(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, jump = time.time, [0.0]
    monkeypatch.setattr("sparkbuild.nightly_work.time.time", lambda: real() + jump[0])

    def jumping(*arguments: object, **named: object) -> Outcome:
        jump[0] += 86_400.0
        return run_step(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("sparkbuild.nightly_work.run_step", jumping)
    night = nights.run().night
    assert any("clock jumped by 86400 s" in text for text in night.notes)
    assert all(run.seconds < 60 for run in nights.kept.runs(night=night.id))


def test_a_damaged_history_is_copied_aside_and_the_night_runs(nights: Nights) -> None:
    nights.run()
    (nights.history / "history.sqlite").write_bytes(b"no database" * 1000)
    night = nights.run().night
    assert night.state == "green"
    assert any("damaged" in text for text in night.notes)
    assert len(nights.kept.nights()) == 2


def test_a_fault_is_opened_once_updated_and_closed(nights: Nights) -> None:
    nights.scenario({"when": ["make", "vision-mtp"], **FAILED})
    nights.run()
    nights.run()
    (trouble,) = nights.kept.troubles()
    assert len(trouble.nights) == 2
    (file,) = (nights.history / "troubles").glob("*.md")
    assert "state: open" in file.read_text()
    nights.scenario()
    nights.run()
    (cured,) = nights.kept.troubles()
    assert cured.closed
    assert cured.opened == trouble.opened
    assert "state: closed" in file.read_text()
    nights.scenario({"when": ["make", "vision-mtp"], **FAILED})
    nights.run()
    (again,) = nights.kept.troubles()
    assert again.closed is None
    assert again.opened == trouble.opened


def test_what_a_night_built_is_built_anew_the_next_night(nights: Nights) -> None:
    first = nights.run()
    run = next(one for one in first.runs if one.variant == "vision")
    build = Workspace(nights.root / "work").build(run.variant, run.toolchain, run.key).root
    other = build.with_name("vision-cpu-of-somebody-else")
    for folder in (build, other):
        folder.mkdir(parents=True)
    nights.run()
    assert not build.exists()
    assert other.exists()


def test_one_slow_night_is_a_note_and_a_second_one_a_fault(nights: Nights) -> None:
    """Seconds of a build are the recorded ones; the newer base's are made longer."""
    nights.release("b101", hours=10)
    for number in range(8):
        nights.scenario({"when": ["make"], "seconds": 150 + number % 3})
        assert nights.run().night.state == "green"
    slow = {"when": ["make", f"{nights.root}/recipes"], "seconds": 151}
    nights.scenario(slow, {"when": ["make"], "seconds": 400})
    one = nights.run().night
    assert one.state == "green", one.reason
    assert any("build.seconds" in text for text in one.notes)
    two = nights.run().night
    assert (two.state, two.blame) == ("red", "upstream")
    assert "build.seconds" in two.reason
    assert [x.title for x in nights.kept.troubles()]


def test_each_fault_of_a_night_points_to_its_own_cause(nights: Nights) -> None:
    shutil.move(nights.upstream, nights.root / "elsewhere")
    refused = {"answer": "refused-disk-full.json", "code": 9}
    nights.scenario({"when": ["make", "vision-mtp"], **refused})
    assert nights.run().night.blame == "toolkit"
    found = {one.cell: one.blame for one in nights.kept.troubles()}
    assert found == {"control_make_vision-mtp_cpu": "toolkit", "upstream": "machine"}


def test_what_another_plan_left_is_not_gone_on_with(nights: Nights) -> None:
    first = nights.run().night
    nights.kept.night(msgspec.structs.replace(first, state="running", ended=None))
    nights.plan(PLAN.replace("toy", "another"))
    assert nights.run().night.id != first.id


def test_the_newest_folders_of_nights_stay(nights: Nights) -> None:
    nights.plan(PLAN.replace("[publish]", "keep_nights = 2\n[publish]"))
    for _ in range(3):
        nights.run()
        time.sleep(1.01)  # a night's name counts seconds
    folders = [one for one in (nights.history / "nightly").iterdir() if one.is_dir()]
    assert len(folders) == 2
    assert len(nights.kept.nights()) == 3


def test_a_disk_that_fills_in_the_middle_leaves_a_night_to_go_on_with(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object, **named: object) -> None:
        raise DiskFullError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr("sparkbuild.nightly_work.keep", full)
        with pytest.raises(DiskFullError):
            nights.run()
    ended = nights.run()
    assert ended.night.state == "green"
    assert sum(line.startswith("make") for line in nights.calls) == 2
    assert [one.state for one in nights.kept.nights()] == ["green"]


def test_the_order_is_frozen(nights: Nights) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        nights.order().pause = 1.0  # type: ignore[misc]
    assert json.loads((nights.root / "scenario.json").read_text()) == []
