"""Served suites: how a real model is started, what it is asked, and within which bounds.

A suite is for one family of models. Nothing in it was recorded from a server's words: answers are
judged by patterns, numbers by comparing ways to serve with each other. Every threshold says why.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from sparkbuild.canary.model import Backend
from sparkbuild.manifest import Name, Table
from sparkbuild.smoke.suite import Text, Threshold

Count = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Pattern = Text
"""A regular expression; ``(?i)`` and the like may stand at its beginning."""
Variable = Annotated[str, msgspec.Meta(pattern="^[A-Z][A-Z0-9_]*$")]
Colour = Annotated[str, msgspec.Meta(pattern="^#[0-9a-f]{6}$")]
KIND: Literal["served"] = "served"


class Serving(Table, frozen=True, kw_only=True):
    """What every start has in common, and the patience with it, in seconds and MiB."""

    context: Count
    """``--ctx-size`` where nobody asks for another: tokens of all slots together."""
    most: Threshold
    """No larger context is started, whatever the memory."""
    slots: Count
    micro_batch: Count = 512
    checkpoints: Annotated[int, msgspec.Meta(ge=0)] = 32
    flags: tuple[Text, ...] = ()
    environment: dict[Variable, str] = msgspec.field(default_factory=dict)
    start: Threshold
    request: Threshold
    stop: Threshold
    missing: Threshold
    """MiB that may lack after the end."""
    wait: Threshold
    """Seconds for memory to come back."""


class Offers(Table, frozen=True, kw_only=True):
    """What ``/v1/models`` says with and without a vision tower; where the weights have to be."""

    text: tuple[Text, ...]
    pictures: tuple[Text, ...] = ()
    on_gpu: Threshold | None = None
    """Share of the weights' bytes that CUDA devices hold, at least."""


class Expected(Table, frozen=True, kw_only=True):
    """What the content of an answer has to be; all that is given must hold."""

    matches: Pattern | None = None
    """Found somewhere in it."""
    lacks: Pattern | None = None
    """Found nowhere in it."""
    equals: str | None = None
    json: Any = None
    """It is this JSON value, alone or as the only block of code."""
    python: Text | None = None
    """It holds Python that parses and defines a function of this name; it is never run."""


class Question(Table, frozen=True, kw_only=True):
    """A user's message and what the answer has to be."""

    name: Text
    group: Text
    user: Text
    system: str = ""
    count: Count
    """Tokens that it may take, reasoning with it."""
    every_way: bool = False
    """Asked in every way to serve, not only in the first."""
    expect: Expected


class Repeats(Table, frozen=True, kw_only=True):
    """Names of questions that are asked again, and what has to be equal."""

    ask: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    strict: bool = True
    """All of it, token counts with it; otherwise both right and the same words."""
    reason: Text


class Needles(Table, frozen=True, kw_only=True):
    """A long text of random words with a fact at each place, one question for each fact."""

    seed: Text
    words: Annotated[tuple[Text, ...], msgspec.Meta(min_length=8)]
    pieces: Count
    """Words of the text."""
    least: Count
    """Tokens that the server must count in the prompt."""
    at: Annotated[tuple[Share, ...], msgspec.Meta(min_length=1)] = (0.12, 0.88)
    before: Text
    needle: Text
    """With ``{key}`` and ``{value}``, which are drawn."""
    ask: Text
    """With ``{key}``."""
    keys: Text
    values: Text
    """Forms of them: ``A`` is a letter, ``9`` a digit, ``X`` either, anything else itself."""
    count: Count
    reason: Text


class LongRun(Table, frozen=True, kw_only=True):
    """A run past any end, then a short question again."""

    user: Text
    count: Count = 300
    short: Text
    """Name of the question that is asked before and after."""
    natural: bool = True
    """Whether its text is looked at too: a tiny model talks nonsense past its end."""
    reason: Text


class Garble(Table, frozen=True, kw_only=True):
    """From where on a text counts as garbled, whatever was asked."""

    run: Threshold
    """Of one character in a row, that is neither a space nor one of ``-=_*#.``."""
    entropy: Threshold
    """Bits a character at the least, of texts of 40 and more characters."""
    repeats: Threshold
    """By which factor zlib may shorten a text of 200 and more characters."""


class Numbers(Table, frozen=True, kw_only=True):
    """Prompts whose log-probabilities are compared between ways to serve."""

    prompts: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    positions: Count
    top: Count
    """Most likely tokens at each position."""


class Way(Table, frozen=True, kw_only=True):
    """One way to serve. Of all but the first: how far its numbers may be from the first one's."""

    name: Text
    cache_k: Text = "f16"
    cache_v: Text = "f16"
    flash_attention: bool = True
    flags: tuple[Text, ...] = ()
    environment: dict[Variable, str] = msgspec.field(default_factory=dict)
    nmse: Threshold | None = None
    agreement: Threshold | None = None
    """Share of positions where the most likely token is the same, at least."""
    reason: Text


