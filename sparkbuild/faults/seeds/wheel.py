"""A wheel, or what lies beside it, that was changed after its build."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sparkbuild.faults.contract import NotPlantedError, Place, Planted
from sparkbuild.faults.edit import AnyEdit
from sparkbuild.faults.model import WheelSeed
from sparkbuild.faults.seeds.changes import Words, change
from sparkbuild.faults.seeds.ground import asked, own_work, wheel_of, words

_TRUSTED: Final = "team"
_REPORT: Final = ".report.json"
_SUITE: Final = "suites/one-canary.toml"
"""What a wheel says of itself shows in the basics already."""


@contextmanager
def plant_wheel(seed: WheelSeed, place: Place) -> Iterator[Planted]:
    """A copy of the clean wheel and its report, signed and changed in the seed's order."""
    wheel, report = _brought(place)
    known = {**words(place), "wheel": wheel.name}
    keys = place.scratch / "keys"
    for name in dict.fromkeys((_TRUSTED, seed.signer)):
        _run(("key", "new", name, "--out", str(keys)), place.log)
    key = str(keys / f"{seed.signer}.key")
    sign = ("wheel", "sign", str(wheel), "--report", str(report), "--key", key)
    if seed.ask == "verify" and seed.changed == "after":
        _run(sign, place.log)
    _changed(wheel, seed.members, known, recorded=seed.recorded)
    change(wheel.parent, seed.beside, known)
    if seed.ask == "verify" and seed.changed == "before":
        _run(sign, place.log)
    suite, work = place.catalogue / _SUITE, own_work(place)
    ask = {
        "sign": (*sign, "--json"),
        "verify": ("wheel", "verify", str(wheel), "--key", str(keys / "team.pub"), "--json"),
        "smoke": ("smoke", str(wheel), "--suite", str(suite), "--work", str(work), "--json"),
    }
    yield Planted(arguments=ask[seed.ask], stage="smoke" if seed.ask == "smoke" else "verify")


def _brought(place: Place) -> tuple[Path, Path]:
    wheel, report = wheel_of(place.work)
    folder = place.scratch / "dist"
    folder.mkdir()
    target = Path(shutil.copyfile(wheel, folder / wheel.name))
    return target, Path(shutil.copyfile(report, folder / f"{wheel.name}{_REPORT}"))


def _run(arguments: Sequence[str], log: Path) -> None:
    """A command of the product that has to end well. Raises NotPlantedError."""
    done = asked(arguments, log)
    if done.returncode:
        raise NotPlantedError(
            f"{' '.join(arguments[:2])} ended with {done.returncode}: {done.tail}"
        )


def _changed(wheel: Path, edits: Sequence[AnyEdit], known: Words, *, recorded: bool) -> None:
    """Change members of a wheel, in the archive's own order, and RECORD so that it fits."""
    if not edits:
        return
    folder = wheel.with_suffix(".members")
    with zipfile.ZipFile(wheel) as opened:
        infos = opened.infolist()
        opened.extractall(folder)
    change(folder, edits, known)
    if recorded:
        (record,) = folder.glob("*.dist-info/RECORD")
        record.write_text(_record(record, folder), encoding="utf-8")
    with zipfile.ZipFile(wheel, "w") as out:
        for info in infos:
            path = folder / info.filename
            if path.is_file():
                out.writestr(info, path.read_bytes(), compress_type=info.compress_type)
    shutil.rmtree(folder)


def _record(record: Path, folder: Path) -> str:
    """RECORD's rows with the digests and sizes of what is there now (PEP 376, PEP 427)."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for name, digest, _size in csv.reader(record.read_text(encoding="utf-8").splitlines()):
        path = folder / name
        if not digest:
            writer.writerow((name, "", ""))
        elif path.is_file():
            data = path.read_bytes()
            new = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            writer.writerow((name, f"sha256={new}", len(data)))
    return text.getvalue()
