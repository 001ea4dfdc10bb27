"""What is looked at around the questions: the server's offers, its log, and how it went."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from sparkbuild.llama.client import Api
from sparkbuild.llama.log import Context, Entry, scan
from sparkbuild.llama.memory import MIB
from sparkbuild.llama.server import Ending
from sparkbuild.model.read import Model
from sparkbuild.smoke.served.session import ALIVE, Recorder, Seen, Session
from sparkbuild.smoke.served.suite import Suite

LOG: Final = "log"
AFTER: Final = "after"
GPU: Final = "GPU"
_BUFFER: Final = re.compile(r"\b(CUDA\d+\S*) model buffer size = +([\d.]+) MiB")
"""As load_tensors writes it at --log-verbosity 4."""


def alive(session: Session, *, pictures: bool, pin: tuple[int | None, str]) -> None:
    """The server names the model, its capabilities, and the build that it should be."""
    offers = session.suite.offers
    wanted = sorted(offers.pictures if pictures else offers.text)

    def models() -> Seen:
        found = session.talk.models()
        told = [sorted(entry.capabilities) for entry in found.models]
        wrong = "" if told == [wanted] else f"capabilities {told}"
        return Seen(wrong=wrong, well=f"{', '.join(wanted)}; {len(found.data)} model")

    def version() -> Seen:
        build, commit = pin
        info = Api(session.server.client).props().build_info
        match = re.fullmatch(r"b(\d+)-(\S+)", info)
        same = match and match[2] == commit and build in {None, int(match[1])}
        return Seen(wrong="" if same else f"build_info {info!r}", well=info)

    session.check(ALIVE, "models", f"capabilities {', '.join(wanted)}", models)
    build, commit = pin
    number = "any build" if build is None else f"b{build}"
    session.check(ALIVE, "version", f"{number}, commit {commit}, as pinned or printed", version)


def on_gpu(session: Session, model: Model) -> None:
    """The weights' bytes that CUDA devices hold, by the server's own log."""
    share = session.suite.offers.on_gpu
    if share is None:
        return
    weights = sum(tensor.bytes or 0 for tensor in model.tensors.values())

    def held() -> Seen:
        buffers = dict(gpu_buffers(session.log))
        part = sum(buffers.values()) / weights if weights else 0.0
        told = ", ".join(f"{name} {size // MIB:,} MiB" for name, size in sorted(buffers.items()))
        told = f"{told or 'no CUDA buffer'}: {part:.1%} of {weights // MIB:,} MiB"
        well = part >= share.limit
        return Seen(wrong="" if well else told, well=told, reason=share.reason)

    session.check(GPU, "weights on the GPU", f"at least {share.limit:.0%} of their bytes", held)


def gpu_buffers(log: Path) -> list[tuple[str, int]]:
    """Name and bytes of every buffer of weights on a CUDA device."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [(name, int(float(size) * MIB)) for name, size in _BUFFER.findall(text)]


def read_log(
    recorder: Recorder, suite: Suite, way: str, log: Path, context: Collection[Context]
) -> None:
    """Every line of a server's log, by the suite's entries and then by the table."""
    extra = [
        Entry(kind=one.kind, severity=one.severity, pattern=one.pattern, reason=one.reason)
        for one in suite.log
    ]
    report = scan(log, context=context, extra=extra)
    faults = "; ".join(str(one) for one in report.of("fault"))
    wrong = "" if report.passed else faults or "nothing was written"
    found = Seen(
        wrong=wrong,
        well=str(report),
        evidence=(str(log),),
        figures={"warnings": report.count("warning"), "faults": report.count("fault")},
    )
    recorder.add(way, LOG, "server's log", "lines, and no fault among them", found)


def gone(recorder: Recorder, suite: Suite, way: str, log: Path, ending: Ending) -> None:
    """The server is gone, its port is free, and the memory is back."""
    limit = int(suite.server.missing.limit)
    wrong = []
    if not ending.alive_until_asked:
        wrong.append(f"it ended by itself: {ending.how}")
    elif not ending.gentle:
        wrong.append(f"KILL was needed after {suite.server.stop.limit:g} s")
    if not ending.port_free:
        wrong.append("its port is taken")
    missing = ending.missing // MIB
    if missing > limit:
        wrong.append(f"{missing} MiB lack that no process holds")
    lowest = ending.lowest // MIB
    well = f"{ending.how}, port free, {max(0, missing)} MiB lack, at the lowest {lowest} MiB left"
    found = Seen(
        wrong="; ".join(wrong),
        well=well,
        reason=suite.server.missing.reason,
        evidence=(str(log),),
        figures={"lowest MiB available": lowest},
    )
    expected = f"TERM is enough, port free, at most {limit} MiB lack"
    recorder.add(way, AFTER, "server gone", expected, found)
