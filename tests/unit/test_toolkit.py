"""The host compiler is found on ``PATH`` and identified by what it says and by its files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.errors import HostError
from sparkbuild.toolkit.host import find_host_compiler, identification


def test_the_host_compiler_is_what_it_says() -> None:
    host = find_host_compiler()
    assert host.identification.split()[0] in {"GNU", "Clang"}
    assert Path(host.cxx).is_absolute()
    assert len(host.sha256) == 64
    assert "linux" in host.target


def test_a_machine_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError) as caught:
        find_host_compiler()
    assert len(caught.value.problems) == 3
    assert "install" in caught.value.next_step


def test_a_compiler_that_is_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("cc", "c++"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError) as caught:
        find_host_compiler()
    assert "no compiler" in caught.value.problems[0]


def test_identification_uses_cmakes_words() -> None:
    gnu = "#define __GNUC__ 12\n#define __GNUC_MINOR__ 2\n#define __GNUC_PATCHLEVEL__ 0\n"
    clang = (
        "#define __clang__ 1\n#define __clang_major__ 14\n#define __clang_minor__ 0\n"
        "#define __clang_patchlevel__ 6\n"
    )
    assert identification(gnu) == "GNU 12.2.0"
    assert identification(gnu + clang) == "Clang 14.0.6"
    assert identification("") is None
    assert identification("#define __clang__ 1") is None


@given(st.text())
def test_identification_takes_any_text(text: str) -> None:
    assert identification(text) is None or " " in str(identification(text))
