"""Figures of real reports; none of what is no report."""

from __future__ import annotations

import msgspec
import pytest

from sparkbuild.history.figures import figures_of
from sparkbuild.history.model import Figure

from .conftest import DATA

MAKE = (DATA / "make-vision-cpu.json").read_bytes()
SMOKE = (DATA / "smoke-canary-cpu.json").read_bytes()
FAULTS = (DATA / "faults-cpu.json").read_bytes()


def values(figures: tuple[Figure, ...]) -> dict[str, float]:
    assert len({(one.name, one.restart) for one in figures}) == len(figures)
    return {one.name: one.value for one in figures}


def test_of_a_make_the_seconds_of_what_ran_now() -> None:
    found = values(figures_of(MAKE, wheel_bytes=6_700_000))
    assert found == {
        "configure.seconds": 2.694, "build.seconds": 911.488, "inspect.seconds": 0.316,
        "smoke.seconds": 387.078, "package.seconds": 5.576, "wheel.bytes": 6_700_000,
    }  # fmt: skip


def test_a_stage_that_was_reused_or_failed_measured_nothing() -> None:
    document = msgspec.json.decode(MAKE)
    for stage in document["stages"]:
        stage["state"] = {"build": "reused", "smoke": "failed"}.get(stage["name"], stage["state"])
    found = values(figures_of(msgspec.json.encode(document), smoke=SMOKE))
    assert set(found) == {"configure.seconds", "inspect.seconds", "package.seconds"}


def test_of_a_smoke_questions_loads_and_accepted_drafts() -> None:
    found = values(figures_of(SMOKE))
    document = msgspec.json.decode(SMOKE)
    ran = [one for part in document["parts"] for one in part["result"]["ran"]]
    assert found["load.seconds"] == pytest.approx(sum(one["load_seconds"] for one in ran))
    assert found["questions.seconds"] == pytest.approx(sum(one["seconds"] for one in ran))
    assert found["drafts.qwen35.depth1"] == pytest.approx(286 / 287)
    assert {"drafts.qwen35.depth3", "drafts.qwen35.depth3.exact", "questions.llama.f16"} <= set(
        found
    )
    assert not any("glm5-next" in name and name.startswith("drafts.") for name in found)
    assert [one.more_is for one in figures_of(SMOKE) if one.name == "drafts.qwen35.depth1"] == [
        "better"
    ]
    together = values(figures_of(MAKE, smoke=SMOKE))
    assert set(found) < set(together)


def test_of_a_served_model_speed_by_way_and_restart() -> None:
    checks = [
        {"way": "plain", "name": "fastest answer",
         "figures": {"tokens a second": 61.5, "passes a second": 61.5, "limit": 80.0}},
        {"way": "plain", "name": "start", "figures": {"start seconds": 12.0}},
        {"way": "drafts", "name": "text", "figures": {"accepted": 0.71, "speed ratio": 1.4}},
        {"way": "drafts", "name": "words"},
    ]  # fmt: skip
    document = msgspec.json.encode({"checks": checks, "findings": []})
    found = figures_of(document, restart=2)
    assert {one.restart for one in found} == {2}
    assert values(found) == {
        "speed.plain": 61.5, "start.plain": 12.0, "drafts.drafts.text.accepted": 0.71,
        "drafts.speed.drafts": 1.4,
    }  # fmt: skip


def test_of_a_fault_matrix_how_many_were_caught() -> None:
    assert values(figures_of(FAULTS))["faults.caught"] == 12


@pytest.mark.parametrize(
    "document", [b"", b"{", b"[]", b"{}", b'{"parts": 3}', b"\xff\xff", b"null"]
)
def test_of_anything_else_nothing(document: bytes) -> None:
    assert figures_of(document) == ()
