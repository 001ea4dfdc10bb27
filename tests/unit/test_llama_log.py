"""What a llama-server's log tells: the table's kinds, healthy logs, bytes of any sort."""

import tempfile
import tomllib
import tracemalloc
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.errors import ManifestError
from sparkbuild.llama.log import (
    OTHER_ERROR,
    OTHER_WARNING,
    TABLE,
    Context,
    Entry,
    LogReport,
    load_entries,
    scan,
)

DATA = Path(__file__).parent.parent / "data"
GROUPS = tomllib.loads((DATA / "llama/lines.toml").read_text())["lines"]
HEALTHY: dict[str, tuple[Path, list[Context]]] = {
    "smoke": (DATA / "smoke/server-b11434-cpu.log", []),
    "drafts": (DATA / "llama/qwen35-drafts-b11434-cpu.log", ["drafts", "pictures"]),
    "unused": (DATA / "llama/glm5-next-f32-b11434-cpu.log", ["pictures"]),
}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def scanned(log: Path, data: str | bytes, context: Collection[Context] = (), **rest: Any) -> Any:
    log.write_bytes(data.encode() if isinstance(data, str) else data)
    return scan(log, context=context, **rest)


def kinds(report: LogReport) -> dict[tuple[str, str], int]:
    return {(seen.kind, seen.severity): seen.count for seen in report.seen}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_servers_log_has_no_fault_and_no_warning(name: str) -> None:
    file, context = HEALTHY[name]
    report = scan(file, context=context)
    assert report.passed
    assert report.lines == len(file.read_text().splitlines()) - 1
    assert (report.of("fault"), report.of("warning")) == ((), ())
    assert report.count("note") > 0
    assert not any(seen.kind == "other warning" for seen in report.seen)


def test_the_same_log_means_another_thing_where_the_server_was_started_otherwise() -> None:
    file, _ = HEALTHY["drafts"]
    assert kinds(scan(file, context=["drafts"]))["position jump", "warning"] == 4
    told = kinds(scan(DATA / "llama/glm5-next-drafts-b11434-cpu.log", context=["drafts"]))
    assert told["unsupported operation", "fault"] == 1
    assert told["draft state", "fault"] == 2


