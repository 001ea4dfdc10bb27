"""State files: what a killed run goes on from, and never what another run left behind."""

from __future__ import annotations

import io
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from sparkbuild.files import disk_full_refused, fsync_directory

EVERY: Final = 60.0
"""Seconds between two states: what a killed run does again at most."""


class StateFile:
    """One file that holds the state of one part of a run; whole at any moment.

    ``key`` names the run: a state with another key is put aside and not trusted. ``note`` is told
    so in words.
    """

    def __init__(
        self,
        path: Path,
        key: str,
        *,
        every: float = EVERY,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.path, self.key, self.every, self.note = path, key, every, note
        self._saved = time.monotonic()

    def load(self, device: torch.device) -> dict[str, Any] | None:
        """What was saved last, on a device; None where there is nothing that can be trusted."""
        if not self.path.exists():
            return None
        try:
            content: dict[str, Any] = torch.load(self.path, map_location=device, weights_only=True)
            known = content.pop("key")
        except (OSError, RuntimeError, EOFError, KeyError, AttributeError, pickle.PickleError):
            self._put_aside("it cannot be read")
            return None
        if known != self.key:
            self._put_aside("it is of another recipe, seed, length or version of the trainer")
            return None
        return content

    def due(self) -> bool:
        """Whether the last state is old enough for a new one."""
        return time.monotonic() - self._saved >= self.every

    def save(self, content: dict[str, Any]) -> None:
        """Replace the state. Raises DiskFullError; the old one then stays."""
        buffer = io.BytesIO()
        torch.save({**content, "key": self.key}, buffer)
        # Always the same name: runs that are killed while they write leave one such file at most.
        new = self.path.with_suffix(".new")
        with disk_full_refused(new), new.open("wb") as file:
            file.write(buffer.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)
        fsync_directory(self.path.parent)
        self._saved = time.monotonic()

    def _put_aside(self, reason: str) -> None:
        aside = self.path.with_suffix(".aside")
        self.path.replace(aside)
        self.note(f"{self.path.name} is now {aside.name} and the run starts anew: {reason}")
