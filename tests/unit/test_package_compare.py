"""Two wheels that differ in one known thing: the comparison names that very thing."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess  # noqa: TID251 - makes ELF files to compare
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkbuild.errors import PackageError
from sparkbuild.package import compare_elf
from sparkbuild.package.compare import compare, content_differences
from sparkbuild.package.compare_gpu import fatbin_differences, normalised
from sparkbuild.package.differences import Comparison, Difference
from sparkbuild.wheel_compare_commands import compare_command

PAIRS = Path(__file__).parents[1] / "data" / "build" / "fatbin_pairs"
"""One kernel file compiled by nvcc 13.0.88 for 121a: as it is, in another folder, with one constant
changed, with a longer kernel."""

BIN = "pkg/bin"
ONE = """
int answer(int x) { return x * 3; }
int other(int x) { return x + 100; }
const char table[64] = "a table that lies in the read-only data";
const char *name(void) { return table; }
"""

Compile = Callable[..., bytes]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) on this machine")
    place = tmp_path_factory.mktemp("elf")

    def compile_it(source: str = ONE, *options: str, name: str = "one.c") -> bytes:
        (place / name).write_text(source)
        argv = [compiler, "-O1", "-shared", "-fPIC", "-Wl,--build-id=sha1", *options, "-o",
                "lib.so", name]  # fmt: skip
        subprocess.run(argv, check=True, cwd=place)
        return (place / "lib.so").read_bytes()

    return compile_it


def wheel(
    place: Path,
    members: Mapping[str, bytes],
    *,
    version: str = "1",
    mode: int = 0o644,
    date: tuple[int, int, int, int, int, int] = (1980, 1, 1, 0, 0, 0),
    level: int = 6,
) -> Path:
    path = place / f"pkg-{version}-py3-none-linux_x86_64.whl"
    place.mkdir(parents=True, exist_ok=True)
    named = {**members, f"pkg-{version}.dist-info/RECORD": repr(sorted(members.items())).encode()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as out:
        for name, data in named.items():
            info = zipfile.ZipInfo(name, date_time=date)
            info.external_attr = (stat.S_IFREG | mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(info, data, compresslevel=level)
    return path


def told(found: Comparison, member: str = f"{BIN}/lib.so") -> list[tuple[str, str, str]]:
    return [(d.kind, d.place, d.what) for d in found.differences if d.member == member]


def test_the_same_bytes(tmp_path: Path, compiled: Compile) -> None:
    members = {f"{BIN}/lib.so": compiled()}
    found = compare(wheel(tmp_path / "a", members), wheel(tmp_path / "b", members))
    assert found.identical
    assert found.differences == ()
    assert (found.members, found.equal) == (2, 2)


def test_a_changed_function_is_named_and_its_neighbours_are_not(
    tmp_path: Path, compiled: Compile
) -> None:
    one = {f"{BIN}/lib.so": compiled()}
    two = {f"{BIN}/lib.so": compiled(ONE.replace("x + 100", "x + 101"))}
    found = compare(wheel(tmp_path / "a", one), wheel(tmp_path / "b", two))
    assert not found.identical
    symbols = {place for kind, place, _ in told(found) if kind == "symbol"}
    assert symbols == {"other"}
    sections = {place for kind, place, _ in told(found) if kind == "section"}
    assert {".text", ".note.gnu.build-id"} <= sections
    assert ".rodata" not in sections


def test_changed_data_is_named(tmp_path: Path, compiled: Compile) -> None:
    one = {f"{BIN}/lib.so": compiled()}
    two = {f"{BIN}/lib.so": compiled(ONE.replace("a table", "b table"))}
    found = compare(wheel(tmp_path / "a", one), wheel(tmp_path / "b", two))
    assert ("symbol", "table", "bytes differ (.rodata)") in told(found)
    assert not [place for _, place, _ in told(found) if place in {".text", "answer"}]


def test_a_function_that_only_one_has_and_one_that_grew(tmp_path: Path, compiled: Compile) -> None:
    one = {f"{BIN}/lib.so": compiled()}
    two = {f"{BIN}/lib.so": compiled(
        ONE.replace("x * 3", "x * x * x * x + 7") + "int added(void) { return 1; }"
    )}  # fmt: skip
    found = compare(wheel(tmp_path / "a", one), wheel(tmp_path / "b", two))
    texts = {place: what for kind, place, what in told(found) if kind == "symbol"}
    assert texts["added"] == "only in the second (.text)"
    assert "and" in texts["answer"]
    assert "bytes" in texts["answer"]


def test_a_temporary_name_in_the_symbol_table_is_told(tmp_path: Path, compiled: Compile) -> None:
    """What nvcc's objects differed in: the name of a file that was gone when the compile ended."""
    one = {f"{BIN}/lib.so": compiled(name="tmpxft_0001.c")}
    two = {f"{BIN}/lib.so": compiled(name="tmpxft_0002.c")}
    found = compare(wheel(tmp_path / "a", one), wheel(tmp_path / "b", two))
    texts = [what for _, place, what in told(found) if place == ".symtab"]
    assert "source files that only the first names: tmpxft_0001.c" in texts
    assert "source files that only the second names: tmpxft_0002.c" in texts
    assert not [1 for kind, place, _ in told(found) if kind == "section" and place == ".text"]


