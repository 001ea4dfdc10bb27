"""A fault is compiled beside a real build of CMake's: that stays as it is, its copy is changed."""

from __future__ import annotations

import subprocess  # noqa: TID251 - tests run tools from outside
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparkbuild import process
from sparkbuild.faults.contract import NotPlantedError, Place
from sparkbuild.faults.lane import Lane, lane_of
from sparkbuild.faults.model import SourceSeed
from sparkbuild.faults.overlay import Overlay, _lend_runtime, build_beside
from sparkbuild.faults.seeds.source import plant_source

FILES = {
    "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.20)
project(tiny CXX)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(STRIP "objcopy --wildcard --strip-symbol='*.gone'")
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH $ORIGIN)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
# Two programs for an object, as the product's own rule for CUDA has it.
set(CMAKE_CXX_COMPILE_OBJECT
  "<CMAKE_CXX_COMPILER> <DEFINES> <INCLUDES> <FLAGS> -o <OBJECT> -c <SOURCE>;${STRIP} <OBJECT>")
add_library(one SHARED one/one.cpp one/half.cpp)
set_target_properties(one PROPERTIES VERSION 1.2 SOVERSION 1)
add_library(two SHARED two.cpp)
target_link_libraries(two PRIVATE one)
add_library(common STATIC common.cpp)
add_executable(llama-server main.cpp)
target_link_libraries(llama-server PRIVATE common two one)
""",
    "README": "a word\n",
    "one/number.h": "#pragma once\nstatic inline int number() { return 7; }\nint half();\n",
    "one/one.cpp": '#include "number.h"\nint one() { return number() + half(); }\n',
    "one/half.cpp": '#include "number.h"\nint half() { return 2 * number(); }\n',
    "two.cpp": "int one();\nint two() { return 100 * one(); }\n",
    "common.cpp": "int common() { return 100000; }\n",
    "main.cpp": "#include <cstdio>\nint two();\nint common();\n"
    'int main() { std::printf("%d", two() + common()); }\n',
}
CLEAN = "102100"
"""100000 + 100 * (7 + 2 * 7)."""


@pytest.fixture(scope="module")
def lane(tmp_path_factory: pytest.TempPathFactory) -> Lane:
    """Two libraries, an archive and a program, built by CMake and ninja."""
    root = tmp_path_factory.mktemp("work")
    source, binary = root / "sources" / "tree", root / "builds" / "tiny-cuda-1-abc" / "cmake"
    for name, text in FILES.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    cmake, ninja = str(process.python_program("cmake")), str(process.python_program("ninja"))
    folders = ["-S", str(source), "-B", str(binary)]
    configure = [cmake, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", *folders]
    for command in (configure, [ninja, "-C", str(binary)]):
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    found = lane_of(root, binary)
    assert found
    assert says(found.bin) == CLEAN
    return found


def says(binaries: Path) -> str:
    """What the program prints, wherever it is started."""
    done = subprocess.run(
        [binaries / "llama-server"], capture_output=True, text=True, check=True, timeout=60, cwd="/"
    )
    return done.stdout


def states(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Bytes and times; a link's too."""
    return {
        str(file.relative_to(folder)): (file.stat().st_ctime_ns, file.read_bytes())
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def change(folder: Path, name: str, old: str, new: str) -> Path:
    """A patch of one line of a file of the project."""
    lines = FILES[name].splitlines()
    number = next(index for index, line in enumerate(lines) if old in line)
    text = [f"--- a/{name}", f"+++ b/{name}", f"@@ -1,{len(lines)} +1,{len(lines)} @@"]
    for index, line in enumerate(lines):
        text += [f"-{line}", f"+{line.replace(old, new)}"] if index == number else [f" {line}"]
    file = folder / "one.patch"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(text) + "\n")
    return file


def overlay(lane: Lane, folder: Path) -> Overlay:
    root = folder / "beside"
    root.mkdir(parents=True)
    return Overlay(lane=lane, root=root, log=folder / "log", jobs=2)


def test_one_source_makes_one_library_and_the_build_stays(lane: Lane, tmp_path: Path) -> None:
    before = states(lane.root)
    place = overlay(lane, tmp_path)
    patch = change(tmp_path, "one/half.cpp", "2 *", "3 *")
    assert build_beside(place, patch) == ("libone.so.1.2",)
    assert says(place.bin) == str(100000 + 100 * (7 + 3 * 7))
    assert states(lane.root) == before
    assert says(lane.bin) == CLEAN
    assert {file.name for file in place.bin.iterdir()} == {file.name for file in lane.bin.iterdir()}
    assert not [file for file in place.bin.iterdir() if str(lane.root) in str(file.resolve())]


