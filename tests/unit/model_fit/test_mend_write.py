"""A mended file differs by what was planned, is there whole or not at all, and the input stays."""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sparkbuild.errors import (
    DiskFullError,
    HostError,
    InternalError,
    ModelError,
    SparkbuildError,
    UsageError,
)
from sparkbuild.files import sha256_bytes, sha256_file
from sparkbuild.model.header import Value
from sparkbuild.model.mend import edits as edits_module
from sparkbuild.model.mend import write as module
from sparkbuild.model.mend.place import Linked, place
from sparkbuild.model.mend.plan import accepted, plan
from sparkbuild.model.mend.write import Written, write
from sparkbuild.model.read import read_model, read_shard

from .conftest import File, text
from .mend import ODD, odd, old

MUTATIONS = int(os.environ.get("SPARKBUILD_TEST_MUTATIONS", "3000"))


def quiet(done: int, total: int, what: str) -> None:
    del done, total, what


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def mended(
    path: Path,
    out: Path,
    linked: Linked = "symbolic",
    progress: Callable[[int, int, str], None] = quiet,
) -> Written:
    planned = accepted(plan(read_model(path)))
    assert planned.edits
    return write(planned, place(planned.model, out, linked), progress)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    odd(folder / "model.gguf")
    return folder / "model.gguf"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "new.gguf"


def entries(path: Path) -> dict[bytes, bytes]:
    """Raw metadata by raw key, in order, read by hand."""
    data, header = path.read_bytes(), read_shard(path).header
    found = {}
    for begin, end in header.places.values():
        (length,) = struct.unpack_from("<Q", data, begin)
        split = begin + 8 + length
        found[data[begin + 8 : split]] = data[split:end]
    return found


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("rest", [0, 5, 4096])
def test_only_what_was_planned_differs(version: int, rest: int, tmp_path: Path, out: Path) -> None:
    path = tmp_path / "odd.gguf"
    data = odd(path, version=version, rest=rest)
    assert all(entry in path.read_bytes() for entry in ODD)
    before, digest = path.stat().st_mtime_ns, sha256_file(path)
    written = mended(path, out)
    assert (path.stat().st_mtime_ns, sha256_file(path)) == (before, digest)
    was, now = entries(path), entries(out)
    expected = {key.replace(b"glm5next.", b"glm5-next."): value for key, value in was.items()}
    expected[b"general.architecture"] = struct.pack("<I", 8) + text("glm5-next")
    added = {b"glm5-next.attention.indexer.kpool": struct.pack("<II", 4, 4)}
    assert list(now.items()) == list((expected | added).items())
    assert len(was) > 30
    assert len([key for key in was if b"\xff" in key]) == 2
    new, previous = read_shard(out), read_shard(path)
    assert new.header.version == version
    assert new.header.tensors == previous.header.tensors
    assert new.header.data % 64 == 0
    assert sha256_bytes(out.read_bytes()[new.header.data :]) == sha256_bytes(data)
    assert (written.bytes, written.copied) == (out.stat().st_size, len(data))
    assert out.stat().st_mode & 0o777 == 0o644
    assert names(out.parent) == [out.name]


def test_a_mended_file_has_nothing_more_to_mend(path: Path, out: Path) -> None:
    mended(path, out)
    planned = plan(read_model(out))
    assert (planned.edits, planned.faults) == ((), ())


def refuse(number: int) -> Callable[..., int]:
    def call(*arguments: Any, **named: Any) -> int:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize("broken", [[], ["copy_file_range"], ["copy_file_range", "sendfile"]])
