"""What became of faults, kept so that a killed run goes on and nothing stale is believed.

Kept is what the product did. What is expected of it (the stage, the words) is judged anew whenever
a result is read, so that correcting the data runs nothing again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

import sparkbuild
from sparkbuild.faults.catalogue import on_gpu, planted_from
from sparkbuild.faults.model import Fault, Found
from sparkbuild.faults.verdict import Refusal, verdict
from sparkbuild.files import digest_of, files_below, sha256_bytes, sha256_file, write_atomic


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    found: Found


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Results in a folder, each believed only while ``key`` is what it was.

    ``around`` is what every result depends on: sparkbuild's code, the source, the compiler.
    ``cuda`` is the CUDA build that faults in its code depend on.
    """

    folder: Path
    catalogue: Path
    around: Mapping[str, str]
    cuda: str = ""

    def key(self, fault: Fault) -> str:
        """Of everything that the product's answer to a fault depends on."""
        around = {**self.around, "cuda": self.cuda} if on_gpu(fault) else self.around
        return digest_of({**planted_from(self.catalogue, fault), **around})

    def read(self, fault: Fault) -> Found | None:
        """What is known of a fault, judged by its data; nothing where it could not be run."""
        try:
            entry = msgspec.json.decode(self._file(fault).read_bytes(), type=_Entry)
        except (OSError, msgspec.DecodeError):
            return None
        found = entry.found
        if entry.key != self.key(fault) or found.verdict == "not run" or found.exit_code is None:
            return None
        said = Refusal(stage=found.stage or fault.latest, check=found.check, message=found.message)
        judged = verdict(fault, found.exit_code, said)
        return msgspec.structs.replace(found, kind=fault.kind, verdict=judged)

    def write(self, fault: Fault, key: str, found: Found) -> None:
        """Keep a result under the key that held when its run began."""
        entry = _Entry(key=key, found=found)
        write_atomic(self._file(fault), msgspec.json.format(msgspec.json.encode(entry)))

    def _file(self, fault: Fault) -> Path:
        return self.folder / f"{fault.id}.json"


def code_digest() -> str:
    """Of all that sparkbuild consists of, canaries and recipes too."""
    package = Path(sparkbuild.__file__).parent
    folders = [package, *(package.parent / name for name in ("patchsets", "toolchains"))]
    return digest_of(
        {
            str(file.relative_to(package.parent)): sha256_file(file)
            for folder in folders
            for file in sorted(files_below(folder))
            if file.is_file() and file.suffix != ".pyc"
        }
    )


def text_digest(text: str) -> str:
    """Of a compiler's own words."""
    return sha256_bytes(text.encode())
