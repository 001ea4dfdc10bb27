"""A wheel is built again only where the same wheel can come of it, and elsewhere in every way."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparkbuild import __version__, wheel_rebuild
from sparkbuild.errors import BusyError, InternalError, PackageError
from sparkbuild.manifest import Recipes, find_recipes
from sparkbuild.package.identity import INFO_FILE
from sparkbuild.report.model import Failure
from sparkbuild.wheel_rebuild import read_recorded, rebuild_and_compare
from sparkbuild.wheel_remake import Order, Remade
from sparkbuild.workspace import Workspace

IDENTITY = "7" * 64
TREE = "1" * 40
DIST = "pkg-1.dist-info"


class Told:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def started(self, stage: str) -> None:
        self.words.append(f"started {stage}")

    def progress(self, done: int, total: int, text: str) -> None:
        self.words.append(f"{done}/{total} {text}")

    def note(self, text: str) -> None:
        self.words.append(f"note {text}")

    def finished(self, report: Any) -> None: ...


@pytest.fixture(scope="module")
def recipes() -> Recipes:
    return find_recipes(None)


def info(recipes: Recipes, variant: str = "vision-mtp", **changed: Any) -> dict[str, Any]:
    patchset, _ = recipes.patchset(variant)
    patches = [{"file": p.file, "sha256": p.sha256, "reason": p.reason} for p in patchset.patches]
    made: dict[str, Any] = {
        "sparkbuild": __version__,
        "variant": variant,
        "source": {"digest": patchset.source.digest, "tree": TREE, "build": 11434},
        "patches": patches,
        "toolchain": {
            "name": "cpu",
            "identity": IDENTITY,
            "architectures": [],
            "accepted": [{"id": "one", "effect": "e"}],
        },
    }
    return {**made, **changed}


def wheel(place: Path, said: dict[str, Any] | bytes | None, **members: bytes) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    path = place / "pkg-1-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as out:
        for name, data in {f"{DIST}/RECORD": b"", **members}.items():
            out.writestr(name, data)
        if said is not None:
            out.writestr(INFO_FILE, said if isinstance(said, bytes) else json.dumps(said))
    return path


def refused(path: Path, recipes: Recipes, work: Path) -> PackageError:
    with pytest.raises(PackageError) as refusal:
        rebuild_and_compare(path, recipes=recipes, workspace=Workspace(work), observer=Told())
    return refusal.value


def answering(monkeypatch: pytest.MonkeyPatch, answer: Remade) -> list[tuple[Order, Any]]:
    """In place of the second build: the result that it would give."""
    asked: list[tuple[Order, Any]] = []

    def run(order: Order, place: Path, env: Any, observer: Any) -> Remade:
        asked.append((order, dict(env)))
        return answer

    monkeypatch.setattr(wheel_rebuild, "_run", run)
    return asked


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (None, f"it has no {INFO_FILE}"),
        (b"{", f"{INFO_FILE}: "),
        ({"variant": "vision"}, "missing required field"),
    ],
)
def test_a_wheel_that_does_not_say(said: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="does not say") as refusal:
        read_recorded(wheel(tmp_path, said))
    assert words in refusal.value.problems[0]


def test_what_is_no_wheel_or_climbs_out(tmp_path: Path) -> None:
    garbage = tmp_path / "a.whl"
    garbage.write_bytes(b"PK but not for long")
    for path in (garbage, wheel(tmp_path / "b", b"{}", **{"../x": b""})):
        with pytest.raises(PackageError):
            read_recorded(path)


def test_other_recipes_are_refused_before_anything_is_built(
    recipes: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answering(monkeypatch, Remade())
    said = info(recipes, source={"digest": "0" * 64, "tree": TREE}, sparkbuild="0.0.1")
    said["patches"] = [{**said["patches"][0], "sha256": "9" * 64}, *said["patches"][2:]]
    problems = "\n".join(refused(wheel(tmp_path, said), recipes, tmp_path / "w").problems)
    assert "source: the wheel's is 000" in problems
    assert f"sparkbuild: the wheel's is 0.0.1, this is {__version__}" in problems
    assert "the wheel's is 999" in problems
    assert "the wheel's is none, the recipe's " in problems
    assert asked == []


def test_another_toolkit_or_host_compiler_is_no_fair_comparison(
    recipes: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, Remade(toolkit="8" * 64, tree="2" * 40, wheel="x"))
    error = refused(wheel(tmp_path, info(recipes)), recipes, tmp_path / "w")
    assert "toolkit and host compiler: the wheel's are 777" in error.problems[0]
    assert error.problems[1].startswith("tree: the wheel's is 111")


def test_the_second_build_s_own_refusal_is_told(
    recipes: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = Failure(title="build", exit_code=12, message="a step failed", problems=("why",),
                      next_step="do this", detail="")  # fmt: skip
    answering(monkeypatch, Remade(failure=failure, evidence=("/a/log",)))
    error = refused(wheel(tmp_path, info(recipes)), recipes, tmp_path / "w")
    assert "a step failed" in error.message
    assert (error.problems, error.evidence) == (("why",), (Path("/a/log"),))


def test_everything_that_must_make_no_difference_differs(
    recipes: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = wheel(tmp_path / "a", info(recipes), **{f"{DIST}/provenance.json": b"{}",
                  f"{DIST}/sboms/one.json": b"{}", "pkg/x": b"1"})  # fmt: skip
    second = wheel(tmp_path / "b", info(recipes), **{"pkg/x": b"2"})
    asked = answering(monkeypatch, Remade(toolkit=IDENTITY, tree=TREE, wheel=str(second)))
    observer = Told()
    work = Workspace(tmp_path / "w")
    found = rebuild_and_compare(first, recipes=recipes, workspace=work, observer=observer)
    ((order, env),) = asked
    assert set(order.carried) == {f"{DIST}/provenance.json", f"{DIST}/sboms/one.json"}
    assert (order.variant, order.toolkit, order.accept) == ("vision-mtp", "cpu", ("one",))
    assert order.jobs
    for name in ("HOME", "TMPDIR", "USER", "LOGNAME", "TZ", "LANG", "LC_ALL", "CFLAGS", "LDFLAGS"):
        assert env[name] != os.environ.get(name)
    for name in ("HOME", "TMPDIR"):
        assert Path(env[name]).is_dir()
    assert found.different["umask"] == "0077"
    assert not found.comparison.identical
    assert {d.member for d in found.comparison.differences} >= {"pkg/x"}
    # A folder of an earlier attempt is not used again.
    (Path(order.place) / "left").touch()
    rebuild_and_compare(first, recipes=recipes, workspace=work, observer=observer)
    assert list(Path(order.place).iterdir()) == []


def test_two_at_once_do_not_meet(
    recipes: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = wheel(tmp_path / "a", info(recipes))

    def run(order: Any, place: Any, env: Any, observer: Any) -> Any:
        return rebuild_and_compare(first, recipes=recipes, workspace=Workspace(tmp_path / "w"),
                                   observer=observer)  # fmt: skip

    monkeypatch.setattr(wheel_rebuild, "_run", run)
    with pytest.raises(BusyError):
        run(None, None, None, Told())


def test_a_build_that_dies_without_a_word(
    recipes: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel_rebuild, "_START", "import sys; print('died'); sys.exit(3)")
    with pytest.raises(InternalError, match="status 3") as refusal:
        rebuild_and_compare(
            wheel(tmp_path, info(recipes)), recipes=recipes, workspace=Workspace(tmp_path / "w"),
            observer=Told(),
        )  # fmt: skip
    assert "died" in refusal.value.detail


def test_the_child_tells_how_far_it_is_and_keeps_to_its_umask(
    recipes: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a real process; in place of the builds a failure that names the umask and folder."""
    answer = msgspec.json.encode(Remade(toolkit="x")).decode()
    script = wheel_rebuild._START.split("from sparkbuild")[0] + (
        "from pathlib import Path\n"
        "import time\n"
        "print('started build'); print('progress 1 2 half of it'); print('note careful')\n"
        "print('note', os.getcwd(), time.tzname[0], os.environ['CFLAGS'])\n"
        "Path(sys.argv[2] + '.new').touch()\n"
        "print('note', oct(os.stat(sys.argv[2] + '.new').st_mode & 0o777))\n"
        f"Path(sys.argv[3]).write_text('''{answer}''')\n"
    )
    monkeypatch.setattr(wheel_rebuild, "_START", script)
    observer = Told()
    with pytest.raises(PackageError, match="something else"):
        rebuild_and_compare(
            wheel(tmp_path, info(recipes)), recipes=recipes, workspace=Workspace(tmp_path / "w"),
            observer=observer,
        )  # fmt: skip
    assert observer.words == [
        "started build", "1/2 half of it", "note careful", "note / +1245 -O0 -DREBUILT",
        "note 0o600",
    ]  # fmt: skip
