"""A process that writes runs and a night: NAME, how many, and the history's folder."""

import sys
from pathlib import Path

from sparkbuild.history.model import Figure, Night, Run
from sparkbuild.history.store import History


def write_many(root: Path, name: str, count: int) -> None:
    history = History(root)
    for number in range(count):
        value = Figure(name="build.seconds", value=float(number), unit="s", more_is="worse")
        history.add(
            Run(
                id=f"{name}-{number}", night=None, what="make", role="control", variant="vision",
                toolchain="cpu", base="b1", source="s", key="k", seconds=1.0, state="passed",
                started="2026-11-01T01:00:00+00:00", exit_code=0, figures=(value,),
            )
        )  # fmt: skip
        history.night(
            Night(
                id="shared", started="2026-11-01T00:00:00+00:00", ended=None, plan="p",
                state="running", blame="nothing", reason=f"{name} {number}", base="b1",
                candidate="b2",
            )
        )  # fmt: skip


if __name__ == "__main__":
    write_many(Path(sys.argv[3]), sys.argv[1], int(sys.argv[2]))
