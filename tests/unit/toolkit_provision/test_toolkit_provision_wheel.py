"""Wheels that lie, climb, link and break off; and what unpacking honest ones gives."""

from __future__ import annotations

import io
import shutil
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.errors import ArchiveError
from sparkbuild.files import sha256_bytes
from sparkbuild.toolkit.parts import canonical, part_digests
from sparkbuild.toolkit.provision.unpack import unpack, unpacked_size
from sparkbuild.toolkit.provision.wheel import read_wheel, toolkit_path

from .conftest import PARTS, Spoiled, members_of, row, wheel_bytes

NAME = "nvidia_x-1-py3-none-manylinux_2_17_x86_64.whl"


def spoiled(
    members: Mapping[str, bytes] | None = None,
    *extra: tuple[zipfile.ZipInfo | str, bytes],
    record: str | None = None,
    rows: str = "",
) -> bytes:
    wrong = Spoiled(extra=list(extra), record=record, rows=rows)
    return wheel_bytes("nvidia-x", "1", members or {"nvidia/cu13/bin/nvcc": b"nvcc"}, wrong)


def special(name: str, mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = mode << 16
    return entry


def saved(folder: Path, data: bytes, name: str = NAME) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def problem_of(tmp_path: Path, *wheels: Path) -> str:
    shutil.rmtree(tmp_path / "root", ignore_errors=True)
    before = set(tmp_path.rglob("*"))
    with pytest.raises(ArchiveError) as error:
        unpack(wheels, tmp_path / "root")
    outside = {path for path in tmp_path.rglob("*") if tmp_path / "root" not in path.parents}
    assert outside - before <= {tmp_path / "root"}
    return " ".join([error.value.message, *error.value.problems])


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("/etc/passwd", "an absolute path"),
        ("C:/x", "an absolute path"),
        ("../x", "climbs out"),
        ("nvidia/cu13/../../../x", "climbs out"),
        ("nvidia/cu13/..", "climbs out"),
        ("nvidia//cu13/x", "an odd path"),
        ("nvidia/./x", "an odd path"),
        ("nvidia/cu13/a\\b", "an odd path"),
        ("nvidia/cu13/a\nb", "an odd path"),
        ("other/x", "outside nvidia/"),
        ("x", "outside nvidia/"),
        ("nvidia_x-1.data/scripts/run", "outside nvidia/"),
        ("nvidia_y-1.dist-info/METADATA", "one dist-info folder"),
        ("nvidia/cu13/bin/nvcc/x", "both a file and a folder"),
    ],
)
def test_a_member_that_no_toolkit_has_is_refused(tmp_path: Path, name: str, problem: str) -> None:
    wheel = saved(tmp_path, spoiled(None, (name, b"x")))
    text = problem_of(tmp_path, wheel)
    assert problem in text
    assert "nvidia_x-1-py3" in text


@pytest.mark.parametrize(
    ("mode", "problem"),
    [
        (stat.S_IFLNK | 0o777, "a link"),
        (stat.S_IFIFO | 0o644, "neither a file"),
        (stat.S_IFCHR | 0o644, "neither a file"),
    ],
)
def test_a_link_or_device_is_refused(tmp_path: Path, mode: int, problem: str) -> None:
    wheel = spoiled(None, (special("nvidia/cu13/lib/x", mode), b"/etc/passwd"))
    assert problem in problem_of(tmp_path, saved(tmp_path, wheel))


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        wheel = spoiled({"nvidia/cu13/a": b"1"}, ("nvidia/cu13/a", b"1"))
    assert "the same name twice" in problem_of(tmp_path, saved(tmp_path, wheel))


