"""What a command printed, read: where it failed first, what it made."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sparkbuild.nightly.model import Kind

_HOLD: Final = frozenset({"applies", "applies with offset", "already upstream"})
"""What may become of a patch on a newer base without a person's work."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a command's document says. ``wrong`` is empty where it says that all is well.

    ``note`` is for what another step decides: a patch that conflicts may be carried all the same.
    """

    stage: str = ""
    check: str = ""
    wrong: str = ""
    note: str = ""
    toolchain: str = ""
    source: str = ""
    key: str = ""
    wheel: str = ""
    machine: Mapping[str, str] | None = None
    evidence: tuple[str, ...] = ()


def document_in(text: str) -> dict[str, Any] | None:
    """The last JSON object that begins on a line of its own; other lines may be around it."""
    decoder = json.JSONDecoder()
    at = len(text)
    while (at := text.rfind("{\n", 0, at)) >= 0:
        if at == 0 or text[at - 1] == "\n":
            try:
                found, _ = decoder.raw_decode(text, at)
            except ValueError:
                continue
            if isinstance(found, dict):
                return found
    return None


def read(kind: Kind, document: Mapping[str, Any]) -> Told:
    """What a command's JSON says. A document of an unknown form says what is common to all."""
    reader = _READERS.get(kind, _nothing)
    try:
        if "stages" not in document and document.get("failure"):
            return _refusal(document["failure"])
        return reader(document) if document else Told()
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        return Told(wrong=f"its JSON is not of the form that was expected ({error!r})")


def _make(document: Mapping[str, Any]) -> Told:
    failed = next((one for one in document["stages"] if one["failure"]), None)
    wheel = document["wheel"] or {}
    sources = [one["result"] for one in document["stages"] if one["name"] == "source"]
    bad = [one for one in document["smoke_checks"] if not one["passed"]]
    refused = _refusal(failed["failure"]) if failed else Told()
    return Told(
        stage=failed["name"] if failed else "",
        check=bad[0]["name"] if bad else "",
        wrong=refused.wrong,
        toolchain=document["toolchain"],
        source=str(next(iter(sources), "") or ""),
        key=document["key"] or "",
        wheel=wheel.get("path", ""),
        machine=document["machine"],
        evidence=tuple(failed["evidence"]) if failed else (),
    )


def _refusal(failure: Mapping[str, Any]) -> Told:
    problems = list(failure.get("problems") or ())
    wrong = "; ".join([str(failure["message"]), *map(str, problems[:3])])
    return Told(stage=str(failure.get("title", "")), wrong=wrong)


def _patches(document: Mapping[str, Any]) -> Told:
    bad = [one for one in document["patches"] if one["state"] not in _HOLD]
    note = ""
    if bad:
        first, count = bad[0], len(document["patches"])
        note = f"{len(bad)} of {count} patches do not hold: {first['file']} {first['state']}"
        note += _hunk(first)
    moved = [one for one in document["values"] if one.get("refused")]
    if moved:
        return Told(stage="patches", check="values", wrong=f"values of files move: {moved[0]}")
    compiled = document["compiled"]
    if compiled and not compiled["passed"]:
        logs = (compiled["log"],) if compiled["log"] else ()
        wrong = "; ".join(text for text in (compiled["summary"], note) if text)
        return Told(stage="build", wrong=wrong, evidence=logs)
    return Told(note=note)


def _hunk(patch: Mapping[str, Any]) -> str:
    """The first hunk of a patch that does not hold, as words; or the patch's first problem."""
    bad = [one for one in patch["hunks"] if one["state"] in {"conflict", "misplaced"}]
    if not bad:
        return "".join(f": {text}" for text in [*patch["problems"], *patch["held_up_by"]][:1])
    first = bad[0]
    where = f" in {first['function']}" if first["function"] else ""
    return (
        f": hunk {first['number']} of {first['file']}, made for line {first['made_for']}{where}, "
        f"is a {first['state']}"
    )


def _refresh(document: Mapping[str, Any]) -> Told:
    waiting = document.get("waiting")
    if not waiting:
        return Told()
    where = document["folder"]
    patch = next((name for name, state in document["patches"].items() if state == "open"), "")
    return Told(
        stage="refresh",
        check=patch,
        wrong=f"{patch} {waiting}: it waits for a merge by hand in {where}",
        evidence=(f"{where}/REFRESH.txt",),
    )


def _served(document: Mapping[str, Any]) -> Told:
    faults = [one for one in document["findings"] if one["state"] == "fault"]
    bad = [one for one in document["checks"] if one["state"] == "failed"]
    if faults:
        first = faults[0]
        wrong = str(first.get("text") or first.get("found") or first)
        return Told(stage="inspect", check=str(first.get("name", "")), wrong=wrong)
    if bad:
        first = bad[0]
        return Told(
            stage="smoke",
            check=": ".join((first["way"], first["name"])),
            wrong=f"expected {first['expected']}, found {first['found']}",
            evidence=tuple(first["evidence"]),
        )
    return Told()


def _faults(document: Mapping[str, Any]) -> Told:
    if not document["problems"]:
        return Told(machine=document["machine"])
    bad = [one for one in document["found"] if one["verdict"] not in {"caught", "not run"}]
    return Told(
        stage="faults",
        check=bad[0]["id"] if bad else "clean",
        wrong="; ".join(document["problems"][:3]),
        machine=document["machine"],
        evidence=(bad[0]["log"],) if bad else (),
    )


def _nothing(document: Mapping[str, Any]) -> Told:
    """A document that has no more than what was done."""
    del document
    return Told()


_READERS: Final[dict[Kind, Callable[[Mapping[str, Any]], Told]]] = {
    "make": _make, "patches": _patches, "refresh": _refresh, "smoke": _served, "faults": _faults,
}  # fmt: skip
