"""``--accept``: what was taken on goes into the key, the report, the screen and the wheel."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from rich.console import Console

from sparkbuild.build.arguments import build_key
from sparkbuild.build.model import Binaries, Binary, BinaryFacts
from sparkbuild.build.tools import Tools
from sparkbuild.manifest import find_recipes
from sparkbuild.package.make import plan_wheel
from sparkbuild.package.project import pyproject_text
from sparkbuild.report.json_report import SCHEMA_FILE, encode
from sparkbuild.report.junit import junit_xml
from sparkbuild.report.model import Report
from sparkbuild.report.terminal import closing
from sparkbuild.source.model import PatchedTree
from sparkbuild.toolkit.model import Accepted, HostCompiler, Part, Toolkit

TAKEN = Accepted(id="cicc-13.2-byte-mask", effect="drops the mask of a byte")
OTHER = Accepted(id="another", effect="may do harm")

NVCC = Part(name="nvcc", version="13.2.51", read_from="bin/nvcc", path="bin/nvcc", sha256="1" * 64)


def toolkit(*accepted: Accepted) -> Toolkit:
    host = HostCompiler(c="cc", cxx="c++", identification="GNU 1", target="x", sha256="0" * 64)
    return Toolkit(
        toolchain="cuda-13.2.0", label="cu1320", kind="cuda", host=host, root="/opt/cuda",
        architectures=("121a",), accepted=accepted, parts=(NVCC,),
    )  # fmt: skip


TREE = PatchedTree(
    source_digest="2" * 64, commit="c" * 40, tree="3" * 40, build=11434, patches=(),
    directory="/source",
)  # fmt: skip


def key(*accepted: Accepted) -> str:
    tools = Tools(cmake=Path("c"), cmake_version="4", ninja=Path("n"), ninja_version="1")
    patchset, _ = find_recipes(None).patchset("vision")
    return build_key(patchset, toolkit(*accepted), TREE, tools=tools)


def report(*accepted: Accepted, **changed: Any) -> Report:
    fields: dict[str, Any] = {
        "sparkbuild": "0.1.0", "variant": "vision", "toolchain": "cuda-13.2.0", "command": (),
        "started": "2026-10-06T12:00:00+00:00", "seconds": 1.0, "result": "passed",
        "exit_code": 0, "key": None, "machine": {}, "accepted": accepted, "stages": (),
    }  # fmt: skip
    return Report(**{**fields, **changed})


def shown(value: Report, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(closing(value), crop=False)
    return out.getvalue()


def test_a_build_with_something_accepted_has_a_key_of_its_own() -> None:
    assert len({key(), key(TAKEN), key(OTHER), key(TAKEN, OTHER)}) == 4
    assert key(TAKEN, OTHER) == key(OTHER, TAKEN)


def test_the_report_names_it_and_meets_the_schema() -> None:
    document = json.loads(encode(report(TAKEN)))
    assert document["accepted"] == [{"id": TAKEN.id, "effect": TAKEN.effect}]
    schema = json.loads(SCHEMA_FILE.read_text())
    jsonschema.validate(document, schema)
    document["accepted"][0].pop("effect")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)
    assert json.loads(encode(report()))["accepted"] == []


def test_a_report_of_before_is_still_read() -> None:
    document = json.loads(encode(report()))
    del document["accepted"]
    assert msgspec.convert(document, Report).accepted == ()


@pytest.mark.parametrize("result", ["passed", "failed"])
@pytest.mark.parametrize("width", [40, 120])
def test_the_screen_shouts_it_before_the_result(result: str, width: int) -> None:
    text = shown(report(TAKEN, OTHER, result=result), width)
    folded = " ".join(text.split())
    for accepted in (TAKEN, OTHER):
        assert "KNOWN BAD, ACCEPTED" in folded
        assert accepted.id in folded
        assert accepted.effect in folded
        assert folded.index(accepted.id) < folded.index(f"{result} ")
    assert "ACCEPTED" not in shown(report(result=result), width)


def test_it_is_red_on_a_terminal() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard", width=100)
    console.print(closing(report(TAKEN)), crop=False)
    assert "\x1b[1;31mKNOWN BAD, ACCEPTED" in out.getvalue()


def test_junit_has_it_as_a_property() -> None:
    assert f'name="accepted" value="{TAKEN.id} {OTHER.id}"' in junit_xml(report(TAKEN, OTHER))


def test_the_wheel_carries_it(tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text("MIT")
    shutil.copyfile("/bin/true", tmp_path / "llama-server")
    binary = Binary(
        name="llama-server", sha256="a" * 64, size=1, machine="EM_X86_64", build_id="b",
        soname=None, needed=(), runpath=("$ORIGIN",), sm_targets=("sm_121a",),
    )  # fmt: skip
    facts = BinaryFacts(version_line="v", binaries=(binary,), system_libraries=())
    built = Binaries(directory=str(tmp_path), executables=("llama-server",), libraries=(), edges=1)

    def plan(*accepted: Accepted) -> Any:
        return plan_wheel(
            binaries=built, facts=facts, tree=TREE, toolkit=toolkit(*accepted), variant="vision",
            source_dir=tmp_path,
        )  # fmt: skip

    info = json.loads(plan(TAKEN).info)
    assert info["toolchain"]["accepted"] == [{"id": TAKEN.id, "effect": TAKEN.effect}]
    assert json.loads(plan().info)["toolchain"]["accepted"] == []
    assert f"KNOWN BAD and accepted: {TAKEN.id}" in pyproject_text(plan(TAKEN))
    assert "KNOWN BAD" not in pyproject_text(plan())