@pytest.mark.parametrize(
    ("group", "text"),
    [(group, text) for group in GROUPS for text in group["text"]],
    ids=lambda value: value if isinstance(value, str) else value["kind"],
)
def test_a_line_is_of_its_kind_wherever_it_stands(
    log: Path, group: dict[str, Any], text: str
) -> None:
    context = group.get("context", [])
    lines = (DATA / "smoke/server-b11434-cpu.log").read_text().split("\n")
    for place in (1, len(lines) // 2, len(lines) - 1):
        report = scanned(log, "\n".join([*lines[:place], text, *lines[place:]]), context)
        # The file that the lines are put into has notes of its own.
        found = [
            (seen.kind, seen.severity)
            for seen in report.seen
            if any(line.number == place + 1 for line in seen.lines)
        ]
        if not found:  # not among the first of its kind
            before = kinds(scan(DATA / "smoke/server-b11434-cpu.log", context=context))
            now = kinds(report)
            found = [key for key in now if now[key] != before.get(key)]
        assert found == [(group["kind"], group["severity"])]
        assert report.passed == (group["severity"] != "fault")


def test_every_entry_of_the_table_is_provoked(log: Path) -> None:
    provoked = set()
    for group in GROUPS:
        for text in group["text"]:
            found = scanned(log, text, group.get("context", ())).seen
            provoked |= {(s.kind, s.severity, s.lines[0].reason) for s in found}
    wanted = {(e.kind, e.severity, e.reason) for e in (*load_entries(), OTHER_ERROR, OTHER_WARNING)}
    assert wanted - provoked == set()


def test_thousands_of_errors_are_counted_and_the_first_shown(log: Path) -> None:
    text = "$ llama-server\n0.1 I fine\n" + "".join(
        f"0.00.{n:03}.000 E spec         draft: llama_process[{n}] returned -1\n"
        for n in range(2661)
    )
    report = scanned(log, text, ["drafts"])
    (seen,) = report.seen
    assert (seen.count, [line.number for line in seen.lines]) == (2661, [3, 4, 5])
    assert str(seen) == (
        "draft decode error: 2661 times, the first time in line 3: E spec         draft: "
        "llama_process[0] returned -1 (a batch of the draft failed, and was answered all the same)"
    )
    assert str(report) == "2662 lines: 2661 faults (draft decode error 2661), 0 warnings, 0 notes"
    assert not report.passed


def test_a_message_of_several_lines_is_kept_together(log: Path) -> None:
    report = scanned(
        log,
        "0.1 E init: the tokens of sequence 0 in the input batch have inconsistent sequence "
        "positions:\n - the last position stored for sequence 0 is X = 17\n"
        " - the tokens for sequence 0 have a starting position of Y = 17\n"
        " it is required that Y = X + 1\n0.2 I srv x: fine\n no part of it\n",
    )
    (seen,) = report.seen
    assert seen.count == 1
    assert "X = 17 - the tokens for sequence 0 have a starting position of Y = 17 it" in str(seen)
    assert "no part" not in str(seen)


def test_errors_are_faults_whatever_fits_and_information_is_not_searched(log: Path) -> None:
    report = scanned(log, "0.1 E x: falling back to CPU\n0.1 E load: unauthorized: Invalid API Key")
    assert kinds(report) == {("other error", "fault"): 2}
    quiet = "0.1 I srv load_model: loading model '/x/NaN/GGML_ASSERT'\n0.1 D x: CUDA error\n"
    assert scanned(log, quiet) == LogReport(lines=2)


def test_entries_of_a_suite_go_first(log: Path) -> None:
    entry = Entry(kind="mine", severity="fault", pattern=r"unused tensor blk\.\d", reason="why")
    text = "0.1 W model has unused tensor blk.3.attn_norm.weight (size = 1024 bytes) -- ignoring\n"
    assert kinds(scanned(log, text, extra=[entry])) == {("mine", "fault"): 1}


def test_a_pattern_meets_no_number_but_0(log: Path) -> None:
    """What is known of a line is known of all that differ in numbers only."""
    for pattern, found in ((r"slot \d+ is", 2), ("slot 0 is", 2), ("slot 7 is", 0)):
        entry = Entry(kind="mine", severity="warning", pattern=pattern, reason="why")
        report = scanned(log, "0.1 W slot 7 is odd\n0.1 W slot 812 is odd\n", extra=[entry])
        assert kinds(report).get(("mine", "warning"), 0) == found


@pytest.mark.parametrize("text", ["", "$ llama-server --model m\n", "$ llama-server\n\n\r\n"])
def test_a_log_without_a_line_is_not_well(log: Path, text: str) -> None:
    assert scanned(log, text) == LogReport(lines=0)
    assert not scan(log).passed
    assert not scan(log.with_name("absent")).passed
    assert not scan(log.parent).passed, "a folder is no log"


@pytest.mark.parametrize(
    "line",
    [
        b"\x1b[34m0.00.100.000\x1b[0m \x1b[31mE CUDA error: x\x1b[0m",
        b"0.00.100.000 E CUDA error: x\r",
        b"loading 10 %\rloading 20 %\r0.1 E CUDA error: x",
        b"\0\xff\xfe CUDA error: \xc3\x28",
        b"E CUDA error: " + b"x" * 5000,
    ],
)
def test_colours_progress_and_foreign_bytes_hide_nothing(log: Path, line: bytes) -> None:
    report = scanned(log, b"$ x\n0.1 I fine\n" + line + b"\n0.2 I fine\n")
    assert kinds(report) == {("CUDA error", "fault"): 1}
    ((kept,),) = (seen.lines for seen in report.seen)
    assert kept.number == 3
    assert len(kept.text) <= 320
    assert "\x1b" not in kept.text
    assert report.lines == 3


def test_a_line_without_end_is_cut_and_said_to_be(log: Path) -> None:
    tracemalloc.start()
    try:
        report = scanned(log, b"x" * (1 << 24) + b"\n0.1 E CUDA error: x\n")
        tracemalloc.reset_peak()
        scan(log)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert kinds(report) == {("CUDA error", "fault"): 1, ("long line", "warning"): 1}
    assert report.lines == 2


@given(st.binary(max_size=400), st.binary(max_size=400))
def test_any_bytes_are_read_and_hide_no_fault(before: bytes, after: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(before + b"\n0.1 E CUDA error: x\n" + after)
        file.flush()
        report = scan(Path(file.name), context=["cuda", "drafts", "pictures"])
    assert any(seen.kind == "CUDA error" for seen in report.of("fault"))
    for seen in report.seen:
        assert seen.count >= len(seen.lines) > 0
        assert all(0 < line.number <= before.count(b"\n") + after.count(b"\n") + 3
                   for line in seen.lines)  # fmt: skip
    order = ["fault", "warning", "note"]
    assert [s.severity for s in report.seen] == sorted((s.severity for s in report.seen),
                                                       key=order.index)  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("severity =", "severty =", "severty"),
        ('severity = "fault"', 'severity = "horror"', "horror"),
        ('when = "cuda"', 'when = "rain"', "rain"),
        ("schema = 1", "schema = 2", "schema"),
        ("GGML_(?:ASSERT", "GGML_((?:ASSERT", "`entries[0].pattern` is no regular expression"),
    ],
)
def test_a_damaged_table_is_refused(tmp_path: Path, old: str, new: str, told: str) -> None:
    path = tmp_path / "log.toml"
    text = TABLE.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ManifestError) as caught:
        load_entries(path)
    assert str(path) in caught.value.message
    assert told in caught.value.message


def test_patterns_do_not_wander_through_long_lines() -> None:
    for entry in load_entries():
        assert ".*" not in entry.pattern, entry.pattern
        assert ".+" not in entry.pattern, entry.pattern
