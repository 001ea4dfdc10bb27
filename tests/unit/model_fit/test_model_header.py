"""Headers are read as gguf-py reads them, and whatever is no header is refused in one sentence."""

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sparkbuild.canary.catalogue import DATA
from sparkbuild.errors import ModelError
from sparkbuild.model import header as module
from sparkbuild.model.asked import Asked
from sparkbuild.model.build import Build
from sparkbuild.model.fit import fit
from sparkbuild.model.read import read_model, read_shard
from sparkbuild.model.types import BY_NUMBER

from .conftest import File, canary, text, tower

MUTATIONS = int(os.environ.get("SPARKBUILD_TEST_MUTATIONS", "3000"))
SHIPPED = sorted(DATA.glob("*/*.gguf"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_header_is_what_gguf_py_reads(path: Path) -> None:
    shard, reader = read_shard(path), gguf.GGUFReader(path)
    header = shard.header
    names = {key for key in reader.fields if not key.startswith("GGUF.")}
    assert set(header.values) == names
    for key in names:
        found = header.values[key]
        theirs = reader.fields[key].contents()
        assert (list(found) if isinstance(found, tuple) else found) == theirs, key
    assert header.data == reader.data_offset
    assert [t.name for t in header.tensors] == [t.name for t in reader.tensors]
    for ours, theirs_tensor in zip(header.tensors, reader.tensors, strict=True):
        assert list(ours.shape) == list(map(int, theirs_tensor.shape)), ours.name
        assert ours.type.lower() == theirs_tensor.tensor_type.name.lower(), ours.name
        assert ours.bytes == theirs_tensor.n_bytes, ours.name
        assert header.data + ours.offset == theirs_tensor.data_offset, ours.name
    assert shard.needed <= shard.size <= shard.whole


def test_types_are_those_of_gguf_py() -> None:
    for kind, (block, size) in gguf.GGML_QUANT_SIZES.items():
        ours = BY_NUMBER[kind.value]
        assert ours.name.lower() == kind.name.lower()
        # gguf-py still has the Q8_1 with two float32; it is in no file.
        assert (ours.block, ours.size) == (block, size) or ours.name == "q8_1"


def test_a_large_model_is_read_in_a_moment(tmp_path: Path) -> None:
    """114 GB in a sparse file, 1,760 tensors, 154,880 tokens: gguf-py takes 15 s for it."""
    count, row = 154_880, 61_000_192
    file = File(
        values={
            "general.architecture": "glm5-next",
            "tokenizer.ggml.tokens": tuple(f"token{i}" for i in range(count)),
            "tokenizer.ggml.merges": tuple(f"m{i} m{i}" for i in range(2 * count)),
            "tokenizer.ggml.token_type": (1,) * count,
        },
        tensors={f"blk.{i // 40}.t{i % 40}.weight": ((row,), "q8_0") for i in range(1760)},
    )
    path = file.write(tmp_path / "large.gguf")
    start = time.process_time()
    model = read_model(path)
    assert time.process_time() - start < 1
    assert path.stat().st_size > 100e9
    assert len(model.tensors) == 1760
    assert model.shards[0].needed <= path.stat().st_size


def counts(tensors: int = 0, entries: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries)


def entry(kind: int, *rest: bytes) -> bytes:
    return counts(entries=1) + text("key") + struct.pack("<I", kind) + b"".join(rest) + bytes(64)


def tensor(*, dimensions: int = 1, shape: tuple[int, ...] = (32,), kind: int = 0) -> bytes:
    return (
        counts(tensors=1)
        + text("x")
        + struct.pack(f"<I{len(shape)}qIQ", dimensions, *shape, kind, 0)
        + bytes(64)
    )


HUGE = struct.pack("<Q", 1 << 60)
DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "byte 0, magic: expected 4 bytes, found 0 to the end"),
    "cut": (b"GGUF\3\0\0", "byte 4, version: expected 4 bytes, found 3 to the end"),
    "version 1": (counts(version=1), "version: expected 2 or 3, found 1"),
    "version 9": (counts(version=9), "version: expected 2 or 3, found 9"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 1, 1), "found big-endian"),
    "other file": (b"safetensors and more", "expected the letters GGUF"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\n", "found a git-lfs pointer"),
    "page": (b"\n<!DOCTYPE html><html>", "found a web page"),
    "checkpoint": (b"PK\x03\x04" + bytes(90), "found a PyTorch checkpoint"),
    "many tensors": (counts(tensors=1 << 40), "number of tensors: expected at most 131072"),
    "more tensors than bytes": (counts(tensors=9), "as many as fit into the file, found 9"),
    "many entries": (counts(entries=(1 << 64) - 1), "metadata entries: expected at most 65536"),
    "long key": (
        counts(entries=1) + HUGE + bytes(32),
        "metadata key: expected at most 134217728 bytes",
    ),
    "long text": (entry(8, HUGE), "value of 'key': expected at most 134217728 bytes"),
    "long array": (entry(9, struct.pack("<I", 4), HUGE), "length of the value of 'key': expected"),
    "array past the end": (
        entry(9, struct.pack("<IQ", 10, 100)),
        "as many as fit into the file, found 100",
    ),
    "texts past the end": (
        entry(9, struct.pack("<IQ", 8, 2), text("a"), struct.pack("<Q", 99)),
        "value of 'key': expected 99 bytes",
    ),
    "array of arrays": (entry(9, struct.pack("<IQ", 9, 1)), "(no array of arrays), found 9"),
    "value type": (entry(77), "a GGUF value type (no array of arrays), found 77"),
    "key twice": (
        counts(entries=2) + 2 * (text("key") + struct.pack("<IB", 0, 1)) + bytes(64),
        "metadata key: expected a new name, found 'key'",
    ),
    "no key": (counts(entries=1) + text("") + bytes(64), "expected a new name, found ''"),
    "alignment": (
        counts(entries=1) + text("general.alignment") + struct.pack("<II", 4, 33) + bytes(64),
        "general.alignment: expected a power of two, found 33",
    ),
    "alignment as text": (
        counts(entries=1) + text("general.alignment") + struct.pack("<I", 8) + text("x" * 64),
        "general.alignment: expected a power of two, found 'xxx",
    ),
    "dimensions": (tensor(dimensions=5, shape=(1,) * 5), "at most 4 dimensions, found 5"),
    "negative": (tensor(shape=(-32,)), "a shape that can be, found (-32,)"),
    "too large": (tensor(dimensions=2, shape=(1 << 40, 1 << 40)), "a shape that can be"),
    "rows": (tensor(shape=(33,), kind=8), "rows of whole q8_0 blocks of 32, found (33,)"),
    "long name": (
        counts(tensors=1) + text("x" * 64) + bytes(64),
        "tensor name: expected at most 63 bytes, found 64",
    ),
    "name twice": (
        counts(tensors=2) + 2 * (text("x") + struct.pack("<IqIQ", 1, 1, 0, 0)) + bytes(64),
        "tensor name: expected a new name, found 'x'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_no_header_is_refused_by_place_and_value(name: str, tmp_path: Path) -> None:
    data, expected = DAMAGED[name]
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelError) as caught:
        read_model(path)
    assert expected in caught.value.problems[0]
    assert "model.gguf" in caught.value.message
    assert caught.value.evidence == (path,)
    assert caught.value.next_step


def test_a_header_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    path = File(values={"key": "x" * 2000}).write(tmp_path / "model.gguf")
    with pytest.raises(ModelError, match=r"model\.gguf") as caught:
        read_model(path)
    assert "a header of at most 1000 bytes" in caught.value.problems[0]


def test_arrays_have_a_limit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ELEMENTS", 5)
    path = File(values={"a": (1, 2, 3), "b": (1, 2, 3)}).write(tmp_path / "model.gguf")
    with pytest.raises(ModelError) as caught:
        read_model(path)
    assert "length of the value of 'b': expected at most 2, found 3" in caught.value.problems[0]


def test_a_type_of_a_fork_is_told_and_not_refused(tmp_path: Path) -> None:
    file = File(tensors={"x": ((32,), "f32"), "y": ((256,), "type 137")})
    model = read_model(file.write(tmp_path / "model.gguf"))
    assert model.tensors["y"].type == "type 137"
    assert model.tensors["y"].bytes is None


def test_version_2_is_read(tmp_path: Path) -> None:
    path = File(values={"key": 1}, version=2).write(tmp_path / "model.gguf")
    assert read_model(path).values == {"key": 1}


def test_bytes_that_are_no_text_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(counts(entries=1) + text(b"k\xff") + struct.pack("<IB", 0, 7))
    assert read_model(path).values == {"k\\xff": 7}


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda path: path.mkdir(), "expected a file, found a folder"),
        (os.mkfifo, "expected a file, found no regular file"),
        (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
        (lambda path: path.symlink_to("/dev/zero"), "expected a file, found no regular file"),
        (lambda path: None, "No such file or directory"),
    ],
)
def test_what_is_no_file_is_refused_at_once(
    make: Callable[[Path], object], expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    make(path)
    with pytest.raises(ModelError) as caught:
        read_model(path)
    assert expected in caught.value.problems[0]


HEAD = File.like(canary("qwen35")).head()
WORDS = (0, 1, 8, 9, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, 1 << 63, (1 << 64) - 1)
CHANGES = st.lists(
    st.tuples(
        st.integers(0, len(HEAD) - 1),
        st.one_of(
            st.binary(min_size=1, max_size=4),
            st.sampled_from([struct.pack("<Q", word) for word in WORDS]),
            st.sampled_from([struct.pack("<I", word & 0xFFFFFFFF) for word in WORDS]),
        ),
        st.sampled_from(["replace", "insert", "remove"]),
    ),
    min_size=1,
    max_size=4,
)


@settings(
    max_examples=MUTATIONS,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example(changes=[], kept=len(HEAD))
@given(changes=CHANGES, kept=st.one_of(st.just(len(HEAD)), st.integers(0, len(HEAD))))
def test_a_changed_header_is_read_or_refused_and_never_more(
    changes: list[tuple[int, bytes, str]], kept: int, tmp_path: Path, build: Build
) -> None:
    data = bytearray(HEAD)
    for at, piece, how in changes:
        end = at + (0 if how == "insert" else len(piece))
        data[at:end] = b"" if how == "remove" else piece
    path = tmp_path / "model.gguf"
    path.write_bytes(data[:kept])
    try:
        model = read_model(path)
    except ModelError as error:
        assert error.problems  # noqa: PT017 - many ends are right, a refusal without a word is not
        return
    for finding in fit(model, tower("qwen35"), build, Asked(speculation=("draft-mtp",))):
        assert finding.found.isprintable(), finding
        assert finding.expected.isprintable(), finding