def test_a_header_reaches_every_unit_or_those_that_are_named(lane: Lane, tmp_path: Path) -> None:
    place = overlay(lane, tmp_path / "every")
    patch = change(tmp_path, "one/number.h", "return 7", "return 8")
    build_beside(place, patch)
    assert says(place.bin) == str(100000 + 100 * (8 + 2 * 8))
    place = overlay(lane, tmp_path / "some")
    build_beside(place, patch, ["one.cpp"])
    assert says(place.bin) == str(100000 + 100 * (8 + 2 * 7))
    with pytest.raises(NotPlantedError, match="no object of this build"):
        build_beside(overlay(lane, tmp_path / "none"), patch, ["two.cpp"])


def test_what_goes_into_an_archive_is_linked_into_programs(lane: Lane, tmp_path: Path) -> None:
    place = overlay(lane, tmp_path)
    assert build_beside(place, change(tmp_path, "common.cpp", "1000", "3000")) == ("llama-server",)
    assert says(place.bin) == str(300000 + 2100)
    assert says(lane.bin) == CLEAN


def test_many_faults_are_planted_beside_one_build_at_once(lane: Lane, tmp_path: Path) -> None:
    def planted(factor: int) -> str:
        folder = tmp_path / str(factor)
        place = overlay(lane, folder)
        build_beside(place, change(folder, "one/half.cpp", "2 *", f"{factor} *"))
        return says(place.bin)

    factors = (3, 4, 5, 6)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(planted, factors))
    assert found == [str(100000 + 100 * (7 + factor * 7)) for factor in factors]


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("one/half.cpp", "2 *", "2 * /* a word */", "changes no code"),
        ("one/half.cpp", "2 *", "2 * nothing *", r"half\.cpp\.o is not made: .*error.*nothing"),
        ("README", "word", "sentence", "no object of this build is made of what"),
        ("two.cpp", "100 * one", "100 * gone", r"two\.cpp\.o is not made"),
    ],
)
def test_what_plants_nothing_is_told(
    lane: Lane, tmp_path: Path, name: str, old: str, new: str, words: str
) -> None:
    with pytest.raises(NotPlantedError, match=words):
        build_beside(overlay(lane, tmp_path), change(tmp_path, name, old, new))


def test_a_patch_that_does_not_fit_is_not_planted(lane: Lane, tmp_path: Path) -> None:
    patch = change(tmp_path, "one/half.cpp", "2 *", "3 *")
    patch.write_text(patch.read_text().replace("number.h", "letter.h"))
    with pytest.raises(NotPlantedError, match=r"one\.patch does not apply"):
        build_beside(overlay(lane, tmp_path), patch)


def test_a_build_that_ninja_does_not_know_is_told(lane: Lane, tmp_path: Path) -> None:
    other = Lane(root=tmp_path, source=lane.source, binary=tmp_path / "empty")
    other.binary.mkdir()
    with pytest.raises(NotPlantedError, match="ninja does not know this build"):
        build_beside(overlay(other, tmp_path), change(tmp_path, "one/half.cpp", "2 *", "3 *"))


def test_the_run_time_lies_where_the_files_look_for_it(lane: Lane, tmp_path: Path) -> None:
    place = overlay(lane, tmp_path)
    (tmp_path / "toolkit").mkdir()
    runtime = tmp_path / "toolkit" / "libcudart.so"
    runtime.write_text("a library")
    runpath = "-Wl,-rpath,$ORIGIN:$ORIGIN/../../nvidia/cu13/lib:/usr/lib/elsewhere"
    _lend_runtime(place, ["c++", runpath])
    assert not (place.root / "nvidia").exists()
    _lend_runtime(place, ["c++", runpath, str(runtime)])
    found = place.bin / ".." / ".." / "nvidia" / "cu13" / "lib" / "libcudart.so"
    place.bin.mkdir(parents=True)
    assert found.read_text() == "a library"


def test_the_planter_asks_the_copy_on_a_gpu(lane: Lane, tmp_path: Path) -> None:
    change(tmp_path / "patches", "one/half.cpp", "2 *", "3 *")
    place = Place(
        scratch=tmp_path / "scratch", catalogue=tmp_path, work=lane.root, lane=tmp_path / "lane",
        log=tmp_path / "log", cuda=lane.binary,
    )  # fmt: skip
    seed = SourceSeed(patch="one.patch", backend="cuda")
    with plant_source(seed, place) as planted:
        assert planted.arguments[:4] == (
            "smoke", str(place.scratch / "beside" / "build" / "bin"), "--backend", "cuda",
        )  # fmt: skip
        assert says(Path(planted.arguments[1])) == str(100000 + 100 * (7 + 3 * 7))
    nowhere = Place(
        scratch=tmp_path / "other", catalogue=tmp_path, work=lane.root, lane=tmp_path / "lane",
        log=tmp_path / "log",
    )  # fmt: skip
    with (
        pytest.raises(NotPlantedError, match="no finished CUDA build"),
        plant_source(seed, nowhere),
    ):
        pass
