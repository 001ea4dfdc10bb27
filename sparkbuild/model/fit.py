"""Does a model fit a build and the flags it is to be served with: every check, in order."""

from __future__ import annotations

from typing import Final

from sparkbuild.model.asked import Asked
from sparkbuild.model.build import Build
from sparkbuild.model.checks import build as of_build
from sparkbuild.model.checks import drafts, files, keys, serving, tokens
from sparkbuild.model.checks import vision as of_vision
from sparkbuild.model.checks.subject import Check, Subject
from sparkbuild.model.finding import Finding
from sparkbuild.model.read import Model

CHECKS: Final[tuple[Check, ...]] = (
    files.shards,
    files.sizes,
    files.table,
    of_build.architecture,
    of_build.tensor_types,
    of_build.tensor_names,
    keys.required_keys,
    keys.array_lengths,
    keys.vocabulary,
    tokens.end_tokens,
    tokens.chat_template,
    drafts.nextn_blocks,
    drafts.nextn_precision,
    drafts.graph,
    drafts.speculation,
    drafts.drafts_and_pictures,
    files.vision_file,
    of_vision.mmproj,
    of_build.projector,
    of_vision.projector_keys,
    of_vision.projector_width,
    of_vision.picture_tokens,
    serving.context,
    serving.cache_types,
    serving.load_mode,
    serving.memory,
)


def fit(
    model: Model, vision: Model | None, build: Build | None, asked: Asked
) -> tuple[Finding, ...]:
    """One finding a check; without a build, what only one can tell is a note.

    Nothing is read but what was read before, and nothing is raised.
    """
    subject = Subject(model=model, vision=vision, build=build, asked=asked)
    return tuple(check(subject) for check in CHECKS)
