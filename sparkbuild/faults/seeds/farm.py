"""Whole folders again at no cost: hard links to files that nobody may write to."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from sparkbuild.faults.contract import NotPlantedError


def farm(source: Path, target: Path) -> Path:
    """``target`` as ``source`` is, its files linked (copied from another disk), links as they are.

    A file below ``target`` is replaced, never written to: its bytes are the source's too. For
    toolkits alone: a link changes a file's change time, by which finished builds are known. Raises
    NotPlantedError where there is no source.
    """
    if not source.exists():
        raise NotPlantedError(f"there is no {source}")
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_file():
        _linked(str(source), str(target))
    else:
        shutil.copytree(source, target, symlinks=True, copy_function=_linked, dirs_exist_ok=True)
    return target


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def copied(source: Path, target: Path) -> Path:
    """``target`` as ``source`` is, with bytes of its own. Raises NotPlantedError."""
    if not source.is_dir():
        raise NotPlantedError(f"there is no {source}")
    shutil.copytree(source, target, symlinks=True)
    return target
