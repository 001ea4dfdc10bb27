"""What a run keeps as evidence: prompts, pictures and answers, each with its digest."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sparkbuild.files import disk_full_refused, sha256_bytes, sha256_file, write_atomic
from sparkbuild.smoke.model import Kept

ANSWERS: Final = "answers.jsonl"


class Book:
    """A folder that fills while a run goes on; several threads may write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kept: dict[str, str] = {}
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def keep(self, name: str, data: bytes | str) -> str:
        """Write a file once; its digest."""
        payload = data.encode() if isinstance(data, str) else data
        digest = sha256_bytes(payload)
        with self._lock:
            if self._kept.get(name) != digest:
                write_atomic(self.folder / name, payload)
                self._kept[name] = digest
        return digest

    def answer(self, way: str, asked: str, request: Mapping[str, Any], answer: object) -> None:
        """Add a request and what came of it; pictures are there by their digests."""
        line = json.dumps(
            {"way": way, "asked": asked, "request": _shortened(request), "answer": answer}
        )
        path = self.folder / ANSWERS
        with self._lock, disk_full_refused(path), path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def kept(self) -> tuple[Kept, ...]:
        """Every file with its digest."""
        with self._lock:
            found = dict(self._kept)
            path = self.folder / ANSWERS
            if path.is_file():
                found[ANSWERS] = sha256_file(path)
        return tuple(Kept(file=name, sha256=found[name]) for name in sorted(found))


def _shortened(value: Any) -> Any:
    """The same with every data URL replaced by its digest."""
    if isinstance(value, Mapping):
        return {key: _shortened(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shortened(one) for one in value]
    if isinstance(value, str) and value.startswith("data:"):
        return f"sha256 of the data URL: {sha256_bytes(value.encode())}"
    return value
