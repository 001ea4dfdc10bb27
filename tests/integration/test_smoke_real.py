"""The suite against a real llama-server: it passes, and real faults make it fail."""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import httpx
import numpy as np
import psutil
import pytest

from sparkbuild.errors import SmokeError
from sparkbuild.files import sha256_file
from sparkbuild.llama.client import Api
from sparkbuild.llama.port import free_port
from sparkbuild.llama.server import Limits, Server, running
from sparkbuild.smoke import tiny
from sparkbuild.smoke.model import Check, SmokeReport
from sparkbuild.smoke.reference import nmse
from sparkbuild.smoke.run import smoke
from sparkbuild.smoke.suite import load_suite

pytestmark = pytest.mark.real

SUITE, LOGPROBS = load_suite("tiny")
LIMITS = Limits(start=60, request=30, stop=10, memory=0, missing=1 << 40)

Children = Callable[[], list[psutil.Process]]


class Build(Protocol):
    """What the fixture ``real_build`` gives."""

    @property
    def bin(self) -> Path: ...
    @property
    def identity(self) -> str: ...
    @property
    def build(self) -> int: ...


@dataclass
class Bench:
    """Runs the suite against the real binaries, or against a wrapper with one fault."""

    build: Build
    folder: Path

    def __post_init__(self) -> None:
        self.checks: list[Check] = []
        self.log = self.folder / "server.log"
        self.model = self.folder / "work/models" / tiny.FILE

    def wrapped(self, script: str) -> Path:
        """A folder whose llama-server runs ``script`` (REAL is the real one) in its own place."""
        wrapper = self.folder / "bin/llama-server"
        wrapper.parent.mkdir(exist_ok=True)
        real = self.build.bin / "llama-server"
        wrapper.write_text(f'#!/bin/sh\nREAL={real}\n{script}\nexec $REAL "$@"\n')
        wrapper.chmod(0o755)
        return wrapper.parent

    def run(
        self,
        binaries: Path | None = None,
        *,
        identity: str | None = None,
        on_check: Callable[[Check], None] | None = None,
    ) -> SmokeReport:
        def keep(check: Check) -> None:
            self.checks.append(check)
            if on_check is not None:
                on_check(check)

        return smoke(
            binaries or self.build.bin,
            suite="tiny",
            build=self.build.build,
            identity=identity or self.build.identity,
            workdir=self.folder / "work",
            log=self.log,
            on_check=keep,
        )

    def failures(self, binaries: Path) -> dict[str, str]:
        with pytest.raises(SmokeError):
            self.run(binaries)
        return {check.name: check.found for check in self.checks if not check.passed}


@pytest.fixture
def bench(real_build: Build, tmp_path: Path, children: Children) -> Iterator[Bench]:
    yield Bench(real_build, tmp_path)
    assert children() == [], "a server was left behind"


def test_the_real_server_passes(bench: Bench) -> None:
    report = bench.run()
    assert report.passed
    assert len(report.checks) == len(bench.checks) == 15
    assert not [check.name for check in report.checks if not check.found]
    assert sorted(path.name for path in (bench.folder / "work").iterdir()) == ["models"]


def test_full_precision_leaves_next_to_no_error(bench: Bench) -> None:
    """With an f32 cache and without flash attention only float32 rounding is left."""
    tiny.ensure(bench.model.parent, sha256=SUITE.model.sha256)
    flags = (*SUITE.server.flags, "--flash-attn", "off")
    flags += ("--cache-type-k", "f32", "--cache-type-v", "f32")
    with running(
        bench.build.bin / "llama-server", flags, model=bench.model,
        scratch=bench.folder / "home", log=bench.log, limits=LIMITS,
    ) as server:  # fmt: skip
        for case in SUITE.greedy:
            values = LOGPROBS.first_token.get(case.name)
            if values is None:
                continue
            answer = Api(server.client).complete(case.prompt, count=1, probabilities=len(values))
            found = np.full(len(values), np.nan)
            for entry in answer.completion_probabilities[0].top_logprobs:
                found[entry.id] = entry.logprob
            assert nmse(found, np.asarray(values)) < 1e-10


def scaled(weights: tiny.Weights) -> None:
    weights["blk.1.attn_v.weight"] *= np.float32(1.5)


def swapped(weights: tiny.Weights) -> None:
    weights["blk.0.attn_k.weight"][[3, 4]] = weights["blk.0.attn_k.weight"][[4, 3]]


def masked(weights: tiny.Weights) -> None:
    """Every 256th weight of one matrix wrong: the kind of error a lost byte mask makes."""
    weights["blk.2.ffn_down.weight"].reshape(-1)[::256] *= np.float32(-8)


