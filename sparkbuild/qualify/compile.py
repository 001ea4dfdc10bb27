"""Probe kernels become PTX: the toolkit's own nvcc, the build's flags, the source's headers."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild import process
from sparkbuild.files import sha256_file, write_atomic
from sparkbuild.qualify.model import Unit

STAND_IN: Final = Path(__file__).parent / "probes" / "stand_in"
"""Headers of libraries that device code never calls, for a root that holds compilers alone."""
_SYSTEM_PATH: Final = ("/usr/local/bin", "/usr/bin", "/bin")
"""As the build sets it."""
_ERROR: Final = re.compile(r"error|fatal|cannot|not supported|No such", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Nvcc:
    """A compiler with all that decides what it emits; folders are absolute.

    ``source`` is the patched tree, ``flags`` are ``flags.foretold``, ``architecture`` is ``121a``.
    """

    root: str
    host: str
    source: str
    architecture: str
    flags: tuple[str, ...]
    folder: str
    """Where units, PTX and logs go."""
    emulator: tuple[str, ...] = ()
    """Before nvcc, where it is a program of another platform."""

    def argv(self, unit: str, *, line_info: bool = True) -> list[str]:
        """The command for one unit: PTX for the virtual architecture, as the build's first step."""
        source = Path(self.source)
        include = [source / "ggml/src", source / "ggml/include", source / "ggml/src/ggml-cuda"]
        system = [Path(self.root) / "include/cccl"]
        if not (Path(self.root) / "include/cublas_v2.h").is_file():
            system.append(STAND_IN)
        return [
            *self.emulator,
            str(Path(self.root) / "bin/nvcc"),
            *("-ccbin", self.host),
            *self.flags,
            *(["-lineinfo"] if line_info else []),
            *(f"-arch=compute_{self.architecture}", "-ptx"),
            *(word for place in include for word in ("-I", str(place))),
            *(word for place in system for word in ("-isystem", str(place))),
            *("-o", f"{unit}.ptx", f"{unit}.cu"),
        ]

    def environment(self) -> dict[str, str]:
        """Made from nothing, the host compiler's folder first."""
        search = dict.fromkeys([str(Path(self.host).parent), *_SYSTEM_PATH])
        return process.environment(extra={"HOME": self.folder, "PATH": os.pathsep.join(search)})


def compile_unit(nvcc: Nvcc, name: str, text: str) -> Unit:
    """Compile one unit in ``nvcc.folder``; a failure is in the result, with its first error."""
    folder = Path(nvcc.folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / f"{name}.cu", text)
    made, log = folder / f"{name}.ptx", folder / f"{name}.log"
    made.unlink(missing_ok=True)
    log.unlink(missing_ok=True)
    began = time.monotonic()
    lines: list[str] = []
    done = process.run(
        nvcc.argv(name), log=log, env=nvcc.environment(), cwd=folder, on_line=lines.append
    )
    seconds = time.monotonic() - began
    if done.returncode != 0 or not made.is_file():
        said = next((line for line in lines if _ERROR.search(line)), done.tail.strip())
        error = f"status {done.returncode}: {said or 'nothing was said'}"
        return Unit(name=name, compiled=False, seconds=seconds, log=str(log), error=error)
    return Unit(
        name=name,
        compiled=True,
        seconds=seconds,
        ptx_sha256=sha256_file(made),
        ptx=str(made),
        log=str(log),
    )
