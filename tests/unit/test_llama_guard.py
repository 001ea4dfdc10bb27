"""The memory guard against real processes that eat real memory, down to a floor that is close."""

import contextlib
import math
import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from sparkbuild import process
from sparkbuild.errors import HostError, SmokeError
from sparkbuild.llama import room
from sparkbuild.llama.guard import FLOOR, INTERVAL, Guard, Reading, Strike
from sparkbuild.llama.memory import MIB, Memory, reading
from sparkbuild.llama.room import wait_for_room

MARGIN = 500 * MIB
"""How much an eater takes before it reaches the floor."""
BELOW = 64 * MIB
"""How far below the floor an eater eats."""
EMPTY = Memory(available=8 << 30, owned=0)
"""A machine on which nobody else runs, before anything was started. What other programs of the real
one take or give back in a second is no matter of the guard's patience."""
ALWAYS = 1 << 60
"""A floor that no machine is above."""
EATER = textwrap.dedent("""
    import signal, sys, time
    import psutil
    how, down_to, empty = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    held = []
    eating = True
    def let_go(*_):
        global eating
        eating = False
        held.clear()
    if how == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if how == "lets go":
        signal.signal(signal.SIGTERM, let_go)
    def available():
        if empty:
            return empty - psutil.Process().memory_info().rss
        return psutil.virtual_memory().available
    print("ready", flush=True)
    while True:
        if eating and available() > down_to:
            held.append(b"x" * (16 << 20))
        time.sleep(0.01)
""")

Start = Callable[..., process.Child]


@pytest.fixture(autouse=True)
def _alone(children: Callable[[], list[psutil.Process]]) -> Iterator[None]:
    yield
    room._Owed.before = None
    left = children()
    for one in left:
        one.kill()  # whatever a test found: an eater must not stay
    assert left == [], "a process was left behind"
    assert not watching(), "a guard still watches"


@pytest.fixture
def start(tmp_path: Path) -> Start:
    def begin(
        how: str,
        floor: int = ALWAYS,
        *,
        empty: int = EMPTY.available,
        through: tuple[str, ...] = (),
    ) -> process.Child:
        argv = [*through, sys.executable, "-c", EATER, how, str(floor - BELOW), str(empty)]
        child = process.start(argv, log=tmp_path / "log", env=process.environment())
        until(lambda: "ready" in (tmp_path / "log").read_text().splitlines())
        return child

    return begin


def alive(one: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return one.status() != psutil.STATUS_ZOMBIE
    return False


def watching() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "memory guard"]


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def whole(guard: Guard) -> Strike:
    """The strike, once it is over by itself: nobody has asked for an end."""
    until(lambda: guard.strike and not watching())
    guard.stop()
    strike = guard.strike
    assert strike
    return strike


def available(children: Callable[[], list[psutil.Process]]) -> Callable[[], int]:
    """MemAvailable of the machine on which nobody else runs: real bytes of real processes."""

    def read() -> int:
        held = 0
        for one in children():
            with contextlib.suppress(psutil.NoSuchProcess):
                held += one.memory_info().rss
        return EMPTY.available - held

    return read


@pytest.fixture
def alone(children: Callable[[], list[psutil.Process]]) -> Callable[[], int]:
    return available(children)


def test_a_server_that_eats_too_much_gets_term_and_the_numbers_are_kept(start: Start) -> None:
    before = reading()  # of the real machine
    floor = before.available - MARGIN
    guard = Guard(before, floor=floor, patience=60)
    child = guard.launch(lambda: start("polite", floor, empty=0))
    strike = whole(guard)
    assert child.returncode == -signal.SIGTERM
    assert guard.poll() is None, "the strike is the reason, not a status"
    assert (strike.floor, strike.before) == (floor, before.available)
    assert strike.lowest.available <= strike.found.available <= strike.floor
    assert strike.found.seconds > 0
    assert guard.lowest == strike.lowest
    assert strike.gentle
    assert strike.kill == 0
    assert strike.term > 0
    assert strike.after > 0
    left = strike.found.available // MIB
    assert str(strike) == (
        f"ended by the memory guard: {left} MiB left, floor {strike.floor // MIB} MiB"
    )


