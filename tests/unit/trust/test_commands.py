"""The commands from the shell: keys, signing, verifying, exit codes, JSON."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
import os
import signal
import stat
import subprocess  # noqa: TID251 - git, and an interpreter that has loaded nothing yet
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from sparkbuild.cli import main

from .conftest import build_wheel, made, report_of
from .plain import plain_wheel


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def run(*arguments: str | Path, **env: str) -> Done:
    """The command line as a shell would call it, in this process: a hundred starts take long."""
    out, err = io.StringIO(), io.StringIO()
    old = signal.getsignal(signal.SIGTERM)
    with (
        mock.patch.object(sys, "argv", ["sparkbuild", *map(str, arguments)]),
        mock.patch.dict(os.environ, {"COLUMNS": "400", **env}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    signal.signal(signal.SIGTERM, old)
    code = ended.value.code
    assert isinstance(code, int)
    return Done(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


def told(*arguments: str | Path, code: int = 0, **env: str) -> dict[str, Any]:
    """The JSON document of a command that ends so."""
    done = run(*arguments, "--json", **env)
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["schema"] == 1
    return found


@dataclass
class Team:
    key: Path
    public: Path
    wheel: Path


@pytest.fixture
def team(tmp_path: Path) -> Team:
    """A key made by the command, and a wheel with its report: signed by nobody yet."""
    found = told("key", "new", "team", "--out", tmp_path / "keys")
    one = made(tmp_path)
    wheel = build_wheel(tmp_path, one)
    started = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    report = report_of(wheel, one, started=started.isoformat(timespec="seconds"))
    (tmp_path / "text-cpu-report.json").write_text(json.dumps(report))
    return Team(key=Path(found["private"]), public=Path(found["public"]), wheel=wheel)


def test_keys_are_made_and_shown(tmp_path: Path) -> None:
    made_ = told("key", "new", "team", "--out", tmp_path, "--expires", "2999-12-31")
    private = Path(made_["private"])
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    for path, signs in ((private, True), (Path(made_["public"]), False)):
        shown = told("key", "show", path)
        assert (shown["keyid"], shown["expires"]) == (made_["keyid"], "2999-12-31")
        assert (shown["state"], shown["signs"]) == ("good", signs)
    assert told("key", "new", "team", "--out", tmp_path, code=2)["failure"]["title"] == "usage"
    private.chmod(0o644)
    assert told("key", "show", private, code=22)["failure"]["title"] == "not trusted"


def test_a_key_goes_to_the_users_configuration_by_default(tmp_path: Path) -> None:
    found = told("key", "new", "team", HOME=str(tmp_path), XDG_CONFIG_HOME=str(tmp_path / "c"))
    assert Path(found["private"]) == tmp_path / "c/sparkbuild/keys/team.key"


def test_no_key_in_a_repository(tmp_path: Path) -> None:
    subprocess.run(["git", "init", str(tmp_path)], check=True, capture_output=True)
    done = run("key", "new", "team", "--out", tmp_path / "keys")
    assert done.returncode == 2
    assert "must not lie inside a git repository" in done.stderr
    assert not (tmp_path / "keys").exists()


def test_sign_and_verify(team: Team) -> None:
    signed = told("wheel", "sign", team.wheel, SPARKBUILD_KEY=str(team.key))
    assert [Path(path).name.removeprefix(team.wheel.name) for path in signed["files"]] == [
        ".report.json", ".sbom.json", ".provenance.json",
    ]  # fmt: skip
    found = told("wheel", "verify", team.wheel, "--key", team.public)
    assert found["keys"] == signed["keys"]
    assert {one["name"] for one in found["checks"]} >= {"signatures", "members", "report"}
    done = run("wheel", "verify", team.wheel, "--key", team.public)
    assert "trusted" in done.stdout
    assert "no policy was asked" in done.stdout


def test_a_builder_can_be_named(team: Team, tmp_path: Path) -> None:
    told("wheel", "sign", team.wheel, "--key", team.key, "--builder", "https://ci.example/4")
    policy = tmp_path / "policy.toml"
    policy.write_text('schema = 1\n[builder]\nids = ["https://ci.example/4"]\n')
    told("wheel", "verify", team.wheel, "--key", team.public, "--policy", policy)
    policy.write_text('schema = 1\n[builder]\nids = ["https://ci.example/5"]\n')
    done = told("wheel", "verify", team.wheel, "--key", team.public, "--policy", policy, code=22)
    assert "the policy does not let it in" in done["failure"]["message"]
    policy.write_text("schema = 1\n[builders]\n")
    told("wheel", "verify", team.wheel, "--key", team.public, "--policy", policy, code=4)


def test_every_reason_is_in_the_answer(team: Team) -> None:
    told("wheel", "sign", team.wheel, "--key", team.key)
    team.wheel.write_bytes(team.wheel.read_bytes()[:-1])
    failure = told("wheel", "verify", team.wheel, "--key", team.public, code=22)["failure"]
    assert len([line for line in failure["problems"] if "bytes instead of" in line]) == 2
    assert failure["next_step"].startswith("do not install it")


def test_without_a_key_nothing_is_proved(team: Team) -> None:
    done = run("wheel", "verify", team.wheel)
    assert done.returncode == 2
    assert "no key is named" in done.stderr
    assert run("wheel", "sign", team.wheel).returncode == 2
    policy = team.wheel.with_name("policy.toml")
    policy.write_text("schema = 1")
    place = team.wheel.with_name("index")
    done = run("wheel", "index", place, "--add", team.wheel, "--policy", policy)
    assert done.returncode == 2


def test_a_wheel_without_its_report_is_not_signed(team: Team, tmp_path: Path) -> None:
    report = tmp_path / "text-cpu-report.json"
    report.rename(tmp_path / "elsewhere.json")
    assert told("wheel", "sign", team.wheel, "--key", team.key, code=22)
    told("wheel", "sign", team.wheel, "--key", team.key, "--report", tmp_path / "elsewhere.json")


def test_the_index_from_the_shell(tmp_path: Path) -> None:
    one, two = plain_wheel(tmp_path, "1.0"), plain_wheel(tmp_path, "2.0")
    place = tmp_path / "index"
    done = run("wheel", "index", place, "--add", one, "--add", two)
    assert done.returncode == 0, done.stderr
    assert f"pip install --index-url {place.as_uri()}/simple/" in done.stdout
    assert told("wheel", "index", place, "--yank", two.name, "--reason", "why")["yanked"] == {
        two.name: "why"
    }
    assert "withdrawn: why" in run("wheel", "index", place).stdout
    assert told("wheel", "index", place, "--unyank", two.name)["yanked"] == {}
    assert told("wheel", "index", place, "--yank", "x.whl", "--reason", "why", code=3)
    for wrong in (["--yank", two.name], ["--reason", "why"], ["--add", one, "--unyank", two.name]):
        assert run("wheel", "index", place, *wrong).returncode == 2
    (place / "files" / one.name).write_bytes(b"")
    assert told("wheel", "index", place, code=15)


def test_help_costs_no_library() -> None:
    """Signing and SBOM libraries are loaded by the commands that need them."""
    code = "import sys, sparkbuild.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert not loaded & {"cyclonedx", "cryptography", "securesystemslib", "jinja2"}
