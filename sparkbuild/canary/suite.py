"""A canary's suite: what it is asked, as data beside its model; what is enough, with reasons."""

from __future__ import annotations

import platform
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from sparkbuild.canary.model import Backend, CacheType
from sparkbuild.errors import CanaryError, ManifestError
from sparkbuild.files import sha256_bytes
from sparkbuild.manifest import Ability, Name, RelativePath, Sha256, Table, load

SUITE: Final = "suite.json"
LIMITS: Final = "limits.toml"
PICTURE: Final = "picture:"
"""Before a picture's name, where a message has the address of one."""
REFERENCES: Final = "references"
"""The group of all references."""

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(gt=0)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Json = dict[str, Any]
Prompt = tuple[int | str, ...]


class Picture(Table, frozen=True, kw_only=True):
    """A picture's file, relative to the suite's folder."""

    file: RelativePath
    sha256: Sha256


class Call(Table, frozen=True, kw_only=True):
    """A tool call that has to come, with its arguments as JSON values."""

    name: str
    arguments: Json


class Answer(Table, frozen=True, kw_only=True):
    """A conversation and what the server has to make of the canary's answer.

    ``messages`` and ``tools`` are in the form of OpenAI's interface; the address of a picture is
    ``picture:NAME``. With ``raw`` there are none, and the text is continued as it is.
    """

    name: Text
    group: Text
    messages: tuple[Json, ...] = ()
    raw: str = ""
    tools: tuple[Json, ...] = ()
    thinking: bool = False
    text: str
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    finish: Literal["stop", "length", "tool_calls"] = "stop"
    count: Count
    """Tokens to ask for at most: more than the answer has, so that it ends by itself."""
    forms: tuple[Text, ...] = ()
    """Forms that it is asked in, where not all: a prompt of thousands of tokens takes long."""


class Reference(Table, frozen=True, kw_only=True):
    """A prompt, and the greedy tokens after it: before each of them numbers are compared.

    ``prompt`` is token ids, or text and ``picture:NAME`` entries in turn.
    """

    name: Text
    prompt: Annotated[Prompt, msgspec.Meta(min_length=1)]
    tokens: Annotated[tuple[int, ...], msgspec.Meta(min_length=1)]
    forms: tuple[Text, ...] = ()
    """Forms that it is asked in, where not all."""


class Numbers(Table, frozen=True, kw_only=True):
    """The file with the references' log-probabilities: [positions, vocabulary] by name."""

    file: RelativePath
    sha256: Sha256


class Drafted(Table, frozen=True, kw_only=True):
    """What became of the drafts of the float32 form on a CPU, by answer: drafted and accepted."""

    depth: Count
    counts: dict[str, tuple[int, int]]


class Suite(Table, frozen=True, kw_only=True):
    """``suite.json``."""

    schema: Literal[1]
    canary: Name
    vocabulary: Count
    context: Count
    """Tokens that the longest conversation needs with its answer."""
    pictures: dict[str, Picture] = msgspec.field(default_factory=dict)
    answers: tuple[Answer, ...]
    references: tuple[Reference, ...]
    numbers: Numbers
    drafted: Drafted | None = None
    """Of a canary whose draft block the recording llama.cpp could compute."""

    def in_form(self, form: str) -> Suite:
        """The suite with what is asked in a form."""
        return msgspec.structs.replace(
            self,
            answers=tuple(one for one in self.answers if not one.forms or form in one.forms),
            references=tuple(one for one in self.references if not one.forms or form in one.forms),
        )


class Rate(Table, frozen=True, kw_only=True):
    """The share of a group's items that has to be right in a form."""

    group: Text
    form: str = "*"
    minimum: Share
    reason: Text


class Bound(Table, frozen=True, kw_only=True):
    """How far log-probabilities may be off: NMSE of the worst prompt, and of the middle one."""

    machine: Literal["x86_64", "aarch64", "*"] = "*"
    """As ``uname -m`` has it."""
    backend: Backend | Literal["*"] = "*"
    cache: CacheType | Literal["*"] = "*"
    form: str = "*"
    worst: Positive
    pictures: Positive | None = None
    """The worst of prompts with pictures, where that is another."""
    median: Positive
    reason: Text

    def of(self, reference: Reference) -> float:
        """NMSE that one reference may have."""
        pictured = any(isinstance(part, str) for part in reference.prompt)
        return self.pictures if pictured and self.pictures else self.worst


class Band(Table, frozen=True, kw_only=True):
    """What share of drafted tokens is accepted at a depth: healthy heads above, damaged below."""

    depth: Count
    healthy: Share
    """At least."""
    damaged: Share
    """At most."""
    reason: Text