def test_kill_follows_where_term_is_not_heard(start: Start, alone: Callable[[], int]) -> None:
    floor = EMPTY.available - MARGIN
    guard = Guard(EMPTY, floor=floor, patience=math.inf, last=0, grace=0.3, available=alone)
    child = guard.launch(lambda: start("deaf", floor))
    strike = whole(guard)
    assert child.returncode == -signal.SIGKILL
    assert not strike.gentle
    assert strike.term >= 0.3
    assert strike.kill > 0


def test_below_the_last_line_kill_does_not_wait_for_the_grace(
    start: Start, alone: Callable[[], int]
) -> None:
    floor = EMPTY.available - MARGIN
    guard = Guard(
        EMPTY, floor=floor, patience=math.inf, last=floor, grace=math.inf, available=alone
    )
    child = guard.launch(lambda: start("deaf", floor))
    assert not whole(guard).gentle
    assert child.returncode == -signal.SIGKILL


def test_a_server_that_lets_go_of_its_memory_gets_its_own_patience(
    start: Start, alone: Callable[[], int]
) -> None:
    floor = EMPTY.available - 2 * MARGIN
    guard = Guard(EMPTY, floor=floor, patience=3.0, last=0, grace=1.0, available=alone)
    guard.launch(lambda: start("lets go", floor))
    strike = whole(guard)
    assert not strike.gentle
    assert strike.term > 3.0


def test_the_whole_session_is_ended(start: Start, alone: Callable[[], int]) -> None:
    floor = EMPTY.available - MARGIN
    guard = Guard(EMPTY, floor=floor, patience=60, available=alone)
    shell = ("/bin/sh", "-c", '"$@" & wait', "sh")
    child = guard.launch(lambda: start("polite", floor, through=shell))
    below = psutil.Process(child.pid).children()
    assert len(below) == 1
    assert whole(guard).gentle
    assert not alive(below[0])


def test_a_healthy_server_is_never_touched(start: Start) -> None:
    before = reading()
    guard = Guard(before, floor=FLOOR, patience=60)
    child = guard.launch(lambda: start("polite"))
    assert len(watching()) == 1
    time.sleep(3 * INTERVAL)
    assert guard.poll() is None
    assert child.poll() is None
    assert guard.stop()
    assert child.returncode == -signal.SIGTERM
    assert guard.strike is None
    assert FLOOR < guard.lowest.available <= before.available
    assert guard.poll() == -signal.SIGTERM
    assert room._Owed.before is None


def test_a_deaf_server_that_is_asked_to_end_is_killed_and_memory_is_not_blamed(
    start: Start,
) -> None:
    guard = Guard(reading(), floor=FLOOR, patience=0.3)
    child = guard.launch(lambda: start("deaf"))
    assert not guard.stop()
    assert child.returncode == -signal.SIGKILL
    assert guard.strike is None


def test_a_server_that_ended_by_itself_is_not_blamed_on_memory(tmp_path: Path) -> None:
    child = process.start(["/bin/false"], log=tmp_path / "log", env=process.environment())
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and not reaped
    guard = Guard(reading(), floor=ALWAYS, patience=60)
    guard.launch(lambda: child)
    time.sleep(3 * INTERVAL)
    assert guard.strike is None
    assert guard.poll() == 1
    assert guard.stop()


def test_memory_that_runs_out_while_a_server_ends_is_a_strike(start: Start) -> None:
    guard = Guard(reading(), floor=ALWAYS, patience=math.inf, last=0, grace=0.0)
    guard._over.set()  # the watch looks no more: what comes is seen on the way out
    guard.launch(lambda: start("deaf"))
    assert not guard.stop()
    strike = guard.strike
    assert strike
    assert not strike.gentle


def test_what_cannot_be_started_is_not_watched() -> None:
    guard = Guard(reading(), floor=ALWAYS, patience=60)

    def refuse() -> process.Child:
        assert len(watching()) == 1
        time.sleep(2 * INTERVAL)
        raise HostError("no such program")

    with pytest.raises(HostError):
        guard.launch(refuse)
    assert guard.strike is None
    assert not watching()


