"""Every task of text alone."""

from __future__ import annotations

from typing import Final

from sparkbuild.canary.tasks.answers import FixedAnswers
from sparkbuild.canary.tasks.calls import ToolCall
from sparkbuild.canary.tasks.long import Copy, Needle, Recall, RepeatLine
from sparkbuild.canary.tasks.sample import Task
from sparkbuild.canary.tasks.small import EXERCISES

TASKS: Final[tuple[Task, ...]] = (
    FixedAnswers(), Copy(), Needle(), Recall(), RepeatLine(), *EXERCISES, ToolCall()
)  # fmt: skip
