"""An mmproj without its model: what it is, and what of it can be judged alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from sparkbuild.errors import ModelError
from sparkbuild.model.asked import Asked
from sparkbuild.model.build import Build
from sparkbuild.model.checks import build as of_build
from sparkbuild.model.checks import files
from sparkbuild.model.checks import vision as of_vision
from sparkbuild.model.checks.subject import Check, Subject
from sparkbuild.model.facts import File, Vision, files_of, vision_facts
from sparkbuild.model.finding import Finding
from sparkbuild.model.inspection import Mendable
from sparkbuild.model.mend.plan import plan
from sparkbuild.model.read import Model

CHECKS: Final[tuple[Check, ...]] = (
    files.shards,
    files.sizes,
    files.table,
    of_vision.mmproj,
    of_build.projector,
    of_build.tensor_types,
    of_vision.projector_keys,
)
_CLIP: Final = "clip"


@dataclass(frozen=True, kw_only=True)
class Tower:
    """A vision tower's facts and findings."""

    name: str
    files: tuple[File, ...]
    vision: Vision
    findings: tuple[Finding, ...]
    mendable: tuple[Mendable, ...] = ()

    @property
    def exit_code(self) -> int:
        """ModelError's where a check found a fault."""
        faulty = any(finding.state == "fault" for finding in self.findings)
        return ModelError.exit_code if faulty else 0


def is_tower(model: Model) -> bool:
    """Whether a file that was named as a model is an mmproj."""
    return model.architecture == _CLIP or model.text("general.type") == "mmproj"


def inspect_tower(tower: Model, build: Build | None) -> Tower:
    """Look at an mmproj; whether it goes with a model is asked with that model's ``--mmproj``."""
    subject = Subject(model=tower, vision=tower, build=build, asked=Asked())
    planned = plan(tower)
    return Tower(
        name=tower.text("general.name") or "",
        files=files_of(tower),
        vision=vision_facts(tower, ()),
        findings=tuple(check(subject) for check in CHECKS),
        mendable=(Mendable(path=str(tower.path), changes=planned.edits),) if planned.helps else (),
    )


def document(found: Tower) -> dict[str, Any]:
    """The same for JSON, result and exit code first."""
    return {
        "result": "failed" if found.exit_code else "passed",
        "exit_code": found.exit_code,
        "name": found.name,
        "facts": msgspec.to_builtins(found.vision),
        "findings": msgspec.to_builtins(found.findings),
        "mendable": msgspec.to_builtins(found.mendable),
    }
