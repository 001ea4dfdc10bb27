"""Keys: made once, kept secret, out of every repository, and told from what they are not."""

from __future__ import annotations

import datetime as dt
import os
import stat
import subprocess  # noqa: TID251 - git makes the repositories
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from sparkbuild.errors import UsageError
from sparkbuild.package.keys import (
    PublicKey,
    make_key,
    public_text,
    read_private,
    read_public,
    repository_above,
)

from .conftest import NOW, refusal


def test_a_pair_belongs_together_and_only_its_owner_reads_the_private_half(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        private, public, key = make_key("team", tmp_path / "keys", now=NOW)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE(private.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(public.stat().st_mode) == 0o644
    assert sorted(path.name for path in private.parent.iterdir()) == ["team.key", "team.pub"]
    assert read_public(public) == key
    again = read_private(private, now=NOW)
    assert again.public == key
    loaded = load_pem_private_key(private.read_bytes(), None)
    raw = loaded.public_key()
    assert isinstance(raw, Ed25519PublicKey)
    assert raw.public_bytes_raw().hex() == key.public


def test_two_keys_differ(tmp_path: Path) -> None:
    assert make_key("a", tmp_path, now=NOW)[2].keyid != make_key("b", tmp_path, now=NOW)[2].keyid


@pytest.mark.parametrize("left", ["team.key", "team.pub"])
def test_nothing_is_overwritten(left: str, tmp_path: Path) -> None:
    (tmp_path / left).write_text("precious")
    with refusal("already", UsageError):
        make_key("team", tmp_path, now=NOW)
    assert (tmp_path / left).read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == [left]


@pytest.mark.parametrize("name", ["", "Team", "a b", "../up", ".hidden", "x" * 65, "a/b"])
def test_a_bad_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        make_key(name, tmp_path, now=NOW)
    assert list(tmp_path.iterdir()) == []


def test_a_day_that_is_over_is_refused(tmp_path: Path) -> None:
    with refusal("is over", UsageError):
        make_key("team", tmp_path, now=NOW, expires=dt.date(2026, 11, 29))
    make_key("team", tmp_path, now=NOW, expires=dt.date(2026, 11, 30))


def git(*arguments: str | Path) -> None:
    argv = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *map(str, arguments)]
    subprocess.run(argv, check=True, capture_output=True)


def repositories(place: Path) -> dict[str, Path]:
    """Every kind of folder that git would commit from, or that is git's own."""
    plain, bare, linked = place / "plain", place / "bare.git", place / "linked"
    git("init", plain)
    git("init", "--bare", bare)
    git("-C", plain, "commit", "--allow-empty", "-m", "x")
    git("-C", plain, "worktree", "add", place / "worktree")
    (plain / "deep/er").mkdir(parents=True)
    linked.symlink_to(plain / "deep")
    return {"the top": plain, "below": plain / "deep/er", "git's own": plain / ".git/hooks",
            "bare": bare, "work tree": place / "worktree", "link": linked,
            "not there yet": plain / "new/keys"}  # fmt: skip


def test_no_private_key_is_made_inside_a_repository(tmp_path: Path) -> None:
    for kind, folder in repositories(tmp_path).items():
        before = sorted(tmp_path.rglob("*"))
        with refusal("inside a git repository", UsageError):
            make_key("team", folder, now=NOW)
        assert sorted(tmp_path.rglob("*")) == before, kind
    assert repository_above(tmp_path) is None


def test_no_private_key_is_used_that_came_into_a_repository(tmp_path: Path) -> None:
    private, public, _ = make_key("team", tmp_path / "keys", now=NOW)
    checkout = tmp_path / "checkout"
    git("init", checkout)
    for path in (private, public):
        path.rename(checkout / path.name)
        path.symlink_to(checkout / path.name)
    for path in (checkout / "team.key", private):
        with refusal("inside a git repository"):
            read_private(path, now=NOW)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o777])
