"""The small project that scikit-build-core packs: generated text around the tested files."""

from __future__ import annotations

import json
import shutil
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild.errors import PackageError
from sparkbuild.package import identity

TEMPLATE: Final = Path(__file__).parent / "template"

PAYLOAD: Final = "payload"
"""A link to the install tree, so that CMake needs to quote no path of this machine."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that decides a wheel's bytes: its name, its files by digest, its texts."""

    version: str
    tag: str
    description: str
    payload: Path
    """The install tree."""
    executables: Mapping[str, str]
    """File name to SHA-256."""
    libraries: Mapping[str, str]
    """File name to SHA-256."""
    licences: Mapping[str, Path]
    """Path below the metadata folder's ``licenses/`` to the file in the source tree."""
    info: str
    """The text of ``build-info.json``."""
    requires: tuple[str, ...] = ()
    """Wheels that this one needs beside it, ``nvidia-cublas==13.1.0.3``, sorted."""

    @property
    def name(self) -> str:
        """The wheel's file name."""
        return identity.wheel_name(self.version, self.tag)


def licence_files(source_dir: Path) -> dict[str, Path]:
    """The licence texts of a llama.cpp tree: ``LICENSE*`` and all below ``licenses/``.

    Raises PackageError where there is none at the top: the licence asks to be passed on.
    """
    top = sorted(path for path in source_dir.glob("LICENSE*") if path.is_file())
    if not top:
        raise PackageError(
            "the source tree has no licence text to pass on with the binaries",
            problems=[f"expected LICENSE in {source_dir}, found none"],
            evidence=[source_dir],
            next_step="fetch the source again: `sparkbuild source fetch --variant VARIANT`",
        )
    below = sorted(path for path in source_dir.glob("licenses/**/*") if path.is_file())
    return {path.relative_to(source_dir).as_posix(): path for path in [*top, *below]}


def write_project(plan: Plan, root: Path) -> None:
    """Fill the empty directory ``root`` with the project that makes ``plan``'s wheel."""
    package = root / identity.IMPORT_NAME
    package.mkdir(parents=True)
    (root / PAYLOAD).symlink_to(plan.payload.resolve(), target_is_directory=True)
    _write(root / "pyproject.toml", pyproject_text(plan))
    _write(root / "payload.cmake", payload_text(plan))
    _write(root / "CMakeLists.txt", (TEMPLATE / "CMakeLists.txt").read_text())
    for source in sorted((TEMPLATE / identity.IMPORT_NAME).iterdir()):
        if source.is_file():
            _write(package / source.name, source.read_text())
    _write(package / f"{identity.SCRIPTS_MODULE}.py", scripts_text(sorted(plan.executables)))
    _write(package / "build-info.json", plan.info)
    for name, path in plan.licences.items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        target.chmod(0o644)


def pyproject_text(plan: Plan) -> str:
    """``pyproject.toml``, every value quoted as TOML (JSON strings are TOML strings)."""
    scripts = identity.entry_points(plan.executables)
    return string.Template((TEMPLATE / "pyproject.toml.in").read_text()).substitute(
        name=json.dumps(identity.DISTRIBUTION),
        version=json.dumps(plan.version),
        description=json.dumps(plan.description),
        requires_python=json.dumps(identity.REQUIRES_PYTHON),
        requires=json.dumps(list(plan.requires)),
        import_name=identity.IMPORT_NAME,
        licences=json.dumps(sorted(plan.licences)),
        scripts="\n".join(f"{json.dumps(name)} = {json.dumps(scripts[name])}" for name in scripts),
    )


def payload_text(plan: Plan) -> str:
    """``payload.cmake``: which files CMake installs, and where."""
    lines = ["set(EXECUTABLES", *(f'  "{name}"' for name in sorted(plan.executables)), ")"]
    lines += ["set(LIBRARIES", *(f'  "{name}"' for name in sorted(plan.libraries)), ")"]
    return "\n".join([*lines, f'set(DESTINATION "{identity.BIN}")', ""])


def scripts_text(executables: list[str]) -> str:
    """``_scripts.py``: one function for each executable, for the console scripts to call."""
    head = '"""One function for each console script."""\n\nfrom ._launch import become\n'
    body = [
        f"\n\ndef {identity.function_name(name)}() -> int:\n"
        f'    """Become {name}."""\n'
        f'    return become("{name}")\n'
        for name in executables
    ]
    return head + "".join(body)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)
