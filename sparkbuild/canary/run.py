"""Ask one form of one canary everything: start llama-server, ask, compare, leave nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sparkbuild.canary import behaviour
from sparkbuild.canary.ask import Asker
from sparkbuild.canary.model import BEHAVIOUR, LOG, Backend, CacheType, CanaryReport, Group, Item
from sparkbuild.canary.numbers import load_numbers
from sparkbuild.canary.session import Session
from sparkbuild.canary.suite import REFERENCES, Limits, Rate, Suite, load_pictures, load_suite
from sparkbuild.llama.client import Api
from sparkbuild.llama.log import Context, LogReport, scan
from sparkbuild.llama.memory import MIB
from sparkbuild.llama.server import Limits as Patience
from sparkbuild.llama.server import Server, running

SLOTS: Final = 4
"""Questions at the same time. Greedy answers with a trained lead do not depend on company."""
PATIENCE: Final = Patience(start=120, request=120, stop=20, memory=0, missing=MIB << 20)
"""Seconds. A canary is healthy within one second on a CPU; a first start on a GPU may have to set
up the driver. What memory is left is the smoke test's business."""
_BATCH: Final = 512
"""Tokens of a batch and a micro-batch: llama-server's own micro-batch."""
_OWED: Final = Rate(
    group=BEHAVIOUR,
    minimum=1.0,
    reason="one request has one answer, however little of it is right",
)
"""Rates of a suite are for what a model may miss, not for a server that wavers."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One way to run one form of a canary."""

    executable: Path
    """llama-server."""
    model: Path
    vision: Path | None
    form: str
    backend: Backend
    cache: CacheType
    scratch: Path
    log: Path
    flags: tuple[str, ...] = ()
    """Further ones of llama-server's."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the server's environment."""
    threads: int = 1
    """More wait for one another at every barrier: a pass of qwen35 took a third longer with two on
    two cores, and drafts ten times as long where another program wanted one of them."""
    slots: int = SLOTS
    patience: Patience = PATIENCE

    @property
    def context(self) -> frozenset[Context]:
        """What lines of the log mean depends on it."""
        found: list[Context] = ["pictures"] if self.vision else []
        return frozenset([*found, "cuda"] if self.backend == "cuda" else found)


def canary(
    folder: Path,
    setup: Setup,
    *,
    on_item: Callable[[Item], None] = lambda _: None,
    quick: bool = False,
    answers: bool = True,
    behaves: bool = True,
    first: bool = False,
) -> CanaryReport:
    """Run the suite in ``folder``; a report, whatever the answers and the server's log are.

    ``quick`` stops at the first reference that fails, and asks questions only where none did, and
    each once. Without ``answers`` numbers are all that is asked for; without ``behaves`` nothing is
    asked to see how the server serves. ``first`` ends at the first reference that fails, and after
    the answers where too few are right: what follows would say no more.
    Only the main thread may call this. Raises ManifestError or CanaryError where the suite itself
    is not as recorded, SmokeError where the server does not come up or is short of memory.
    """
    whole, limits = load_suite(folder)
    suite = whole.in_form(setup.form)
    numbers, pictures = load_numbers(folder, suite), load_pictures(folder, suite)
    bound = limits.bound(backend=setup.backend, cache=setup.cache, form=setup.form)
    started = time.monotonic()
    with served(setup, suite) as server:
        loaded = time.monotonic()
        asker = Asker(server, suite, pictures, numbers, bound, on_item)
        items = asker.references(quick=quick or first)
        if answers and (not (quick or first) or all(item.passed for item in items)):
            items += asker.answers(setup.slots)
        ended_early = first and not all(one.passed for one in _groups(items, limits, setup.form))
        if answers and behaves and not quick and not ended_early:
            session = Session(
                server=server,
                api=Api(server.client),
                suite=suite,
                pictures=pictures,
                bound=bound,
                slots=setup.slots,
            )
            items += behaviour.behaviours(session, on_item)
        ended = time.monotonic()
    log = scan(setup.log, context=setup.context)
    return CanaryReport(
        canary=suite.canary,
        form=setup.form,
        backend=setup.backend,
        cache=setup.cache,
        load_seconds=round(loaded - started, 3),
        seconds=round(ended - loaded, 3),
        items=tuple(items),
        groups=(*_groups(items, limits, setup.form), _log_group(log)),
        log=log,
    )


def served(setup: Setup, suite: Suite) -> AbstractContextManager[Server]:
    """A llama-server with room for a suite's conversations; as ``running`` has it."""
    return running(
        setup.executable,
        flags(setup, suite),
        model=setup.model,
        scratch=setup.scratch,
        log=setup.log,
        limits=setup.patience,
        environment=setup.environment,
    )


def flags(setup: Setup, suite: Suite) -> list[str]:
    """llama-server's arguments: a context for each slot, no draft, no cache of earlier prompts."""
    vision = ["--mmproj", str(setup.vision)] if setup.vision else []
    layers = "99" if setup.backend == "cuda" else "0"
    exact = ["--flash-attn", "off"] if setup.cache == "f32" else []
    context = max(suite.context, behaviour.context(suite))
    return [
        *vision,
        *("--ctx-size", str(setup.slots * _rounded(context))),
        *("--parallel", str(setup.slots)),
        *("--batch-size", str(_BATCH), "--ubatch-size", str(_BATCH)),
        *("--threads", str(setup.threads), "--threads-batch", str(setup.threads)),
        *("--cache-type-k", setup.cache, "--cache-type-v", setup.cache),
        *exact,
        *("--n-gpu-layers", layers, "--fit", "off", "--cache-ram", "0"),
        *("--offline", "--no-webui", "--log-colors", "off"),
        *setup.flags,
    ]


def _rounded(context: int) -> int:
    """Up to what llama.cpp pads a context to, so that no slot gets less than it needs."""
    return -(-context // 256) * 256


def _groups(items: Sequence[Item], limits: Limits, form: str) -> list[Group]:
    groups = []
    for name in dict.fromkeys(item.group for item in items):
        members = [item for item in items if item.group == name]
        rate = _OWED if name == BEHAVIOUR else limits.rate(name, form)
        groups.append(
            Group(
                name=name,
                right=sum(item.passed for item in members),
                of=len(members),
                minimum=1.0 if name == REFERENCES else rate.minimum,
                reason=rate.reason,
            )
        )
    return groups


def _log_group(log: LogReport) -> Group:
    """The lines of a log as a group of its own: right answers do not excuse a fault."""
    return Group(
        name=LOG,
        right=max(0, log.lines - log.count("fault")),
        of=log.lines,
        minimum=1.0,
        reason="no line may tell of a fault, and a server that is well writes some",
    )
