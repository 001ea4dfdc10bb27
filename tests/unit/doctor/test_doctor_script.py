"""The script of --fix: a shell takes it, a linter has nothing to say, and it does what it says."""

from __future__ import annotations

import subprocess  # noqa: TID251 - a shell reads the script
import sys
from pathlib import Path

import pytest

from sparkbuild.doctor.captured import AptSource, Machine, Swap
from sparkbuild.doctor.diagnose import diagnose
from sparkbuild.doctor.script import script

from .captures import DATA, GIB, captured, changed

NAMES = sorted(path.stem for path in DATA.glob("*.json"))
SHELLCHECK = Path(sys.executable).with_name("shellcheck")
EVIL = "/etc/apt/sources.list.d/a'; touch pwned; $(touch pwned) `touch pwned`\n touch pwned #.list"


def evil() -> Machine:
    """A capture made by somebody else may hold anything."""
    swap = Swap(path=EVIL, kind="file", size=16 * GIB, used=5 * GIB, priority=-2)
    uri = "https://x.example/compute/cuda/repos/ubuntu2404/arm64/"
    return changed(
        captured("spark"),
        system__os=EVIL,
        system__product=EVIL,
        toolkits__roots=(),
        apt=(AptSource(file=EVIL, uri=uri),),
        memory__swaps=(swap,),
    )


def written(machine: Machine, folder: Path) -> Path:
    file = folder / "fix.sh"
    file.write_text(script(diagnose(machine)))
    return file


@pytest.mark.parametrize("name", [*NAMES, "evil"])
def test_a_shell_and_shellcheck_take_it(name: str, tmp_path: Path) -> None:
    file = written(evil() if name == "evil" else captured(name), tmp_path)
    assert subprocess.run(["sh", "-n", file], check=False).returncode == 0
    told = subprocess.run(
        [SHELLCHECK, "--shell=sh", "--severity=style", file],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout


def test_every_step_stands_below_its_finding() -> None:
    text = script(diagnose(captured("spark-stock")))
    lines = text.splitlines()
    assert lines[0] == "#!/bin/sh"
    assert "set -eu" in lines[:8]
    for name in ("swap", "zram", "swappiness", "watermark scale"):
        assert any(f". {name} (warning): found" in line for line in lines), name
    assert lines.index("sudo swapoff /swap.img") < lines.index("sudo swapon /swap.img")
    assert "sudo sysctl -w vm.swappiness=180" in lines


def test_what_needs_a_person_is_a_comment() -> None:
    text = script(diagnose(captured("spark-stranded")))
    commands = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert commands == ["set -eu"]
    assert "sudo systemctl reboot" in text


def test_a_command_stands_once() -> None:
    text = script(diagnose(captured("spark-serving")))
    assert text.splitlines().count("sparkbuild toolkit install 13.0") == 1
    assert "# mended above" in text


def test_a_machine_in_good_health_needs_nothing() -> None:
    assert "# Nothing to mend." in script(diagnose(captured("spark")))


def test_notes_are_not_mended() -> None:
    text = script(diagnose(captured("virtual-machine")))
    assert "zram" not in text


def test_it_runs_what_it_quotes_and_nothing_else(tmp_path: Path) -> None:
    """``sudo`` and ``sparkbuild`` only write down their arguments; nothing of the text runs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sudo", "sparkbuild"):
        program = programs / name
        program.write_text(f'#!/bin/sh\nprintf "%s\\0" {name} "$@" >> "$RECORD"\n')
        program.chmod(0o755)
    place, record = tmp_path / "place", tmp_path / "record"
    place.mkdir()
    file = written(evil(), tmp_path)
    done = subprocess.run(
        ["/bin/sh", file],
        cwd=place,
        env={"PATH": f"{programs}:/usr/bin:/bin", "RECORD": str(record)},
        check=False,
    )
    assert done.returncode == 0
    assert not list(place.iterdir())
    words = record.read_bytes().decode().split("\0")
    steps = [word for one in diagnose(evil()).findings for command in one.mend for word in command]
    assert set(words[:-1]) == set(steps)
    assert EVIL in words
