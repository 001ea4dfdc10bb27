"""One root for what was asked, a question, or a refusal: bytes decide, and the reason is told."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbuild.errors import (
    ToolkitMiscompilesError,
    ToolkitMismatchError,
    UnknownNameError,
    UsageError,
)
from sparkbuild.files import DigestCache
from sparkbuild.manifest import Recipes, find_recipes
from sparkbuild.toolkit.book import Book
from sparkbuild.toolkit.choice.places import System
from sparkbuild.toolkit.choice.select import choose, plain_architectures, settle
from sparkbuild.toolkit.model import Accepted, Toolkit

from .conftest import Roots

NO_DRIVER = Path("/nonexistent/driver")
Settle = Callable[..., Toolkit]


@pytest.fixture(scope="module")
def recipes() -> Recipes:
    return find_recipes(None)


@pytest.fixture
def settled(
    recipes: Recipes,
    book: Book,
    digests: DigestCache,
    system: System,
    env: dict[str, str],
    tmp_path: Path,
) -> Settle:
    """``settle`` for what a user asks, on the small machine."""

    def run(
        asked: str, *architectures: str, accepted: tuple[str, ...] = (), lifted: Any = ()
    ) -> Toolkit:
        return settle(
            choose(recipes, asked), architectures, digests, book=book,
            provisioned=tmp_path / "toolkits", accepted=accepted, lifted=lifted, env=env,
            system=system,
        )  # fmt: skip

    return run


def test_nothing_asked_for_without_a_driver_means_cpu_and_says_so(recipes: Recipes) -> None:
    choice = choose(recipes, None, driver=NO_DRIVER)
    assert choice.toolchain.name == "cpu"
    assert "CPU only" in choice.reason


def test_nothing_asked_for_with_a_driver_is_a_question(recipes: Recipes, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        choose(recipes, None, driver=tmp_path)
    assert "--toolkit cpu" in caught.value.next_step


@pytest.mark.parametrize(
    ("asked", "name"),
    [("13.0", "13.0"), ("13.0.88", "13.0"), ("cuda-13.0", "13.0"), ("13.2.1", "13.2.1"),
     ("13.2.78", "13.2.1")],
)  # fmt: skip
def test_release_version_and_name_mean_the_same(recipes: Recipes, asked: str, name: str) -> None:
    choice = choose(recipes, asked)
    assert (choice.toolchain.name, choice.root) == (f"cuda-{name}", None)


@pytest.mark.parametrize("asked", ["13.2", "cuda-13.2"])
def test_a_minor_release_with_updates_is_asked_back(recipes: Recipes, asked: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose(recipes, asked)
    assert caught.value.problems == (
        "13.2.0: nvcc 13.2.51, known bad for 121a (cicc-13.2-byte-mask)",
        "13.2.1: nvcc 13.2.78, known bad for 121a (cicc-13.2-byte-mask)",
        "13.2.2: nvcc 13.2.86",
    )
    assert caught.value.next_step == "say which: --toolkit 13.2.0, 13.2.1 or 13.2.2"


@pytest.mark.parametrize("asked", ["13.00", "12", "13.2.5", "", "cuda"])
def test_an_unknown_toolkit_is_refused_with_the_known_ones(recipes: Recipes, asked: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        choose(recipes, asked)
    assert "13.0" in caught.value.problems[0]


def test_a_root_is_recognised_by_its_nvcc(recipes: Recipes, roots: Roots, tmp_path: Path) -> None:
    roots.programs(tmp_path / "cuda", "13.0.88")
    (tmp_path / "link").symlink_to(tmp_path / "cuda")
    for given_root in ("cuda", "link"):
        choice = choose(recipes, f"{tmp_path}/{given_root}")
        assert (choice.toolchain.name, choice.root) == ("cuda-13.0", tmp_path / "cuda")
    roots.programs(tmp_path / "old", "9.1.85")
    with pytest.raises(UnknownNameError) as unknown:
        choose(recipes, str(tmp_path / "old"))
    assert "9.1.85" in str(unknown.value)
    with pytest.raises(ToolkitMismatchError):
        choose(recipes, str(tmp_path / "none"))


def test_a_script_that_prints_a_version_is_no_compiler(
    recipes: Recipes, roots: Roots, tmp_path: Path
) -> None:
    roots.programs(tmp_path / "cuda", "13.0.88")
    for name, text in (("fake", "echo 'release 13.0, V13.0.88'"),
                       ("wrapped", f'exec {tmp_path}/cuda/bin/nvcc "$@"')):  # fmt: skip
        program = tmp_path / name / "bin/nvcc"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    with pytest.raises(ToolkitMismatchError) as fake:
        choose(recipes, str(tmp_path / "fake"))
    assert "states no version" in fake.value.problems[0]
    with pytest.raises(ToolkitMismatchError) as wrapped:
        choose(recipes, str(tmp_path / "wrapped"))
    assert wrapped.value.next_step == f"--toolkit {tmp_path}/cuda"


def test_the_only_good_one_is_taken(settled: Settle, roots: Roots, system: System) -> None:
    root = roots.make(system.local / "cuda-13.0")
    toolkit = settled("13.0")
    assert (toolkit.root, toolkit.architectures) == (str(root), ("121a",))
    assert toolkit.part("cicc").version == "13.0.88"
    assert toolkit.accepted == ()
    before = toolkit.identity
    roots.put(root / "bin/nvlink", "13.0.88")
    (root / "include/crt/host_config.h").write_text("/* another */\n")
    again = settled("13.0", "90")
    assert again.architectures == ("90",)
    assert again.identity != before, "every part is in the identity"


def test_the_link_points_elsewhere(settled: Settle, roots: Roots, system: System) -> None:
    """``/usr/local/cuda`` is 13.2 while 13.0 is asked for."""
    newer = roots.make(system.local / "cuda-13.2", "13.2.86")
    (system.local / "cuda").symlink_to(newer)
    with pytest.raises(ToolkitMismatchError) as caught:
        settled("13.0")
    assert caught.value.problems == (f"{newer}: nvcc 13.2.86, expected 13.0.88",)
    assert "not on this machine" in caught.value.message
    (system.local / "cuda-13.0").symlink_to(newer)
    with pytest.raises(ToolkitMismatchError):
        settled("13.0")
    good = roots.make(system.opt / "cuda-13.0")
    assert settled("13.0").root == str(good)


def test_a_machine_without_any(settled: Settle) -> None:
    with pytest.raises(ToolkitMismatchError) as caught:
        settled("13.0")
    assert caught.value.problems == ("no CUDA toolkit was found on this machine",)


def test_one_good_beside_bad_ones(settled: Settle, roots: Roots, system: System) -> None:
    roots.programs(system.local / "cuda-13.0", "13.0.88")
    good = roots.make(system.opt / "cuda-13.0")
    toolkit = settled("13.0")
    assert toolkit.root == str(good)
    assert toolkit.notes[0].startswith(f"passed over {system.local}/cuda-13.0: ")
    assert "libcublas" in toolkit.notes[0]


def test_equal_bytes_go_by_the_order_and_say_so(
    settled: Settle, roots: Roots, system: System, env: dict[str, str], tmp_path: Path
) -> None:
    first = roots.make(system.local / "cuda-13.0")
    second = system.opt / "cuda-13.0"
    shutil.copytree(first, second, symlinks=True)
    toolkit = settled("13.0")
    assert toolkit.root == str(first)
    assert toolkit.notes[0] == f"taken: {first}; the same toolkit is also at {second}"
    env["CUDA_HOME"] = str(second)
    assert settled("13.0").root == str(second)
    assert settled(str(first)).root == str(first)


def test_differing_bytes_are_asked_back(settled: Settle, roots: Roots, system: System) -> None:
    first = roots.make(system.local / "cuda-13.0")
    second = roots.make(system.opt / "cuda-13.0", cublas="13.1.1.3")
    with pytest.raises(UsageError) as caught:
        settled("13.0")
    text = "\n".join(caught.value.problems)
    assert "13.1.1.3" in text
    assert "13.1.0.3" in text
    assert "cicc" not in text
    assert caught.value.next_step == f"say which: --toolkit {first} or --toolkit {second}"
    assert settled(str(second)).root == str(second)


def test_no_good_one_names_every_fault_of_all(
    settled: Settle, roots: Roots, system: System
) -> None:
    mixed = roots.make(system.local / "cuda-13.0")
    roots.put(mixed / "bin/ptxas", "13.2.51")
    roots.programs(system.opt / "cuda", "13.0.88")
    with pytest.raises(ToolkitMismatchError) as caught:
        settled("13.0")
    text = "\n".join(caught.value.problems)
    assert "13.2.51" in text
    assert "13.0.88" in text
    assert len([line for line in caught.value.problems if line.startswith(f"{mixed}: ")]) > 0
    assert len([line for line in caught.value.problems if "/opt/cuda: " in line]) > 1
    assert set(caught.value.evidence) == {mixed, system.opt / "cuda"}
    with pytest.raises(ToolkitMismatchError) as named:
        settled(str(mixed))
    assert str(mixed) in named.value.message
    assert all(line.startswith(f"{mixed}: ") for line in named.value.problems)


def test_a_toolkit_for_another_machine_is_not_taken(
    settled: Settle, roots: Roots, system: System
) -> None:
    root = roots.make(system.local / "cuda-13.0")
    for path in [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]:
        data = path.read_bytes()
        if data[:4] == b"\x7fELF":
            machine = b"\xb7\0" if data[18:20] == b"\x3e\0" else b"\x3e\0"
            path.write_bytes(data[:18] + machine + data[20:])
    (root / "lib64/libcudart_static.a").write_bytes(b"!<arch>\n")
    with pytest.raises(ToolkitMismatchError) as caught:
        settled("13.0")
    assert "this machine is linux-" in "\n".join(caught.value.problems)


def test_known_bad_is_refused_with_all_that_is_known(
    settled: Settle, roots: Roots, system: System
) -> None:
    root = roots.make(system.local / "cuda-13.2", "13.2.51")
    with pytest.raises(ToolkitMiscompilesError) as caught:
        settled("13.2.0")
    error = caught.value
    assert error.exit_code == 10
    assert error.problems == (
        "wrong-code: cicc 13.2.51: drops a mask",
        "wrong-code, strikes 120a 121a; tensor types iq3_s",
        "wrong-code, evidence: seen in PTX",
        "wrong-code, read more: https://example.org/1",
        "nearest good release: 13.2.2",
    )
    assert error.evidence == (root / "nvvm/bin/cicc",)
    assert error.next_step.splitlines() == [
        "sparkbuild toolkit install 13.2.2 && sparkbuild make ... --toolkit 13.2.2",
        "or build in the knowledge that it is wrong: --accept wrong-code",
    ]
    with pytest.raises(ToolkitMiscompilesError):
        settled(str(root))
    assert settled("13.2.0", "90").root == str(root), "that target is not struck"


def test_accepted_it_is_taken_and_marked(settled: Settle, roots: Roots, system: System) -> None:
    roots.make(system.local / "cuda-13.2", "13.2.51")
    toolkit = settled("13.2.0", accepted=("wrong-code", "wrong-code"))
    assert toolkit.accepted == (Accepted(id="wrong-code", effect="drops a mask"),)


def test_what_a_patch_works_around_is_taken_and_told_apart_from_what_was_accepted(
    settled: Settle, roots: Roots, system: System
) -> None:
    roots.make(system.local / "cuda-13.2", "13.2.51")
    toolkit = settled("13.2.0", lifted=("wrong-code", "of another release"))
    assert toolkit.accepted == ()
    assert toolkit.lifted == (Accepted(id="wrong-code", effect="drops a mask"),)
    both = settled("13.2.0", accepted=("wrong-code",), lifted=("wrong-code",))
    assert (len(both.accepted), both.lifted) == (1, ()), "the user's word stands in the wheel"
    with pytest.raises(ToolkitMiscompilesError):
        settled("13.2.0", lifted=("of another release",))


def test_a_work_around_says_nothing_of_a_good_release(
    settled: Settle, roots: Roots, system: System
) -> None:
    roots.make(system.local / "cuda-13", "13.2.86")
    assert settled("13.2.2", lifted=("wrong-code",)).lifted == ()


@pytest.mark.parametrize(
    ("asked", "architectures", "accepted", "words"),
    [
        ("13.2.0", (), ("wrong", "wrong-code"), "known: wrong-code, rare-values"),
        ("13.2.0", ("90",), ("wrong-code",), "what is known of cuda-13.2.0 90: nothing"),
        ("13.2.2", (), ("wrong-code",), "nothing"),
        ("cpu", (), ("wrong-code",), "what is known of cpu: nothing"),
        ("cpu", (), ("no-such",), "known: wrong-code, rare-values"),
    ],
)
def test_an_acceptance_of_nothing_is_a_mistake(
    asked: str, architectures: Any, accepted: Any, words: str, settled: Settle, roots: Roots,
    system: System,
) -> None:  # fmt: skip
    roots.make(system.local / "cuda-13.2", "13.2.51")
    roots.make(system.local / "cuda-13", "13.2.86")
    with pytest.raises(UsageError) as caught:
        settled(asked, *architectures, accepted=accepted)
    assert words in "\n".join(caught.value.problems)


def test_a_warning_is_a_note_until_it_is_accepted(
    settled: Settle, roots: Roots, system: System
) -> None:
    roots.make(system.local / "cuda-13.0")
    note = "rare-values: nvcc 13.0.88: may lose a register (said by its maker)"
    assert note in settled("13.0").notes
    toolkit = settled("13.0", accepted=("rare-values",))
    assert note not in toolkit.notes
    assert [accepted.id for accepted in toolkit.accepted] == ["rare-values"]


def test_a_release_that_is_not_there_and_known_bad_says_both(settled: Settle) -> None:
    with pytest.raises(ToolkitMismatchError) as caught:
        settled("13.2.1")
    assert "mind: 13.2.1 is known bad, wrong-code: drops a mask" in caught.value.problems
    assert caught.value.next_step == "sparkbuild toolkit install 13.2.2"


def test_arch_means_nothing_to_a_cpu_build(settled: Settle) -> None:
    with pytest.raises(UsageError):
        settled("cpu", "121a")
    assert settled("cpu").parts == ()


def test_architectures_are_plain_and_come_once() -> None:
    assert plain_architectures(("sm_121a", "121a-real", "90", "121a")) == ("121a", "90")
    assert plain_architectures(()) == ()


@pytest.mark.parametrize("word", ["", "blackwell", "90;80", "-90", "0", "121A", "1234", "12 1"])
def test_what_is_no_architecture_is_refused(word: str) -> None:
    with pytest.raises(UsageError) as caught:
        plain_architectures(("90", word))
    assert repr(word) in caught.value.problems[0]


@settings(max_examples=25)
@given(st.text().filter(lambda text: "/" not in text))
def test_any_other_word_is_refused_and_never_guessed(recipes: Recipes, asked: str) -> None:
    try:
        chosen = choose(recipes, asked).toolchain
    except (UnknownNameError, UsageError):
        return
    assert chosen.cuda is None or asked in {chosen.name, chosen.cuda.release, chosen.cuda.nvcc}
