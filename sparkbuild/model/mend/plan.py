"""What mending a file comes to, before a byte is written: the changes, or why there are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sparkbuild.errors import ModelError
from sparkbuild.model.asked import Asked
from sparkbuild.model.checks import files, keys, tokens, vision
from sparkbuild.model.checks.subject import Subject
from sparkbuild.model.finding import Finding
from sparkbuild.model.mend.edits import Edit, edited
from sparkbuild.model.mend.rules import repair
from sparkbuild.model.read import Model

_Checks = tuple[Callable[[Subject], Finding], ...]
_MODEL: Final[_Checks] = (
    files.shards, files.sizes, files.table,
    keys.required_keys, keys.array_lengths, keys.vocabulary, tokens.end_tokens,
)  # fmt: skip
_TOWER: Final[_Checks] = (files.vision_file, vision.mmproj, vision.projector_keys)
"""Of an mmproj. Both leave out what a build or a server's flags decide."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A model, the changes of its first file, and the faults that would still be there."""

    model: Model
    edits: tuple[Edit, ...]
    faults: tuple[Finding, ...]

    @property
    def helps(self) -> bool:
        """Whether the changes leave a file that llama.cpp loads, as far as its headers tell."""
        return bool(self.edits) and not self.faults


def plan(model: Model) -> Plan:
    """What can be mended, by headers alone; nothing is raised."""
    edits, faults = repair(model)
    after = edited(model, edits) if edits else model
    tower = after.architecture == "clip"
    subject = Subject(
        model=after, vision=after if tower else None, build=None, asked=Asked(context=1)
    )
    found = [check(subject) for check in (_TOWER if tower else _MODEL)]
    return Plan(
        model=model,
        edits=edits,
        faults=(*faults, *(one for one in found if one.state == "fault")),
    )


def accepted(planned: Plan) -> Plan:
    """The plan, where nothing is left that would keep the new file from loading.

    Raises ModelError naming all that is.
    """
    if not planned.faults:
        return planned
    path = planned.model.path
    raise ModelError(
        f"{path.name} has faults that no change of its metadata mends",
        problems=[f"{one.name}: {one.found}" for one in planned.faults],
        evidence=[shard.path for shard in planned.model.shards],
        next_step=next((one.next_step for one in planned.faults if one.next_step), ""),
    )
