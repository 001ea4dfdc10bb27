"""``sparkbuild inspect FILE...``: every kind by its bytes, several at once, one JSON document."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from sparkbuild.canary.catalogue import DATA
from sparkbuild.errors import SparkbuildError
from sparkbuild.files import sha256_file
from sparkbuild.model.kind import kind_of
from sparkbuild.model_commands import inspect_command
from sparkbuild.report.inspect_schema import SCHEMA_FILE, schema_text

from .elf import Elf, fatbin
from .gguf import small, small_tower
from .wheels import NAME, ours, strange

MODEL = DATA / "llama" / "llama-q8_0.gguf"
TOWER = DATA / "glm5-next" / "mmproj-f16.gguf"
ROOM = ("--available", "64G")
REGENERATE = (
    "python -c 'from sparkbuild.report.inspect_schema import *; "
    "SCHEMA_FILE.write_text(schema_text())'"
)
VALIDATOR = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))


def run(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(inspect_command, [str(one) for one in (*arguments, *ROOM)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.stdout


def told(*arguments: object, code: int = 0) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run(*arguments, "--json", code=code))
    VALIDATOR.validate(document)
    return document


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """One of each kind, under names that say something else."""
    found = {
        "model": small(), "mmproj": small_tower(), "wheel": ours(),
        "binary": Elf(fatbin=fatbin("s121a")).data(),
    }  # fmt: skip
    paths = {}
    for (kind, data), name in zip(found.items(), ("a.whl", "b.so", "c.gguf", "d"), strict=True):
        paths[kind] = tmp_path / name
        paths[kind].write_bytes(data)
    return paths


def test_bytes_tell_the_kind_and_names_do_not(files: dict[str, Path]) -> None:
    for kind, path in files.items():
        done = CliRunner().invoke(inspect_command, [str(path), "--json", *ROOM])
        document = json.loads(done.stdout)
        VALIDATOR.validate(document)
        assert document["kind"] == kind
        assert document["schema"] == 1


def test_a_model_a_tower_and_a_wheel_in_one_document(tmp_path: Path) -> None:
    wheel = tmp_path / NAME
    wheel.write_bytes(ours())
    document = told(MODEL, TOWER, wheel)
    assert [one["kind"] for one in document["files"]] == ["model", "mmproj", "wheel"]
    assert (document["result"], document["exit_code"]) == ("passed", 0)
    assert "kind" not in document


def test_one_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    library = Elf(fatbin=fatbin("s90")).write(tmp_path / "lib.so")
    document = told(tmp_path / "none", library, MODEL, code=20)
    assert [one["kind"] for one in document["files"]] == ["refused", "binary", "model"]
    assert [one["exit_code"] for one in document["files"]] == [20, 13, 0]
    assert "No such file" in document["files"][0]["failure"]["problems"][0]
    assert told(library, tmp_path / "none", code=13)["exit_code"] == 13
    text = run(tmp_path / "none", library, MODEL, code=20)
    assert "No such file or directory" in text
    assert "1 fault: GPU code" in text
    assert text.rstrip().endswith("no fault, no warnings")


@pytest.mark.parametrize("kind", ["model", "mmproj", "wheel", "binary"])
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_screen_is_as_wide_as_the_terminal(
    kind: str, width: int, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(files[kind].parent)
    done = CliRunner().invoke(inspect_command, [files[kind].name, *ROOM])
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= max(width, 40), [one for one in lines if len(one) > width]
    words = done.stdout.split()
    assert {"state", "expected"} <= {word.rstrip(",") for word in words}  # no heading is cut
    assert "GPU c" in done.stdout


def test_digests_are_added_where_they_are_asked(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    shutil.copyfile(MODEL, one)
    Elf().write(two)
    document = told(one, two, "--digest")
    for entry, path in zip(document["files"], (one, two), strict=True):
        assert entry["digests"] == {str(path): sha256_file(path)}
    assert f"sha256 {sha256_file(two)}  {two}" in run(two, "--digest")
    assert "digests" not in told(one)


def test_what_goes_with_one_file_is_refused_with_several(tmp_path: Path) -> None:
    for more in (("--mmproj", TOWER), ("--fix", tmp_path / "x.gguf")):
        with pytest.raises(SparkbuildError, match="goes with one file"):
            run(MODEL, MODEL, *more)


def test_a_toolkit_that_is_not_known_is_refused_whole() -> None:
    with pytest.raises(SparkbuildError, match="no toolkit"):
        run(MODEL, "--toolkit", "99.9")


def test_a_build_may_be_a_wheel(tmp_path: Path) -> None:
    """A stranger's here, of which nothing fits: what matters is that its libraries were read."""
    from .wheels import pack

    library = Elf(soname="libllama.so.0", texts=("llama",)).data()
    program = Elf(soname="llama-server").data()
    wheel = tmp_path / NAME
    wheel.write_bytes(
        pack(
            {"x/bin/libllama.so.0": library, "x/bin/llama-server": program}, "x-1.dist-info/RECORD"
        )
    )
    document = told(MODEL, "--build", wheel, "--serve", code=20)
    states = {one["name"]: one["state"] for one in document["findings"]}
    assert states["architecture"] == "ok"
    assert states["tensor names"] == "fault"
    assert document["serve"]["argv"][0] == "llama-server"


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "nothing", "socket"])
def test_what_is_no_file_is_refused_and_never_waited_for(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    assert kind_of(path) == "other"
    with pytest.raises(SparkbuildError) as caught:
        run(path)
    words = {"pipe": "(a pipe)", "folder": "a folder", "device": "(a device)",
             "socket": "(a socket)", "nothing": "No such file"}  # fmt: skip
    assert words[kind] in caught.value.problems[0]


def test_the_schema_in_the_tree_is_the_one_of_the_types() -> None:
    assert SCHEMA_FILE.read_text() == schema_text(), REGENERATE


def test_the_schema_refuses_what_is_no_document() -> None:
    right = told(MODEL)
    wrong: list[dict[str, Any]] = [
        {"kind": "movie"}, {"exit_code": "0"}, {"findings": [{}]}, {"schema": 2},
    ]  # fmt: skip
    for change in wrong:
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate({**right, **change})


def test_a_stranger_s_wheel_is_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "llama_somewhere-1.2-py3-none-any.whl"
    path.write_bytes(strange())
    assert "another program than sparkbuild" in run(path, code=15)
