"""Thresholds are data: each check has its entry, with a reason and a source."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkbuild.doctor.diagnose import CHECKS, diagnose
from sparkbuild.doctor.rules import FILE, read_rules
from sparkbuild.errors import ManifestError

from .captures import captured


def test_each_check_has_its_entry_and_each_entry_its_check() -> None:
    assert set(read_rules().rules) == set(CHECKS)


def test_entries_say_why_and_from_where() -> None:
    for name, entry in read_rules().rules.items():
        assert len(entry.why) > 30, name
        assert len(entry.source) > 10, name
        assert entry.why[-1] not in ".;:", name


def test_a_threshold_in_the_file_decides(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    text = FILE.read_text()
    assert "lowest = 100, highest = 200" in text
    file.write_text(text.replace("lowest = 100, highest = 200", "lowest = 5, highest = 20"))
    name = "watermark scale"

    def state(rules: Path) -> str:
        found = diagnose(captured("spark-stock"), read_rules(rules))
        return next(one.state for one in found.findings if one.name == name)

    assert (state(FILE), state(file)) == ("warning", "ok")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('concerns = ["serve-cuda"]', 'concerns = ["fly"]', "concerns"),
        ("schema = 1", "schema = 2", "schema"),
        ("\nspark = true", "\nsparks = true", "sparks"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(FILE.read_text().replace(old, new, 1))
    with pytest.raises(ManifestError, match=message):
        read_rules(file)
