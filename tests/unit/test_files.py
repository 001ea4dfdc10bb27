"""Files that a killed run cannot leave half written."""

import errno
import multiprocessing
import os
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.errors import BusyError, DiskFullError
from sparkbuild.files import (
    DigestCache,
    digest_of,
    disk_full_refused,
    exclusive,
    fingerprint,
    sha256_bytes,
    sha256_file,
    write_atomic,
)


def test_write_atomic_replaces_whole_files_and_keeps_the_mode(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file"
    write_atomic(target, "one", mode=0o755)
    write_atomic(target, b"two", mode=0o755)
    assert target.read_bytes() == b"two"
    assert target.stat().st_mode & 0o777 == 0o755
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_write_atomic_keeps_the_old_file_when_the_disk_is_full(tmp_path: Path) -> None:
    target = tmp_path / "file"
    write_atomic(target, "old")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(DiskFullError) as caught:
            write_atomic(target, "new")
    assert "MB free" in caught.value.problems[0]
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_other_os_errors_pass_through(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), disk_full_refused(tmp_path):
        raise PermissionError(errno.EACCES, "no")


def test_fingerprint_sees_an_edit_that_restores_the_time(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("aaaa")
    stat = file.stat()
    before = fingerprint([file])
    assert fingerprint([file]) == before
    file.write_text("bbbb")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert fingerprint([file]) != before


def test_fingerprint_needs_every_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fingerprint([tmp_path / "gone"])


@given(st.dictionaries(st.text(), st.text()), st.dictionaries(st.text(), st.text()))
def test_digest_of_is_injective_and_ignores_order(a: dict[str, str], b: dict[str, str]) -> None:
    assert (digest_of(a) == digest_of(b)) == (a == b)
    assert digest_of(dict(reversed(a.items()))) == digest_of(a)


def test_digest_cache_rereads_only_changed_files(tmp_path: Path) -> None:
    file = tmp_path / "big"
    file.write_bytes(b"one")
    place = tmp_path / "digests.json"
    assert DigestCache(place).sha256(file) == sha256_bytes(b"one")
    # A wrong remembered value comes back, which shows that the file was not read again ...
    place.write_text(place.read_text().replace(sha256_bytes(b"one"), "f" * 64))
    assert DigestCache(place).sha256(file) == "f" * 64
    # ... until the file changes.
    file.write_bytes(b"two!")
    assert DigestCache(place).sha256(file) == sha256_file(file) == sha256_bytes(b"two!")


def test_digest_cache_survives_a_damaged_file(tmp_path: Path) -> None:
    file = tmp_path / "big"
    file.write_bytes(b"one")
    (tmp_path / "digests.json").write_text("[not json")
    assert DigestCache(tmp_path / "digests.json").sha256(file) == sha256_bytes(b"one")


def _hold(path: Path, ready: Event, leave: Event) -> None:
    with exclusive(path, what="it"):
        ready.set()
        leave.wait(30)


def test_a_lock_names_its_holder_and_is_free_after_its_death(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, leave = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(tmp_path / "lock", ready, leave))
    holder.start()
    assert ready.wait(30)
    with (
        pytest.raises(BusyError) as caught,
        exclusive(tmp_path / "lock", what="the build", wait=0.1),
    ):
        pass
    assert str(holder.pid) in caught.value.message
    assert str(holder.pid) in caught.value.next_step
    holder.kill()
    holder.join()
    with exclusive(tmp_path / "lock", what="the build", wait=5) as handle:
        assert os.pread(handle, 64, 0).decode().strip() == str(os.getpid())
