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
        if count == 3 and slot == 0:  # numbers against the recorded ones, then before and after
            yield "again"
        if count > 1 and slot == 0:
            yield "later"
        if slot > 0:
            yield "slot"
        if company:
            yield "company"
        if any(len(one) > LONG_PROMPT for one in company):
            yield "beside a long one"
        if body.get("n_predict", 0) >= LONG_RUN:
            self._last.add("after a long run")
            yield "long run"
            if count == 2:
                yield "second long run"
