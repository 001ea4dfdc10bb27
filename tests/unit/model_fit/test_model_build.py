"""What a build knows is read from its libraries' strings, whatever machine they are for."""

from pathlib import Path

import pytest

from sparkbuild.errors import BinaryError, UsageError
from sparkbuild.model.build import plain, read_build

from .conftest import GRAPHS, graph_names, library


def test_names_are_known_alone_and_as_the_end_of_another(folder: Path) -> None:
    build = read_build(folder)
    assert build.llama.knows("glm5-next")
    assert build.llama.knows("qwen2")  # a linker folded it into rwkv6qwen2
    assert not build.llama.knows("glm5next")
    assert not build.llama.knows("")
    assert build.mtmd is not None
    assert build.mtmd.knows("glm5v")
    assert not build.mtmd.knows("glm5next")
    assert build.llama.machine == "x86_64"


def test_mtp_graphs_are_read_from_type_names(folder: Path) -> None:
    build = read_build(folder)
    assert build.mtp_graphs == {plain(name) for name in GRAPHS}
    assert build.has_mtp_graph("glm4moe")
    assert not build.has_mtp_graph("glm5-next")


def test_a_type_name_of_another_length_is_none(tmp_path: Path) -> None:
    library(tmp_path / "libllama.so", ["N19llama_model_qwen359graph_mtpE", *graph_names(["mimo2"])])
    assert read_build(tmp_path).mtp_graphs == {"mimo2"}


@pytest.mark.parametrize("place", ["", "bin", "lib"])
def test_a_library_for_another_machine_is_read(place: str, tmp_path: Path) -> None:
    (tmp_path / place).mkdir(exist_ok=True)
    library(tmp_path / place / "libllama.so.0.6.0", ["glm5-next"], machine=183)
    build = read_build(tmp_path)
    assert (build.llama.machine, build.llama.knows("glm5-next")) == ("aarch64", True)
    assert build.mtmd is None
    assert build.ggml is None


def test_a_server_with_everything_in_it_is_asked_for_all(tmp_path: Path) -> None:
    library(tmp_path / "llama-server", ["llama", "glm5v", "q8_0"])
    build = read_build(tmp_path)
    assert build.mtmd is build.llama
    assert build.ggml is build.llama


def test_pages_of_text_are_passed_over(tmp_path: Path) -> None:
    library(tmp_path / "libllama.so", ["x" * (1 << 20), "glm5-next"])
    assert read_build(tmp_path).llama.texts == {"glm5-next"}


def test_a_folder_without_a_build_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no build"):
        read_build(tmp_path)


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "libllama.so").write_text("not found")
    with pytest.raises(BinaryError) as caught:
        read_build(tmp_path)
    assert "expected an ELF file" in caught.value.problems[0]
