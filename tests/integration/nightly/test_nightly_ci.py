"""What ``ci/`` ships: the plan, the workflow and the units, looked at by the tools they are for."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess  # noqa: TID251 - the tools, and the workflow's own lines
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from sparkbuild.nightly.plan import read_plan
from sparkbuild.nightly.steps import steps

CI = Path(__file__).parents[3] / "ci"
WORKFLOW = CI / "github" / "nightly.yml"
UNITS = ("sparkbuild-nightly.service", "sparkbuild-nightly.timer")


def workflow() -> dict[str, Any]:
    loaded = yaml.safe_load(WORKFLOW.read_text())
    assert isinstance(loaded, dict)
    return loaded


def job() -> dict[str, Any]:
    (one,) = workflow()["jobs"].values()
    assert isinstance(one, dict)
    return one


def program(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not on this machine")
    return found


def test_the_plan_can_be_carried_out() -> None:
    plan = read_plan(CI / "nightly.toml")
    names = [step.id for step in steps(plan)]
    assert names[0] == "control:make:vision:13.0"
    assert names[-1] == "publish"
    assert "candidate:patches:vision-mtp" in names


def test_actionlint_has_nothing_to_say() -> None:
    done = subprocess.run(
        [program("actionlint"), str(WORKFLOW)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflow_asks_for_little_and_pins_what_it_takes() -> None:
    assert workflow()["permissions"] == {"contents": "read"}
    one = job()
    assert one["permissions"] == {"contents": "read", "issues": "write"}
    assert one["runs-on"] == ["self-hosted", "linux", "ARM64"]
    assert workflow()["concurrency"]["cancel-in-progress"] is False
    assert one["timeout-minutes"] > sum(
        step["timeout-minutes"] for step in one["steps"] if "if" not in step
    )
    for step in one["steps"]:
        assert step["timeout-minutes"] > 0
        if "uses" in step:
            assert re.fullmatch(r"[\w/.-]+@[0-9a-f]{40}", step["uses"])
    last = one["steps"][-1]
    assert last["if"] == "always()"
    assert last["with"]["if-no-files-found"] == "error"
    text = WORKFLOW.read_text()
    assert text.count("github.token") == 1


def sandbox(tmp_path: Path, code: int) -> tuple[dict[str, str], Path]:
    """A runner whose python3 makes an environment with a stand-in for sparkbuild."""
    temp, tools = tmp_path / "temp", tmp_path / "tools"
    history = tmp_path / "history"
    for folder in (temp, tools):
        folder.mkdir()
    night = history / "nightly" / "20261201T010000Z-ab12"
    stub = tools / "stub"
    stub.write_text(
        f"""#!/bin/bash
echo "$0 $*" >> {tmp_path}/calls
case "$1 $2" in
  "nightly run") mkdir -p {night}/logs {night}/steps {history}/nights {history}/troubles
    echo log > {night}/logs/a.log; echo '{{"state": "red"}}'; exit {code};;
  "nightly status") exit {code};;
esac
"""
    )
    venv = tools / "python3"
    venv.write_text(
        f"""#!/bin/bash
echo "python3 $*" >> {tmp_path}/calls
for last; do :; done
mkdir -p "$last/bin"
cp {stub} "$last/bin/sparkbuild"; cp {stub} "$last/bin/python"
"""
    )
    for file in (stub, venv):
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    env = {
        "PATH": f"{tools}:{os.environ['PATH']}", "RUNNER_TEMP": str(temp), "HOME": str(tmp_path),
        "SPARKBUILD_HISTORY": str(history),
    }  # fmt: skip
    return env, temp


@pytest.mark.parametrize("code", [0, 25])
def test_the_workflows_own_lines_run(tmp_path: Path, code: int) -> None:
    env, temp = sandbox(tmp_path, code)
    failed = False
    ended: dict[str, int] = {}
    for step in job()["steps"]:
        if "run" not in step or (failed and step.get("if") != "always()"):
            continue
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=CI.parent, env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        ended[step["name"]] = done.returncode
        failed = failed or done.returncode != 0
    assert ended == {
        "Install sparkbuild": 0, "Run the night": code, "Say how nights stand": code,
        "Gather evidence": 0,
    }  # fmt: skip
    evidence = temp / "evidence"
    assert (evidence / "logs" / "a.log").is_file()
    assert json.loads((evidence / "night.json").read_text())["state"] == "red"
    calls = (tmp_path / "calls").read_text()
    assert "nightly run --plan ci/nightly.toml --json" in calls
    assert "-m pip install" in calls


def test_systemd_has_nothing_to_say(tmp_path: Path) -> None:
    analyze = program("systemd-analyze")
    for name in UNITS:
        text = (CI / "systemd" / name).read_text()
        installed = f"{sys.executable} -m sparkbuild"
        (tmp_path / name).write_text(text.replace("/opt/sparkbuild/bin/sparkbuild", installed))
    done = subprocess.run(
        [analyze, "verify", "--man=no", *(str(tmp_path / name) for name in UNITS)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "Failed to" in done.stderr and "bus" in done.stderr:
        pytest.skip("systemd-analyze cannot run here")
    assert (done.returncode, done.stderr.strip()) == (0, "")


def test_the_units_make_up_for_a_lost_night_and_are_hardened() -> None:
    timer = (CI / "systemd" / UNITS[1]).read_text()
    service = (CI / "systemd" / UNITS[0]).read_text()
    assert "Persistent=true" in timer
    assert {"NoNewPrivileges=yes", "ProtectSystem=strict", "KillSignal=SIGINT"} <= set(
        service.splitlines()
    )


def test_what_the_units_start_is_a_command(tmp_path: Path) -> None:
    service = (CI / "systemd" / UNITS[0]).read_text()
    (line,) = [one for one in service.splitlines() if one.startswith("ExecStart=")]
    words = line.partition("=")[2].split()[1:]
    done = subprocess.run(
        [sys.executable, "-m", "sparkbuild", *words[:2], "--help"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert all(word in done.stdout for word in words[2:] if word.startswith("--"))
