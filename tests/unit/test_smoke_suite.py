"""Suites as data: what the schema does not know is refused, by file and key."""

import contextlib
import json
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkbuild.errors import ManifestError, UnknownNameError
from sparkbuild.smoke.suite import FOLDER, load_suite, names


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the suites, to be damaged."""
    shutil.copytree(FOLDER, tmp_path / "suites")
    return tmp_path / "suites"


def damage(folder: Path, old: str, new: str, file: str = "tiny.toml") -> None:
    path = folder / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def refusal(folder: Path) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        load_suite("tiny", folder=folder)
    assert str(folder) in caught.value.message + caught.value.next_step
    return caught.value


def test_every_suite_here_loads() -> None:
    assert "tiny" in names()
    for name in names():
        suite, logprobs = load_suite(name)
        assert suite.name == name
        assert logprobs.first_token


def test_an_unknown_suite_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_suite("tyny")
    assert "tiny" in caught.value.next_step


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("capabilities =", "capabilites =", "did you mean `capabilities`"),
        ("\nstop = \"limit\"", "\nstop = \"word\"", "word"),
        ("schema = 1", "schema = 2", "schema"),
        ("\nmargin = 0.408", "", "margin"),
        ("limit = 5e-4", "limit = -1.0", "nmse"),
        ("limit = 5e-4, reason", "limit = 5e-4, raison", "did you mean `reason`"),
        ("limit = 5e-4, reason = \"20", "limit = 5e-4, reason = \"\" } # ", "reason"),
        ("prompt = [57]", "prompt = []", "prompt"),
        ("prompt = [57]", "prompt = [-1]", "prompt"),
        ("generator = \"tiny\"", "generator = \"huge\"", "huge"),
        ("name = \"short\"", "name = \"long\"", "two cases are named 'long'"),
        ("name = \"tiny\"", "name = \"tony\"", "`name` is 'tony'"),
        ("control-looking|", "control-looking(|", "`log[1].pattern` is no regular expression"),
        ("tiny.logprobs.json", "../tiny.json", "file"),
        ("tiny.logprobs.json", "absent.json", "absent.json"),
        ("[model]", "[model", ""),
    ],
)  # fmt: skip
def test_a_damaged_suite_is_refused(folder: Path, old: str, new: str, told: str) -> None:
    damage(folder, old, new)
    error = refusal(folder)
    assert told in f"{error.message} {error.next_step}"


def test_log_probabilities_of_another_model_are_refused(folder: Path) -> None:
    sha256 = load_suite("tiny")[0].model.sha256
    damage(folder, sha256, "0" * 64, "tiny.logprobs.json")
    assert "0" * 64 in refusal(folder).message


def test_log_probabilities_of_an_unknown_prompt_are_refused(folder: Path) -> None:
    damage(folder, '"short"', '"shirt"', "tiny.logprobs.json")
    assert "shirt" in refusal(folder).message


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
def test_any_bytes_give_a_suite_or_a_refusal(folder: Path, data: bytes) -> None:
    (folder / "tiny.logprobs.json").write_bytes(data)
    refusal(folder)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(data=st.data())
def test_a_suite_with_any_piece_cut_out_is_read_or_refused(
    folder: Path, data: st.DataObject
) -> None:
    text = (FOLDER / "tiny.toml").read_text()
    first = data.draw(st.integers(0, len(text)))
    last = data.draw(st.integers(first, len(text)))
    (folder / "tiny.toml").write_text(text[:first] + text[last:])
    with contextlib.suppress(ManifestError):
        assert load_suite("tiny", folder=folder)[0].name == "tiny"


def test_the_recorded_log_probabilities_are_plain_json() -> None:
    entry = json.loads((FOLDER / "tiny.logprobs.json").read_text())
    assert {len(values) for values in entry["first_token"].values()} == {320}
