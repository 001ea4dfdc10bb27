"""``sparkbuild canary`` from the command line, against a server that knows a few numbers."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml

from sparkbuild.canary.catalogue import load_catalogue
from sparkbuild.canary.gguf.spoil import Spoil, spoilt
from sparkbuild.files import sha256_file


def canary(run: Any, tmp_path: Path, data: Path, command: str, *more: str) -> Any:
    work = () if command in {"list", "verify"} else ("--work", str(tmp_path / "work"))
    return run("canary", command, "--data", str(data), *work, *more)


def test_what_ships_is_listed_and_verified(run_sparkbuild: Any, tmp_path: Path, data: Path) -> None:
    done = canary(run_sparkbuild, tmp_path, data, "list", "--json")
    (fact,) = json.loads(done.stdout)["canaries"]
    assert (fact["answers"], fact["references"], fact["drafts"]) == (1, 1, True)
    assert fact["forms"] == ["f32", "f16", "bf16", "q8_0"]
    file = data / "toy/n.npz"
    file.write_bytes(file.read_bytes() + b"!")
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
        ("f32", "f32", 2), ("q8_0", "f16", 3 + 7),
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
    assert (suites.tests, suites.failures) == ((3 + 7 + 4) + (2 + 2) + 2, 0)
    place = tmp_path / "work/canaries/toy"
    assert sorted(entry.name for entry in place.iterdir()) == ["forms", "logs"]


def test_wrong_numbers_fail_and_drafts_without_a_graph_do_not(
    run_sparkbuild: Any, tmp_path: Path, data: Path, build: Path, change: Any
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


def test_right_answers_do_not_excuse_what_the_log_tells(
    run_sparkbuild: Any, tmp_path: Path, data: Path, build: Path, change: Any
) -> None:
    fault = "0.00.001.000 E init: the tokens of sequence 0 have inconsistent sequence positions:"
    change(build, log=["0.00.000.200 W llama_context: graph reuse disabled"] + [fault] * 2661)
    junit = tmp_path / "canaries.xml"
    argv = ("run", "toy", "--build", str(build), "--no-drafts", "--form", "q8_0")
    done = canary(run_sparkbuild, tmp_path, data, *argv, "--junit", str(junit), "--json")
    assert done.returncode == 14, done.stderr
    answer = json.loads(done.stdout)
    (ran,) = answer["canaries"][0]["ran"]
    assert all(item["passed"] for item in ran["items"])
    counts = {seen["kind"]: (seen["severity"], seen["count"]) for seen in ran["log"]["seen"]}
    assert counts == {
        "inconsistent positions": ("fault", 2661), "backend fallback": ("warning", 1),
    }  # fmt: skip
    assert {group["name"]: group["right"] == group["of"] for group in ran["groups"]} == {
        "references": True, "words": True, "behaviour": True, "log": False,
    }  # fmt: skip
    assert (JUnitXml.fromfile(str(junit)).failures, answer["exit_code"]) == (1, 14)
    text = " ".join(canary(run_sparkbuild, tmp_path, data, *argv).stdout.split())
    assert (
        "log of q8_0: inconsistent positions: 2661 times, the first time in line 4: E init" in text
    )
    assert "log of q8_0: backend fallback: line 3: W llama_context: graph reuse disabled" in text


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"draft_log": ["0.1 W load_model: speculative decoding not supported"]}, 0),
        ({"refuses": 500}, 1),
    ],
)
def test_drafts_that_fail_are_not_saved_by_their_acceptance(
    run_sparkbuild: Any,
    tmp_path: Path,
    data: Path,
    build: Path,
    change: Any,
    changes: Any,
    wrong: int,
) -> None:
    change(build, **changes)
    done = canary(run_sparkbuild, tmp_path, data, "run", "toy", "--build", str(build), "--json")
    assert done.returncode == 14, done.stderr
    (toy,) = json.loads(done.stdout)["canaries"]
    assert [ran["log"]["seen"] for ran in toy["ran"]] == [[], []]
    assert {(c["state"], c["wrong"]) for c in toy["drafts"]} == {("failed", wrong)}
    faults = [[s["kind"] for s in c["log"]["seen"]] for c in toy["drafts"]]
    assert faults == ([["draft state"]] * 2 if not wrong else [[], []])


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
    run_sparkbuild: Any, tmp_path: Path, data: Path, build: Path, change: Any
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
