"""Numbers of one way to serve against those of the first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from sparkbuild.smoke.served.known import NOT_A_NUMBER
from sparkbuild.smoke.served.numbers import Distance, Run, compared, recorded
from sparkbuild.smoke.served.session import Seen, Session
from sparkbuild.smoke.served.suite import Way

NUMBERS: Final = "numbers"


def record(session: Session) -> list[Run]:
    """The first way's runs of all prompts; each has to have whole numbers."""
    asked, found = session.suite.numbers, list[Run]()

    def run(name: str, user: str) -> Seen:
        prompt = session.talk.templated(user)
        one = recorded(session.talk, name, prompt, count=asked.positions, top=asked.top)
        holes = [at for at, row in enumerate(one.rows) if row and any(v != v for v in row.values())]  # noqa: PLR0124
        if holes:
            return Seen(wrong=f"NaN at position {holes[0]}", group=NOT_A_NUMBER)
        told = sum(row is not None for row in one.rows)
        if len(one.tokens) != asked.positions or told < asked.positions // 2:
            return Seen(wrong=f"{len(one.tokens)} tokens, {told} with numbers", group=NOT_A_NUMBER)
        found.append(one)
        return Seen(well=f"{len(one.tokens)} tokens after {len(prompt)}, {told} with numbers")

    for number, user in enumerate(asked.prompts, start=1):
        name = f"numbers {number}"
        session.book.keep(f"prompts/numbers-{number}.txt", user)
        expected = f"finite log-probabilities at {asked.positions} positions"
        session.check(NUMBERS, name, expected, partial(run, name, user))
    return found


def compare(session: Session, way: Way, runs: Sequence[Run]) -> None:
    """All runs together within the way's bounds."""
    assert way.nmse is not None  # noqa: S101 - the loader refuses a suite without
    assert way.agreement is not None  # noqa: S101
    nmse, agreement = way.nmse, way.agreement
    first = session.suite.ways[0].name
    if not runs:
        expected = f"numbers of {first} to compare with"
        session.check(NUMBERS, "agreement", expected, lambda: Seen(wrong="there are none"))
        return
    parts: list[Distance] = []

    def measure(run: Run) -> Seen:
        parts.append(
            compared(session.talk, run, top=session.suite.numbers.top, allowed=1 - agreement.limit)
        )
        one = parts[-1]
        lacking = f"numbers at {one.positions} of {len(run.tokens)} positions"
        return (
            Seen(well=f"NMSE {one.nmse:.3g}, {one.agreement:.1%} the same", wrong="")
            if (one.positions)
            else Seen(wrong=lacking)
        )

    for run in runs:
        session.check(NUMBERS, run.name, f"numbers over the text of {first}", partial(measure, run))
    total = sum(parts, start=Distance())
    figures = {"NMSE": total.nmse, "agreement": total.agreement}
    told = f"NMSE {total.nmse:.3g}, {total.agreement:.1%} of {total.positions} positions"

    def bounded() -> Seen:
        wrong = [] if total.nmse <= nmse.limit else [f"NMSE: {nmse.reason}"]  # a NaN fails here
        wrong += [] if total.agreement >= agreement.limit else [f"agreement: {agreement.reason}"]
        return Seen(
            wrong=f"{told}; {'; '.join(wrong)}" if wrong else "",
            well=told,
            reason=f"{nmse.reason}; {agreement.reason}",
            figures=figures,
        )

    expected = (
        f"NMSE at most {nmse.limit:g}, the most likely token the same at {agreement.limit:.1%} of "
        f"positions, as with {first}"
    )
    session.check(NUMBERS, "agreement", expected, bounded)
