"""``sparkbuild nightly`` as a monitor and a runner start it."""

from __future__ import annotations

import datetime as dt
import json
import subprocess  # noqa: TID251 - the product from outside
import sys
from pathlib import Path
from typing import Any

import msgspec

from .conftest import Nights

CI = Path(__file__).parents[3] / "ci"


def sparkbuild(*words: str, cwd: Path) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        [sys.executable, "-m", "sparkbuild", *words, "--json"],
        cwd=cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout), done.stderr


def test_status_is_an_alarm_where_nothing_ever_ran(tmp_path: Path) -> None:
    plan = str(CI / "nightly.toml")
    code, said, _ = sparkbuild(
        "nightly", "status", "--plan", plan, "--history", str(tmp_path / "h"), cwd=tmp_path
    )
    assert code == 25
    assert "nothing ever ran" in said["alarm"][0]


def test_status_follows_the_age_of_the_last_good_night(nights: Nights) -> None:
    night = nights.run().night
    words = ("nightly", "status", "--plan", str(nights.root / "nightly.toml"))
    here = ("--history", str(nights.history))
    code, said, _ = sparkbuild(*words, *here, cwd=nights.root)
    assert (code, said["alarm"], said["last_good"]["id"]) == (0, [], night.id)
    past = (dt.datetime.now(dt.UTC) - dt.timedelta(hours=51)).isoformat(timespec="seconds")
    nights.kept.night(msgspec.structs.replace(night, started=past, ended=past))
    code, said, screen = sparkbuild(*words, *here, cwd=nights.root)
    assert code == 25
    assert "51.0 hours ago" in said["alarm"][0]
    assert "alarm" in screen


def test_a_plan_that_is_not_there_or_wrong_is_refused(tmp_path: Path) -> None:
    assert sparkbuild("nightly", "run", cwd=tmp_path)[0] == 2
    plan = tmp_path / "ci" / "nightly.toml"
    plan.parent.mkdir()
    plan.write_text('schema = 1\nsummary = "s"\n[upstream]\nurl = "x"\ntags = "b(.*)-(.*)"\n')
    code, said, _ = sparkbuild("nightly", "run", cwd=tmp_path)
    assert code == 4
    assert "found 2" in said["failure"]["problems"][0]
    plan.write_text('schema = 1\nsummary = "s"\nmatrx = []\n')
    code, said, _ = sparkbuild("nightly", "run", cwd=tmp_path)
    assert code == 4
    assert "matrx" in str(said)


def test_the_product_itself_runs_a_night(nights: Nights) -> None:
    """No stand-in: the control's own make is started, and is refused where its recipe is wrong."""
    recipes = nights.root / "recipes"
    (recipes / "toolchains" / "cpu.toml").write_text(
        'schema = 1\nname = "cpu"\nsummary = "s"\nlabel = "cpu"\n'
    )
    code, said, screen = sparkbuild(
        "nightly", "run", "--plan", str(nights.root / "nightly.toml"), "--history",
        str(nights.history), "--recipes", str(recipes), "--work", str(nights.root / "work"),
        "--lock", str(nights.root / "lock"), cwd=nights.root,
    )  # fmt: skip
    assert code == 25, screen
    assert said["state"] == "red"
    control = [run for run in said["runs"] if run["what"] == "make" and run["role"] == "control"]
    assert {run["stage"] for run in control} <= {"source", "publish"}
    assert "digest" in said["reason"] or "differs" in said["reason"]
    assert all((nights.history / run["report"]).is_file() for run in control if run["report"])
