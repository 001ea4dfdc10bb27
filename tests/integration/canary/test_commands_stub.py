"""``sparkbuild canary`` from the command line, against a server that knows a few numbers."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from junitparser import JUnitXml

from sparkbuild.canary.catalogue import load_catalogue, shipped
from sparkbuild.canary.gguf.rewrite import widen
from sparkbuild.canary.gguf.spoil import Spoil, spoilt
from sparkbuild.canary.numbers import encode_numbers
from sparkbuild.canary.suite import Answer, Numbers, Reference, Suite, encode_suite
from sparkbuild.files import sha256_bytes, sha256_file

STUB = Path(__file__).parents[2] / "data/canary/numbers_server.py"
LOGPROBS = np.log(np.array([[0.1, 0.2, 0.3, 0.4]], np.float32))
NUMBERS = encode_numbers({"r": LOGPROBS})
LIMITS = """schema = 1
[[bounds]]
worst = 1e-6
median = 1e-6
reason = "x"
[[drafts]]
depth = 2
healthy = 0.9
damaged = 0.1
reason = "x"
"""


def write_model(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "toy")
    for name in ("blk.0.ffn_up.weight", "blk.1.nextn.eh_proj.weight"):
        values = np.arange(512, dtype=np.float32).reshape(16, 32)
        data = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    toy = folder / "toy"
    toy.mkdir(parents=True)
    write_model(toy / "m.gguf")
    (toy / "n.npz").write_bytes(NUMBERS)
    suite = Suite(
        schema=1, canary="toy", vocabulary=4, context=256,
        answers=(Answer(name="a", group="words", raw="hi", text="x", finish="length", count=4),),
        references=(Reference(name="r", prompt=(1,), tokens=(2,)),),
        numbers=Numbers(file="n.npz", sha256=sha256_bytes(NUMBERS)),
    )  # fmt: skip
    (toy / "suite.json").write_bytes(encode_suite(suite))
    (toy / "limits.toml").write_text(LIMITS)
    files = "".join(
        f'[[canaries.files]]\nfile = "{f.file}"\nsha256 = "{f.sha256}"\nbytes = {f.bytes}\n'
        for f in shipped(toy, folder)
    )
    (folder / "catalogue.toml").write_text(
        'schema = 1\nlicence = "MIT"\n[[canaries]]\nname = "toy"\narchitecture = "toy"\n'
        'summary = "a toy"\nmodel = "toy/m.gguf"\nsuite = "toy"\ndrafts = true\n' + files
    )
    return folder


@pytest.fixture
def build(data: Path, tmp_path: Path) -> Path:
    """Programs in ``bin``; ``healthy.json`` beside it says what the server says."""
    folder = tmp_path / "build/bin"
    folder.mkdir(parents=True)
    widen(data / "toy/m.gguf", tmp_path / "wide.gguf")
    digests = [sha256_file(data / "toy/m.gguf"), sha256_file(tmp_path / "wide.gguf")]
    healthy = {"sha256": digests, "token": 2, "logprobs": LOGPROBS[0].tolist()}
    (folder.parent / "healthy.json").write_text(json.dumps(healthy))
    for name in ("llama-server", "llama-quantize"):
        program = folder / name
        program.write_text(
            f'#!/bin/sh\nexec {sys.executable} {STUB} {folder.parent / "healthy.json"} "$@"\n'
        )
        program.chmod(0o755)
    return folder.parent


def change(build: Path, **values: Any) -> None:
    path = build / "healthy.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def canary(run: Any, tmp_path: Path, data: Path, command: str, *more: str) -> Any:
    work = () if command in {"list", "verify"} else ("--work", str(tmp_path / "work"))
    return run("canary", command, "--data", str(data), *work, *more)


def test_what_ships_is_listed_and_verified(run_sparkbuild: Any, tmp_path: Path, data: Path) -> None:
    done = canary(run_sparkbuild, tmp_path, data, "list", "--json")
    (fact,) = json.loads(done.stdout)["canaries"]
    assert (fact["answers"], fact["references"], fact["drafts"]) == (1, 1, True)
    assert fact["forms"] == ["f32", "f16", "bf16", "q8_0"]
    (data / "toy/n.npz").write_bytes(NUMBERS + b"!")
    done = canary(run_sparkbuild, tmp_path, data, "verify")
    assert done.returncode == 19
    assert "toy/n.npz" in done.stderr


def test_a_healthy_build_passes_in_both_forms_and_with_drafts(
    run_sparkbuild: Any, tmp_path: Path, data: Path, build: Path
) -> None:
    junit = tmp_path / "out/canaries.xml"
    done = canary(run_sparkbuild, tmp_path, data, "run",
                  "--build", str(build), "--json", "--junit", str(junit))  # fmt: skip
    assert done.returncode == 0, done.stderr
    (toy,) = json.loads(done.stdout)["canaries"]
    ran = toy["ran"]
    # Float32 is for numbers; what is said is asked of what is served.
    assert [(one["form"], one["cache"], len(one["items"])) for one in ran] == [
        ("f32", "f32", 2), ("q8_0", "f16", 3),
    ]  # fmt: skip
    logs = [
        tmp_path / "work/canaries/toy/logs" / f"run-{f}.log"
        for f in ("f32-cpu-f32", "q8_0-cpu-f16")
    ]
    assert ["--flash-attn off" in log.read_text() for log in logs] == [True, False]
    assert [(c["head"], c["state"], c["share"]) for c in toy["drafts"]] == [
        ("healthy", "passed", 1.0), ("damaged", "passed", 0.0),
    ]  # fmt: skip
    suites = JUnitXml.fromfile(str(junit))
    assert (suites.tests, suites.failures) == ((3 + 2) + (2 + 1) + 2, 0)
    place = tmp_path / "work/canaries/toy"
    assert sorted(entry.name for entry in place.iterdir()) == ["forms", "logs"]


def test_wrong_numbers_fail_and_drafts_without_a_graph_do_not(
    run_sparkbuild: Any, tmp_path: Path, data: Path, build: Path
) -> None:
    change(build, no_graph="0.1 E NextN graph not implemented")
    done = canary(run_sparkbuild, tmp_path, data, "run", "toy", "--build", str(build))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "drafts are unsupported by this build: NextN graph" in done.stdout
    change(build, sha256=[])
    done = canary(run_sparkbuild, tmp_path, data, "run", "--build", str(build), "--no-drafts")
    assert done.returncode == 14
    assert "q8_0 references: r" in done.stdout
    assert "NMSE at most 1e-06 at 1 positions" in done.stdout


def test_a_refused_form_does_not_keep_others_from_being_asked(
    run_sparkbuild: Any, tmp_path: Path, data: Path, build: Path
) -> None:
    (build / "bin/llama-quantize").write_text("#!/bin/sh\nexit 3\n")
    done = canary(run_sparkbuild, tmp_path, data, "run", "--build", str(build), "--no-drafts",
                  "--form", "f16", "--form", "q8_0", "--json")  # fmt: skip
    assert done.returncode == 19
    answer = json.loads(done.stdout)
    (toy,) = answer["canaries"]
    assert (answer["result"], answer["exit_code"], toy["passed"]) == ("failed", 19, False)
    assert toy["failures"]["f16"]["problems"] == ["exit status 3, expected m-f16.gguf"]
    assert [ran["form"] for ran in toy["ran"]] == ["q8_0"]


def test_an_audit_counts_what_was_noticed(
    run_sparkbuild: Any, tmp_path: Path, data: Path, build: Path
) -> None:
    done = canary(run_sparkbuild, tmp_path, data, "audit", "toy", "--build", str(build),
                  "--processes", "1", "--only", "ffn_up.* (rolled|scaled)", "--json")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert (answer["share"], answer["summary"]["total"]["noticed"]) == (1.0, 2)
    assert {probe["kind"] for probe in answer["probes"]} == {"rolled", "scaled"}
    part = ("--build", str(build), "--only", "ffn_up.* rolled")
    assert canary(run_sparkbuild, tmp_path, data, "audit", "toy", *part, "--keep").returncode == 2
    whole = ("--build", str(build), "--keep")
    done = canary(run_sparkbuild, tmp_path, data, "audit", "toy", *whole)
    assert done.returncode == 0, done.stdout + done.stderr
    kept = load_catalogue(data).canary("toy").audit
    assert kept is not None
    assert kept.made == kept.counted == kept.noticed > 2
    assert canary(run_sparkbuild, tmp_path, data, "verify").returncode == 0
    done = canary(run_sparkbuild, tmp_path, data, "audit", "toy", "--build", str(build),
                  "--only", "no such tensor")  # fmt: skip
    assert done.returncode == 2


def test_an_audit_that_misses_too_much_fails(
    run_sparkbuild: Any, tmp_path: Path, data: Path, build: Path
) -> None:
    """The server takes one perturbed file for the healthy one."""
    spoil = Spoil(target="blk.0.ffn_up.weight", kind="rolled", detail="")
    copy = shutil.copy(tmp_path / "wide.gguf", tmp_path / "copy.gguf")
    with spoilt(Path(copy), spoil):
        blind = sha256_file(Path(copy))
    change(build, sha256=[sha256_file(tmp_path / "wide.gguf"), blind])
    argv = ("audit", "toy", "--build", str(build), "--only", "ffn_up.* (rolled|scaled)")
    done = canary(run_sparkbuild, tmp_path, data, *argv)
    assert done.returncode == 19
    assert "none is recorded" in done.stdout
    assert "50.0% noticed: 1 of 2" in done.stdout
    assert canary(run_sparkbuild, tmp_path, data, *argv, "--least", "0.5").returncode == 0
