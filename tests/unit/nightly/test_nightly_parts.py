"""The plan, its steps, the choice of a release, the alarm, faults over nights, what is read."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.errors import ManifestError
from sparkbuild.history.model import Night, Run
from sparkbuild.nightly.alarm import standing
from sparkbuild.nightly.argv import Places, commands
from sparkbuild.nightly.model import Release
from sparkbuild.nightly.plan import read_plan
from sparkbuild.nightly.read import document_in, read
from sparkbuild.nightly.steps import steps
from sparkbuild.nightly.troubles import updated
from sparkbuild.nightly.upstream import choose, moved, numbered

DATA = Path(__file__).parents[2] / "data"
HOUR = 3600
NOW = dt.datetime(2026, 12, 1, 2, 0, tzinfo=dt.UTC)


def plan_file(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "plan.toml"
    file.write_text('schema = 1\nsummary = "s"\n' + text)
    return file


FULL = """
[upstream]
url = "https://example.org/x.git"
[[matrix]]
variant = "a"
toolkits = ["13.0", "cpu"]
[[matrix]]
variant = "b"
toolkits = ["13.0"]
roles = ["control"]
architectures = ["121a"]
[[models]]
name = "glm"
path = "m.gguf"
mmproj = "p.gguf"
variant = "a"
toolkit = "13.0"
[publish]
index = "index"
keys = ["team.pub"]
"""


def test_steps_come_after_what_they_need_and_the_control_comes_first(tmp_path: Path) -> None:
    found = steps(read_plan(plan_file(tmp_path, FULL)))
    names = [one.id for one in found]
    assert len(names) == len(set(names))
    for number, one in enumerate(found):
        assert set(one.needs) <= set(names[:number]), one.id
    assert "candidate:make:b:13.0-121a" not in names
    assert names.index("control:faults") < names.index("upstream")
    last = found[-1]
    assert last.id == "publish"
    assert "control:smoke:glm:a:13.0" in last.needs
    assert not any(name.startswith("candidate") for name in last.needs)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[matrix]]\nvariant = "a"\ntoolkits = ["x", "x"]', "more than once"),
        (FULL.replace('toolkit = "13.0"\n[publish]', 'toolkit = "12.9"\n[publish]'), "builds no"),
        ('[upstream]\nurl = "-x"', "dash"),
        ('[upstream]\nurl = "x"\ntags = "("', "no pattern"),
        ('[[matrix]]\nvariant = "a"\ntoolkits = []', "matrix"),
        ("[alarm]\ngood_night_hours = 0", "good_night_hours"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read_plan(plan_file(tmp_path, text))
    assert says in " ".join([caught.value.message, *caught.value.problems])


def test_commands_are_what_a_person_would_type(tmp_path: Path) -> None:
    plan = read_plan(plan_file(tmp_path, FULL))
    places = Places(
        night=Path("/n"), recipes=Path("/r"), renewed=Path("/n/recipes"), home=Path("/plan"),
        index_home=Path("/h"), work=Path("/w"), jobs=4, sign=(Path("/k.key"),), program=("sb",),
    )  # fmt: skip
    wheels = {"control:make:a:13.0": "/o/a.whl", "control:make:a:cpu": "/o/c.whl"}
    lines = {
        one.id: [" ".join(line) for line in commands(one, plan, places, "b7", wheels)]
        for one in steps(plan)
        if one.kind != "smoke" or one.role == "control"
    }
    (made,) = lines["control:make:b:13.0-121a"]
    assert made == (
        "sb make --variant b --toolkit 13.0 --arch 121a --out /n/out/control_make_b_13.0-121a "
        "--recipes /r --sign /k.key --jobs 4 --work /w --json"
    )
    assert "--recipes /n/recipes " in lines["candidate:make:a:cpu"][0]
    (checked,) = lines["candidate:patches:a"]
    assert checked == (
        "sb patch check --variant a --base b7 --build --recipes /n/recipes --jobs 4 --work /w "
        "--json"
    )
    assert lines["candidate:refresh:a"][1] == (
        "sb patch refresh --continue /n/refresh/a --work /w --json"
    )
    assert lines["control:smoke:glm:a:13.0"] == [
        "sb smoke /o/a.whl --model /plan/m.gguf --mmproj /plan/p.gguf --work /w --json"
    ]
    assert lines["publish"] == [
        "sb wheel index /h/index --add /o/a.whl --add /o/c.whl --key /plan/team.pub --json"
    ]
    assert lines["control:faults"] == ["sb faults run --fast --work /w --json"]


def release(build: int, hours: float) -> Release:
    time = int(NOW.timestamp() - hours * HOUR)
    return Release(tag=f"b{build}", build=build, commit="c", time=time)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.floats(-30, 30)), max_size=12),
    st.integers(0, 50),
    st.floats(0, 20),
    st.frozensets(st.integers(1, 50)),
)
def test_the_release_is_the_newest_that_may_be_taken(
    rows: list[tuple[int, float]], pinned: int, age: float, moved_builds: frozenset[int]
) -> None:
    releases = [release(build, hours) for build, hours in dict(rows).items()]
    found = choose(
        releases, pinned=pinned, now=NOW.timestamp(), minimum_age_hours=age,
        moved_tags=[f"b{one}" for one in moved_builds],
    )  # fmt: skip
    ready = [
        one
        for one in releases
        if one.build > pinned
        and one.build not in moved_builds
        and NOW.timestamp() - one.time >= age * HOUR
    ]
    assert (found.release is None) == (not ready)
    if found.release is not None:
        assert found.release.build == max(one.build for one in ready)
        assert found.release.tag not in found.future
    assert found.reason


def test_tags_are_sorted_by_number_and_others_left_out() -> None:
    tags = {"b9": "1", "b10": "2", "master-b11": "3", "b12x": "4", "gguf-v1": "5", "b\u0661": "6"}
    assert [tag for _, tag, _ in numbered(tags, "b([0-9]+)")] == ["b10", "b9"]


def test_a_tag_moved_where_its_commit_is_another() -> None:
    assert moved({"b1": "x", "b2": "y"}, {"b1": "x", "b2": "z"}) == {"b2": ("z", "y")}
    assert moved({"b3": "x"}, {}) == {}


def night(hours: float, state: Any = "green", **more: Any) -> Night:
    ended = (NOW - dt.timedelta(hours=hours)).isoformat(timespec="seconds")
    return Night(
        **{"id": f"n{hours}", "started": ended, "ended": ended, "plan": "", "state": state,
           "blame": "nothing", "reason": "r", "base": "b1", "candidate": "", **more}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("nights", "alarms"),
    [
        ([], ["nothing ever ran"]),
        ([night(1)], []),
        ([night(50)], []),
        ([night(50.1)], ["50.1 hours ago"]),
        ([night(60), night(1, "red")], ["60.0 hours ago"]),
        ([night(1, "red")], ["no good night"]),
        ([night(1, "running", ended=None)], ["no good night"]),
        ([night(-1)], ["to come", "no good night"]),
        ([night(-0.01)], []),
        ([night(2), night(-48)], ["to come"]),
    ],
)
def test_the_alarm(nights: list[Night], alarms: list[str]) -> None:
    found = standing(nights, now=NOW, limit_hours=50)
    assert len(found.alarm) == len(alarms)
    for text, said in zip(found.alarm, alarms, strict=True):
        assert said in text


def run(step: str, state: Any, night_id: str, check: str = "") -> Run:
    return Run(
        id=f"{night_id}-{step}", night=night_id, what="make", role="control", variant="v",
        toolchain="t", base="b1", source="", key="", started="", seconds=0, state=state,
        exit_code=None, stage="smoke" if state != "passed" else "", check=check,
    )  # fmt: skip


def test_a_fault_lives_from_its_first_failure_to_its_cure() -> None:
    (opened,) = updated([], [run("a", "failed", "n1")], night="n1", blames={}, now="1")
    (still,) = updated([opened], [run("a", "timed out", "n2")], night="n2", blames={},
                       now="2")  # fmt: skip
    assert (still.key, still.opened, still.nights) == (opened.key, "1", ("n1", "n2"))
    assert still.first_run == "n1-a"
    assert not updated([still], [run("b", "passed", "n3")], night="n3", blames={}, now="3")
    assert not updated([still], [], night="n3", blames={}, now="3")
    (cured,) = updated([still], [run("a", "passed", "n4")], night="n4", blames={}, now="4")
    assert cured.closed == "4"
    assert not updated([cured], [run("a", "passed", "n5")], night="n5", blames={}, now="5")
    (again,) = updated([cured], [run("a", "failed", "n6")], night="n6", blames={}, now="6")
    assert (again.closed, again.opened, again.key) == (None, "1", opened.key)


def test_another_check_of_the_same_step_is_another_fault() -> None:
    found = updated([], [run("a", "failed", "n1", "x")], night="n1", blames={}, now="1")
    both = updated(found, [run("a", "failed", "n2", "y")], night="n2", blames={}, now="2")
    assert len({one.key for one in (*found, *both)}) == 2
    assert all(one.closed is None for one in both)  # `a` did not pass: x may still be there


@given(st.text(max_size=200), st.dictionaries(st.text(max_size=5), st.integers()))
def test_a_document_is_found_among_other_lines(noise: str, document: dict[str, int]) -> None:
    text = noise + "\n" + json.dumps({"found": document}, indent=2) + "\nlater line\n"
    assert document_in(text) == {"found": document}


@pytest.mark.parametrize("text", ["", "{", "{\n", "[]", '{\n "a": 1', "Traceback {\n"])
def test_no_document_is_none(text: str) -> None:
    assert document_in(text) is None


def told(name: str, kind: Any) -> Any:
    return read(kind, json.loads((DATA / name).read_text()))


def test_real_documents_are_read() -> None:
    failed = told("runs/vision-cuda-13.0-121a-on-sm90.json", "make")
    assert (failed.stage, failed.toolchain) == ("smoke", "cuda-13.0")
    assert failed.check
    assert failed.wrong
    good = told("nightly/make-vision-cpu.json", "make")
    assert not good.wrong
    assert good.wheel.endswith(".whl")
    refused = told("nightly/refused-disk-full.json", "make")
    assert "no space left" in refused.wrong
    check = told("nightly/patches-vision-mtp-b11401.json", "patches")
    assert not check.wrong
    assert "5 of 12" in check.note
    assert "hunk" in check.note
    waits = told("nightly/refresh-vision-mtp-b11401.json", "refresh")
    assert waits.check == "0008-draft-positions.patch"
    assert not told("nightly/refresh-vision-b11401-done.json", "refresh").wrong
    assert not told("nightly/index-add.json", "publish").wrong


@pytest.mark.parametrize("kind", ["make", "patches", "refresh", "smoke", "faults"])
@given(document=st.dictionaries(st.sampled_from(["stages", "patches", "checks", "found", "x"]),
                                st.one_of(st.none(), st.integers(), st.just([None]))))  # fmt: skip
def test_a_document_of_another_form_is_told_not_raised(kind: Any, document: Any) -> None:
    found = read(kind, document)
    assert isinstance(found.wrong, str)
