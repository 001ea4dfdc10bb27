"""Which answers are asked with drafts among pictures, and when that is well."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sparkbuild.canary.catalogue import DATA, load_catalogue
from sparkbuild.canary.drafts_mixed import _Asked, _judged, _pairs
from sparkbuild.canary.run import Setup
from sparkbuild.canary.suite import PICTURE, load_suite

SUITE = load_suite(DATA / load_catalogue().canary("qwen35").suite)[0]
TEXT, SEEN = (10, 9), (10, 5)


def setup(tmp_path: Path, log: str = "llama_server: all slots are idle\n") -> Setup:
    (tmp_path / "log").write_text(log)
    return Setup(
        executable=Path("x"), model=Path("m"), vision=Path("v"), form="f32", backend="cpu",
        cache="f16", scratch=Path("s"), log=tmp_path / "log",
    )  # fmt: skip


def asked(*counts: tuple[int, int], pictured: bool, right: bool = True) -> list[_Asked]:
    return [_Asked(name="a", pictured=pictured, counts=one, right=right) for one in counts]


@pytest.mark.parametrize(
    ("seen", "more", "state"),
    [
        (asked(SEEN, SEEN, pictured=True), [], "passed"),
        (asked((10, 4), (10, 5), pictured=True), [], "passed"),
        (asked((10, 4), (10, 4), pictured=True), [], "failed"),
        (asked(SEEN, pictured=True, right=False), [], "failed"),
        (asked(SEEN, pictured=True), asked(TEXT, pictured=False, right=False), "failed"),
        (asked((0, 0), pictured=True), [], "failed"),
    ],
)
def test_after_pictures_half_as_much_has_to_be_accepted(
    tmp_path: Path, seen: list[_Asked], more: list[_Asked], state: str
) -> None:
    in_turn = [*asked(TEXT, TEXT, pictured=False), *seen]
    check = _judged([*in_turn, *more], in_turn, 3, setup(tmp_path))
    assert (check.state, check.bound, check.how) == (state, 0.45, "healthy, after pictures")
    assert check.drafted == sum(one.counts[0] for one in seen)


def test_a_fault_in_the_log_is_one_here_too(tmp_path: Path) -> None:
    in_turn = [*asked(TEXT, pictured=False), *asked(TEXT, pictured=True)]
    line = "0.1 E common_speculative_draft: failed to decode draft batch, ret = -1\n"
    told = _judged(in_turn, in_turn, 3, setup(tmp_path, log=line))
    assert told.state == "failed"
    assert told.log is not None
    assert told.log.count("fault") == 1


def test_texts_and_pictures_are_from_all_over_the_suite() -> None:
    pairs = _pairs(SUITE, "f32", skip=())
    assert len(pairs) == 6
    assert all(PICTURE in str(seen.messages) for _, seen in pairs)
    assert not any(PICTURE in str(text.messages) for text, _ in pairs)
    assert len({entry.group for pair in pairs for entry in pair}) > 4
    skipped = {entry.name for pair in pairs for entry in pair}
    again = {entry.name for pair in _pairs(SUITE, "f32", skip=skipped) for entry in pair}
    assert not skipped & again
    blind = msgspec.structs.replace(SUITE, answers=tuple(text for text, _ in pairs))
    assert _pairs(blind, "f32", skip=()) == []
