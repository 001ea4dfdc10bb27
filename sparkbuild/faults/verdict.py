"""What a command's ending says of a fault: which stage refused it, by which check, in which words.

A refusal's words are those that a person is shown: the failure that ended a command, problems,
findings that are faults, checks that failed. Logs and guesses at causes are not among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from sparkbuild.canary.model import CanaryReport, DraftCheck
from sparkbuild.errors import (
    EXIT_INTERRUPTED,
    BusyError,
    DiskFullError,
    InternalError,
    ModelError,
    UsageError,
)
from sparkbuild.faults.model import STAGES, Fault, Stage, Verdict

NO_REFUSAL: Final = frozenset({0, UsageError.exit_code, InternalError.exit_code, EXIT_INTERRUPTED})
"""Exit codes that tell of no fault: all was well, a wrong command line, a defect, an interrupt."""
NOT_JUDGED: Final = frozenset({DiskFullError.exit_code, BusyError.exit_code})
"""Exit codes after which nothing was asked."""
TIMED_OUT: Final = 124
"""What ``process.capture`` gives where a command did not end in time."""
_WRONG: Final = frozenset({"failed", "fault", "wrong", "refused", "missing", "miscompiles"})
"""States of a finding, a check or a stage that are a refusal's."""
_WORDS: Final = ("title", "name", "group", "message", "expected", "found", "problems", "reason")
"""Keys whose texts a person is shown of what is wrong, in that order."""
_LINE: Final = 400
"""Characters of one text; an answer that is wrong can be as long as its context."""
_LINES: Final = 60


@dataclass(frozen=True, kw_only=True)
class Said:
    """One thing that is wrong: the stage where the report tells, the check, the words."""

    stage: Stage | None
    check: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a command ended: its exit code, what it printed on each stream."""

    exit_code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """What the product said; empty where it said nothing."""

    stage: Stage
    check: str
    message: str


def refusal(ending: Ending, stage: Stage) -> Refusal:
    """The refusal in what a command printed; ``stage`` is its own where the report does not tell.

    Without JSON that says what is wrong, the words on stderr are taken as they are.
    """
    said = list(_said(ending.stdout))[:_LINES]
    if not said:
        text = ending.stderr.strip()
        return Refusal(stage=stage, check="", message=text[-_LINE * 10 :])
    first = said[0]
    if first.stage is None and ending.exit_code == ModelError.exit_code:
        stage = "model"
    lines = (f"{one.check}: {one.text}" if one.check else one.text for one in said)
    return Refusal(
        stage=first.stage or stage, check=first.check, message="\n".join(dict.fromkeys(lines))
    )


def verdict(fault: Fault, exit_code: int, found: Refusal) -> Verdict:
    """What became of a fault that was planted and asked about."""
    if exit_code in NOT_JUDGED:
        return "not run"
    if exit_code in NO_REFUSAL or exit_code == TIMED_OUT or exit_code < 0:
        return "missed"
    if STAGES.index(found.stage) > STAGES.index(fault.latest):
        return "late"
    said = found.message.casefold()
    return "caught" if all(word.casefold() in said for word in fault.says) else "other words"


def _said(stdout: str) -> Iterator[Said]:
    try:
        document = msgspec.json.decode(stdout)
    except msgspec.DecodeError:
        return
    if not isinstance(document, dict):
        return
    if isinstance(document.get("failure"), dict):
        yield from _words(document["failure"], None, "")
    for stage in _tables(document, "stages"):
        if stage.get("state") in _WRONG:
            name = cast("Stage", stage["name"]) if stage.get("name") in STAGES else None
            yield from _words(stage.get("failure") or stage, name, "")
    if "parts" in document and "suite" in document:
        yield from _of_smoke(document)
        return
    yield from _walked(document, top=True)


def _of_smoke(document: Mapping[str, Any]) -> Iterator[Said]:
    """``sparkbuild smoke``: what does not fit, basics, canaries; misses that are allowed are none.

    An item of a canary is wrong only where its group is, which has a rate.
    """
    for one in _tables(document, "fitting"):
        for finding in _tables(one, "findings"):
            if finding.get("state") == "fault":
                yield from _words(finding, "model", f"{one.get('canary')} fits")
    for check in _tables(document.get("basics") or {}, "checks"):
        if not check.get("passed"):
            yield from _words(check, "smoke", "basics")
    for part in _tables(document, "parts"):
        result = part.get("result") or {}
        for form, failure in (result.get("failures") or {}).items():
            yield from _words(failure, "smoke", f"{part['name']} {form}")
        for ran in _tables(result, "ran"):
            yield from _of_pass(str(part["name"]), msgspec.convert(ran, CanaryReport))
        for drafts in _tables(result, "drafts"):
            yield from _of_drafts(str(part["name"]), msgspec.convert(drafts, DraftCheck))


def _of_pass(part: str, ran: CanaryReport) -> Iterator[Said]:
    """Items of the groups that failed; of the log its faults."""
    failed = [group.name for group in ran.groups if not group.passed]
    for item in ran.items:
        if item.group in failed and not item.passed:
            text = f"{item.name}: expected {_cut(item.expected)}, found {_cut(item.found)}"
            yield Said(stage="smoke", check=f"{part} {ran.form}, {item.group}", text=text)
    for seen in ran.log.of("fault"):
        yield Said(stage="smoke", check=f"{part} {ran.form}, log", text=_cut(str(seen)))


def _of_drafts(part: str, check: DraftCheck) -> Iterator[Said]:
    if check.passed:
        return
    sign = "at least" if check.head == "healthy" else "at most"
    text = (
        f"drafts of {check.depth}, {check.how} head: accepted {check.accepted} of {check.drafted}, "
        f"{check.share:.1%}, expected {sign} {check.bound:.1%}"
    )
    if check.wrong:
        text += f"; {check.wrong} answers changed with drafts"
    if check.others:
        text += f"; not the drafts recorded: {_cut(', '.join(check.others))}"
    if check.state == "unsupported" or not check.drafted:
        text += f"; {check.reason}"
    for seen in check.log.of("fault") if check.log else ():
        text += f"; log: {_cut(str(seen))}"
    yield Said(stage="smoke", check=f"{part} drafts", text=text)


def _walked(value: object, *, top: bool = False) -> Iterator[Said]:
    """Whatever says of itself that it is wrong, anywhere in a report."""
    if isinstance(value, list):
        for one in value:
            yield from _walked(one)
    elif isinstance(value, dict):
        wrong = value.get("passed") is False or value.get("state") in _WRONG
        if wrong and not top:
            yield from _words(value, None, "")
        elif value.get("problems"):
            yield from _words({"problems": value["problems"]}, None, str(value.get("name") or ""))
        for key, one in value.items():
            if key not in {"failure", "stages"} and isinstance(one, (dict, list)):
                yield from _walked(one)


def _words(table: Mapping[str, Any], stage: Stage | None, where: str) -> Iterator[Said]:
    check = ", ".join(filter(None, (where, str(table.get("name") or table.get("title") or ""))))
    texts = [
        f"{key} {_cut(one)}" if key in {"expected", "found"} else _cut(one)
        for key in _WORDS
        for one in _texts(table.get(key))
        if one != table.get("name")
    ]
    if texts:
        yield Said(stage=stage, check=check, text="; ".join(texts))


def _texts(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, str) and one]


def _cut(text: str) -> str:
    return text if len(text) <= _LINE else f"{text[:_LINE]}..."


def _tables(table: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    value = table.get(key)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