def test_record_and_members_must_be_the_same_list(tmp_path: Path) -> None:
    gone = spoiled(None, rows=row("nvidia/cu13/gone", b"x"))
    assert "and it is not there" in problem_of(tmp_path, saved(tmp_path, gone))
    honest = wheel_bytes("nvidia-x", "1", {})
    with zipfile.ZipFile(io.BytesIO(honest)) as archive:
        record = archive.read("nvidia_x-1.dist-info/RECORD").decode()
    unlisted = spoiled({"nvidia/cu13/x": b"x"}, record=record)
    assert "RECORD does not list it" in problem_of(tmp_path, saved(tmp_path, unlisted))


@pytest.mark.parametrize("announced", [b"other", b"nvc", b"nvcc and more", b"NVCC"])
def test_bytes_that_record_does_not_announce_are_refused(tmp_path: Path, announced: bytes) -> None:
    info = "nvidia_x-1.dist-info"
    with zipfile.ZipFile(io.BytesIO(spoiled())) as archive:
        rows = [row(name, archive.read(name)) for name in archive.namelist() if name[:3] != "nvi"]
        rows += [row(name, archive.read(name)) for name in archive.namelist()
                 if name.startswith(info) and not name.endswith("RECORD")]  # fmt: skip
    rows.append(row("nvidia/cu13/bin/nvcc", announced))
    wheel = saved(tmp_path, spoiled(record="\n".join(rows)))
    assert f"found 4 with {sha256_bytes(b'nvcc')}" in problem_of(tmp_path, wheel)


def test_every_broken_off_or_flipped_wheel_is_refused_or_right(tmp_path: Path) -> None:
    """A wheel is read after its digest was met, so this guards what a disk does later."""
    data = spoiled({"nvidia/cu13/bin/nvcc": b"nvcc" * 40})
    right = {"bin/nvcc": sha256_bytes(b"nvcc" * 40)}
    for at in range(0, len(data), 7):
        for wrong in (data[:at], data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :]):
            root = tmp_path / f"root-{at}-{len(wrong)}"
            try:
                files = unpack([saved(tmp_path, wrong)], root).files
            except ArchiveError:
                continue
            found = {path: file.sha256 for path, file in files.items()}
            assert right.items() <= found.items() or "bin/nvcc" not in found


@given(st.lists(st.text(st.sampled_from("nvidiacu13/.\\:\té-_"), min_size=1), max_size=4))
def test_whatever_a_member_s_name_is_its_place_is_below_the_root(names: list[str]) -> None:
    wrong = Spoiled(extra=[(zipfile.ZipInfo(name), b"x") for name in dict.fromkeys(names)])
    members = {"nvidia/cu13/a": b"1"}
    try:
        data = wheel_bytes("nvidia-x", "1", members, wrong)
    except UserWarning:  # two names that zipfile writes as one
        return
    try:
        wheel, _ = read_wheel(io.BytesIO(data), NAME)
    except ArchiveError:
        return
    for place in wheel.toolkit_files():
        path = PurePosixPath(place)
        assert not path.is_absolute()
        assert ".." not in path.parts
        assert path.as_posix() == place


def test_two_wheels_may_share_a_path_only_with_the_same_bytes(tmp_path: Path) -> None:
    def wheel(project: str, members: Mapping[str, bytes]) -> Path:
        return saved(tmp_path, wheel_bytes(project, "1", members), f"{project}.whl")

    one = wheel("nvidia-a", {"nvidia/cu13/include/a.h": b"1"})
    same = wheel("nvidia-b", {"nvidia/cu13/include/a.h": b"1"})
    other = wheel("nvidia-c", {"nvidia/cu13/include/a.h": b"2"})
    below = wheel("nvidia-d", {"nvidia/cu13/include/a.h/b": b"1"})
    nested = wheel("nvidia-e", {"nvidia/x/include/a.h": b"1", "nvidia/y/include/a.h": b"1"})
    licence = wheel("nvidia-f", {"nvidia/cu13/licenses/nvidia-f.txt": b"mine"})
    assert unpack([one, same], tmp_path / "good").files.keys() >= {"include/a.h"}
    assert "other bytes" in problem_of(tmp_path, one, other)
    assert "a folder in another wheel" in problem_of(tmp_path, one, below)
    assert "a folder in another wheel" in problem_of(tmp_path, below, one)
    assert "brought by" in problem_of(tmp_path, nested)
    assert "holds what" in problem_of(tmp_path, licence)


