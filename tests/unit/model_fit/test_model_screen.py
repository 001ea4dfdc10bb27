"""``sparkbuild inspect``: what a person sees, what JSON holds, at every width, of any file."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from sparkbuild.errors import ModelError, UsageError
from sparkbuild.model.asked import GIB, Asked, Machine
from sparkbuild.model.build import Build
from sparkbuild.model.finding import NOT_ASKED
from sparkbuild.model.inspection import Inspection, document, inspect
from sparkbuild.model.read import Model
from sparkbuild.model_commands import inspect_command
from sparkbuild.model_options import DRAFTS, size_of
from sparkbuild.report.models import amount, inspection_view, size

from .conftest import CANARIES, File, canary, findings, tower

Changed = Callable[..., Model]
ROOMY = Machine(available=64 * GIB, total=128 * GIB)
HOSTILE = "\x1b[31m[bold]evil[/]\x07\r\nSPOOF\u202e"


def looked(
    name: str | Model,
    build: Build | None = None,
    *,
    sees: bool = True,
    machine: Machine = ROOMY,
    **asked: Any,
) -> Inspection:
    model = canary(name) if isinstance(name, str) else name
    vision = tower(name) if isinstance(name, str) and sees else None
    return inspect(model, vision, build, Asked(**{"context": 4096, **asked}), machine)


def screen(found: Inspection, width: int = 160, encoding: str = "utf-8") -> str:
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=out, width=width, highlight=False).print(inspection_view(found), crop=False)
    out.seek(0)
    return out.read()


def lines(text: str) -> list[str]:
    """Those of tables and sentences; paths stay whole on one line, whatever the width."""
    paths = ("  model ", "  mmproj ")
    return [line.rstrip() for line in text.splitlines() if not line.startswith(paths)]


def test_without_a_build_what_only_one_can_tell_is_a_note() -> None:
    drafts = Asked(context=4096, speculation=("draft-mtp",), machine=ROOMY)
    for name in CANARIES:
        found = findings(canary(name), tower(name), None, drafts)
        notes = {f.name for f in found.values() if f.state == "note"}
        graph = {"MTP graph"} if name != "llama" else set()
        sight = {"projector"} if CANARIES[name] else set()
        assert notes == {"architecture", "tensor types", "tensor names"} | graph | sight
        assert {found[note].reason for note in notes} == {"not tried: no --build"}
    assert found["MTP graph"].state == "fault"  # of llama, which has no NextN block


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"general.type": "adapter"}, "general.type adapter"),
        ({"general.architecture": "clip"}, "general.type mmproj"),
        ({"general.architecture": ""}, "none stated"),
    ],
)
def test_what_is_no_model_is_a_fault_without_a_build(
    change: dict[str, str], said: str, changed: Changed
) -> None:
    model = changed(canary("llama"), lambda file: file.values.update(change))
    found = {f.name: f for f in looked(model).findings}["architecture"]
    assert found.state == "fault"
    assert said in found.found


def test_a_screen_shows_everything(build: Build) -> None:
    found = looked("glm5-next", build, speculation=("draft-mtp",))
    text = screen(found)
    for line in (
        "  name          'Text'",
        "  feed-forward  1 dense, 8 with experts: 4 routed, 2 a token, 1 shared",
        "  context       16,384 tokens (what it was trained for)",
        "  vocabulary    512 tokens, tokenizer gpt2, glm4",
        "  end tokens    eos 488 '<|endoftext|>', eot 493 '<|user|>', eom 495 '<|observation|>'",
        "  vision        glm5v, 256 wide, 3 blocks, 1.9M parameters",
        "  picture       1 to 1,024 tokens",
        "largest context that fits: 16,384 tokens, all that the model was trained for",
        "1 fault: MTP graph; 1 warning; exit code 20",
    ):
        assert line in lines(text)
    blocks = "10: 4 attention (MLA; 4 sparse, with an indexer), 5 linear attention, 1 NextN"
    assert f"  blocks        {blocks}" in lines(text)
    for finding in found.findings:
        assert finding.name in text
        assert finding.state == "ok" or finding.reason in " ".join(text.split())
        assert finding.next_step in " ".join(text.split())
    for part in found.memory.parts:
        assert f"{part.bytes:,}" in text
        assert part.name in text
    for role in found.facts.roles:
        assert any(line.startswith(f"{role.role} ") for line in lines(text)), role
    sums = {"needed at the start": found.memory.needed, "available": 64 * GIB}
    for name, count in {**sums, "margin": found.margin}.items():
        assert any(line.split()[: len(name.split()) + 1] == [*name.split(), f"{count:,}"]
                   for line in lines(text))  # fmt: skip


def test_what_nobody_asked_for_is_one_line() -> None:
    found = looked("llama", sees=False)
    idle = [f.name for f in found.findings if f.expected == NOT_ASKED]
    assert idle == [
        "MTP graph", "mmproj file", "mmproj", "projector", "mmproj keys", "projector width",
    ]  # fmt: skip
    assert f"not asked: {', '.join(idle)}" in screen(found)
    assert NOT_ASKED not in screen(found)


@pytest.mark.parametrize("width", [60, 72, 80, 81, 90, 100, 120, 132, 160, 200])
@pytest.mark.parametrize("name", CANARIES)
def test_no_line_is_wider_than_the_screen_and_no_word_is_cut(
    name: str, width: int, build: Build
) -> None:
    found = looked(name, build, speculation=("draft-mtp",), machine=Machine(available=9, total=9))
    shown = lines(screen(found, width))
    assert max(map(len, shown)) <= width
    text = " ".join(shown).split()
    for finding in found.findings:
        for value in (finding.name, finding.expected, finding.reason, finding.next_step):
            asked = set(value.split()) if finding.expected != NOT_ASKED else set()
            assert asked <= set(text), finding


@pytest.mark.parametrize(
    ("length", "heading"),
    [
        (0, "state check expected found"),
        (10, "state check expected, found"),
        (30, "state, check expected, found"),
        (40, "state, check, expected, found"),
    ],
)
def test_long_names_change_the_layout_before_they_are_cut(
    length: int, heading: str, changed: Changed, build: Build
) -> None:
    """The name of a tensor that no build knows stands in quotes in the finding on names."""
    name = "x" * length + "surprise.weight"
    model = changed(canary("llama"), lambda file: file.tensors.update({name: ((8,), "f32")}))
    text = lines(screen(looked(model, build, sees=False), 80))
    assert heading in {" ".join(line.split()) for line in text}
    assert any(f"'{name}'" in line for line in text)
    assert max(map(len, text)) <= 80


def test_what_a_file_holds_never_steers_a_terminal(changed: Changed, build: Build) -> None:
    def change(file: File) -> None:
        file.values |= dict.fromkeys(
            ("general.name", "tokenizer.ggml.model", "tokenizer.ggml.pre", "general.type"), HOSTILE
        )
        file.values["tokenizer.ggml.tokens"] = (HOSTILE,) * 512
        file.tensors[HOSTILE] = ((8,), "f32")

    def tower_too(file: File) -> None:
        file.values["clip.projector_type"] = HOSTILE

    model = changed(canary("glm5-next"), change, f"{HOSTILE.replace('/', '')}.gguf")
    vision = changed(tower("glm5-next"), tower_too, "vision.gguf")
    for made in (build, None):
        found = inspect(model, vision, made, Asked(context=4096), ROOMY)
        text = screen(found)
        assert all(char.isprintable() or char == "\n" for char in text)
        assert "[bold]evil" in text
        assert not any(line.startswith("SPOOF") for line in text.splitlines())
        assert json.loads(json.dumps(document(found)))["facts"]["name"] == HOSTILE


def test_a_terminal_with_ascii_alone_sees_ascii(build: Build) -> None:
    text = screen(looked("glm5-next", build, speculation=("draft-mtp",)), 80, "ascii")
    assert "+ ok" in text
    assert "x fault" in text
    assert "! warning" in text
    assert ". note" in screen(looked("glm5-next"), 80, "ascii")


def test_doubts_are_told_once(changed: Changed) -> None:
    model = changed(
        canary("llama"), lambda file: file.values.update({"llama.attention.sliding_window": 512})
    )
    for machine in (ROOMY, Machine(available=9, total=9)):
        text = screen(looked(model, machine=machine))
        assert text.count("with a sliding window are counted") == 1


def test_memory_that_lacks_is_a_fault_with_the_sum() -> None:
    found = looked("llama", machine=Machine(available=2 * GIB, total=2 * GIB))
    assert found.exit_code == ModelError.exit_code == 20
    assert found.margin == 2 * GIB - found.memory.needed < 0
    assert found.largest == 0
    text = screen(found)
    assert "largest context that fits: none" in text
    assert any(line.split()[:2] == ["lacking", f"{-found.margin:,}"] for line in lines(text))


def test_the_largest_context_is_of_all_slots() -> None:
    found = looked("llama", slots=3, context=0)
    assert found.largest == 3 * 8192
    assert "24,576 tokens in 3 slots, all that the model was trained for" in screen(found)
    tight = Machine(available=found.memory.needed, total=0)
    less = looked("llama", slots=3, context=0, machine=tight)
    assert 0 < less.largest < 3 * 8192
    assert f"{less.largest:,} tokens in 3 slots\n" in screen(less).replace(" \n", "\n")


def test_json_has_every_part(build: Build) -> None:
    found = looked("glm5-next", build, speculation=("draft-mtp",))
    told = json.loads(json.dumps(document(found)))
    assert (told["result"], told["exit_code"]) == ("failed", 20)
    assert told["facts"] == json.loads(msgspec.json.encode(found.facts))
    assert len(told["findings"]) == len(found.findings)
    memory = told["memory"]
    start = [part["bytes"] for part in memory["parts"] if part["kind"] != "growth"]
    assert sum(start) == memory["needed"]
    assert memory["margin"] == memory["available"] - memory["needed"]
    assert memory["largest_context"] == 16384
    assert told["asked"]["speculation"] == ["draft-mtp"]
    assert set(told["asked"]) & {"machine", "drafter"} == set()
    assert document(looked("llama"))["result"] == "passed"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("64000000000", 64_000_000_000), ("0", 0), ("119G", 119 * GIB), ("119 GiB", 119 * GIB),
        ("2.5gib", 5 * GIB // 2), ("64GB", 64 * 10**9), ("2048MiB", 2 * GIB), ("1T", 1 << 40),
        ("512b", 512), ("3kb", 3000),
    ],
)  # fmt: skip
def test_sizes_are_read(text: str, count: int) -> None:
    assert size_of(text) == count


@pytest.mark.parametrize("text", ["", "G", "-1", "12iB", "1e9", "1 2", "1GG", "9" * 99, "٣\x1b"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no size"):
        size_of(text)


def test_counts_read_well() -> None:
    told = [size(count) for count in (0, 1023, 1024, 28_562_208, 119 * GIB, 1 << 41)]
    assert told == ["0 B", "1023 B", "1.00 KiB", "27.24 MiB", "119.00 GiB", "2.00 TiB"]
    assert [amount(count) for count in (0, 999, 16_160, 20_995_762, 753_864_139_008)] == [
        "0", "999", "16.2K", "21.0M", "753.9B",
    ]  # fmt: skip


def test_flags_become_what_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Asked, Machine]] = []

    def seen(model: Model, vision: Any, build: Any, one: Asked, machine: Machine) -> Inspection:
        asked.append((one, machine))
        return inspect(model, vision, build, one, machine)

    monkeypatch.setattr("sparkbuild.inspect_work.inspect", seen)
    path = str(canary("llama").path)
    flags = ["--ctx", "512", "--slots", "2", "--kv", "q8_0", "--drafts", "ngram-mod",
             "--depth", "5", "--ubatch", "64", "--available", "3G"]  # fmt: skip
    done = CliRunner().invoke(inspect_command, [path, *flags])
    assert done.exit_code == 0, done.output
    one, machine = asked[0]
    assert (one.context, one.slots, one.cache_k, one.cache_v) == (512, 2, "q8_0", "q8_0")
    assert (one.speculation, one.draft_depth, one.micro_batch) == (("ngram-mod",), 5, 64)
    assert one.flash_attention
    assert machine.available == 3 * GIB
    done = CliRunner().invoke(inspect_command, [path, "--kv-v", "q4_0", "--no-flash-attn"])
    assert done.exit_code == 20  # quantised values need flash attention
    one, machine = asked[1]
    assert (one.cache_k, one.cache_v, one.flash_attention) == ("f16", "q4_0", False)
    assert machine.available > 0


def test_drafts_that_need_a_model_of_their_own_are_not_offered() -> None:
    assert "draft-mtp" in DRAFTS
    assert not {"draft-simple", "draft-eagle3", "draft-dflash", "draft-dspark"} & set(DRAFTS)
