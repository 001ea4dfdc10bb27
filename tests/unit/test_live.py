"""What a person sees while stages run, on a terminal and on a pipe."""

import io
import time

from rich.console import Console

from sparkbuild.live import Live, counted
from sparkbuild.report.model import StageReport


def shown(*, terminal: bool, summary: str) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100, color_system=None)
    with Live(console) as live:
        live.note("toolchain cpu: [red]CPU only[/]")
        live.started("build")
        live.progress(3, 220, "ggml/src/[x]ggml.c")
        until = time.monotonic() + 10 * terminal  # the bar is drawn by a thread of rich's own
        while "3/220" not in out.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
        live.finished(StageReport(name="build", state="done", seconds=1.25, summary=summary))
    return out.getvalue()


def test_each_stage_ends_in_one_line() -> None:
    text = shown(terminal=False, summary="220 steps")
    assert "6/9 build" in text
    assert "1.2 s" in text
    assert text.rstrip().endswith("220 steps")
    assert "\x1b" not in text


def test_markup_and_control_characters_of_others_are_text() -> None:
    for terminal in (True, False):
        text = shown(terminal=terminal, summary="[bold]not bold[/] \x1b[2J")
        assert "[red]CPU only[/]" in text
        assert "[bold]not bold[/]" in text
        assert "\x1b[2J" not in text


def test_a_bar_is_shown_on_a_terminal_only() -> None:
    assert "3/220" in shown(terminal=True, summary="")
    assert "3/220" not in shown(terminal=False, summary="")


def test_counts_read_as_what_they_count() -> None:
    assert counted(12, 220) == "12/220"
    assert counted(1_500_000, 37_386_587) == "1.5/37.4 MB"
    assert counted(5, 0) == ""
