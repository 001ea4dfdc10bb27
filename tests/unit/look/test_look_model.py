"""Models: what a compiler breaks of them, a template filled in once, a tower alone, large files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from sparkbuild.canary.catalogue import DATA
from sparkbuild.errors import HostError, ModelError, UnknownNameError
from sparkbuild.inspect_work import Wanted, digests, see
from sparkbuild.manifest import find_recipes
from sparkbuild.model import rendered as module
from sparkbuild.model.asked import GIB, Asked, Machine
from sparkbuild.model.finding import NOT_ASKED, Finding
from sparkbuild.model.header import Header, Tensor, Value
from sparkbuild.model.miscompiled import Compiler, Defect, miscompiled
from sparkbuild.model.read import Model, Shard, read_model
from sparkbuild.model.rendered import WORDS, rendered
from sparkbuild.model.tower import inspect_tower

from .elf import Elf, fatbin
from .gguf import head, small
from .wheels import NAME, info, ours, pack

GLM = DATA / "glm5-next" / "glm5-next-q8_0.gguf"
TOWER = DATA / "glm5-next" / "mmproj-f16.gguf"
WANTED = Wanted(
    asked=Asked(context=4096), machine=Machine(available=64 * GIB, total=128 * GIB)
)  # fmt: skip


def model(kinds: Sequence[str] = (), values: dict[str, Value] | None = None) -> Model:
    tensors = tuple(
        Tensor(name=f"blk.{n}.ffn_up.weight", shape=(256,), type=kind, offset=0, bytes=82)
        for n, kind in enumerate(kinds)
    )
    header = Header(
        version=3, alignment=32, data=0, tensors=tensors,
        values=values or {},
    )  # fmt: skip
    return Model(shards=(Shard(path=Path("m.gguf"), size=0, header=header),))


def compiler(toolkit: str, variant: str | None = None) -> Compiler | None:
    return Wanted(
        asked=Asked(), machine=WANTED.machine, toolkit=toolkit, variant=variant
    ).compiler  # fmt: skip


BROKEN = model(["iq2_s"] * 412 + ["iq3_s"] * 2 + ["q8_0"] * 9)


@pytest.mark.parametrize("name", ["13.2.0", "13.2.51", "cuda-13.2.0", "13.2.1"])
def test_what_a_toolkit_breaks_of_a_model_is_a_fault(name: str) -> None:
    found = miscompiled(BROKEN, None, compiler(name))
    assert (found.state, found.found) == ("fault", "412 iq2_s and 2 iq3_s tensors")
    assert f"--toolkit {name}" in found.expected
    assert "cicc-13.2-byte-mask: cicc 13.2." in found.reason
    assert found.next_step
    assert miscompiled(model(["q4_K"]), None, compiler(name)).state == "ok"


def test_a_tower_s_tensors_count_too() -> None:
    found = miscompiled(model(["q8_0"]), BROKEN, compiler("13.2.0"))
    assert found.found == "412 iq2_s and 2 iq3_s tensors"


def test_another_toolkit_is_right() -> None:
    for name in ("13.0", "13.2.2", "13.5", "cpu"):
        assert miscompiled(BROKEN, None, compiler(name)).state == "ok", name


def test_architectures_that_it_strikes_not_are_right() -> None:
    wanted = Wanted(
        asked=Asked(), machine=WANTED.machine, toolkit="13.2.0", architectures=("90",)
    )  # fmt: skip
    assert miscompiled(BROKEN, None, wanted.compiler).state == "ok"


def test_a_variant_that_works_around_it_is_right_and_says_why() -> None:
    found = miscompiled(BROKEN, None, compiler("13.2.0", "vision-132"))
    assert found.state == "ok"
    assert "worked around: " in found.reason
    assert ".patch" in found.reason
    assert miscompiled(BROKEN, None, compiler("13.2.0", "vision")).state == "fault"
    with pytest.raises(UnknownNameError):
        compiler("13.2.0", "no such variant")


def test_a_warning_is_one_and_without_a_compiler_nothing_is_said() -> None:
    defect = Defect(
        id="x", part="libcublasLt", version="1", action="warn", effect="is wrong",
        tensor_types=("iq2_s",),
    )  # fmt: skip
    told = Compiler(told_by="lib.so", version="nvcc 1", defects=(defect,))
    assert miscompiled(BROKEN, None, told).state == "warning"
    general = Defect(id="y", part="nvcc", version="1", action="note", effect="may")
    told = Compiler(told_by="lib.so", version="nvcc 1", defects=(general,))
    assert miscompiled(BROKEN, None, told).reason.endswith("not met in llama.cpp: y")
    assert miscompiled(BROKEN, None, None).expected == NOT_ASKED


def build(folder: Path, library: Elf) -> Path:
    """A build of which only the GPU code and the programs' names are real."""
    library.write(folder / "libggml-cuda.so.0")
    Elf(soname="libllama.so.0", texts=("glm5-next",)).write(folder / "libllama.so.0")
    return folder


