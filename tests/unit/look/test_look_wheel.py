"""Wheels: ours with what they say of their making, a stranger's, and what is no wheel at all."""

from __future__ import annotations

import errno
import io
import struct
import zipfile
from pathlib import Path

import pytest

from sparkbuild.errors import DiskFullError, PackageError, SparkbuildError
from sparkbuild.inspect_binary import see_wheel
from sparkbuild.manifest import find_recipes
from sparkbuild.package import look as module
from sparkbuild.package.look import look
from sparkbuild.package.model import WheelLook

from .elf import Elf, fatbin
from .wheels import NAME, VERSION, ours, pack, strange

LIBRARY = "sparkbuild_llama_cpp/bin/libggml-cuda.so.0"
INFO = "sparkbuild_llama_cpp/build-info.json"
STRANGE = "llama_somewhere-1.2-py3-none-any.whl"


def seen(folder: Path, data: bytes, name: str = NAME) -> WheelLook:
    path = folder / name
    path.write_bytes(data)
    return look(path)


def states(found: WheelLook) -> dict[str, str]:
    return {one.name: one.state for one in found.findings}


def document(folder: Path, data: bytes, name: str = NAME) -> dict[str, object]:
    path = folder / name
    path.write_bytes(data)
    return see_wheel(path, find_recipes(None)).document


def without(data: bytes, name: str) -> bytes:
    """The same wheel with a member gone, and RECORD as it was."""
    return changed(data, {name: None})


