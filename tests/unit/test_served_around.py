"""What is looked at around the questions, and how drafts are judged: by hand-made findings."""

import dataclasses
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbuild.llama.memory import MIB, Memory
from sparkbuild.llama.server import Ending
from sparkbuild.smoke.model import ServedCheck
from sparkbuild.smoke.served import around, drafting
from sparkbuild.smoke.served.arm import Arm
from sparkbuild.smoke.served.before import asked_of
from sparkbuild.smoke.served.flags import flags
from sparkbuild.smoke.served.load import FOLDER, load_suite
from sparkbuild.smoke.served.session import Recorder, Seen, Session
from sparkbuild.smoke.served.words import Wrong

SUITE = load_suite(Path(__file__).parents[1] / "data/served/stub.toml")
GLM = load_suite(FOLDER / "glm-5.3-flash.toml")

# The form of llama_model::load_tensors of b11434 (src/llama-model.cpp): "%12s", "%8.2f".
LOADED = """0.00.146.001 I load_tensors: offloaded 46/46 layers to GPU
0.00.146.002 I load_tensors:   CPU_Mapped model buffer size =   340.00 MiB
0.00.146.003 I load_tensors:        CUDA0 model buffer size = 101376.50 MiB
0.00.146.004 I llama_kv_cache:      CUDA0 KV buffer size =   448.00 MiB
"""


def recorder() -> tuple[Recorder, list[ServedCheck]]:
    told: list[ServedCheck] = []
    return Recorder(told.append), told


def session(log: Path, suite: Any = GLM) -> tuple[Session, list[ServedCheck]]:
    record, told = recorder()
    server: Any = SimpleNamespace(died=lambda: "")
    nothing: Any = None
    return Session(way="x", suite=suite, server=server, talk=nothing, book=nothing,
                   recorder=record, log=log), told  # fmt: skip


def weights(gib: int) -> Any:
    return SimpleNamespace(tensors={"a": SimpleNamespace(bytes=gib << 30)})


@pytest.mark.parametrize(
    ("log", "gib", "state"),
    [(LOADED, 101, "passed"), (LOADED, 150, "failed"), ("I load_tensors: CPU\n", 101, "failed")],
)
def test_the_bytes_on_the_gpu_are_those_of_its_log(
    log: str, gib: int, state: str, tmp_path: Path
) -> None:
    file = tmp_path / "server.log"
    file.write_text(log)
    asked, told = session(file)
    around.on_gpu(asked, weights(gib))
    assert [one.state for one in told] == [state]
    assert told[0].group == "GPU"
    if "CUDA0" in log:
        assert around.gpu_buffers(file) == [("CUDA0", int(101376.5 * MIB))]
        assert "CUDA0 101,376 MiB" in told[0].found


ENDED = Ending(
    how="exit status 0",
    alive_until_asked=True,
    gentle=True,
    port_free=True,
    before=Memory(available=100 * MIB, owned=0),
    after=Memory(available=90 * MIB, owned=0),
    lowest=50 * MIB,
    strike=None,
)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, ""),
        ({"gentle": False}, "KILL was needed"),
        ({"port_free": False}, "its port is taken"),
        ({"alive_until_asked": False, "how": "killed by SIGSEGV"}, "killed by SIGSEGV"),
        ({"before": Memory(available=4000 * MIB, owned=0)}, "3910 MiB lack"),
        ({"before": Memory(available=4000 * MIB, owned=0),
          "after": Memory(available=0, owned=4000 * MIB)}, ""),
    ],
)  # fmt: skip
def test_a_server_that_is_gone_leaves_nothing(changes: dict[str, Any], wrong: str) -> None:
    record, told = recorder()
    around.gone(record, GLM, "x", Path("/x.log"), dataclasses.replace(ENDED, **changes))
    assert [one.state for one in told] == ["failed" if wrong else "passed"]
    assert wrong in told[0].found


def test_the_log_counts_though_every_answer_is_right(tmp_path: Path) -> None:
    record, told = recorder()
    log = tmp_path / "x.log"
    log.write_text("0.1 I srv: fine\n" + "0.1 E llama_decode[1] returned -1\n" * 2661)
    around.read_log(record, SUITE, "x", log, frozenset({"drafts"}))
    around.read_log(record, SUITE, "x", tmp_path / "none.log", frozenset())
    assert [one.state for one in told] == ["failed", "failed"]
    assert "2661 times" in told[0].found
    assert told[0].figures["faults"] == 2661


