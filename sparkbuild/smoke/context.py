"""What the checks of one run share: the suite, the pin, the server, answers already given."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sparkbuild.errors import SmokeError
from sparkbuild.llama.answers import Completion
from sparkbuild.llama.client import Api
from sparkbuild.llama.server import Server
from sparkbuild.smoke.suite import GreedyCase, Logprobs, Suite

SLOT: Final = 0
"""Single requests all go to the first slot, so that a repeated one repeats everything."""


@dataclass(kw_only=True)
class Context:
    """What the checks of one run share."""

    suite: Suite
    logprobs: Logprobs
    executable: Path
    model: Path
    build: int | None
    identity: str
    log: Path
    server: Server | None = None
    absence: str = "it never started"
    """Why there is no server."""
    short: SmokeError | None = None
    """What ended the run where the machine's memory did."""
    alone: dict[str, Completion] = field(default_factory=dict)
    """The first answer to each greedy case, asked for one at a time."""

    @property
    def running(self) -> Server:
        """The server. Only checks that need one may ask."""
        assert self.server is not None  # noqa: S101 - the runner does not call them without
        return self.server

    @property
    def api(self) -> Api:
        """The server's interface, with the key."""
        return Api(self.running.client)

    def answer(self, case: GreedyCase) -> Completion:
        """The first answer to a case; asked for once."""
        if case.name not in self.alone:
            self.alone[case.name] = self._ask(case)
        return self.alone[case.name]

    def again(self, case: GreedyCase) -> Completion:
        """A fresh answer to a case."""
        return self._ask(case)

    def _ask(self, case: GreedyCase) -> Completion:
        return self.api.complete(case.prompt, count=case.count, slot=SLOT)
