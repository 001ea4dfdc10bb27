"""The memory guard of a running server: a small real server that eats memory stands for it."""

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import psutil
import pytest

from sparkbuild.errors import SmokeError
from sparkbuild.llama import guard, room
from sparkbuild.llama.memory import MIB
from sparkbuild.llama.server import Limits, Server, running

STUB = Path(__file__).parent.parent / "data/smoke/stub_server.py"
MARGIN = 500 * MIB
"""What other programs may take before the floor is reached by them."""
BELOW = 64 * MIB
"""How far below the floor a server eats."""
STRANDED = 1536 * MIB
"""Far more than the sum of what is available and what is owned wavers while others compile."""
ALWAYS = 1 << 60
"""A floor that no machine is above."""

Children = Callable[[], list[psutil.Process]]


class Bench:
    """A llama-server with one fault, and where it runs."""

    def __init__(self, folder: Path, stranded: Path) -> None:
        self.folder = folder
        self.log = folder / "server.log"
        self.stranded = stranded

    def running(
        self, fault: str, *, floor: int | None = None, missing: int = 1 << 40, settle: float = 60.0
    ) -> AbstractContextManager[Server]:
        if floor is None:
            floor = psutil.virtual_memory().available - MARGIN
        values = {
            "completion": {}, "down_to": floor - BELOW,
            "shared_memory": str(self.stranded), "stranded": STRANDED,
        }  # fmt: skip
        recorded = self.folder / "recorded.json"
        recorded.write_text(json.dumps(values))
        program = self.folder / f"llama-server-{fault}"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {STUB} {fault} {recorded} "$@"\n')
        program.chmod(0o755)
        return running(
            program, (), model=self.folder / "m", scratch=self.folder / "s", log=self.log,
            limits=Limits(
                start=60, request=60, stop=5, memory=0, missing=missing, floor=floor,
                settle=settle,
            ),
        )  # fmt: skip


@pytest.fixture
def bench(tmp_path: Path, children: Children) -> Iterator[Bench]:
    stranded = Path(f"/dev/shm/sparkbuild-test-{os.getpid()}")
    yield Bench(tmp_path, stranded)
    stranded.unlink(missing_ok=True)
    room._Owed.before = None
    left = children()
    for one in left:
        one.kill()  # whatever a test found: an eater must not stay
    assert left == [], "a server was left behind"
    assert not [t for t in threading.enumerate() if t.name == "memory guard"]
    assert not (tmp_path / "s").exists()


def ask(server: Server) -> None:
    server.client.post("/completion", json={"prompt": [1]})


def ask_in_vain(server: Server) -> None:
    with pytest.raises(httpx.TransportError):
        ask(server)
    assert server.died().startswith("ended by the memory guard: ")


def told(error: SmokeError, bench: Bench) -> str:
    """The error is the guard's, with numbers and log; how the end came."""
    assert error.short_of_memory
    assert error.message.startswith("llama-server was ended: only ")
    assert error.problems[0].startswith("MemAvailable: expected more than ")
    assert error.evidence == (bench.log,)
    assert "I stub: started" in error.detail
    return error.problems[2]


def test_the_run_fails_even_where_its_body_swallowed_the_trouble(bench: Bench) -> None:
    with pytest.raises(SmokeError) as caught, bench.running("eats") as server:
        ask_in_vain(server)
    end = server.stop()
    assert (end.gentle, end.alive_until_asked) == (True, False)
    assert end.strike
    assert end.lowest <= end.strike.found.available <= end.strike.floor
    assert end.lowest == end.strike.lowest.available
    assert told(caught.value, bench).startswith("TERM was enough after ")


def test_what_the_body_made_of_it_is_not_the_error(bench: Bench) -> None:
    with pytest.raises(SmokeError) as caught, bench.running("eats") as server:
        ask(server)
    told(caught.value, bench)
    assert isinstance(caught.value.__context__, httpx.TransportError)


def test_a_server_that_does_not_hear_term_is_killed(bench: Bench) -> None:
    with pytest.raises(SmokeError) as caught, bench.running("eats-deaf") as server:
        ask(server)
    assert told(caught.value, bench).startswith("KILL was needed ")


def test_a_busy_server_ends_gently_whoever_took_the_memory(bench: Bench) -> None:
    """TERM is heard, but the server waits for its client, and that for an answer."""

    def eat_until_it_ends(server: Server) -> None:
        held = []
        while not server.died():
            held.append(b"x" * (16 * MIB))
            time.sleep(0.01)

    def asked(server: Server) -> None:
        pool.submit(eat_until_it_ends, server)
        ask_in_vain(server)

    with (
        ThreadPoolExecutor() as pool,
        pytest.raises(SmokeError) as caught,
        bench.running("waits") as server,
    ):
        asked(server)
    assert told(caught.value, bench).startswith("TERM was enough after ")


def test_ctrl_c_while_threads_wait_for_answers_is_gentle(bench: Bench) -> None:
    def interrupted(server: Server) -> None:
        for _ in range(3):
            pool.submit(ask, server)
        while "I stub: asked" * 3 not in bench.log.read_text().replace("\n", ""):
            time.sleep(0.01)
        raise KeyboardInterrupt

    with ThreadPoolExecutor() as pool:  # which waits for its threads
        with pytest.raises(KeyboardInterrupt), bench.running("waits", floor=guard.FLOOR) as server:
            interrupted(server)
        end = server.stop()
    assert (end.how, end.gentle, end.strike) == ("exit status 0", True, None)


def test_a_server_that_eats_while_it_starts_is_ended(bench: Bench) -> None:
    with pytest.raises(SmokeError) as caught, bench.running("eats-first"):
        pytest.fail("it never came up")
    told(caught.value, bench)


def test_nothing_is_started_at_the_floor(bench: Bench) -> None:
    with (
        pytest.raises(SmokeError, match="was not started: there was no room") as caught,
        bench.running("none", floor=ALWAYS, settle=0.3),
    ):
        pytest.fail("it was started")
    assert caught.value.short_of_memory
    assert not bench.log.exists()


def test_nothing_is_started_until_the_memory_is_back(bench: Bench) -> None:
    there = psutil.virtual_memory().available
    if min(shutil.disk_usage("/dev/shm").free, there // 2) < 2 * STRANDED:
        pytest.skip("there is not enough memory to leave some without an owner")
    floor = there - STRANDED - MARGIN
    with pytest.raises(SmokeError), bench.running("eats-and-strands", floor=floor) as server:
        ask(server)
    log = bench.log.stat()
    missing = STRANDED // 2
    with (
        pytest.raises(SmokeError, match="was not started") as caught,
        bench.running("none", floor=guard.FLOOR, missing=missing, settle=0.5),
    ):
        pytest.fail("it was started")
    assert f"expected at most {missing // MIB} MiB" in caught.value.problems[0]
    assert bench.log.stat() == log, "a server has begun its log"
    bench.stranded.unlink()
    with bench.running("none", floor=guard.FLOOR, missing=missing) as server:
        assert server.state() == "ready"


def test_a_healthy_server_is_left_alone(bench: Bench) -> None:
    with bench.running("none", floor=guard.FLOOR) as server:
        ask(server)
        assert server.died() == ""
        end = server.stop()
    assert (end.how, end.strike) == ("exit status 0", None)
    assert guard.FLOOR < end.lowest <= end.before.available


def test_ctrl_c_stays_what_it_is(bench: Bench) -> None:
    def interrupted(server: Server) -> None:
        ask_in_vain(server)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), bench.running("eats") as server:
        interrupted(server)
