"""sparkbuild itself as a wheel: what it needs at run time travels inside."""

from __future__ import annotations

import json
import subprocess  # noqa: TID251 - tests run the product from outside
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own-wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, REPOSITORY],
        check=True,
        cwd="/",
    )
    return next(folder.glob("sparkbuild-*.whl"))


@pytest.mark.network
def test_recipes_suites_schemas_and_templates_are_inside(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    recipes = {
        f"sparkbuild/_recipes/{file.relative_to(REPOSITORY)}"
        for room in ("patchsets", "toolchains")
        for file in (REPOSITORY / room).rglob("*.toml")
    }
    package = REPOSITORY / "sparkbuild"
    data = {
        str(file.relative_to(REPOSITORY))
        for file in package.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert len(recipes) >= 6
    assert recipes | data <= names


@pytest.mark.network
def test_the_installed_command_knows_its_recipes(wheel: Path, tmp_path: Path) -> None:
    """Unpacked where no checkout is near, with this environment's own dependencies."""
    place = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(place)
    code = (
        f"import sys; sys.path[:0] = [{str(place)!r}]; sys.argv = ['sparkbuild', 'list', '--json'];"
        "from sparkbuild.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd="/", check=True, capture_output=True, text=True
    )
    facts = json.loads(done.stdout)
    assert facts["recipes"] == str(place / "sparkbuild" / "_recipes")
    assert "vision" in facts["variants"]
    assert sysconfig.get_path("purelib") not in facts["recipes"]
