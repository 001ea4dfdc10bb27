"""What test-backend-ops prints, read line by line.

Of the formats that b11434 offers the one for people is the sturdiest: it is flushed at every case,
where SQL and CSV lose the last 4 KiB when the process is ended, and CSV has no column for whether
a case passed. A case is printed once it has ended, never before; ``witness.cpp`` announces it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final, Literal

State = Literal["ok", "fail", "not supported", "supported"]

_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*m")
_CASE: Final = re.compile(
    r"^(?P<before>.*?)  (?P<op>[A-Z][A-Z0-9_]*)\((?P<parameters>.*)\): "
    r"(?P<said>OK|FAIL|SUPPORTED|NOT SUPPORTED|not supported \[.*\]) *$"
)
_RUNS: Final = re.compile(r"\[runs (?P<what>[^\]]*)\]")
_ERROR: Final = re.compile(r"ERR = (?P<error>\S+) > (?P<bound>\S+)")
_DEVICE: Final = re.compile(r"^Backend \d+/\d+: (?P<name>\S+)$")
_SKIPPED: Final = re.compile(r"^  Skipping")
_END: Final = re.compile(r"^\d+/\d+ backends passed$")
_FAILING: Final = re.compile(r"^  (?P<name>[A-Z][A-Z0-9_]*\(.*\))$")
_NO_MEMORY: Final = re.compile(r"failed to allocate (?:weight )?tensors \[[^\]]*\]")
_STATES: Final[dict[str, State]] = {
    "OK": "ok", "FAIL": "fail", "SUPPORTED": "supported", "NOT SUPPORTED": "not supported",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case that ended."""

    op: str
    parameters: str
    state: State
    error: float | None = None
    """Upstream's measure of the difference (mostly the normalised mean squared error), the largest
    of the case's tensors; printed only where it is above ``bound``. NaN where a result is none."""
    bound: float | None = None
    told: str = ""
    """What was printed about a case that failed."""
    same: bool | None = None
    """Whether both results have the same bits; None where nobody looked."""

    @property
    def name(self) -> str:
        """As upstream takes it with ``-o``."""
        return f"{self.op}({self.parameters})"


class Reader:
    """Reads one process's output."""

    def __init__(self) -> None:
        self.devices: list[str] = []
        """Those that were asked, not those that were passed over."""
        self.running = ""
        """The case that was announced and has not ended: operator and types of what it reads."""
        self.ended = False
        """Whether the closing line came."""
        self.failing: list[str] = []
        """Names in upstream's own list of failures."""
        self.unallocated = False
        """Whether a case had no memory for its tensors: upstream prints no line for such a one, but
        has it in its list."""
        self.since: list[str] = []
        """Lines since the last case, for a refusal."""
        self._listing = False

    def feed(self, line: str) -> Case | None:
        """One line, without its end; the case that it tells of."""
        text = _ESCAPES.sub("", line)
        self.unallocated |= bool(_NO_MEMORY.search(text))
        match = _CASE.match(text)
        if match is None:
            self._other(text)
            return None
        self.running, self.since = "", []
        before, said = match["before"], match["said"]
        state = _STATES.get(said, "not supported")
        failed = state == "fail"
        error, bound = _worst(before) if failed else (None, None)
        return Case(
            op=match["op"],
            parameters=match["parameters"],
            state=state,
            error=error,
            bound=bound,
            told=_told(before) if failed else "",
            same={"[same bits]": True, "[other bits]": False}.get(_bits(before)),
        )

    def _other(self, text: str) -> None:
        device, failing = _DEVICE.match(text), _FAILING.match(text)
        if device:
            self.devices.append(device["name"])
        elif _SKIPPED.match(text) and self.devices:
            self.devices.pop()
        elif text == "Failing tests:":
            self._listing = True
        elif failing and self._listing:
            self.failing.append(failing["name"])
        elif _END.match(text):
            self.ended = True
        for announced in _RUNS.finditer(text):
            self.running = announced["what"]
        rest = _RUNS.sub("", text).rstrip()
        if rest.strip():
            self.since.append(rest)


def _bits(before: str) -> str:
    found = re.findall(r"\[(?:same|other) bits\]", before)
    return found[-1] if found else ""


def _worst(before: str) -> tuple[float | None, float | None]:
    found = [(_number(m["error"]), _number(m["bound"])) for m in _ERROR.finditer(before)]
    nan = re.search(r"NaN at index|\binf mismatch|\binf sign mismatch", before)
    if nan:
        return math.nan, found[0][1] if found else None
    return max(found, default=(None, None), key=lambda pair: (math.isnan(pair[0]), pair[0]))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _told(before: str) -> str:
    """What stands before a case that failed, without the witness's words."""
    plain = re.sub(r"\[runs [^\]]*\]|\[(?:same|other) bits\]", "", before)
    return " ".join(plain.split())
