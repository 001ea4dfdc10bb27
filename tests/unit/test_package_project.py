"""The generated project: texts that CMake, TOML and Python read as they were meant."""

from __future__ import annotations

import ast
import dataclasses
import json
import tomllib
from pathlib import Path

import pytest

from sparkbuild.errors import PackageError
from sparkbuild.package import project
from sparkbuild.package.project import Plan


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    payload = tmp_path / 'in"stall; $tree'
    payload.mkdir()
    (tmp_path / "LICENSE").write_text("MIT")
    return Plan(
        version="7.0.0+cpu.text.g0123456789ab",
        tag="py3-none-linux_x86_64",
        description='says "hello" \\ $name ${x}',
        payload=payload,
        executables={"llama-server": "0" * 64, "llama-quantize": "1" * 64},
        libraries={"libllama.so.0": "2" * 64},
        licences={"LICENSE": tmp_path / "LICENSE"},
        info='{"a": 1}\n',
    )


def test_pyproject_is_toml_with_the_plans_values(plan: Plan) -> None:
    read = tomllib.loads(project.pyproject_text(plan))
    assert read["project"]["version"] == plan.version
    assert read["project"]["description"] == plan.description
    assert read["project"]["license-files"] == ["LICENSE"]
    assert read["project"]["scripts"] == {
        "llama-server": "sparkbuild_llama_cpp._scripts:llama_server",
        "llama-quantize": "sparkbuild_llama_cpp._scripts:llama_quantize",
    }
    assert read["tool"]["scikit-build"]["install"]["strip"] is False


def test_what_must_be_beside_it_is_declared(plan: Plan) -> None:
    assert tomllib.loads(project.pyproject_text(plan))["project"]["dependencies"] == []
    requires = ("nvidia-cublas==13.1.0.3", "nvidia-cuda-runtime==13.0.96")
    read = tomllib.loads(project.pyproject_text(dataclasses.replace(plan, requires=requires)))
    assert read["project"]["dependencies"] == list(requires)


def test_the_project_names_no_place_but_through_a_link(plan: Plan, tmp_path: Path) -> None:
    root = tmp_path / "project"
    project.write_project(plan, root)
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in files if str(plan.payload) in path.read_text()]
    assert (root / "payload").resolve() == plan.payload
    assert (root / "sparkbuild_llama_cpp" / "build-info.json").read_text() == plan.info
    assert (root / "sparkbuild_llama_cpp" / "py.typed").is_file()


def test_the_package_is_valid_python_3_9(plan: Plan, tmp_path: Path) -> None:
    project.write_project(plan, tmp_path / "project")
    modules = sorted((tmp_path / "project" / "sparkbuild_llama_cpp").glob("*.py"))
    assert [path.name for path in modules] == ["__init__.py", "_launch.py", "_scripts.py"]
    for path in modules:
        ast.parse(path.read_text(), feature_version=(3, 9))


def test_scripts_call_their_own_binary(plan: Plan) -> None:
    module = ast.parse(project.scripts_text(sorted(plan.executables)))
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    assert sorted(functions) == ["llama_quantize", "llama_server"]
    assert "become('llama-server')" in ast.unparse(functions["llama_server"])


def test_licence_texts_at_the_top_and_below_licenses(tmp_path: Path) -> None:
    (tmp_path / "licenses" / "more").mkdir(parents=True)
    for name in ("LICENSE", "licenses/LICENSE-x", "licenses/more/LICENSE-y", "README.md"):
        (tmp_path / name).write_text(name)
    found = project.licence_files(tmp_path)
    assert list(found) == ["LICENSE", "licenses/LICENSE-x", "licenses/more/LICENSE-y"]
    assert all(path.read_text() == name for name, path in found.items())


def test_no_licence_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "licenses").mkdir()
    (tmp_path / "licenses" / "LICENSE-x").write_text("x")
    with pytest.raises(PackageError, match="no licence text"):
        project.licence_files(tmp_path)


def test_build_info_is_json_in_one_form(plan: Plan) -> None:
    from sparkbuild.package.info import as_json

    text = as_json({"b": "ä", "a": [1]})
    assert text == '{\n  "a": [\n    1\n  ],\n  "b": "\\u00e4"\n}\n'
    assert json.loads(text) == {"a": [1], "b": "ä"}
