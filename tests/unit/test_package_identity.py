"""Versions, tags and names that installers accept."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from sparkbuild.errors import PackageError
from sparkbuild.package import identity

TREE = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("build", "label", "variant", "version"),
    [
        (11434, "cpu", "vision", "11434.0.0+cpu.vision.g0123456789ab"),
        (11434, "cu130", "vision-fork", "11434.0.0+cu130.vision.fork.g0123456789ab"),
        (None, "cpu", "text", "0.0.0+cpu.text.g0123456789ab"),
        (0, "cpu", "text", "0.0.0+cpu.text.g0123456789ab"),
        (7, "cpu", "a.-b-", "7.0.0+cpu.a.b.g0123456789ab"),
        # A part of digits only is a number to PEP 440: the leading zero goes.
        (7, "cpu", "v-01", "7.0.0+cpu.v.1.g0123456789ab"),
    ],
)
def test_version(build: int | None, label: str, variant: str, version: str) -> None:
    found = identity.wheel_version(build=build, label=label, variant=variant, tree=TREE)
    assert found == version


@settings(max_examples=50, deadline=None)
@given(
    build=st.integers(0, 10**6),
    label=st.from_regex("[a-z0-9]+", fullmatch=True),
    variant=st.from_regex("[a-z0-9][a-z0-9.-]*", fullmatch=True),
)
def test_every_name_that_a_manifest_allows_gives_a_version(
    build: int, label: str, variant: str
) -> None:
    version = identity.wheel_version(build=build, label=label, variant=variant, tree=TREE)
    name = identity.wheel_name(version, "py3-none-linux_aarch64")
    distribution, parsed, _, (tag,) = parse_wheel_filename(name)
    assert distribution == identity.DISTRIBUTION
    assert parsed == Version(version)
    assert str(parsed) == version
    assert (parsed.major, str(tag)) == (build, "py3-none-linux_aarch64")
    assert version.endswith(".g0123456789ab")


@pytest.mark.parametrize("tree", ["", "0123", "G" * 40, "0123456789a\n"])
def test_a_tree_id_that_is_none_is_refused(tree: str) -> None:
    with pytest.raises(PackageError, match="no git tree id"):
        identity.wheel_version(build=1, label="cpu", variant="text", tree=tree)


def test_tag_follows_the_elf_files() -> None:
    assert identity.platform_tag(["EM_X86_64"] * 3) == "py3-none-linux_x86_64"
    assert identity.platform_tag(["EM_AARCH64"]) == "py3-none-linux_aarch64"


@pytest.mark.parametrize("machines", [["EM_X86_64", "EM_AARCH64"], [], ["EM_RISCV"]])
def test_mixed_or_unknown_machines_are_refused(machines: list[str]) -> None:
    with pytest.raises(PackageError) as refused:
        identity.platform_tag(machines)
    assert refused.value.problems[1] == f"found {', '.join(sorted(machines)) or 'none'}"


@pytest.mark.parametrize(
    "name", ["../llama-server", "a/b", "-x", ".hidden", "a;b", "a b", 'a"b', "a$b", "", "a\n", "ä"]
)
def test_names_that_would_need_quoting_are_refused(name: str) -> None:
    assert len(identity.name_problems([name])) == 1


def test_two_names_for_one_function_are_refused() -> None:
    assert identity.name_problems(["llama-server", "libggml.so.0", "libggml.so.0"]) == []
    (problem,) = identity.name_problems(["llama-server", "llama_server"])
    assert "llama_server" in problem
