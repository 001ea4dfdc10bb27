"""Small wheels of nobody in particular, for the index."""

from __future__ import annotations

import zipfile
from pathlib import Path

from sparkbuild.package import archive


def plain_wheel(
    place: Path,
    version: str = "1.0",
    *,
    name: str = "tiny-tool",
    body: str = "",
    requires_python: str = ">=3.9",
    metadata: str | None = None,
) -> Path:
    """A wheel with one module that knows its version."""
    module = name.replace("-", "_")
    folder = f"{module}-{version}.dist-info"
    text = metadata or (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        f"Requires-Python: {requires_python}\n"
    )
    members = {
        f"{module}.py": f"VERSION = {version!r}\n{body}",
        f"{folder}/METADATA": text,
        f"{folder}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [
        (path, archive.record_digest(data.encode()), str(len(data.encode())))
        for path, data in members.items()
    ]
    place.mkdir(parents=True, exist_ok=True)
    wheel = place / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as out:
        for path, data in members.items():
            out.writestr(zipfile.ZipInfo(path), data)
        record = f"{folder}/RECORD"
        out.writestr(zipfile.ZipInfo(record), archive.record_text([*rows, (record, "", "")]))
    return wheel