def test_a_build_says_itself_what_compiled_it(tmp_path: Path) -> None:
    place = build(tmp_path, Elf(fatbin=fatbin("n132")))
    wanted = Wanted(asked=Asked(), machine=WANTED.machine, build=place)
    found = miscompiled(BROKEN, None, wanted.compiler)
    assert found.state == "fault"
    assert found.expected == "no type that nvcc 13.2.78 breaks (libggml-cuda.so.0)"
    lifted = Wanted(asked=Asked(), machine=WANTED.machine, build=place, variant="vision-132")
    assert miscompiled(BROKEN, None, lifted.compiler).state == "ok"
    build(tmp_path, Elf(fatbin=fatbin("s121a")))
    right = Wanted(asked=Asked(), machine=WANTED.machine, build=place)
    assert miscompiled(BROKEN, None, right.compiler).state == "ok"
    build(tmp_path, Elf())
    silent = Wanted(asked=Asked(), machine=WANTED.machine, build=place)
    assert miscompiled(BROKEN, None, silent.compiler).expected == NOT_ASKED


def with_server(**changes: object) -> bytes:
    """A wheel of ours with a program in it."""
    library = Elf(soname="libllama.so.0", texts=("glm5-next",)).data()
    more = {"libllama.so.0": library, "llama-server": Elf(soname="llama-server").data()}
    return ours(more=more, **changes)


def test_what_was_installed_from_a_wheel_says_it_too(tmp_path: Path) -> None:
    place = tmp_path / "bin"
    place.mkdir()
    build(place, Elf(fatbin=fatbin("n132")))
    patches = find_recipes(None).patchset("vision-132")[0].patches
    held = tuple((one.file, one.sha256) for one in patches)
    for patched, state in ((held, "ok"), ((), "fault")):
        told = json.dumps(info(nvcc="13.2.51", patches=patched))
        (tmp_path / "build-info.json").write_text(told)
        wanted = Wanted(asked=Asked(), machine=WANTED.machine, build=place)
        found = miscompiled(BROKEN, None, wanted.compiler)
        assert (found.state, "(build-info.json)" in found.expected) == (state, True)


def test_a_stranger_s_wheel_says_it_by_its_code(tmp_path: Path) -> None:
    wheel = tmp_path / NAME
    members = {
        "x/bin/libggml-cuda.so": Elf(fatbin=fatbin("n132")).data(),
        "x/bin/llama-server": Elf(soname="llama-server").data(),
    }
    wheel.write_bytes(pack(members, "x-1.dist-info/RECORD"))
    wanted = Wanted(asked=Asked(), machine=WANTED.machine, build=wheel)
    found = miscompiled(BROKEN, None, wanted.compiler)
    assert (found.state, "13.2.78" in found.expected) == ("fault", True)


def test_a_wheel_says_it_too(tmp_path: Path) -> None:
    wheel = tmp_path / NAME
    wheel.write_bytes(with_server(nvcc="13.2.51"))
    wanted = Wanted(asked=Asked(), machine=WANTED.machine, build=wheel)
    found = miscompiled(BROKEN, None, wanted.compiler)
    assert (found.state, NAME in found.expected) == ("fault", True)


def templated(text: str, vocabulary: dict[str, Value] | None = None) -> Finding:
    return rendered(model(values={"tokenizer.chat_template": text, **(vocabulary or {})}))


def test_a_template_is_filled_in_once() -> None:
    told = rendered(read_model(GLM))
    assert told.state == "ok", told
    assert "characters, the end is '" in told.found
    vocabulary: dict[str, Value] = {
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.tokens": ("a", "<s>"),
    }  # fmt: skip
    plain = templated("{{ bos_token }}{{ messages[0].content }}<|end|>", vocabulary)
    assert plain.state == "ok"
    assert plain.found == f"{len(WORDS) + 10} characters, the end is '<s>{WORDS}<|end|>'"
    parts = templated("{% for p in messages[0].content %}{{ p.text }}{% endfor %}")
    assert parts.state == "ok"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ raise_exception('system first') }}", "ValueError: system first"),
        ("nothing of the question", "23 characters"),
        ("{{ messages[9].content.x }}", "UndefinedError"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ 'a' * 3000000000 }}", "MemoryError"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
        ("{{ '\x1b[31m' }}{{ raise_exception('\x1b\x07') }}", "ValueError"),
    ],
)
def test_a_template_that_fails_is_warned_of(text: str, said: str) -> None:
    found = templated(text)
    assert (found.state, said in found.found) == ("warning", True), found
    assert found.reason
    assert found.next_step
    assert found.found.isprintable()