@pytest.mark.parametrize("alter", [scaled, swapped, masked])
def test_an_altered_model_under_the_same_name_fails_tokens_and_numbers(
    bench: Bench, alter: Callable[[tiny.Weights], None]
) -> None:
    """The file is swapped after its digest was checked: only what the server says can tell."""
    weights = tiny.weights()
    alter(weights)
    altered = bench.folder / "altered.gguf"
    tiny.write(altered, weights)
    failed = bench.failures(bench.wrapped(f'[ "$1" = --model ] && cp {altered} "$2"'))
    assert {"greedy tokens", "log-probabilities"} <= failed.keys()
    assert "differs from token" in failed["greedy tokens"]
    assert "NMSE" in failed["log-probabilities"]
    assert not failed.keys() - {"greedy tokens", "log-probabilities", "endings", "chat"}

    assert sha256_file(bench.model) != SUITE.model.sha256
    tiny.ensure(bench.model.parent, sha256=SUITE.model.sha256)
    assert sha256_file(bench.model) == SUITE.model.sha256


def test_another_identity_fails(bench: Bench) -> None:
    with pytest.raises(SmokeError) as caught:
        bench.run(identity="0123456789ab")
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "version printed",
        "version served",
    ]
    assert f"found '{bench.build.identity}'" in caught.value.problems[0]


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ('[ "$1" = --model ] && set -- "$@" --no-such-flag', "exit status 1"),
        ('[ "$1" = --model ] && rm "$2"', "exit status 1"),
        ('[ "$1" = --model ] && head -c 100000 "$2" >"$2.cut" && mv "$2.cut" "$2"', "exit status"),
    ],
    ids=["bad flag", "no model", "cut model"],
)
def test_a_server_that_cannot_start_says_why(bench: Bench, script: str, told: str) -> None:
    with pytest.raises(SmokeError) as caught:
        bench.run(bench.wrapped(script))
    assert f"llama-server did not come up: {told}" in caught.value.problems[0]
    assert "llama-server" in caught.value.detail
    passed = {check.name for check in bench.checks if check.passed}
    assert passed <= {"model", "version printed", "log"}


def test_a_server_without_its_key_fails(bench: Bench) -> None:
    script = """
n=$#
while [ "$n" -gt 0 ]; do
  a=$1; shift; n=$((n - 1))
  if [ "$a" = --api-key-file ]; then shift; n=$((n - 1)); else set -- "$@" "$a"; fi
done"""
    failed = bench.failures(bench.wrapped(script))
    assert failed.keys() == {"API key"}


