"""Where a mended file goes: a place that nothing has yet, with the other shards in reach."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from sparkbuild.errors import UsageError
from sparkbuild.model.read import SHARD, Model

Linked = Literal["symbolic", "hard", "none"]
LINKED: Final[tuple[Linked, ...]] = get_args(Linked)


@dataclass(frozen=True, kw_only=True)
class Place:
    """The new file, and what each link beside it leads to."""

    file: Path
    links: dict[Path, Path]
    folder: Path | None
    """OUT, where it is a folder that is not there yet."""
    hard: bool


def place(model: Model, out: Path, linked: Linked) -> Place:
    """Find the place. OUT that ends in .gguf is the file; any other is a folder for the set.

    Raises UsageError where OUT is there already, is the input, or has a name by which llama.cpp
    would not find the other shards.
    """
    inside = out.is_dir() or out.suffix.lower() != ".gguf"
    file = out / model.path.name if inside else out
    _named(model, file)
    others = [shard.path for shard in model.shards[1:]] if inside and linked != "none" else []
    links = {out / path.name: path for path in others}
    for path in (file, *links):
        _free(path, model)
    return Place(
        file=file,
        links=links,
        folder=out if inside and not out.exists() else None,
        hard=linked == "hard",
    )


def _named(model: Model, file: Path) -> None:
    count = model.shards[0].split("count") or 1
    match = SHARD.match(file.name)
    if count > 1 and (not match or int(match["number"]) != 1 or int(match["count"]) != count):
        raise UsageError(
            f"{file.name} cannot be the first of {count} shards",
            problems=[f"expected a name that ends in -00001-of-{count:05d}.gguf"],
            next_step="give --fix such a name, or a folder: then the other shards are linked too",
        )


def _free(path: Path, model: Model) -> None:
    if not os.path.lexists(path):
        return
    with contextlib.suppress(OSError):
        if any(path.samefile(shard.path) for shard in model.shards):
            raise UsageError(
                f"{path} is the input itself",
                problems=["expected a place for a new file: the one that is read stays as it is"],
                next_step="give --fix another name, or another folder",
            )
    raise UsageError(
        f"{path} is there already",
        problems=["expected a place for a new file, found one that would be replaced"],
        next_step="remove it, or give --fix another name",
    )


@contextlib.contextmanager
def unmade(steps: list[Callable[[], object]]) -> Iterator[None]:
    """Undo what was done, the last first, where the block does not come to its end."""
    try:
        yield
    except BaseException:
        for step in reversed(steps):
            with contextlib.suppress(OSError):
                step()
        raise
