"""Changes of files below a folder: each takes, or the fault is not planted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sparkbuild.faults.contract import NotPlantedError
from sparkbuild.faults.edit import (
    AnyEdit,
    Assign,
    Cut,
    Flip,
    Link,
    Remove,
    Replace,
    Take,
    Write,
)
from sparkbuild.faults.seeds.farm import farm
from sparkbuild.files import write_atomic

_PROGRAM: Final = 0o755
Words = Mapping[str, object]
"""What names in braces stand for."""


def filled(text: str, words: Words) -> str:
    """The text with every ``{name}`` that is known put in; other braces stay."""
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


def change(folder: Path, edits: Sequence[AnyEdit], words: Words) -> tuple[Path, ...]:
    """Make the changes in their order; gives what was changed.

    Files are replaced and never written to, so that other links to them stay as they are. Raises
    NotPlantedError where a change finds nothing to change.
    """
    return tuple(path for edit in edits for path in _one(folder, edit, words))


def places(folder: Path, edit: AnyEdit) -> tuple[Path, ...]:
    """What a change is about: what is there, or what it would put there."""
    found = tuple(sorted(folder.glob(edit.path)))
    if found or not isinstance(edit, (Write, Take, Link)):
        return found
    parent, _, name = edit.path.rpartition("/")
    parents = [folder] if not parent else sorted(folder.glob(parent)) or [folder / parent]
    return tuple(one / name for one in parents)


def _one(folder: Path, edit: AnyEdit, words: Words) -> tuple[Path, ...]:
    found = places(folder, edit)
    if not found:
        raise NotPlantedError(f"nothing to change: {folder / edit.path} is not there")
    for path in found:
        _apply(path, edit, words)
    return found


def _apply(path: Path, edit: AnyEdit, words: Words) -> None:
    match edit:
        case Remove():
            _away(path)
        case Write():
            data = filled(edit.text, words).encode()
            mode = _PROGRAM if edit.executable else _mode(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            _put(path, data, mode)
        case Take():
            _taken(Path(filled(edit.source, words)), path)
        case Link():
            _away(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(filled(edit.to, words))
        case Replace() | Cut() | Flip() | Assign():
            _put(path, _changed(path, edit, words), _mode(path))


def _taken(source: Path, path: Path) -> None:
    """A file is as new as a copy is; a folder's files are linked."""
    _away(path)
    if source.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, path)
    else:
        farm(source, path)


def _changed(path: Path, edit: Replace | Cut | Flip | Assign, words: Words) -> bytes:
    data = path.read_bytes()
    if isinstance(edit, Cut):
        return data[: int(len(data) * edit.keep)]
    if isinstance(edit, Flip):
        at = int(len(data) * edit.at)
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    if isinstance(edit, Assign):
        return _assigned(path, data, edit, words)
    old, new = filled(edit.old, words).encode(), filled(edit.new, words).encode()
    if data.count(old) != edit.count:
        raise NotPlantedError(
            f"{path} holds {edit.old!r} {data.count(old)} times, not {edit.count}"
        )
    return data.replace(old, new)


def _assigned(path: Path, data: bytes, edit: Assign, words: Words) -> bytes:
    document: Any = json.loads(data)
    *way, last = edit.at
    try:
        inner = document
        for step in way:
            inner = inner[step]
        if inner[last] == edit.value:
            raise NotPlantedError(f"{path}: {edit.at} is {edit.value!r} already")
        inner[last] = filled(edit.value, words) if isinstance(edit.value, str) else edit.value
    except (KeyError, IndexError, TypeError) as error:
        raise NotPlantedError(f"{path}: there is nothing at {edit.at}") from error
    return json.dumps(document, indent=2).encode()


def _away(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _put(path: Path, data: bytes, mode: int) -> None:
    if path.is_symlink():
        path.unlink()
    write_atomic(path, data, mode=mode)


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777 if path.exists() else 0o644