def test_a_server_killed_in_the_middle_fails_the_rest_and_leaves_nothing(
    bench: Bench, children: Children
) -> None:
    def kill_during_an_answer() -> None:
        while "launch_slot_" not in (bench.log.read_text() if bench.log.exists() else ""):
            time.sleep(0.005)
        at_work = [child.pid for child in children() if "--model" in child.cmdline()]
        os.kill(at_work[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_during_an_answer, daemon=True)
    killer.start()
    failed = bench.failures(bench.build.bin)
    killer.join()
    later = [check.name for check in bench.checks].index("greedy tokens")
    for check in bench.checks[later + 2 : -1]:
        assert "SIGKILL" in failed[check.name]
    assert "it had ended by itself: killed by SIGKILL" in failed["end"]
    assert not (bench.folder / "work/server").exists()
    port = int(bench.log.read_text().split("--port ")[1].split()[0])
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_busy_server_that_the_memory_guard_ends_is_gone(bench: Bench) -> None:
    """TERM is mostly enough. b11434's handler takes a mutex that its own thread may hold: KILL."""
    tiny.ensure(bench.model.parent, sha256=SUITE.model.sha256)
    body = {"prompt": [1] * 200, "n_predict": 1500, "temperature": 0, "ignore_eos": True}

    def eat_until_it_ends(server: Server) -> None:
        held = []
        with contextlib.suppress(httpx.TransportError):
            while not server.died():
                server.client.post("/completion", json=body)
                held.append(b"x" * (64 << 20))

    with (
        pytest.raises(SmokeError, match="llama-server was ended: only") as caught,
        running(
            bench.build.bin / "llama-server", SUITE.server.flags, model=bench.model,
            scratch=bench.folder / "home", log=bench.log,
            limits=replace(LIMITS, floor=psutil.virtual_memory().available - (500 << 20)),
        ) as server,
    ):  # fmt: skip
        eat_until_it_ends(server)
    assert caught.value.short_of_memory
    end = server.stop()
    assert end.how in ({"exit status 0"} if end.gentle else {"killed by SIGKILL"})
    assert end.port_free
    assert not psutil.pid_exists(server.pid)


def test_ctrl_c_ends_a_server_that_is_loading_or_answering(
    bench: Bench, children: Children
) -> None:
    for sign in ("load_model", "launch_slot_"):

        def interrupt(sign: str = sign) -> None:
            while sign not in (bench.log.read_text() if bench.log.exists() else ""):
                time.sleep(0.005)
            os.kill(os.getpid(), signal.SIGINT)

        bench.log.unlink(missing_ok=True)
        thread = threading.Thread(target=interrupt, daemon=True)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            bench.run()
        thread.join()
        assert children() == []
        assert not (bench.folder / "work/server").exists()


def test_two_servers_live_side_by_side(bench: Bench) -> None:
    tiny.ensure(bench.model.parent, sha256=SUITE.model.sha256)
    program = bench.build.bin / "llama-server"
    case = SUITE.greedy[0]
    with (
        running(program, SUITE.server.flags, model=bench.model, scratch=bench.folder / "a",
                log=bench.folder / "a.log", limits=LIMITS) as first,
        running(program, SUITE.server.flags, model=bench.model, scratch=bench.folder / "b",
                log=bench.folder / "b.log", limits=LIMITS) as second,
    ):  # fmt: skip
        assert first.port != second.port
        assert first.state() == second.state() == "ready"
        for server, other in ((first, second), (second, first)):
            assert Api(server.client).complete(case.prompt, count=16).tokens == case.tokens
            headers = {"Authorization": other.client.headers["Authorization"]}
            assert server.stranger.get("/props", headers=headers).status_code == 401
        end = first.stop()
        assert (end.how, end.gentle, end.port_free) == ("exit status 0", True, True)
        assert second.state() == "ready"


def test_a_port_that_a_stranger_shares_is_given_up(bench: Bench) -> None:
    """SO_REUSEPORT lets a second server of the same user bind without an error."""
    tiny.ensure(bench.model.parent, sha256=SUITE.model.sha256)
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        thief.bind(("127.0.0.1", 0))
        thief.listen()
        taken = thief.getsockname()[1]
        ports = iter([taken, free_port()])
        with running(
            bench.build.bin / "llama-server", SUITE.server.flags, model=bench.model,
            scratch=bench.folder / "home", log=bench.log, limits=LIMITS,
            choose_port=lambda: next(ports),
        ) as server:  # fmt: skip
            assert server.port != taken
            assert server.state() == "ready"


def test_a_port_in_use_is_given_up(bench: Bench) -> None:
    tiny.ensure(bench.model.parent, sha256=SUITE.model.sha256)
    with socket.create_server(("127.0.0.1", 0)) as thief:
        taken = thief.getsockname()[1]
        ports = iter([taken, free_port()])
        with running(
            bench.build.bin / "llama-server", SUITE.server.flags, model=bench.model,
            scratch=bench.folder / "home", log=bench.log, limits=LIMITS,
            choose_port=lambda: next(ports),
        ) as server:  # fmt: skip
            assert server.port != taken


def test_the_servers_surroundings_are_built(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """LLAMA_ARG_* of a shell would change what is tested, LD_LIBRARY_PATH what runs."""
    for name, value in (("LLAMA_ARG_CTX_SIZE", "64"), ("LLAMA_ARG_ALIAS", "mine"),
                        ("LLAMA_API_KEY", "mine"), ("HTTP_PROXY", "http://127.0.0.1:1"),
                        ("LD_LIBRARY_PATH", "/nowhere")):  # fmt: skip
        monkeypatch.setenv(name, value)
    tiny.ensure(bench.model.parent, sha256=SUITE.model.sha256)
    with running(
        bench.build.bin / "llama-server", SUITE.server.flags, model=bench.model,
        scratch=bench.folder / "home", log=bench.log, limits=LIMITS,
    ) as server:  # fmt: skip
        assert Api(server.client).models().data[0].id == str(bench.model)
        with pytest.raises(httpx.HTTPStatusError):
            server.stranger.get(
                "/props", headers={"Authorization": "Bearer mine"}
            ).raise_for_status()
        mapped = {entry.path for entry in psutil.Process(server.pid).memory_maps()}
        libraries = {Path(path) for path in mapped if "libllama" in path or "libggml" in path}
        assert libraries
        assert {path.parent for path in libraries} == {bench.build.bin.resolve()}