def changed(data: bytes, changes: dict[str, bytes | None]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for member in old.namelist():
            content = changes.get(member, old.read(member))
            if content is not None:
                new.writestr(member, content)
    return out.getvalue()


def test_ours_tells_its_making(tmp_path: Path) -> None:
    found = seen(tmp_path, ours(patches=(("0001-a.patch", "a" * 64),)))
    assert states(found) == {"file name": "ok", "RECORD": "ok", "provenance": "ok"}
    assert (found.name, found.version) == ("sparkbuild-llama-cpp", VERSION)
    assert found.tags == ("py3-none-linux_aarch64",)
    made = found.made
    assert made is not None
    assert (made.variant, made.toolchain, made.architectures) == ("vision", "cuda-13.0", ("121a",))
    assert (made.build, made.commit, made.source) == (11434, "e" * 40, "d" * 64)
    assert [one.file for one in made.patches] == ["0001-a.patch"]
    assert made.parts == {"nvcc": "13.0.88", "cicc": "13.0.88", "ptxas": "13.0.88"}
    assert (made.qualification, made.smoke) == ("right", "passed, suite canary")
    assert {member.path for member in found.members} > {"sparkbuild_llama_cpp/build-info.json"}
    assert all(len(member.sha256) == 64 for member in found.members)


def test_its_libraries_are_looked_at(tmp_path: Path) -> None:
    told = document(tmp_path, ours())
    assert (told["result"], told["exit_code"], told["kind"]) == ("passed", 0, "wheel")
    binaries = told["binaries"]
    assert isinstance(binaries, (list, tuple))
    assert [one["build"] for one in binaries] == [11434]
    said = {one["name"]: one["state"] for one in told["findings"]}  # type: ignore[attr-defined]
    assert said == {
        "file name": "ok", "RECORD": "ok", "provenance": "ok", "GPU code": "ok", "machine": "ok",
        "GPU compiler": "ok",
    }  # fmt: skip


def test_a_stranger_s_is_told_what_it_is(tmp_path: Path) -> None:
    told = document(tmp_path, strange(), STRANGE)
    assert told["made"] is None
    assert told["name"] == "llama_somewhere"
    said = {one["name"]: one["state"] for one in told["findings"]}  # type: ignore[attr-defined]
    assert said == {
        "file name": "ok", "RECORD": "ok", "machine": "ok", "libggml-cuda.so: GPU code": "fault",
    }  # fmt: skip
    assert told["exit_code"] == PackageError.exit_code


def test_a_stranger_s_without_gpu_code_is_told_so(tmp_path: Path) -> None:
    told = document(tmp_path, strange(Elf().data()), STRANGE)
    assert told["exit_code"] == 0
    found = {one["name"]: one for one in told["findings"]}  # type: ignore[attr-defined]
    assert found["GPU code"]["state"] == "note"
    assert found["GPU code"]["found"] == "none in its 1 ELF files"


@pytest.mark.parametrize(
    ("nvcc", "library", "state"),
    [("13.2.51", "n132", "warning"), ("13.0.88", "s121a", "ok")],
)
def test_what_its_compiler_breaks_is_warned_of(
    nvcc: str, library: str, state: str, tmp_path: Path
) -> None:
    for data, name in (
        (ours(nvcc=nvcc), NAME),
        (strange(Elf(fatbin=fatbin(library)).data()), STRANGE),
    ):
        told = document(tmp_path, data, name)
        found = {
            one["name"].rpartition(": ")[2]: one
            for one in told["findings"]  # type: ignore[attr-defined]
        }
        if state == "ok":
            assert found.get("GPU compiler", {"state": "ok"})["state"] == "ok"
        else:
            assert found["GPU compiler"]["state"] == "warning"
            assert "which breaks iq1_s, iq2_s, iq3_s" in found["GPU compiler"]["found"]


def test_a_patch_that_works_around_it_makes_it_right(tmp_path: Path) -> None:
    patches = find_recipes(None).patchset("vision-132")[0].patches
    held = tuple((one.file, one.sha256) for one in patches)
    told = document(tmp_path, ours(nvcc="13.2.51", patches=held, variant="vision-132"))
    found = {one["name"]: one for one in told["findings"]}  # type: ignore[attr-defined]
    assert found["GPU compiler"]["state"] == "ok"
    assert "cicc-13.2-byte-mask is worked around" in found["GPU compiler"]["reason"]
    assert told["exit_code"] == 0


@pytest.mark.parametrize(
    ("data", "name", "said"),
    [
        (without(ours(), LIBRARY), "RECORD", "which is not there"),
        (changed(ours(), {INFO: b"{}"}), "provenance", "cannot be read"),
        (changed(strange(), {"llama_somewhere/__init__.py": b"evil()"}), "RECORD", "expected sha"),
    ],
)
def test_what_was_changed_is_a_fault(data: bytes, name: str, said: str, tmp_path: Path) -> None:
    found = seen(tmp_path, data)
    finding = next(one for one in found.findings if one.name == name)
    assert (finding.state, said in finding.found) == ("fault", True), finding


def test_a_name_that_says_otherwise_is_warned_of(tmp_path: Path) -> None:
    for name in ("other-1.2-py3-none-any.whl", "llama_somewhere-1.3-py3-none-any.whl",
                 "llama_somewhere-1.2-py3-none-linux_x86_64.whl", "no name"):  # fmt: skip
        assert states(seen(tmp_path, strange(), name))["file name"] == "warning", name
    assert states(seen(tmp_path, strange(), STRANGE))["file name"] == "ok"


def test_hostile_names_are_told_and_harmless(tmp_path: Path) -> None:
    data = pack({"\x1b[31m/../evil": b"x", "a-1.dist-info/METADATA": b""}, "a-1.dist-info/RECORD")
    found = seen(tmp_path, data)
    record = next(one for one in found.findings if one.name == "RECORD")
    assert record.state == "fault"
    assert "would be written outside" in record.found
    assert record.found.isprintable()


def test_folders_may_be_members_of_a_stranger_s_and_not_of_ours(tmp_path: Path) -> None:
    def folder(data: bytes) -> bytes:
        out = io.BytesIO(data)
        with zipfile.ZipFile(out, "a") as archive:
            archive.writestr("some/where/", b"")
        return out.getvalue()

    assert states(seen(tmp_path, folder(strange()), STRANGE))["RECORD"] == "ok"
    assert states(seen(tmp_path, folder(ours())))["RECORD"] == "fault"


def end_record(members: int, listed: int) -> bytes:
    return struct.pack(
        "<4s4H2LH", b"PK\5\6", 0, 0, members & 0xFFFF, members & 0xFFFF, listed, 0, 0
    )


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"PK\x03\x04" + bytes(100), "no list of its members"),
        (b"PK\x03\x04" + end_record(9, 1 << 31), "9 members in 2147483648 bytes, expected"),
        (b"PK\x03\x04" + end_record(9, 99), "it cannot be read"),
        (pack({"x/data.pkl": b""}, "x/RECORD"), "found a PyTorch checkpoint"),
        (pack({"x": b""}, "y"), "found an archive of other files"),
        (ours()[:-200], "no list of its members"),
    ],
)
def test_what_is_no_wheel_is_refused(data: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(PackageError) as caught:
        seen(tmp_path, data)
    assert said in caught.value.problems[0]
    assert caught.value.next_step


def test_64_bit_counts_are_limited_too(tmp_path: Path) -> None:
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1 << 30, 1 << 30, 1 << 40, 0)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, 4, 1)
    with pytest.raises(PackageError) as caught:
        seen(tmp_path, b"PK\x03\x04" + record + locator + end_record(0xFFFF, 0xFFFFFFFF))
    assert "it announces 1073741824 members" in caught.value.problems[0]


def test_what_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    with pytest.raises(PackageError) as caught:
        seen(tmp_path, strange(bytes(100_000)))
    assert "bytes, expected at most 1,000" in caught.value.problems[0]


def test_a_library_that_is_none_is_a_fault(tmp_path: Path) -> None:
    told = document(tmp_path, strange(b"\x7fELF and no more"), STRANGE)
    said = {one["name"]: one["state"] for one in told["findings"]}  # type: ignore[attr-defined]
    assert said["libggml-cuda.so: ELF"] == "fault"


def test_a_full_disk_is_told_and_no_library_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.BytesIO):
        def write(self, data: object, /) -> int:
            del data
            raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / STRANGE
    path.write_bytes(strange())
    monkeypatch.setattr("tempfile.TemporaryFile", Full)
    with pytest.raises(DiskFullError):
        list(module.elf_members(path))


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SparkbuildError):
        look(tmp_path / "none.whl")