def test_texts_are_quoted_and_records_only_mentioned(tmp_path: Path) -> None:
    one = wheel(tmp_path / "a", {"pkg/info.json": b'{\n"a": 1\n}\n'})
    two = wheel(tmp_path / "b", {"pkg/info.json": b'{\n"a": 2\n}\n'})
    found = compare(one, two)
    assert told(found, "pkg/info.json") == [("member", "", '-"a": 1\n+"a": 2')]
    assert told(found, "*.dist-info/RECORD") == [("member", "", "digests follow the members")]


def test_members_modes_dates_order_and_packing(tmp_path: Path) -> None:
    members = {"pkg/a": b"1" * 9999, "pkg/b": b"2"}
    first = wheel(tmp_path / "a", members)

    def differing(**changed: object) -> set[tuple[str, str]]:
        given = {"members": members, **changed}
        second = wheel(tmp_path / "b", **given)  # type: ignore[arg-type]
        return {(d.kind, d.what) for d in compare(first, second).differences}

    assert ("archive", "mode: 0o100644 and 0o100755") in differing(mode=0o755)
    assert any(what.startswith("date: ") for _, what in differing(date=(1981, 1, 1, 0, 0, 0)))
    assert ("member", "only in the first") in differing(members={"pkg/a": members["pkg/a"]})
    swapped = dict(reversed(members.items()))
    assert ("archive", "members are in another order") in differing(members=swapped)
    (packing,) = [what for kind, what in differing(level=0) if kind == "archive"]
    assert "packed otherwise" in packing


def test_another_version_s_metadata_is_still_the_same_member(tmp_path: Path) -> None:
    one = wheel(tmp_path / "a", {"pkg/a": b"1", "pkg-1.dist-info/METADATA": b"x"})
    two = wheel(tmp_path / "b", {"pkg/a": b"1", "pkg-2.dist-info/METADATA": b"x"}, version="2")
    found = compare(one, two)
    assert not [d for d in found.differences if d.what.startswith("only in")]
    assert any(d.what.startswith("path: ") for d in found.differences)


@pytest.mark.parametrize(
    ("other", "state", "place", "words"),
    [
        ("elsewhere", "same code", "sm_121a", "a checksum of the source's path differ"),
        ("constant", "differs",
         "sm_121a: _Z5applyIXadL_ZN39_INTERNAL_*_9_hidden_cu_5twiceEfEEEvPf",
         "1 of 24 instructions differ"),
        ("longer", "differs", "sm_121a: _Z5plainPf", "16 and 24 instructions"),
    ],
)  # fmt: skip
def test_kernels_by_their_code(other: str, state: str, place: str, words: str) -> None:
    first, second = ((PAIRS / f"{name}.bin").read_bytes() for name in ("first", other))
    (found,) = fatbin_differences(first, second)
    assert (found.state, found.place) == (state, place)
    assert words in found.what
    assert list(fatbin_differences(first, first)) == []