def test_a_whole_release_becomes_one_tree(tmp_path: Path) -> None:
    wheels = [
        saved(tmp_path, wheel_bytes(name, "1", members_of(name)), f"{name}.whl") for name in PARTS
    ]
    seen: list[tuple[int, int, str]] = []
    made = unpack(wheels, tmp_path / "root", progress=lambda *now: seen.append(now))
    on_disk = {
        path.relative_to(tmp_path / "root").as_posix()
        for path in (tmp_path / "root").rglob("*")
        if path.is_file()
    }
    assert on_disk == made.files.keys()
    assert not any(".metadata" in path for path in on_disk)
    for path, file in made.files.items():
        data = (tmp_path / "root" / path).read_bytes()
        assert (file.sha256, file.size) == (sha256_bytes(data), len(data))
    modes = {path for path in on_disk if (tmp_path / "root" / path).stat().st_mode & 0o111}
    assert modes == {path for path in on_disk if "bin/" in path}
    assert (tmp_path / "root/licenses/nvidia-nvvm.txt").read_bytes() == b"the terms of nvidia-nvvm"
    assert set(made.licences.values()) == {"LicenseRef-NVIDIA-Proprietary"}
    total = sum(file.size for file in made.files.values())
    assert seen[-1] == (total, total, "unpacking")
    texts = sum(file.size for path, file in made.files.items() if path.startswith("licenses/"))
    assert unpacked_size(wheels) == total - texts


def test_the_older_layout_has_a_folder_for_each_part(tmp_path: Path) -> None:
    """CUDA 12.9 has ``nvidia/<part>/``, no nvcc, and Python files between the headers."""
    wheel = wheel_bytes(
        "nvidia-cuda-nvcc-cu12", "12.9.86",
        {"nvidia/__init__.py": b"", "nvidia/cuda_nvcc/__init__.py": b"",
         "nvidia/cuda_nvcc/bin/ptxas": b"ptxas", "nvidia/cuda_nvcc/include/crt/a.h": b"a",
         "nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc": b"BC"},
    )  # fmt: skip
    made = unpack([saved(tmp_path, wheel)], tmp_path / "root")
    digests = {canonical(path): file.sha256 for path, file in made.files.items()}
    assert part_digests(digests).keys() == {"ptxas", "crt headers", "libdevice"}
    assert not list((tmp_path / "root").rglob("*.py"))


def test_a_program_is_executable_whatever_its_maker_says(tmp_path: Path) -> None:
    wheel = wheel_bytes("nvidia-x", "1", {}, Spoiled(
        extra=[(special("nvidia/cu13/bin/ptxas", stat.S_IFREG | 0o644), b"p"),
               (special("nvidia/cu13/bin/helper", stat.S_IFREG | 0o755), b"h"),
               ("nvidia/cu13/bin/nvcc.profile", b"t")]))  # fmt: skip
    unpack([saved(tmp_path, wheel)], tmp_path / "root")
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "root/bin").iterdir()
    }
    assert modes == {"ptxas": 0o755, "helper": 0o755, "nvcc.profile": 0o644}


@pytest.mark.parametrize(
    ("member", "place"),
    [("nvidia/cu13/bin/nvcc", "bin/nvcc"), ("nvidia/cuda_nvcc/nvvm/bin/cicc", "nvvm/bin/cicc"),
     ("nvidia/cu13/.metadata/x", None), ("nvidia/cu13/include/__init__.py", None),
     ("nvidia/x", None), ("x-1.dist-info/RECORD", None)],
)  # fmt: skip
def test_where_a_member_belongs(member: str, place: str | None) -> None:
    assert toolkit_path(member) == place