def test_ctrl_c_ends_the_wait_for_a_deaf_server(start: Start) -> None:
    guard = Guard(reading(), floor=ALWAYS, patience=math.inf, last=0, grace=math.inf)
    child = guard.launch(lambda: start("deaf"))
    until(lambda: guard.strike)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        guard.stop()
    timer.join()
    assert child.returncode == -signal.SIGKILL
    assert guard.strike


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_watch_that_fails_leaves_no_server_behind(start: Start) -> None:
    troubles = iter([OSError("no more files")])

    def fail_once() -> None:
        for trouble in troubles:
            raise trouble

    guard = Guard(reading(), floor=ALWAYS, patience=0.3, last=0, hang_up=fail_once)
    child = guard.launch(lambda: start("deaf"))
    until(lambda: not watching())
    assert psutil.pid_exists(child.pid)
    assert not guard.stop()
    assert child.returncode == -signal.SIGKILL
    assert guard.strike


def strike(*, gentle: bool) -> Strike:
    return Strike(
        floor=768 * MIB, before=9000 * MIB, gentle=gentle, term=0.5, kill=0 if gentle else 0.25,
        found=Reading(available=612 * MIB, seconds=4.0), after=8000 * MIB,
        lowest=Reading(available=580 * MIB, seconds=4.31),
    )  # fmt: skip


def test_the_refusal_has_the_numbers() -> None:
    error = strike(gentle=True).refusal(Path("/log"), "the end")
    assert error.message == "llama-server was ended: only 612 MiB of memory were left"
    low = "found 612 MiB after 4.0 s, at the lowest 580 MiB after 4.3 s"
    assert error.problems == (
        f"MemAvailable: expected more than 768 MiB, {low}",
        "MemAvailable: 9000 MiB before the start, 8000 MiB when it was gone",
        "TERM was enough after 0.50 s",
    )
    assert error.evidence == (Path("/log"),)
    assert error.detail == "the end"
    assert "smaller context" in error.next_step
    assert error.short_of_memory
    killed = strike(gentle=False).refusal(Path("/log"), "")
    assert killed.problems[2] == "KILL was needed 0.50 s after TERM, the end came in 0.25 s"


def test_there_is_room_on_a_healthy_machine() -> None:
    began = time.monotonic()
    assert wait_for_room(floor=FLOOR, missing=0, seconds=60).available > FLOOR
    assert time.monotonic() - began < 30, "it waited for nothing"


def test_nothing_is_started_at_the_floor() -> None:
    with pytest.raises(SmokeError) as caught:
        wait_for_room(floor=ALWAYS, missing=0, seconds=0.3)
    assert caught.value.short_of_memory
    assert "not started: there was no room in memory within 0.3 s" in caught.value.message
    (problem,) = caught.value.problems
    assert problem.startswith(f"MemAvailable: expected more than {ALWAYS // MIB} MiB, found ")


def test_after_a_strike_the_memory_has_to_come_back(start: Start) -> None:
    now = reading()
    before = Memory(available=now.available + (8 << 30), owned=now.owned)
    guard = Guard(before, floor=ALWAYS, patience=60)
    guard.launch(lambda: start("polite"))
    whole(guard)
    # Eight GiB that the machine had are nowhere; a server's own wide limit does not hide them.
    with pytest.raises(SmokeError) as caught:
        wait_for_room(floor=0, missing=1 << 40, seconds=0.3)
    (problem,) = caught.value.problems
    assert "MiB lack that no process holds: expected at most 1024 MiB" in problem
    assert "reboot" in caught.value.next_step
    later = threading.Timer(0.5, setattr, (room._Owed, "before", now))
    later.start()
    wait_for_room(floor=0, missing=1 << 40, seconds=60)
    assert not later.is_alive(), "it did not wait"
    later.join()
    assert room._Owed.before is None
    wait_for_room(floor=0, missing=0, seconds=0)  # nothing is owed any more
