"""What people read: complete and unharmed at any width, in a file, and without colours."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from sparkbuild.errors import SmokeError
from sparkbuild.report.model import FileRef, Report, StageReport, State
from sparkbuild.report.terminal import closing, refusal
from sparkbuild.smoke.model import Check

WHEEL = (
    "/home/someone/a rather long folder/dist/"
    "sparkbuild_llama_cpp-11434.0.0+cpu.vision.g0123456789ab-py3-none-linux_x86_64.whl"
)
STATES: tuple[State, ...] = ("done", "reused", "not applicable", "failed", "not reached")


def report(result: str = "passed", *, summary: str = "220 steps", note: str = "") -> Report:
    names = ("toolkit", "build", "qualify", "inspect", "package")
    stages = [
        StageReport(
            name=name,
            state=state,
            seconds=12.34,
            summary=summary if state != "not reached" else "",
            notes=(note,) if note and name == "build" else (),
        )
        for name, state in zip(names, STATES, strict=True)
    ]
    return Report(
        sparkbuild="0.1.0",
        variant="vision",
        toolchain="cpu",
        command=("sparkbuild", "make"),
        started="2026-10-06T12:00:00+00:00",
        seconds=98.76,
        result="passed" if result == "passed" else "failed",
        exit_code=0 if result == "passed" else 13,
        key=None,
        machine={},
        stages=tuple(stages),
        smoke_checks=tuple(
            Check(name=str(n), passed=n > 0, seconds=0.0, expected="", found="") for n in range(3)
        ),
        wheel=FileRef(path=WHEEL, sha256="ab" * 32),
    )


def error(text: str = "two checks failed", detail: str = "") -> SmokeError:
    return SmokeError(
        text,
        problems=["expected 1, found 2", "no health"],
        evidence=[Path("/work place/smoke.log")],
        next_step="sparkbuild make --variant vision --work /somewhere/that/is/rather/long/indeed",
        detail=detail,
    )


def shown(renderable: RenderableType, width: int = 100, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    Console(file=file, width=width, highlight=False).print(renderable, crop=False)
    return raw.getvalue().decode(encoding)


def joined(text: str) -> str:
    """Without the folds that a narrow terminal makes."""
    return "".join(text.split())


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_closing_is_complete(width: int, encoding: str) -> None:
    summary = "a summary of many words that must be folded where the terminal is narrow"
    text = shown(closing(report(summary=summary, note="no OpenSSL")), width, encoding)
    lines = text.splitlines()
    for state in STATES:
        assert any(state in line for line in lines)
    assert text.count("12.3") == 2, "seconds stand only beside stages that ran now"
    assert all(word in text for word in summary.split())
    assert "build: no OpenSSL" in text
    assert any(line.endswith(WHEEL) for line in lines), "the path is whole and copyable"
    assert any(line.split() == ["sha256", "ab" * 32] for line in lines)
    end = "passed vision with toolchain cpu in 98.8 s, 2 of 3 smoke checks passed"
    assert " ".join(text.split()).endswith(end)
    table = [line for line in lines if line and WHEEL not in line and "ab" * 32 not in line]
    assert max(map(len, table)) <= width


def test_symbols_and_ascii() -> None:
    assert "✓ done" in shown(closing(report()))
    assert "✗ failed" in shown(closing(report()))
    plain = shown(closing(report()), encoding="ascii")
    assert "+ done" in plain
    assert "x failed" in plain


def test_written_files_stand_for_the_reports_own_wheel() -> None:
    files = [Path("dist/a.whl"), Path("dist/r.json"), Path("dist/r.xml")]
    text = shown(closing(report(), files))
    assert "dist/a.whl" in text
    assert WHEEL not in text
    assert [line.split()[1] for line in text.splitlines() if line.startswith("  report")] == [
        "dist/r.json", "dist/r.xml",
    ]  # fmt: skip


def test_a_failed_run_says_where_and_its_exit_code() -> None:
    last = shown(closing(report("failed"))).splitlines()[-1]
    assert last.startswith("failed at inspect in 98.8 s")
    assert last.endswith("exit code 13")


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_refusal_is_complete(width: int, encoding: str) -> None:
    text = shown(refusal(error(detail="log line 1\nlog line 2\n")), width, encoding)
    lines = text.splitlines()
    assert "refused, smoke: two checks failed" in text
    assert [line.strip() for line in lines if line.strip().startswith("- ")] == [
        "- expected 1, found 2", "- no health",
    ]  # fmt: skip
    assert "    log line 1\n    log line 2" in "\n".join(line.rstrip() for line in lines)
    assert any(line.endswith("/work place/smoke.log") for line in lines)
    assert any(line.endswith("--work /somewhere/that/is/rather/long/indeed") for line in lines)
    assert any(line.split() == ["exit", "code", "14"] for line in lines)


def test_a_bare_refusal_has_no_empty_headings() -> None:
    text = shown(refusal(SmokeError("nothing works")))
    assert text.split() == ["refused,", "smoke:", "nothing", "works", "exit", "code", "14"]


HOSTILE = "[red]x[/] [/] [link=h]y [bold"


@pytest.mark.parametrize(
    "render",
    [
        lambda text: refusal(error(text)),
        lambda text: refusal(error(detail=text)),
        lambda text: refusal(SmokeError("m", problems=[text])),
        lambda text: refusal(SmokeError("m", evidence=[Path(text)])),
        lambda text: refusal(SmokeError("m", next_step=text)),
        lambda text: closing(report(summary=text)),
        lambda text: closing(report(note=text)),
        lambda text: closing(report(), [Path(text)]),
    ],
)
def test_markup_is_text(render: Callable[[str], RenderableType]) -> None:
    assert HOSTILE in shown(render(HOSTILE), 200)


def test_a_log_cannot_steer_the_terminal() -> None:
    raw = "\x1b[2J\x1b]0;owned\x07\x1b[31mred\x1b[0m\rback\x08\x9b31m"
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    with console.capture() as capture:
        console.print(refusal(error(detail=raw)), crop=False)
    text = capture.get()
    assert "\x1b[2J" not in text
    assert "\x1b]0" not in text
    assert "\x1b[31m" not in text
    assert "\x08" not in text
    assert "\x9b" not in text
    assert "red" in text
    assert "\x1b[2m" in text, "the log's tail is dimmed"


@settings(deadline=None, max_examples=25)
@given(
    text=st.text(st.characters(exclude_categories=[]), max_size=60),
    width=st.integers(20, 200),
    encoding=st.sampled_from(["utf-8", "ascii"]),
)
def test_any_text_at_any_width_can_be_shown(text: str, width: int, encoding: str) -> None:
    failed = SmokeError(text, problems=[text], detail=text, next_step=text)
    assert "code" in shown(refusal(failed), width, encoding)
    assert "98.8" in joined(shown(closing(report(summary=text, note=text)), width, encoding))