class Speed(Table, frozen=True, kw_only=True):
    """How fast tokens can come at all: every active weight is read once for each pass."""

    bandwidth: Threshold
    """Bytes a second of the memory; the reason names its source."""
    slack: Threshold
    """Factor on the limit, for clocks and for what a cache holds."""
    least: Threshold | None = None
    """Tokens a second that a server which uses the GPU reaches."""


class Picture(Table, frozen=True, kw_only=True):
    """A picture that is drawn: paper, and on it a text that cannot be guessed, or a square."""

    width: Annotated[int, msgspec.Meta(ge=8, le=4096)]
    height: Annotated[int, msgspec.Meta(ge=8, le=4096)]
    paper: Colour = "#ffffff"
    ink: Colour = "#000000"
    text: Annotated[int, msgspec.Meta(ge=0, le=40)] = 0
    """Characters that are drawn from the alphabet."""
    size: Annotated[int, msgspec.Meta(ge=6, le=400)] = 24
    """Of the font, in pixels."""
    square: Literal["", "top left", "top right", "bottom left", "bottom right"] = ""
    """Where a square of ``size`` pixels in ``ink`` is."""


class Errors(Table, frozen=True, kw_only=True):
    """Share of characters that may be read wrongly, and why."""

    limit: Share
    reason: Text


class Look(Table, frozen=True, kw_only=True):
    """Pictures in one request, a question about them, and what the answer has to be."""

    name: Text
    group: Text
    ask: Text
    pictures: Annotated[tuple[Picture, ...], msgspec.Meta(min_length=1)]
    count: Count
    reads: tuple[Annotated[int, msgspec.Meta(ge=0)], ...] = ()
    """Indices of pictures whose texts the answer is, in this order."""
    errors: Errors | None = None
    """Without it, no character of what is read may be wrong."""
    expect: Expected | None = None


class Vision(Table, frozen=True, kw_only=True):
    """Everything that is asked about pictures."""

    seed: Text
    alphabet: Annotated[str, msgspec.Meta(min_length=8)]
    looks: Annotated[tuple[Look, ...], msgspec.Meta(min_length=1)]


class DraftText(Table, frozen=True, kw_only=True):
    """A text that is drafted: the kind decides which band its acceptance has to be in."""

    name: Text
    kind: Text
    user: Text
    count: Count
    expect: Expected


class Band(Table, frozen=True, kw_only=True):
    """Share of drafted tokens that are accepted, of one kind of text at one depth."""

    depth: Count
    kind: Text
    low: Share
    high: Share
    reason: Text


class Among(Table, frozen=True, kw_only=True):
    """Drafts among pictures: picture, text, picture in turn, and some at the same time."""

    depth: Count
    texts: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    looks: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    share: Threshold
    """Of the share that is accepted of text alone, at least."""


class Drafts(Table, frozen=True, kw_only=True):
    """The model's own NextN block."""

    flags: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    depth_flag: Text
    """The option that takes the depth."""
    texts: Annotated[tuple[DraftText, ...], msgspec.Meta(min_length=1)]
    bands: Annotated[tuple[Band, ...], msgspec.Meta(min_length=1)]
    among: Among | None = None

    @property
    def depths(self) -> tuple[int, ...]:
        """Each is a start of its own: in b11434 a request cannot change it."""
        return tuple(sorted({band.depth for band in self.bands}))


class LogEntry(Table, frozen=True, kw_only=True):
    """One more entry before those of the table beside ``sparkbuild.llama.log``."""

    kind: Text
    severity: Literal["fault", "warning", "note"]
    pattern: Pattern
    reason: Text


class Suite(Table, frozen=True, kw_only=True):
    """``served/<name>.toml``."""

    schema: Literal[1]
    kind: Literal["served"]
    name: Name
    summary: Text
    architectures: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    """Of models that it is for (``general.architecture``)."""
    backend: Backend = "cuda"
    """Where nobody asks for another."""
    request: dict[str, Any] = msgspec.field(default_factory=dict)
    """What every chat request has besides."""
    server: Serving
    offers: Offers
    ways: Annotated[tuple[Way, ...], msgspec.Meta(min_length=1)]
    garble: Garble
    questions: Annotated[tuple[Question, ...], msgspec.Meta(min_length=1)]
    twice: Repeats
    together: Repeats
    numbers: Numbers
    speed: Speed
    needles: Needles | None = None
    long_run: LongRun | None = None
    vision: Vision | None = None
    drafts: Drafts | None = None
    log: tuple[LogEntry, ...] = ()

    def question(self, name: str) -> Question:
        """By its name."""
        return next(one for one in self.questions if one.name == name)
