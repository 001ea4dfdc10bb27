"""Locks: RECORD and METADATA as they are read, wheels as they are chosen, the nine locks."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any, get_args

import pypi_simple
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.metadata import Metadata
from packaging.specifiers import SpecifierSet
from packaging.utils import parse_wheel_filename

from sparkbuild.errors import ToolkitMismatchError
from sparkbuild.manifest import find_recipes, load
from sparkbuild.toolkit.book import cuda, read_book
from sparkbuild.toolkit.lock import (
    PLATFORMS,
    Lock,
    LockedPart,
    LockedPlatform,
    LockedWheel,
    Metapackage,
    Platform,
    lock_path,
)
from sparkbuild.toolkit.parts import SPECS
from sparkbuild.toolkit.provision.locking import kept_version, lock_text, locked_platform, make_lock
from sparkbuild.toolkit.provision.pins import choose_wheel, exactly, pinned
from sparkbuild.toolkit.provision.wheel import Recorded, read_record, read_wheel, toolkit_path

from .conftest import PARTS, file_name, members_of, row, wheel_bytes

DATA = Path(__file__).parents[2] / "data" / "toolkit"
RECIPES = find_recipes(None)
BOOK = read_book(RECIPES)


def metadata(version: str) -> Metadata:
    text = (DATA / f"cuda_toolkit-{version}.METADATA").read_text()
    return Metadata.from_email(text, validate=False)


def indexed(*files: str, yanked: str = "") -> list[pypi_simple.DistributionPackage]:
    return [
        pypi_simple.DistributionPackage(
            filename=file, url=f"https://example.org/{file}", project="p", version=None,
            package_type="wheel" if file.endswith(".whl") else "sdist", digests={},
            requires_python=None, has_sig=None, is_yanked=file == yanked,
        )
        for file in files
    ]  # fmt: skip


# ---- RECORD


def test_a_real_record_gives_the_digests_of_the_lock() -> None:
    record = read_record((DATA / "nvidia_cuda_nvcc-13.0.88.RECORD").read_text())
    files = {toolkit_path(member): found for member, found in record.items()}
    locked = BOOK.locks["cuda-13.0"].platform["linux-x86_64"].parts
    assert files["bin/nvcc"].size == 30153384
    for part, path in (("nvcc", "bin/nvcc"), ("ptxas", "bin/ptxas"), ("nvlink", "bin/nvlink")):
        assert files[path].sha256 == locked[part].sha256
    assert None in files  # dist-info is no part of a toolkit


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1),
        st.tuples(st.binary(min_size=32, max_size=32), st.integers(0, 1 << 40)),
    )
)
def test_whatever_a_record_lists_is_read_back(files: dict[str, tuple[bytes, int]]) -> None:
    import base64
    import csv

    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for path, (digest, size) in files.items():
        text = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        writer.writerow([path, f"sha256={text}", size])
    assert read_record(out.getvalue()) == {
        path: Recorded(sha256=digest.hex(), size=size) for path, (digest, size) in files.items()
    }


FIELD = st.sampled_from(
    ["", "a", '"', ",", "\n", "\r", "é", "1", "-1", "²", "sha256=", "sha256=" + "A" * 43, "\0"]
)


@given(st.lists(st.lists(FIELD, max_size=4)).map(lambda rows: "\n".join(map(",".join, rows))))
def test_any_text_is_a_record_or_a_value_error(text: str) -> None:
    try:
        record = read_record(text)
    except ValueError:
        return
    assert all(re.fullmatch("[0-9a-f]{64}", found.sha256) for found in record.values())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a,b\n", "2 fields"),
        ("a,sha256=,1\n", "SHA-256"),
        ("a,,\n", "size"),
        ("a,,1\n", "SHA-256"),
        ("a,md5=rW9YU_ugyg0VnQ9Y1JrkmDDC-Mk_epJki5zpCttMbM0,1\n", "SHA-256"),
        ("a,sha256=rW9YU/ugyg0VnQ9Y1JrkmDDC+Mk_epJki5zpCttMbM0,1\n", "SHA-256"),
        (row("a", b"x") + "\n" + row("a", b"y"), "twice"),
        (row("a", b"x")[:-1] + "-1", "size"),
        (row("a", b"x")[:-1] + "²", "size"),
        ('"a', "comma separated"),
    ],
)
def test_a_bad_row_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_record(text)


# ---- METADATA


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_release_pins_every_part_by_its_metadata(platform: Platform) -> None:
    release = metadata("13.0.2")
    found = {spec.project: str(pinned(release, spec.project, platform)) for spec in SPECS}
    assert found == {
        "cuda-nvcc": "==13.0.88.*", "nvvm": "==13.0.88.*", "cuda-crt": "==13.0.88.*",
        "cuda-runtime": "==13.0.96.*", "cublas": "==13.1.0.3.*", "cuda-cccl": "==13.0.85.*",
    }  # fmt: skip
    older = metadata("12.9.2.0")
    assert str(pinned(older, "cuda-nvcc-cu12", platform)) == "==12.9.86.*"
    assert pinned(older, "nvvm-cu12", platform) is None
    assert pinned(older, "cuda-nvcc", platform) is None


def test_a_marker_for_another_platform_is_no_pin() -> None:
    text = (
        "Metadata-Version: 2.4\nName: m\nVersion: 1\nProvides-Extra: all\n"
        "Requires-Dist: nvidia-nvvm==1; sys_platform == 'win32'\n"
        "Requires-Dist: nvidia-cublas==1; platform_machine == 'aarch64' and extra == 'all'\n"
        "Requires-Dist: nvidia-cuda-crt==2\nRequires-Dist: nvidia-cuda-crt==3; extra == 'all'\n"
    )
    release = Metadata.from_email(text, validate=False)
    assert pinned(release, "nvvm", "linux-x86_64") is None
    assert pinned(release, "cublas", "linux-x86_64") is None
    assert pinned(release, "cublas", "linux-aarch64") == SpecifierSet("==1")
    with pytest.raises(ToolkitMismatchError, match="several versions of nvidia-cuda-crt") as error:
        pinned(release, "cuda-crt", "linux-x86_64")
    assert error.value.problems == ("==2", "==3")


@pytest.mark.parametrize(
    ("pins", "met"),
    [("==13.0.88.*", True), ("==13.0.88", True), (">=13.0", False), ("==13.0.*", True),
     ("==13.0.48.*", False), ("==13.0.88,!=13.0.1", False)],
)  # fmt: skip
def test_only_one_equality_pins_exactly(pins: str, met: bool) -> None:
    assert exactly(SpecifierSet(pins), "13.0.88") is met


# ---- wheels by their tags

CRT = "nvidia_cuda_crt-13.0.88-py3-none-manylinux2014_{0}.manylinux_2_17_{0}.whl"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_wheel_of_a_platform_is_chosen_by_its_tags(machine: str) -> None:
    files = indexed(
        CRT.format("x86_64"), CRT.format("aarch64"),
        "nvidia_cuda_crt-13.0.88-py3-none-win_amd64.whl",
        "nvidia_cuda_crt-13.0.88-py3-none-win_arm64.whl",
        "nvidia_cuda_crt-13.0.88-py3-none-linux_aarch64.whl",
        "nvidia_cuda_crt-13.0.88-py3-none-musllinux_1_2_x86_64.whl",
        "nvidia_cuda_crt-13.0.88-py3-none-any.whl",
        "nvidia_cuda_crt-13.0.88-cp312-cp312-manylinux_2_28_x86_64.whl",
        "nvidia_cuda_crt-13.0.88-py3-none-manylinux_2_28_ppc64le.whl",
        "nvidia_cuda_crt-13.0.48-py3-none-manylinux_2_28_x86_64.whl",
        "nvidia_cuda_crt-13.0.88.tar.gz", "nvidia_cuda_crt-13.0.88.whl",
    )  # fmt: skip
    pins = SpecifierSet("==13.0.88.*")
    found = choose_wheel(files, "nvidia-cuda-crt", pins, f"linux-{machine}")  # type: ignore[arg-type]
    assert found.filename == CRT.format(machine)


def test_the_newest_version_that_is_pinned_counts_unless_yanked() -> None:
    name = "nvidia_cuda_cccl-13.3.3.1{}-py3-none-manylinux_2_17_x86_64.whl"
    files = [name.format(end) for end in ("", ".post1", ".2rc1", ".3")]
    pins = SpecifierSet("==13.3.3.1.*")
    choice = choose_wheel(indexed(*files), "p", pins, "linux-x86_64")
    assert choice.filename == name.format(".3")
    choice = choose_wheel(indexed(*files, yanked=files[-1]), "p", pins, "linux-x86_64")
    assert choice.filename == name.format(".post1")


def test_none_or_two_wheels_are_refused() -> None:
    pins = SpecifierSet("==12.6.77.*")
    two = ["nvidia_cuda_cccl_cu12-12.6.77-py3-none-manylinux2014_aarch64.whl",
           "nvidia_cuda_cccl_cu12-12.6.77-py3-none-manylinux_2_17_aarch64.whl"]  # fmt: skip
    with pytest.raises(ToolkitMismatchError, match="2 wheels nvidia-x 12") as error:
        choose_wheel(indexed(*two), "nvidia-x", pins, "linux-aarch64")
    assert error.value.problems == tuple(sorted(two))
    with pytest.raises(ToolkitMismatchError, match=r"no wheel nvidia-x==12.6.77.\* for linux-x86"):
        choose_wheel(indexed(*two), "nvidia-x", pins, "linux-x86_64")


# ---- what is locked


def read(project: str, members: dict[str, bytes]) -> tuple[LockedWheel, Any]:
    data = wheel_bytes(project, "1.2", members)
    locked = LockedWheel(
        project=project, version="1.2", file=file_name(project, "1.2"), sha256="0" * 64, size=1
    )
    return locked, read_wheel(io.BytesIO(data), locked.file)[0]


def test_parts_get_their_wheel_s_version_and_absent_ones_are_named() -> None:
    found = locked_platform([read("nvidia-nvvm", members_of("nvidia-nvvm"))])
    assert found.parts.keys() == {"cicc", "libdevice"}
    assert found.parts["cicc"].version == "1.2"
    assert set(found.missing) == {spec.name for spec in SPECS} - {"cicc", "libdevice"}
    whole = locked_platform([read(project, members_of(project)) for project in PARTS])
    assert whole.missing == ()


def test_two_wheels_of_one_part_are_refused() -> None:
    pairs = [read(name, members_of("nvidia-nvvm")) for name in ("nvidia-nvvm", "nvidia-other")]
    with pytest.raises(ToolkitMismatchError, match="two wheels of one release bring the cicc"):
        locked_platform(pairs)


def test_a_lock_keeps_its_release_unless_told() -> None:
    lock = BOOK.locks["cuda-13.0"]
    assert kept_version(lock, asked=None, update=False) == "13.0.2"
    assert kept_version(lock, asked="13.0.3.0", update=False) == "13.0.3.0"
    assert kept_version(lock, asked=None, update=True) is None
    assert kept_version(None, asked=None, update=False) is None


def test_a_toolchain_without_cuda_cannot_be_locked() -> None:
    with pytest.raises(ToolkitMismatchError, match="cpu is no CUDA toolchain"):
        make_lock(RECIPES.toolchain("cpu")[0], None, lambda *_: None)


DIGEST = st.text("0123456789abcdef", min_size=64, max_size=64)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
WHEEL = st.builds(
    LockedWheel, project=st.just("nvidia-x"), version=TEXT, sha256=DIGEST,
    file=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,9}\.whl", fullmatch=True),
    size=st.integers(0, 1 << 40),
)  # fmt: skip
LOCKED = st.builds(
    LockedPlatform,
    wheels=st.lists(WHEEL, max_size=3).map(tuple),
    parts=st.dictionaries(TEXT, st.builds(LockedPart, version=TEXT, sha256=DIGEST), max_size=3),
    missing=st.lists(TEXT, max_size=3).map(tuple),
)
META = st.builds(Metapackage, project=st.just("cuda-toolkit"), version=TEXT,
                 file=st.just("a.whl"), sha256=DIGEST)  # fmt: skip


@settings(max_examples=30)
@given(META, st.dictionaries(st.sampled_from(get_args(Platform)), LOCKED))
def test_a_lock_s_text_is_read_back_whatever_its_order(
    tmp_path_factory: pytest.TempPathFactory,
    meta: Metapackage,
    platforms: dict[Platform, LockedPlatform],
) -> None:
    lock = Lock(schema=1, name="cuda-13.0", metapackage=meta, platform=platforms)
    turned = Lock(schema=1, name="cuda-13.0", metapackage=meta,
                  platform=dict(reversed(platforms.items())))  # fmt: skip
    text = lock_text(lock)
    assert text == lock_text(turned)
    file = tmp_path_factory.getbasetemp() / "lock.toml"
    file.write_text(text, newline="")
    assert load(file, Lock) == lock


# ---- the nine locks


@pytest.mark.parametrize("name", sorted(BOOK.toolchains))
def test_every_release_is_locked_whole_for_both_platforms(name: str) -> None:
    lock, section = BOOK.locks[name], cuda(BOOK.toolchains[name])
    assert lock_path(RECIPES, name).read_text() == lock_text(lock)
    assert lock.platform.keys() == set(PLATFORMS)
    for platform, locked in lock.platform.items():
        everything = {spec.name for spec in SPECS}
        assert locked.parts.keys() | set(locked.missing) == everything
        for wheel in locked.wheels:
            project, version, _, tags = parse_wheel_filename(wheel.file)
            assert (project, str(version)) == (wheel.project, wheel.version)
            machine = platform.partition("-")[2]
            assert all(tag.platform.endswith(machine) for tag in tags)
        versions = {wheel.project.removesuffix("-cu12"): wheel.version for wheel in locked.wheels}
        assert versions["nvidia-cuda-nvcc"] == locked.parts["ptxas"].version == section.nvcc
        assert section.release.startswith(section.cudart)
        assert versions["nvidia-cuda-runtime"].startswith(f"{section.cudart}.")
        if section.release == "12.9":
            assert {"nvcc", "cicc"} <= set(locked.missing)
        else:
            assert locked.missing == ()
            compiler = {locked.parts[spec.name].version for spec in SPECS
                        if spec.group == "compiler"}  # fmt: skip
            assert compiler == {section.nvcc}


def test_13_0_is_the_set_of_dgx_os() -> None:
    lock = BOOK.locks["cuda-13.0"]
    assert lock.metapackage.version == "13.0.2"
    for locked in lock.platform.values():
        assert locked.parts["libcublas"].version == "13.1.0.3"
