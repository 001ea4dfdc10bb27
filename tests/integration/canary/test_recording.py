"""What of an exam stays in a suite."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the trainer's packages come with the extra canary")

from PIL import Image

from sparkbuild.canary.record import Book
from sparkbuild.canary.tasks.long import Needle
from sparkbuild.canary.train.exam import EXAMS, Exam, Paper
from sparkbuild.canary.train.recording import _choose


class Kept:
    """Stands for a book; remembers what it was asked to keep."""

    def keep(self, answers: set[str], references: set[str]) -> None:
        """See Book."""
        self.answers, self.references = answers, references


def test_every_paper_keeps_its_own_number_of_one_task() -> None:
    near = Paper(task=Needle, tried=4, kept=2, lengths=(64,), references=1)
    far = Paper(task=Needle, tried=3, kept=1, lengths=(300,), references=0)
    entries = list(Exam(papers=(near, far), summary="").questions())
    names = {question.name for question, _, _ in entries} - {"needle 0.0"}
    book = Kept()
    _choose(book, entries, names, {f"reference: {name}" for name in names})  # type: ignore[arg-type]
    needles = {name for name in book.answers if name.startswith("needle")}
    assert needles == {"needle 0.1", "needle 0.2", "needle 1.0"}
    assert "reference: needle 0.1" in book.references
    assert "reference: needle 1.0" not in book.references


def test_the_target_is_asked_across_more_than_6000_tokens() -> None:
    distances = [
        int(dict(question.sample.check)["distance"])
        for question, _, _ in EXAMS["glm5-next"].questions()
        if question.group == "held out: needle"
    ]
    assert max(distances) > 6000
    assert min(distances) < 60


def test_a_suite_that_is_recorded_again_keeps_no_picture_of_the_last_time(tmp_path: Path) -> None:
    for colour in ("red", "blue"):
        book = Book("toy", vocabulary=4, context=16)
        address = book.picture(Image.new("RGB", (4, 4), colour))
        suite = book.write(tmp_path)
        shown = [file.name for file in (tmp_path / "pictures").iterdir()]
        assert shown == [f"{address.removeprefix('picture:')}.png"]
        assert [picture.file for picture in suite.pictures.values()] == [f"pictures/{shown[0]}"]