def test_a_template_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 1)
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    found = templated(loop)
    assert (found.state, "no end within 1 s" in found.found) == ("warning", True), found


@pytest.mark.parametrize("text", [None, "{% if %}"])
def test_what_does_not_parse_is_not_filled_in(text: str | None) -> None:
    found = rendered(model() if text is None else model(values={"tokenizer.chat_template": text}))
    assert found.expected == NOT_ASKED


def test_a_tower_is_looked_at_alone() -> None:
    seen = see(TOWER, WANTED)
    assert (seen.document["kind"], seen.exit_code) == ("mmproj", 0)
    assert seen.document["facts"]["projector"] == "glm5v"
    states = {one["name"]: one["state"] for one in seen.document["findings"]}
    assert states.pop("projector") == states.pop("tensor types") == "note"
    assert set(states.values()) == {"ok"}


def test_a_tower_that_lacks_keys_is_a_fault(tmp_path: Path) -> None:
    tower = read_model(TOWER)
    values = {key: v for key, v in tower.values.items() if key != "clip.vision.image_mean"}
    path = tmp_path / "mmproj.gguf"
    path.write_bytes(head(values, {}))
    found = inspect_tower(read_model(path), None)
    assert found.exit_code == ModelError.exit_code
    assert [one.name for one in found.findings if one.state == "fault"] == ["mmproj keys"]


def test_the_cache_as_asked_stands_among_the_weights() -> None:
    wanted = Wanted(
        asked=Asked(context=4096, cache_k="q8_0", cache_v="q8_0"), machine=WANTED.machine
    )
    caches = see(DATA / "llama" / "llama-q8_0.gguf", wanted).document["caches"]
    assert {(one["role"], one["type"], one["bits"]) for one in caches} == {
        ("KV cache, keys", "q8_0", 8.5), ("KV cache, values", "q8_0", 8.5),
    }  # fmt: skip
    assert all(one["bytes"] * 8 == one["numbers"] * one["bits"] for one in caches)


def test_108_gb_are_looked_at_in_under_a_second(tmp_path: Path) -> None:
    """Four shards of holes, 154,880 tokens: of processor time, all that the command does."""
    size = 108_720_071_427 // 4
    source = read_model(GLM)
    values: dict[str, Value] = {
        **source.values,
        "tokenizer.ggml.tokens": tuple(f"token{n}" for n in range(154_880)),
        "tokenizer.ggml.merges": tuple(f"m{n} m{n}" for n in range(309_760)),
        "tokenizer.ggml.token_type": (1,) * 154_880,
    }
    rows = size // 34 // 440 // 32 * 32
    paths = [tmp_path / f"large-{n:05d}-of-00004.gguf" for n in range(1, 5)]
    for number, path in enumerate(paths):
        split: dict[str, Value] = {
            "split.no": number, "split.count": 4, "split.tensors.count": 1760,
        }  # fmt: skip
        tensors = {
            f"blk.{n % 9}.x{number}.{n}.weight": ((rows * 32, 1), "q8_0") for n in range(440)
        }
        path.write_bytes(head({**(values if not number else {}), **split}, tensors))
        os.truncate(path, size)
    begin = time.process_time()
    seen = see(paths[2], WANTED)
    assert time.process_time() - begin < 1
    assert len(seen.document["facts"]["files"]) == 4
    assert sum(one["bytes"] for one in seen.document["facts"]["files"]) == 4 * size


def test_digests_are_those_of_the_files_and_tell_how_far(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(small())
    shutil.copyfile(TOWER, two)
    told: list[tuple[int, int, str]] = []
    found = digests([str(one), str(two)], lambda *words: told.append(words))
    assert found == {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in (one, two)
    }
    total = one.stat().st_size + two.stat().st_size
    assert told[-1] == (total, total, str(two))
    two.unlink()
    with pytest.raises(HostError, match="cannot be read to its end"):
        digests([str(one), str(two)], lambda *_: None)