class Limits(Table, frozen=True, kw_only=True):
    """``limits.toml``: of rates and bounds the first that fits is taken."""

    schema: Literal[1]
    rates: tuple[Rate, ...] = ()
    """A group without one has to be right throughout."""
    bounds: Annotated[tuple[Bound, ...], msgspec.Meta(min_length=1)]
    drafts: tuple[Band, ...] = ()
    """Of a canary with a trained draft block."""
    drafts_need: Ability | None = None
    """What a build must be able to do to draft with this model at all. One that does not promise it
    may have no graph for the draft block."""
    draft_pictures: bool | Ability = True
    """Whether answers about pictures are asked with drafts too, or what a build must be able to do
    so that they are."""

    def drafts_pictures(self, abilities: Collection[Ability]) -> bool:
        """Whether a build with these abilities is asked about pictures with drafts."""
        asked = self.draft_pictures
        return asked if isinstance(asked, bool) else asked in abilities

    def rate(self, group: str, form: str) -> Rate:
        """The rate for a group in a form."""
        for rate in self.rates:
            if rate.group == group and rate.form in {form, "*"}:
                return rate
        return Rate(group=group, minimum=1.0, reason="every item was right when it was recorded")

    def bound(
        self, *, backend: Backend, cache: CacheType, form: str, machine: str = platform.machine()
    ) -> Bound:
        """The bound for one way to run, on this machine. Raises CanaryError where none fits."""
        for bound in self.bounds:
            fits = (
                bound.machine in {machine, "*"}
                and bound.backend in {backend, "*"}
                and bound.cache in {cache, "*"}
                and bound.form in {form, "*"}
            )
            if fits:
                return bound
        raise CanaryError(
            f"no bound is recorded for {machine}, {backend}, KV {cache}, form {form}",
            next_step="measure the noise of healthy builds there, and record a bound with it",
        )


def load_suite(folder: Path) -> tuple[Suite, Limits]:
    """A suite and its limits. Raises ManifestError naming the file and what is wrong in it."""
    path = folder / SUITE
    try:
        suite = msgspec.json.decode(path.read_bytes(), type=Suite)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _refused(path, str(error)) from error
    problems = _problems(suite)
    if problems:
        raise _refused(path, "; ".join(problems))
    return suite, load(folder / LIMITS, Limits)


def load_pictures(folder: Path, suite: Suite) -> dict[str, bytes]:
    """Every picture's file by name. Raises CanaryError where one is not as recorded."""
    pictures = {}
    problems = []
    for name, picture in suite.pictures.items():
        try:
            data = (folder / picture.file).read_bytes()
        except OSError as error:
            problems.append(f"{picture.file}: {error.strerror}")
            continue
        if sha256_bytes(data) != picture.sha256:
            problems.append(
                f"{picture.file}: expected sha256 {picture.sha256}, found {sha256_bytes(data)}"
            )
        pictures[name] = data
    if problems:
        raise CanaryError(
            f"pictures of the suite {suite.canary} are not as recorded",
            problems=problems,
            evidence=[folder],
            next_step="install sparkbuild again",
        )
    return pictures


def encode_suite(suite: Suite) -> bytes:
    """``suite.json``, one entry a line.

    Dictionaries keep their order: a tool's arguments are told to the model as they are declared.
    """
    return msgspec.json.format(msgspec.json.encode(suite), indent=1) + b"\n"


def _problems(suite: Suite) -> list[str]:
    names = [answer.name for answer in suite.answers] + [ref.name for ref in suite.references]
    problems = [f"two entries are named {name!r}" for name in set(names) if names.count(name) > 1]
    asked = {
        part["image_url"]["url"]
        for answer in suite.answers
        for message in answer.messages
        if isinstance(message.get("content"), list)
        for part in message["content"]
        if part.get("type") == "image_url"
    }
    asked |= {
        part
        for reference in suite.references
        for part in reference.prompt
        if isinstance(part, str) and part.startswith(PICTURE)
    }
    problems += [
        f"{reference.name}: its prompt is neither all numbers nor all text"
        for reference in suite.references
        if len({type(part) for part in reference.prompt}) > 1
    ]
    known = {f"{PICTURE}{name}" for name in suite.pictures}
    problems += [f"there is no {name!r}" for name in sorted(asked - known)]
    return problems


def _refused(path: Path, text: str) -> ManifestError:
    return ManifestError(f"{path}: {text}", evidence=[path], next_step="install sparkbuild again")
