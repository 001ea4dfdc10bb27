"""Nothing is believed: a toolkit compiles, links and runs one small program, and all must agree."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from sparkbuild import files
from sparkbuild.errors import HostError
from sparkbuild.toolkit.identity.versions import thousands
from sparkbuild.toolkit.model import Toolkit, Trial

WAIT: Final = 600.0
"""Seconds that a second make waits for the first one's trial of the same toolkit: far more than
one takes."""

_DRIVER: Final = Path("/proc/driver/nvidia/version")


class _Pass(msgspec.Struct, frozen=True, kw_only=True):
    """A pass as it is kept: true for as long as every file that it was made with is unchanged."""

    files: tuple[str, ...]
    fingerprint: str
    trial: Trial


def try_toolkit(toolkit: Toolkit, *, folder: Path) -> Trial:
    """Compile, link and run a small program with ``toolkit``, for each of its architectures.

    The environment is the build's, the host compiler too. A pass is kept in ``folder`` and answers
    at once while toolkit, host compiler, C library, driver and every header that was read are the
    same; a refusal is tried again. Raises ToolkitMismatchError with every contradiction, HostError
    where host compiler, C library or driver do not go with the toolkit, ValueError for a toolkit
    without CUDA.
    """
    if toolkit.kind != "cuda" or toolkit.root is None:
        raise ValueError(f"{toolkit.toolchain} has no CUDA compiler to try")
    key, folder = key_of(toolkit), folder.absolute()
    kept = folder / f"{key}.json"
    trial = known(kept)
    if trial is None:
        with files.exclusive(folder / f"{key}.lock", what="a toolkit's trial", wait=WAIT) as handle:
            trial = known(kept)  # another make may have tried it meanwhile
            if trial is None:
                # Reading cubins costs an import that a known pass does not need.
                from sparkbuild.toolkit.trial.attempt import attempt  # noqa: PLC0415

                place = folder / key
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir(parents=True)
                trial, used = attempt(toolkit, place, keep_open=(handle,))
                keep(kept, trial, used)
    _check_driver(trial)
    return trial


def keep(path: Path, trial: Trial, used: Iterable[str]) -> None:
    """Remember a pass, and in which state the files were that it was made with."""
    names = tuple(sorted(used))
    state = files.fingerprint(map(Path, names))
    passed = _Pass(files=names, fingerprint=state, trial=trial)
    files.write_atomic(path, msgspec.json.format(msgspec.json.encode(passed)) + b"\n")


def known(path: Path) -> Trial | None:
    """A pass that still holds, None where there is none or any of its files changed."""
    try:
        passed = msgspec.json.decode(path.read_bytes(), type=_Pass)
        same = files.fingerprint(map(Path, passed.files)) == passed.fingerprint
    except (OSError, ValueError, msgspec.MsgspecError):
        return None
    return passed.trial if same else None


def deciding() -> tuple[Path, ...]:
    """Modules that decide: a change to one of them makes every older pass void."""
    here = Path(__file__).parent
    return (*sorted(here.glob("*.py")), here.parent / "identity" / "versions.py")


def key_of(toolkit: Toolkit) -> str:
    """Name of a trial: digest of all that is known before it begins."""
    code = {path.name: files.sha256_file(path) for path in deciding()}
    parts = {
        "toolkit": toolkit.identity,
        "root": toolkit.root,
        "host": [toolkit.host.c, toolkit.host.cxx],
        "glibc": os.confstr("CS_GNU_LIBC_VERSION"),
        "driver": _text(_DRIVER),
        "architectures": toolkit.architectures,
        "code": code,
    }
    return files.digest_of(parts)[:16]


def _check_driver(trial: Trial) -> None:
    """A driver of an older major release cannot run what the toolkit makes; none is no limit."""
    if 0 < (trial.driver or 0) // 1000 < trial.cudart // 1000:
        wanted, limit = thousands(trial.cudart), thousands(trial.driver or 0)
        raise HostError(
            f"this machine's driver is for CUDA {limit}, the toolkit is CUDA {wanted}",
            problems=[f"driver: expected CUDA {trial.cudart // 1000}.0 or newer, found {limit}"],
            evidence=[Path(trial.folder) / "trial.log"],
            next_step="update the NVIDIA driver, or choose a toolkit of its major release",
        )


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""
