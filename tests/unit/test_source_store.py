"""What the store believes without asking git."""

from __future__ import annotations

import subprocess  # noqa: TID251 - a fresh interpreter shows what is loaded
import sys
from pathlib import Path

import pytest

from sparkbuild.manifest import GitOrigin, SourcePin
from sparkbuild.source.store import PinRecord, Store, commit_key, commit_name, pin_ref

COMMIT, OTHER, TREE, DIGEST = "c" * 40, "d" * 40, "7" * 40, "e" * 64
UPSTREAM = "ab" * 20
PIN = SourcePin(paths=("src",), origins=(GitOrigin(url="u", tag="t"),), digest=DIGEST)


def _record(**changes: object) -> PinRecord:
    known: dict[str, object] = {
        "digest": DIGEST, "commit": COMMIT, "tree": TREE, "paths": ("src",),
        "files": 1, "bytes": 2, "origin": "o",
    }  # fmt: skip
    return PinRecord(**{**known, **changes})  # type: ignore[arg-type]


def _write_ref(store: Store, value: str = COMMIT) -> None:
    file = store.root / pin_ref(DIGEST)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{value}\n")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store.git")


def test_a_store_that_is_not_there_holds_nothing(store: Store) -> None:
    assert store.pinned(DIGEST) is None
    assert store.find(PIN) is None
    assert not store.root.exists()


def test_a_record_counts_only_with_its_ref(store: Store) -> None:
    store.remember(DIGEST, _record())
    assert store.find(PIN) is None
    _write_ref(store)
    assert store.find(PIN) == _record()
    _write_ref(store, OTHER)
    assert store.find(PIN) is None


def test_a_ref_counts_only_with_its_record(store: Store) -> None:
    _write_ref(store)
    assert store.find(PIN) is None


@pytest.mark.parametrize("damage", ["", "{", '{"digest": 1}', "\xff"])
def test_a_damaged_record_counts_for_nothing(store: Store, damage: str) -> None:
    store.remember(DIGEST, _record())
    _write_ref(store)
    (store.root / "sparkbuild" / "records" / f"{DIGEST}.json").write_text(damage, encoding="latin1")
    assert store.find(PIN) is None


def test_a_record_for_other_declared_paths_does_not_count(store: Store) -> None:
    store.remember(DIGEST, _record(paths=("src", "lib")))
    _write_ref(store)
    assert store.find(PIN) is None


def test_packed_refs_are_read_and_loose_ones_go_first(store: Store) -> None:
    store.remember(DIGEST, _record())
    name = pin_ref(DIGEST)
    (store.root / "packed-refs").write_text(
        f"# pack-refs with: peeled fully-peeled sorted \n"
        f"{OTHER} {name}x\n{COMMIT} {name}\n^{TREE}\n"
    )
    assert store.pinned(DIGEST) == COMMIT
    _write_ref(store, OTHER)
    assert store.pinned(DIGEST) == OTHER


@pytest.mark.parametrize("value", ["", "ref: refs/heads/main", "c" * 39, "C" * 40, "\xff"])
def test_a_damaged_ref_counts_for_nothing(store: Store, value: str) -> None:
    _write_ref(store)
    (store.root / pin_ref(DIGEST)).write_text(value, encoding="latin1")
    assert store.pinned(DIGEST) is None


def _by_commit(commit: str, **origin: str) -> SourcePin:
    return SourcePin(paths=("src",), origins=(GitOrigin(url="u", commit=commit, **origin),))


def _remember_commit(store: Store, pin: SourcePin, upstream: str) -> None:
    origin = pin.origins[0]
    assert isinstance(origin, GitOrigin)
    store.remember(commit_name(upstream, commit_key(pin, origin)), _record(upstream=upstream))


def test_a_commit_is_found_whole_or_abbreviated(store: Store) -> None:
    _write_ref(store)
    whole, short = _by_commit(UPSTREAM), _by_commit(UPSTREAM[:8], branch="main")
    _remember_commit(store, whole, UPSTREAM)
    assert store.find(whole) is not None
    assert store.find(short) is None
    _remember_commit(store, short, UPSTREAM)
    assert store.find(short) is not None


def test_an_abbreviated_commit_of_another_place_is_another_pin(store: Store) -> None:
    _write_ref(store)
    _remember_commit(store, _by_commit(UPSTREAM[:8], branch="main"), UPSTREAM)
    assert store.find(_by_commit(UPSTREAM[:8], branch="other")) is None


def test_an_abbreviated_commit_that_fits_two_is_not_guessed(store: Store) -> None:
    _write_ref(store)
    pin = _by_commit(UPSTREAM[:8], branch="main")
    _remember_commit(store, pin, UPSTREAM)
    _remember_commit(store, pin, UPSTREAM[:39] + "0")
    assert store.find(pin) is None


def test_looking_into_the_store_loads_neither_git_nor_an_http_client() -> None:
    heavy = "('git', 'httpx', 'requests', 'pypi_simple')"
    code = (
        "import sys, sparkbuild.source.obtain, sparkbuild.source.prepare\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
