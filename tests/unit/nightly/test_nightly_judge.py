"""Whom a night points to, from what its steps came to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.nightly.judge import MACHINE_FAULTS, judge
from sparkbuild.nightly.model import Outcome, Step

PATCHED = frozenset({"mtp"})


def made(step_id: str, state: Any = "passed", code: int | None = 0, **more: Any) -> Outcome:
    role: Any
    kind: Any
    role, kind, *rest = step_id.split(":")
    variant, toolkit = [*rest, "", ""][:2]
    needs = more.pop("needs", ())
    step = Step(id=step_id, kind=kind, role=role, variant=variant, toolkit=toolkit, minutes=1,
                needs=needs)  # fmt: skip
    return Outcome(step=step, state=state, exit_code=code, started="", seconds=0.0, **more)


def blame(*outcomes: Outcome, changed: bool = False) -> str:
    return judge(outcomes, changed=changed, patched=PATCHED).blame


CONTROL = (made("control:make:plain:cpu"), made("control:make:mtp:cpu"))
NEWER = (made("candidate:make:plain:cpu"), made("candidate:make:mtp:cpu"))


def test_all_well_is_green() -> None:
    found = judge([*CONTROL, *NEWER], changed=False, patched=PATCHED)
    assert (found.state, found.blame) == ("green", "nothing")
    assert "2 of a newer base" in found.reason


def test_nothing_at_all_is_red() -> None:
    assert judge([], changed=False, patched=PATCHED).state == "red"


@pytest.mark.parametrize("state", ["failed", "cancelled", "timed out", "did not run"])
@pytest.mark.parametrize("role", ["control", "candidate"])
def test_whatever_did_not_pass_is_a_failure(state: str, role: str) -> None:
    bad = made(f"{role}:make:plain:cpu", state, None)
    assert judge([*CONTROL[1:], *NEWER[1:], bad], changed=False, patched=PATCHED).state == "red"


@pytest.mark.parametrize(
    ("code", "changed", "who"),
    [
        *[(code, False, "machine") for code in sorted(MACHINE_FAULTS)],
        *[(code, True, "machine") for code in sorted(MACHINE_FAULTS)],
        (9, False, "toolkit"), (10, True, "toolkit"), (70, False, "sparkbuild"),
        (23, False, "sparkbuild"), (14, False, "machine"), (14, True, "sparkbuild"),
        (12, False, "machine"),
    ],
)  # fmt: skip
def test_the_control_points_to_machine_toolkit_or_sparkbuild(
    code: int, changed: bool, who: str
) -> None:
    bad = made("control:make:plain:cpu", "failed", code)
    assert blame(bad, CONTROL[1], *NEWER, changed=changed) == who


def test_one_toolkit_that_fails_wherever_it_is_used() -> None:
    bad = [made(f"control:make:{name}:13.2", "failed", 14) for name in ("plain", "mtp")]
    assert blame(*CONTROL, *bad) == "toolkit"
    assert blame(CONTROL[0], bad[0], made("control:make:mtp:13.2")) == "machine"


@pytest.mark.parametrize(
    ("outcomes", "who"),
    [
        ([made("candidate:make:plain:cpu", "failed", 14), NEWER[1]], "upstream"),
        ([NEWER[0], made("candidate:make:mtp:cpu", "failed", 14)], "patches"),
        ([made("candidate:make:mtp:cpu", "failed", 14)], "upstream"),
        ([NEWER[0], made("candidate:refresh:mtp", "failed", 8)], "patches"),
        ([made("candidate:make:plain:cpu", "failed", 10)], "toolkit"),
        ([made("candidate:make:plain:cpu", "failed", 17)], "machine"),
        ([made("candidate:make:plain:cpu", "timed out", None)], "machine"),
        ([made("candidate:make:plain:cpu", "failed", 70)], "sparkbuild"),
        ([made("candidate:upstream", "failed", 6)], "machine"),
        ([made("candidate:upstream", "failed", 1)], "upstream"),
    ],
)
def test_a_newer_base_points_further(outcomes: list[Outcome], who: str) -> None:
    assert blame(*CONTROL, *outcomes) == who


def test_what_follows_from_a_failure_is_not_its_cause() -> None:
    late = made("candidate:make:mtp:cpu", "did not run", None, needs=("candidate:refresh:mtp",))
    root = made("candidate:refresh:mtp", "failed", 8, message="hunk 3")
    found = judge([*CONTROL, NEWER[0], late, root], changed=False, patched=PATCHED)
    assert found.blame == "patches"
    assert "hunk 3" in found.reason


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["control", "candidate"]),
            st.sampled_from(["plain", "mtp"]),
            st.sampled_from(["passed", "failed", "cancelled", "timed out", "did not run"]),
            st.sampled_from([None, 0, 6, 8, 9, 10, 12, 14, 16, 17, 18, 23, 70, 130]),
        ),
        min_size=1,
        max_size=8,
    ),
    st.booleans(),
)
def test_upstream_and_patches_are_never_blamed_while_the_control_fails(
    rows: list[tuple[str, str, str, int | None]], changed: bool
) -> None:
    outcomes = [
        made(f"{role}:make:{variant}:{number}", state, code)
        for number, (role, variant, state, code) in enumerate(rows)
    ]
    found = judge(outcomes, changed=changed, patched=PATCHED)
    assert (found.state == "green") == all(one.passed for one in outcomes)
    if any(one.step.role == "control" and not one.passed for one in outcomes):
        assert found.blame in {"machine", "toolkit", "sparkbuild"}
    assert found.reason
