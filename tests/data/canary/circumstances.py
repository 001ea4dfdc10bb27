"""What happens around a request, and what a faulty server makes of it.

``faults`` says what shows when: ``{"slot": "token"}`` is another token in every slot but the first.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LONG_RUN = 300
"""Tokens."""
LONG_PROMPT = 500
"""Characters."""


class Circumstances:
    """Counts requests, and knows what is asked at the same time and what was asked before."""

    def __init__(self, faults: dict[str, str]) -> None:
        self.faults = faults
        self.broken = 0
        """Requests that were broken off."""
        self._asked: Counter[str] = Counter()
        self._flying: list[str] = []
        self._last: set[str] = set()
        self._lock = threading.Lock()
        self._slots: dict[int, threading.Lock] = defaultdict(threading.Lock)
        self._held: dict[int, list[object]] = {}

    def from_cache(self, body: dict[str, Any]) -> tuple[int, int]:
        """How many parts of a prompt the slot holds, and how many are computed: one at least.

        The fault ``cache`` is ``none`` of them used, one too ``many``, one computed too few in the
        ``sum``, or those of the slot that was asked ``last``.
        """
        prompt, slot = body["prompt"], body.get("id_slot", -1)
        parts: list[object] = [
            *(prompt if isinstance(prompt, list) else str(prompt)),
            *(prompt.get("multimodal_data", ()) if isinstance(prompt, dict) else ()),
        ]
        fault = self.faults.get("cache", "") if body.get("cache_prompt") else ""
        held = self._held.get(-1 if fault == "last" else slot, [])
        same = next((i for i, (a, b) in enumerate(zip(parts, held)) if a != b), None)  # noqa: B905
        used = min(len(parts), len(held)) if same is None else same
        used = max(0, min(used, len(parts) - 1))
        if not body.get("cache_prompt") or fault == "none":
            used = 0
        used += fault == "many" and 0 < used < len(parts)
        self._held[slot] = self._held[-1] = parts
        return used, len(parts) - used - (fault == "sum")

    @contextmanager
    def slot(self, body: dict[str, Any]) -> Iterator[None]:
        """The slot that the request names, as soon as it is free."""
        slot = body.get("id_slot", -1)
        if slot < 0:
            yield
            return
        with self._slots[slot]:
            yield

    @contextmanager
    def around(self, text: str, body: dict[str, Any]) -> Iterator[set[str]]:
        """The faults that the answer shows."""
        with self._lock:
            self._asked[text] += 1
            self._flying.append(text)
        social = self.faults.keys() & {"company", "beside a long one"}
        wait = 0.2 if social and body.get("id_slot", -1) < 0 else 0.0
        time.sleep(wait)  # for others to arrive
        now = set(self._now(text, body))
        time.sleep(wait)  # for others to see this one
        yield {fault for when, fault in self.faults.items() if when in now}
        with self._lock:
            self._flying.remove(text)

    def broke_off(self) -> None:
        """A client has gone."""
        self.broken += 1
        self._last.add("after a break")

    def _now(self, text: str, body: dict[str, Any]) -> Iterator[str]:
        with self._lock:
            last, self._last = self._last, set()
            company = [one for one in self._flying if one is not text]
            count = self._asked[text]
        yield from last
        slot = body.get("id_slot", -1)
        if (
            count == 3 and slot == 0 and not body.get("cache_prompt")
        ):  # numbers against the recorded ones, then before and after
            yield "again"
        if count > 1 and slot == 0:
            yield "later"
        if slot > 0:
            yield "slot"
        if body.get("cache_prompt"):
            yield "from the cache"
        if company:
            yield "company"
        if any(len(one) > LONG_PROMPT for one in company):
            yield "beside a long one"
        if body.get("n_predict", 0) >= LONG_RUN:
            self._last.add("after a long run")
            yield "long run"
            if count == 2:
                yield "second long run"