def test_a_private_key_that_others_may_read_is_refused(mode: int, tmp_path: Path) -> None:
    private, _, _ = make_key("team", tmp_path, now=NOW)
    private.chmod(mode)
    with refusal("can be read by others"):
        read_private(private, now=NOW)


def test_halves_of_two_pairs_are_told(tmp_path: Path) -> None:
    make_key("a", tmp_path, now=NOW)
    make_key("b", tmp_path, now=NOW)
    (tmp_path / "b.pub").replace(tmp_path / "a.pub")
    with refusal("not one pair"):
        read_private(tmp_path / "a.key", now=NOW)
    with refusal("cannot read"):
        read_private(tmp_path / "b.key", now=NOW)


def test_an_expired_key_signs_nothing(tmp_path: Path) -> None:
    private, _, _ = make_key("team", tmp_path, now=NOW, expires=dt.date(2026, 12, 1))
    read_private(private, now=dt.datetime(2026, 12, 1, 23, 59, tzinfo=dt.UTC))
    with refusal("expired on 2026-12-01"):
        read_private(private, now=dt.datetime(2026, 12, 2, tzinfo=dt.UTC))


def test_the_last_day_is_counted_in_utc(tmp_path: Path) -> None:
    _, _, key = make_key("team", tmp_path, now=NOW, expires=dt.date(2026, 12, 1))
    west = dt.timezone(dt.timedelta(hours=-8))
    assert key.expired(dt.datetime(2026, 12, 1, 20, tzinfo=west))
    east = dt.timezone(dt.timedelta(hours=8))
    assert not key.expired(dt.datetime(2026, 12, 2, 1, tzinfo=east))


def test_a_private_key_is_no_public_one_and_the_reverse(tmp_path: Path) -> None:
    private, public, _ = make_key("team", tmp_path, now=NOW)
    with refusal("found: a private key"):
        read_public(private)
    (tmp_path / "x.key").write_bytes(public.read_bytes())
    (tmp_path / "x.key").chmod(0o600)
    with refusal("no private key"):
        read_private(tmp_path / "x.key", now=NOW)


def test_another_kind_of_private_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.key"
    subprocess.run(
        ["openssl", "genpkey", "-algorithm", "RSA", "-out", str(path)],
        check=True,
        capture_output=True,
    )
    path.chmod(0o600)
    with refusal("another kind of key"):
        read_private(path, now=NOW)


def test_openssl_reads_the_private_key(tmp_path: Path) -> None:
    private, _, _ = make_key("team", tmp_path, now=NOW)
    argv = ["openssl", "pkey", "-in", str(private), "-noout", "-text"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("ED25519 Private-Key")


def test_every_change_of_key_or_id_in_a_public_file_is_refused(tmp_path: Path) -> None:
    _, public, key = make_key("team", tmp_path, now=NOW)
    other = make_key("other", tmp_path, now=NOW)[2]
    changed: list[PublicKey] = [
        msgspec.structs.replace(key, keyid=other.keyid),
        msgspec.structs.replace(key, public=other.public),
    ]
    for one in changed:
        public.write_bytes(public_text(one))
        with refusal("its id is not its key's"):
            read_public(public)


@pytest.mark.parametrize("text", [b"", b"{}", b"\xff", b"[" * 100_000, b'{"schema": 2}'])
def test_what_is_no_public_file_is_refused(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.pub"
    path.write_bytes(text)
    with refusal("no public key file"):
        read_public(path)
    with refusal("cannot read"):
        read_public(tmp_path / "absent.pub")
    with refusal("cannot read"):
        read_public(tmp_path)


def test_a_key_without_a_time_zone_is_refused(tmp_path: Path) -> None:
    _, public, _ = make_key("team", tmp_path, now=NOW)
    public.write_bytes(public.read_bytes().replace(b"00:00Z", b"00:00"))
    with refusal("timezone"):
        read_public(public)