def test_kernels_are_found_inside_a_wheel(tmp_path: Path, compiled: Compile) -> None:
    plain = tmp_path / "plain.so"
    plain.write_bytes(compiled())

    def with_code(name: str) -> bytes:
        target = tmp_path / f"{name}.so"
        section = f".nv_fatbin={PAIRS / name}.bin"
        subprocess.run(["objcopy", "--add-section", section, plain, target], check=True)
        return target.read_bytes()

    def kernels(name: str) -> tuple[str, set[str]]:
        one = wheel(tmp_path / "a", {f"{BIN}/lib.so": with_code("first")})
        two = wheel(tmp_path / "b", {f"{BIN}/lib.so": with_code(name), "pkg/x": b""})
        found = compare(one, two)
        return found.gpu_code, {place for kind, place, _ in told(found) if kind == "kernel"}

    assert kernels("first") == ("same bytes", set())
    assert kernels("elsewhere") == ("same code", {"sm_121a"})
    assert kernels("longer") == ("differs", {"sm_121a: _Z5plainPf"})


def test_checksums_are_taken_out_of_names_and_nothing_else() -> None:
    name = "_Z5applyIXadL_ZN38_INTERNAL_913b2070_8_unary_cu_eb6d53666op_absEfEEvPf"
    assert normalised(name) == "_Z5applyIXadL_ZN38_INTERNAL_*_8_unary_cu_6op_absEfEEvPf"
    other = "_ZN35_GLOBAL__N__9fe341c4_5_t2_cu__Z1hPiL6hiddenE"
    assert normalised(other) == "_ZN35_GLOBAL__N__*_5_t2_cu__Z1hPiL6hiddenE"
    assert normalised("_Z5plainPf") == "_Z5plainPf"


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_damaged_library_is_reported_and_never_raised(
    data: st.DataObject, compiled: Compile
) -> None:
    good = compiled()
    bad = bytearray(good)
    for _ in range(data.draw(st.integers(1, 6))):
        bad[data.draw(st.integers(4, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    if bytes(bad) != good:
        found, _ = content_differences("lib.so", good, bytes(bad))
        assert all(isinstance(one, Difference) for one in found)
    assert content_differences("lib.so", good, good[: data.draw(st.integers(4, 900))])[0]


def test_the_first_differing_byte() -> None:
    assert compare_elf.first_difference(b"abcdef", b"abcxef") == 3
    assert compare_elf.first_difference(b"abc", b"abcd") == 3
    assert compare_elf.first_difference(b"", b"x") == 0


@pytest.mark.parametrize("kind", ["garbage", "truncated", "climbing", "no wheel"])
def test_what_is_no_wheel_is_refused(kind: str, tmp_path: Path) -> None:
    good = wheel(tmp_path / "a", {"pkg/a": b"1" * 500})
    bad = tmp_path / "bad.whl"
    if kind == "garbage":
        bad.write_bytes(b"no zip at all")
    elif kind == "truncated":
        bad.write_bytes(good.read_bytes()[:-40])
    elif kind == "climbing":
        bad = wheel(tmp_path / "b", {"../climbs": b"1"})
    else:
        with zipfile.ZipFile(bad, "w") as out:
            out.writestr("a", b"1")
    for pair in ((good, bad), (bad, good)):
        with pytest.raises(PackageError) as refusal:
            compare(*pair)
        assert bad in refusal.value.evidence


def test_a_damaged_member_is_refused(tmp_path: Path) -> None:
    good = wheel(tmp_path / "a", {"pkg/a": b"1" * 500})
    data = bytearray(good.read_bytes())
    data[data.index(b"pkg/a") + 8] ^= 0xFF
    bad = tmp_path / "b" / good.name
    bad.parent.mkdir()
    bad.write_bytes(data)
    with pytest.raises(PackageError, match="damaged"):
        compare(good, bad)


def test_the_command_says_it_and_ends_as_cmp_does(tmp_path: Path, compiled: Compile) -> None:
    one = wheel(tmp_path / "a", {f"{BIN}/lib.so": compiled()})
    two = wheel(tmp_path / "b", {f"{BIN}/lib.so": compiled(ONE.replace("+ 100", "+ 9"))})
    run = CliRunner()
    same = run.invoke(compare_command, [str(one), str(one)])
    assert (same.exit_code, "the same bytes" in same.output) == (0, True)
    different = run.invoke(compare_command, [str(one), str(two)])
    assert different.exit_code == 1
    assert "other" in different.output
    as_json = run.invoke(compare_command, [str(one), str(two), "--json"])
    said = json.loads(as_json.stdout)
    assert (said["schema"], said["identical"], said["gpu_code"]) == (1, False, "none")
    assert {"member": f"{BIN}/lib.so", "kind": "symbol", "place": "other",
            "what": "bytes differ (.text)"} in said["differences"]  # fmt: skip