def banded(*counts: tuple[int, int]) -> Seen:
    assert SUITE.drafts
    return drafting._banded(counts, SUITE.drafts.bands[0])


def test_an_acceptance_has_to_lie_in_its_band() -> None:
    assert banded((100, 40), (100, 50)).wrong == ""
    assert banded((100, 20)).wrong == "20 of 100, 20.0%"
    assert banded((100, 99)).wrong == "99 of 100, 99.0%"
    assert "no draft_n" in banded((0, 0)).wrong
    assert "no draft_n" in banded().wrong


def among(*asked: tuple[bool, int, int]) -> Seen:
    assert GLM.drafts
    assert GLM.drafts.among
    done = [
        drafting._Asked(name="x", pictured=pictured, counts=(drawn, accepted), wrong=None)
        for pictured, drawn, accepted in asked
    ]
    return drafting._judged(done, GLM.drafts.among)


def test_after_a_picture_half_of_what_is_accepted_of_text_is_enough() -> None:
    assert among((True, 100, 25), (False, 100, 50)).wrong == ""
    assert "2.0%, after pictures" in among((True, 100, 2), (False, 100, 50)).wrong
    assert "no draft_n" in among((True, 0, 0), (False, 100, 50)).wrong
    assert "no draft_n" in among((True, 100, 50)).wrong
    assert among((True, 100, 0), (False, 100, 0)).wrong


def test_pictures_and_texts_come_in_turn_and_the_first_picture_again() -> None:
    assert GLM.drafts
    assert GLM.vision
    looks, texts = GLM.vision.looks[:3], GLM.drafts.texts[:2]
    names = [one.name for one in drafting._turns(looks, texts)]
    first, second = (text.name for text in texts)
    assert names == [looks[0].name, first, looks[1].name, second, looks[2].name, first,
                     looks[0].name]  # fmt: skip


def test_a_line_that_tells_of_no_graph_is_found(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    assert drafting.unsupported(log) == ""
    log.write_text("0.1 I fine\n0.1.2 E GLM5-Next NextN graph not implemented yet\n")
    assert drafting.unsupported(log) == "GLM5-Next NextN graph not implemented yet"


def test_the_sum_of_memory_is_for_the_flags_that_are_given() -> None:
    machine: Any = None
    for way in GLM.ways:
        given = flags(GLM, way, context=32768, vision=None, layers=99, depth=2)
        asked = asked_of(GLM, way, machine, 32768, depth=2)
        options = dict(itertools.pairwise(given))
        assert options["--ctx-size"] == str(asked.context) == "32768"
        assert options["--parallel"] == str(asked.slots)
        assert (options["--cache-type-k"], options["--cache-type-v"]) == (
            asked.cache_k, asked.cache_v,
        )  # fmt: skip
        assert (options["--flash-attn"] == "on") == asked.flash_attention
        assert options["--ubatch-size"] == str(asked.micro_batch)
        assert options["--ctx-checkpoints"] == str(asked.checkpoints)
        assert options["--cache-ram"] == str(asked.prompt_cache) == "0"
        assert options["--spec-type"] == asked.speculation[0]
        assert options["--spec-draft-n-max"] == str(asked.draft_depth) == "2"
    plain = flags(GLM, GLM.ways[0], context=1, vision=Path("/v"), layers=0)
    assert "--spec-type" not in plain
    assert plain[:2] == ["--mmproj", "/v"]


def test_what_lines_mean_depends_on_what_was_started() -> None:
    way = GLM.ways[0]
    assert Arm(name="a", way=way).context("cpu") == frozenset()
    full = Arm(name="Drafts, depth 2", way=way, pictures=True, depth=2)
    assert full.context("cuda") == {"pictures", "drafts", "cuda"}
    assert full.file == "drafts-depth-2"


def test_a_wrong_finding_keeps_its_own_group_where_it_has_one(tmp_path: Path) -> None:
    asked, told = session(tmp_path / "x.log", SUITE)
    asked.check("a", "one", "x", lambda: Seen(wrong="w", group="b"))
    asked.check("a", "two", "x", lambda: Seen(wrong="w"))
    asked.check("a", "three", "x", lambda: Seen(well="w", reason="r"))
    assert [(one.group, one.state) for one in told] == [
        ("b", "failed"), ("a", "failed"), ("a", "passed"),
    ]  # fmt: skip
    assert told[0].evidence == (str(tmp_path / "x.log"),)
    assert (
        drafting._told(
            drafting._Asked(name="x", pictured=True, counts=(2, 1), wrong=Wrong(text="t"))
        ).wrong
        == "t"
    )
