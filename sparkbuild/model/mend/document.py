"""What was mended, for JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from sparkbuild.model.mend.plan import Plan
from sparkbuild.model.mend.write import Written


def document(planned: Plan, written: Written | None) -> dict[str, Any]:
    """Result and exit code first, as all documents have it; ``written`` is null without changes."""
    return {
        "result": "passed",
        "exit_code": 0,
        "model": str(planned.model.path),
        "changes": msgspec.to_builtins(planned.edits),
        "written": None if written is None else _written(written),
    }


def _written(written: Written) -> dict[str, Any]:
    return {
        "path": str(written.file),
        "bytes": written.bytes,
        "copied": written.copied,
        "links": {str(link): str(target.absolute()) for link, target in written.links.items()},
    }