@pytest.mark.parametrize("how", [refuse(errno.EXDEV), refuse(errno.ENOSYS), lambda *a, **n: 0])
def test_every_way_of_copying_copies_all(
    broken: list[str], how: Any, path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PIECE", 1000)
    for name in broken:
        monkeypatch.setattr(os, name, how)
    told: list[tuple[int, int]] = []
    mended(path, out, progress=lambda done, total, what: told.append((done, total)))
    size = path.stat().st_size - read_shard(path).header.data
    assert out.read_bytes()[-size:] == path.read_bytes()[-size:]
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert told[-1] == (size, size)
    assert len(told) >= size // 1000


def test_a_way_that_breaks_in_the_middle_is_followed_by_the_next(
    path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PIECE", 1000)
    real, calls = os.copy_file_range, []

    def sometimes(*arguments: Any, **named: Any) -> int:
        calls.append(1)
        return real(*arguments, **named) if len(calls) < 3 else refuse(errno.EINVAL)()

    monkeypatch.setattr(os, "copy_file_range", sometimes)
    mended(path, out)
    assert len(calls) == 3
    size = path.stat().st_size - read_shard(path).header.data
    assert out.read_bytes()[-size:] == path.read_bytes()[-size:]


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.ENOSPC, DiskFullError),
        (errno.EDQUOT, DiskFullError),
        (errno.EFBIG, DiskFullError),
        (errno.EIO, HostError),
    ],
)
def test_a_copy_that_fails_leaves_nothing(
    number: int, error: type[SparkbuildError], path: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(os, "copy_file_range", refuse(number))
    with pytest.raises(error) as caught:
        mended(path, tmp_path / "set")
    assert os.strerror(number) in caught.value.problems[0]
    assert not (tmp_path / "set").exists()


def test_an_interruption_leaves_nothing(path: Path, tmp_path: Path) -> None:
    def interrupt(done: int, total: int, what: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mended(path, tmp_path / "set", progress=interrupt)
    assert not (tmp_path / "set").exists()


def test_without_nameless_files_a_hidden_one_is_used(
    path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = os.open, []

    def no_tmpfile(name: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return real(name, flags, *rest, **named)

    def look(done: int, total: int, what: str) -> None:
        seen.extend(names(out.parent))

    monkeypatch.setattr(os, "open", no_tmpfile)
    mended(path, out, progress=look)
    assert [name[:8] for name in seen] == [".mended."]
    assert names(out.parent) == [out.name]


@pytest.mark.parametrize("links", [True, False])
def test_a_name_that_is_taken_meanwhile_stays_what_it_is(
    links: bool, path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(done: int, total: int, what: str) -> None:
        out.write_text("mine")

    if not links:
        monkeypatch.setattr(os, "link", refuse(errno.EPERM))
    with pytest.raises(HostError, match=r"new\.gguf"):
        mended(path, out, progress=take)
    assert out.read_text() == "mine"
    assert names(out.parent) == [out.name]


def test_a_file_system_without_links_gets_the_file_by_its_name(
    path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def no_tmpfile(name: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return real(name, flags, *rest, **named)

    monkeypatch.setattr(os, "open", no_tmpfile)
    monkeypatch.setattr(os, "link", refuse(errno.EPERM))
    mended(path, out)
    assert names(out.parent) == [out.name]
    assert plan(read_model(out)).edits == ()


@pytest.mark.parametrize(
    "change",
    [
        lambda path: os.truncate(path, path.stat().st_size - 1),
        lambda path: path.write_bytes(path.read_bytes()),
        lambda path: os.truncate(path, path.stat().st_size + 1),
    ],
)
def test_an_input_that_changes_meanwhile_is_refused(
    change: Callable[[Path], object], path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PIECE", 1000)
    time.sleep(0.02)  # the kernel's clock for file times stands still that long

    def touch(done: int, total: int, what: str) -> None:
        if done == 1000:
            change(path)

    with pytest.raises(ModelError, match="changed while it was read"):
        mended(path, out, progress=touch)
    assert names(out.parent) == []


def test_a_disk_without_room_is_refused_before_it_is_filled(
    path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Small:
        f_bavail, f_frsize = 10, 512

    monkeypatch.setattr(os, "fstatvfs", lambda handle: Small)
    monkeypatch.setattr(os, "copy_file_range", lambda *a, **n: pytest.fail("it copied"))
    with pytest.raises(DiskFullError, match="no room for"):
        mended(path, out)
    assert names(out.parent) == []


def test_a_defect_of_ours_is_never_written(
    path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edits_module, "_put", lambda value: struct.pack("<II", 4, 99))
    with pytest.raises(InternalError, match="does not read as it was planned"):
        mended(path, out)
    assert names(out.parent) == []


@pytest.mark.parametrize(
    "name", ["/proc/mended.gguf", "/sys/mended.gguf", "/nowhere/x.gguf", "/nowhere/set"]
)
def test_a_place_that_cannot_be_written_is_refused(name: str, path: Path) -> None:
    with pytest.raises(HostError, match="cannot be written") as caught:
        mended(path, Path(name))
    assert caught.value.problems
    assert caught.value.next_step


def test_what_is_there_already_is_refused(path: Path, out: Path, tmp_path: Path) -> None:
    digest = sha256_file(path)
    out.write_text("mine")
    (tmp_path / "link.gguf").symlink_to(path)
    (tmp_path / "hard.gguf").hardlink_to(path)
    (tmp_path / "nowhere.gguf").symlink_to("nowhere")
    for place_, said in (
        (out, "is there already"),
        (path, "is the input itself"),
        (path.parent, "is the input itself"),
        (tmp_path / "link.gguf", "is the input itself"),
        (tmp_path / "hard.gguf", "is the input itself"),
        (tmp_path / "nowhere.gguf", "is there already"),
    ):
        with pytest.raises(UsageError, match=said):
            mended(path, place_)
    assert out.read_text() == "mine"
    assert sha256_file(path) == digest


# Sets


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Three files; the first is metadata alone, as most published sets have it."""
    folder = tmp_path / "set"
    folder.mkdir()
    whole = old()
    paths = [folder / f"m-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]
    tensors = list(whole.tensors.items())
    split = {"split.count": 3, "split.tensors.count": len(tensors)}
    first: dict[str, Value] = {**whole.values, **split, "split.no": 0, "general.name": "odd"}
    File(values=first).write(paths[0])
    File(values={**split, "split.no": 1}, tensors=dict(tensors[:2])).write(paths[1])
    File(values={**split, "split.no": 2}, tensors=dict(tensors[2:])).write(paths[2])
    return paths


@pytest.mark.parametrize("given", [0, 2])
def test_a_set_is_mended_into_a_folder(given: int, shards: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    written = mended(shards[given], out)
    assert names(out) == [path.name for path in shards]
    assert {link.name: target for link, target in written.links.items()} == {
        path.name: path for path in shards[1:]
    }
    for path in shards[1:]:
        assert (out / path.name).is_symlink()
        assert (out / path.name).samefile(path)
    model = read_model(out / shards[0].name)
    assert model.architecture == "glm5-next"
    assert len(model.tensors) == 4
    assert (plan(model).edits, plan(model).faults) == ((), ())


def test_links_are_hard_or_none_where_asked(shards: list[Path], tmp_path: Path) -> None:
    mended(shards[0], tmp_path / "hard", "hard")
    for path in shards[1:]:
        new = tmp_path / "hard" / path.name
        assert not new.is_symlink()
        assert new.stat().st_ino == path.stat().st_ino
    mended(shards[0], tmp_path / "none", "none")
    assert names(tmp_path / "none") == [shards[0].name]


def test_a_hard_link_to_a_linked_shard_is_to_the_file_itself(
    shards: list[Path], tmp_path: Path
) -> None:
    moved = tmp_path / "blob"
    shards[1].rename(moved)
    shards[1].symlink_to(moved)
    mended(shards[0], tmp_path / "hard", "hard")
    new = tmp_path / "hard" / shards[1].name
    assert not new.is_symlink()
    assert new.stat().st_ino == moved.stat().st_ino


def test_hard_links_to_another_file_system_are_refused(
    shards: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", refuse(errno.EXDEV))
    with pytest.raises(HostError) as caught:
        mended(shards[0], tmp_path / "hard", "hard")
    assert "leave out --links hard" in caught.value.next_step
    assert not (tmp_path / "hard").exists()


def test_a_folder_that_is_there_keeps_what_it_has(shards: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mmproj.gguf").write_text("mine")
    mended(shards[0], out)
    assert names(out) == [*(path.name for path in shards), "mmproj.gguf"]
    (out / shards[0].name).unlink()
    with pytest.raises(UsageError, match=r"is there already|is the input itself"):
        mended(shards[0], out)
    assert not (out / shards[0].name).exists()


def test_a_link_that_fails_takes_the_rest_with_it(
    shards: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    real = Path.symlink_to

    def second(self: Path, target: Path) -> None:
        if "00003" in self.name:
            raise OSError(errno.EPERM, "no")
        real(self, target)

    monkeypatch.setattr(Path, "symlink_to", second)
    with pytest.raises(HostError):
        mended(shards[0], out)
    assert not out.exists()


@pytest.mark.parametrize("name", ["new.gguf", "m-00002-of-00003.gguf", "m-00001-of-00004.gguf"])
def test_a_shard_needs_a_name_by_which_the_others_are_found(
    name: str, shards: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="cannot be the first of 3 shards") as caught:
        mended(shards[0], tmp_path / name)
    assert "-00001-of-00003.gguf" in caught.value.problems[0]
    written = mended(shards[0], tmp_path / "other-00001-of-00003.gguf")
    assert written.links == {}


def test_a_file_of_metadata_alone_may_end_with_it(shards: list[Path], tmp_path: Path) -> None:
    header = read_shard(shards[0]).header
    assert header.table[1] < header.data
    os.truncate(shards[0], header.table[1])
    mended(shards[0], tmp_path / "out")
    assert plan(read_model(tmp_path / "out" / shards[0].name)).faults == ()


def test_a_set_of_108_gb_takes_a_moment(tmp_path: Path) -> None:
    """154,880 tokens, 1,412 tensors, as the published set has them, in sparse files."""
    whole = old(attention__indexer__kpool=None)
    tokens = tuple(f"token{number}" for number in range(154_880))
    split = {"split.count": 4, "split.tensors.count": 1412 + 4}
    paths = [tmp_path / "in" / f"m-{number:05d}-of-00004.gguf" for number in range(1, 5)]
    paths[0].parent.mkdir()
    merges = {"tokenizer.ggml.merges": tuple(f"a{i} b{i}" for i in range(318_000))}
    values = {**whole.values, **merges, **split, "split.no": 0}
    values["tokenizer.ggml.tokens"] = (*old().values["tokenizer.ggml.tokens"][:5], *tokens[5:])  # type: ignore[index]
    File(values=values).write(paths[0])
    whole.tensors["token_embd.weight"] = ((32, len(tokens)), "f32")
    row = 72_000_000
    others = {f"blk.0.t{number}.weight": ((row,), "q8_0") for number in range(1412)}
    every = [*whole.tensors.items(), *others.items()]
    for number, path in enumerate(paths[1:], 1):
        part = dict(every[(number - 1) * 472 : number * 472])
        File(values={**split, "split.no": number}, tensors=part).write(path)
    assert sum(path.stat().st_size for path in paths) > 108e9
    start = time.monotonic()
    mended(paths[0], tmp_path / "out")
    assert time.monotonic() - start < 10
    assert plan(read_model(tmp_path / "out" / paths[0].name)).edits == ()


def test_many_keys_below_an_old_name_take_a_moment(tmp_path: Path, out: Path) -> None:
    file = old()
    file.values |= {f"glm5next.x{number}": 1 for number in range(60_000)}
    path = file.write(tmp_path / "many.gguf")
    start = time.monotonic()
    mended(path, out)
    assert time.monotonic() - start < 10
    assert sum(key.startswith("glm5-next.x") for key in read_model(out).values) == 60_000


HEAD = old(attention__indexer__kpool=None, tokenizer__ggml__eot_token_id=None).head()
WORDS = (0, 1, 3, 4, 8, 9, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, 1 << 63, (1 << 64) - 1)
CHANGES = st.lists(
    st.tuples(
        st.integers(0, len(HEAD) - 1),
        st.one_of(
            st.binary(min_size=1, max_size=4),
            st.sampled_from([struct.pack("<Q", word) for word in WORDS]),
            st.sampled_from([struct.pack("<I", word & 0xFFFFFFFF) for word in WORDS]),
            st.sampled_from([b"glm5-next", b"glm5next.", b"<|user|>", b"tokenizer.ggml."]),
        ),
        st.sampled_from(["replace", "insert", "remove"]),
    ),
    max_size=3,
)


@settings(
    max_examples=MUTATIONS,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example(changes=[], kept=1 << 20)
@given(changes=CHANGES, kept=st.one_of(st.just(1 << 20), st.integers(0, 1 << 13)))
def test_a_changed_file_is_mended_or_refused_and_never_more(
    changes: list[tuple[int, bytes, str]], kept: int, tmp_path: Path
) -> None:
    """Whatever is in it: a mended file reads, keeps its tensors, and has nothing more to mend."""
    data = bytearray(HEAD + bytes(range(256)) * 24)
    for at, piece, how in changes:
        end = at + (0 if how == "insert" else len(piece))
        data[at:end] = b"" if how == "remove" else piece
    path, out = tmp_path / "model.gguf", tmp_path / "new.gguf"
    path.write_bytes(data[:kept])
    out.unlink(missing_ok=True)
    try:
        planned = accepted(plan(read_model(path)))
    except ModelError as error:
        assert error.problems  # noqa: PT017 - many ends are right, a refusal without a word is not
        return
    if not planned.edits:
        return
    try:
        write(planned, place(planned.model, out, "symbolic"), quiet)
    except (UsageError, DiskFullError):  # a part of a set by its header, an alignment of terabytes
        assert not out.exists()
        return
    again, was = plan(read_model(out)), read_shard(path)
    assert (again.edits, again.faults) == ((), ())
    new = read_shard(out)
    assert new.header.tensors == was.header.tensors
    assert out.read_bytes()[new.header.data :] == path.read_bytes()[was.header.data :]
