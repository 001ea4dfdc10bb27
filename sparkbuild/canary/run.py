"""Ask one form of one canary everything: start llama-server, ask, compare, leave nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparkbuild.canary.ask import Asker
from sparkbuild.canary.model import Backend, CacheType, CanaryReport, Group, Item
from sparkbuild.canary.numbers import load_numbers
from sparkbuild.canary.suite import REFERENCES, Limits, Suite, load_pictures, load_suite
from sparkbuild.llama.memory import MIB
from sparkbuild.llama.server import Limits as Patience
from sparkbuild.llama.server import running

SLOTS: Final = 4
"""Questions at the same time. Greedy answers with a trained lead do not depend on company."""
PATIENCE: Final = Patience(start=120, request=120, stop=20, memory=0, missing=MIB << 20)
"""Seconds. A canary is healthy within one second on a CPU; a first start on a GPU may have to set
up the driver. What memory is left is the smoke test's business."""
_BATCH: Final = 512
"""Tokens of a batch and a micro-batch: llama-server's own micro-batch."""


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
    threads: int = 2
    patience: Patience = PATIENCE


def canary(
    folder: Path,
    setup: Setup,
    *,
    on_item: Callable[[Item], None] = lambda _: None,
    quick: bool = False,
    answers: bool = True,
) -> CanaryReport:
    """Run the suite in ``folder``; a report, whatever the answers are.

    ``quick`` stops at the first reference that fails, and asks questions only where none did.
    Without ``answers`` numbers are all that is asked for.
    Only the main thread may call this. Raises ManifestError or CanaryError where the suite itself
    is not as recorded, SmokeError where the server does not come up.
    """
    suite, limits = load_suite(folder)
    numbers, pictures = load_numbers(folder, suite), load_pictures(folder, suite)
    bound = limits.bound(backend=setup.backend, cache=setup.cache, form=setup.form)
    started = time.monotonic()
    with running(
        setup.executable,
        flags(setup, suite),
        model=setup.model,
        scratch=setup.scratch,
        log=setup.log,
        limits=setup.patience,
    ) as server:
        loaded = time.monotonic()
        asker = Asker(server, suite, pictures, numbers, bound, on_item)
        items = asker.references(quick=quick)
        if answers and (not quick or all(item.passed for item in items)):
            items += asker.answers(SLOTS)
        ended = time.monotonic()
    return CanaryReport(
        canary=suite.canary,
        form=setup.form,
        backend=setup.backend,
        cache=setup.cache,
        load_seconds=round(loaded - started, 3),
        seconds=round(ended - loaded, 3),
        items=tuple(items),
        groups=tuple(_groups(items, limits, setup.form)),
    )


def flags(setup: Setup, suite: Suite) -> list[str]:
    """llama-server's arguments: a context for each slot, no draft, no cache of earlier prompts."""
    vision = ["--mmproj", str(setup.vision)] if setup.vision else []
    layers = "99" if setup.backend == "cuda" else "0"
    exact = ["--flash-attn", "off"] if setup.cache == "f32" else []
    return [
        *vision,
        *("--ctx-size", str(SLOTS * _rounded(suite.context)), "--parallel", str(SLOTS)),
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
        rate = limits.rate(name, form)
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
