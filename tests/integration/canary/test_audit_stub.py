"""A whole audit: processes, perturbed copies, a journal to go on from, nothing left behind."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import psutil
import pytest

from sparkbuild.canary.audit.audit import audit
from sparkbuild.canary.audit.probe import Bench
from sparkbuild.canary.audit.records import Probe
from sparkbuild.canary.audit.summary import summarise
from sparkbuild.canary.drafts import acceptance
from sparkbuild.canary.numbers import encode_numbers
from sparkbuild.canary.run import Setup
from sparkbuild.canary.suite import Numbers, Reference, Suite, encode_suite, load_suite
from sparkbuild.errors import CanaryError, SmokeError
from sparkbuild.files import sha256_bytes, sha256_file

STUB = Path(__file__).parents[2] / "data/canary/numbers_server.py"
LOGPROBS = np.log(np.array([[0.1, 0.2, 0.3, 0.4]], np.float32))
NUMBERS = encode_numbers({"r": LOGPROBS})


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    model = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(model, "toy")
    writer.add_tensor("blk.0.a.weight", np.arange(512, dtype=np.float32).reshape(2, 256))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "n.npz").write_bytes(NUMBERS)
    reference = Reference(name="r", prompt=(1,), tokens=(2,))
    (suite / "suite.json").write_bytes(
        encode_suite(
            Suite(
                schema=1, canary="toy", vocabulary=4, context=256, answers=(),
                references=(reference,),
                numbers=Numbers(file="n.npz", sha256=sha256_bytes(NUMBERS)),
            )
        )
    )  # fmt: skip
    (suite / "limits.toml").write_text(
        'schema = 1\n[[bounds]]\nworst = 1e-6\nmedian = 1e-6\nreason = "x"\n'
    )
    healthy = {"sha256": [sha256_file(model)], "token": 2, "logprobs": LOGPROBS[0].tolist()}
    (tmp_path / "healthy.json").write_text(json.dumps(healthy))
    server = tmp_path / "llama-server"
    server.write_text(f'#!/bin/sh\nexec {sys.executable} {STUB} {tmp_path / "healthy.json"} "$@"\n')
    server.chmod(0o755)
    return Bench(
        suite=suite,
        workdir=tmp_path / "work",
        setup=Setup(
            executable=server, model=model, vision=None, form="f32", backend="cpu", cache="f32",
            scratch=tmp_path / "s", log=tmp_path / "l",
        ),
    )  # fmt: skip


def test_an_audit_finds_everything_and_goes_on_where_it_was_stopped(bench: Bench) -> None:
    told: list[tuple[str, int, int]] = []

    def stop(probe: Probe, done: int, of: int) -> None:
        told.append((probe.kind, done, of))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit(bench, processes=1, on_probe=stop)
    assert [(done, of) for _, done, of in told] == [(1, 4)]
    assert list(bench.workdir.glob("worker-*")) == []
    assert not [c for c in psutil.Process().children(recursive=True) if str(STUB) in c.cmdline()]

    found = audit(bench, processes=2, on_probe=lambda p, done, of: told.append((p.kind, done, of)))
    assert {of for _, _, of in told} == {4}
    assert len({kind for kind, _, _ in told}) == 4, "nothing is asked twice"
    summary = summarise(found, load_suite(bench.suite)[1])
    assert (summary.total.made, summary.total.noticed) == (4, 4)
    # Nothing to do: not even a healthy run.
    bench.setup.executable.with_name("healthy.json").unlink()
    assert audit(bench, processes=2) == found


def test_an_audit_stops_where_memory_runs_out(bench: Bench) -> None:
    """A server that the memory guard ended has noticed nothing."""
    # Far enough below for the worker process and for what other programs take.
    floor = psutil.virtual_memory().available - (700 << 20)
    numbers = bench.setup.executable.with_name("healthy.json")
    numbers.write_text(
        json.dumps({**json.loads(numbers.read_text()), "down_to": floor - (64 << 20)})
    )
    patience = replace(bench.setup.patience, floor=floor)
    bench = replace(bench, setup=replace(bench.setup, patience=patience))
    with pytest.raises(SmokeError, match="llama-server was ended: only") as caught:
        audit(bench, processes=1)
    assert caught.value.short_of_memory
    assert caught.value.problems[0].startswith(
        f"MemAvailable: expected more than {floor >> 20} MiB, found "
    )
    assert caught.value.evidence == ()
    assert list(bench.workdir.glob("worker-*")) == []
    assert not (bench.workdir / "audit.jsonl").exists(), "nothing was noticed"
    assert not [c for c in psutil.Process().children(recursive=True) if str(STUB) in c.cmdline()]


def test_drafts_without_memory_are_not_unsupported(bench: Bench) -> None:
    bench.setup.log.write_text("0.1 E NextN graph not implemented\n")  # of an earlier start
    patience = replace(bench.setup.patience, floor=1 << 60, settle=0.0)
    with pytest.raises(SmokeError, match="was not started") as caught:
        acceptance(bench.suite, replace(bench.setup, patience=patience), depth=1)
    assert caught.value.short_of_memory


def test_a_canary_that_fails_untouched_is_not_audited(bench: Bench) -> None:
    numbers = bench.setup.executable.with_name("healthy.json")
    values = json.loads(numbers.read_text())
    numbers.write_text(json.dumps({**values, "logprobs": values["logprobs"][::-1]}))
    with pytest.raises(CanaryError, match="does not pass its own suite") as caught:
        audit(bench, processes=1)
    assert caught.value.problems == ("references failed",)
    dead = replace(bench, setup=replace(bench.setup, executable=Path("/bin/false")))
    with pytest.raises(CanaryError, match="does not pass its own suite") as caught:
        audit(dead, processes=1)
    assert "exit status 1" in caught.value.problems[0]
