"""What a person reads of a mended file: each change and its reason, and what is where now."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from sparkbuild.model.finding import named
from sparkbuild.model.mend.edits import Edit, Put, Rename
from sparkbuild.model.mend.plan import Plan
from sparkbuild.model.mend.write import Written
from sparkbuild.report.ink import Ink, item
from sparkbuild.report.models import size


def mended_view(planned: Plan, written: Written | None) -> RenderableType:
    """The changes, the new file and its links; without any, that there is nothing to mend."""
    return _Mended(planned=planned, written=written)


@dataclass(frozen=True, kw_only=True)
class _Mended:
    """See ``mended_view``."""

    planned: Plan
    written: Written | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        path = self.planned.model.path
        yield _line("model", "", ink.line(str(path)))
        if self.written is None:
            yield Text("")
            yield ink.headed("nothing to mend", ": no file was written", "")
            return
        yield Text("")
        for edit in self.planned.edits:
            key, change = told(edit)
            yield item("+", ink.headed(f"{key}: ", change), "green")
            yield item(" ", ink.line(edit.reason, "dim"))
        yield Text("")
        yield from _files(self.written, ink)
        yield Text("")
        yield ink.headed(
            "next step: ", f"sparkbuild inspect {shlex.quote(str(self.written.file))}", "green"
        )


def told(edit: Edit) -> tuple[str, str]:
    """What is changed, and from what to what."""
    if isinstance(edit, Rename):
        old, new = (name + "*" * name.endswith(".") for name in (edit.key, edit.to))
        return ("1 key" if edit.keys == 1 else f"{edit.keys} keys"), f"{old} -> {new}"
    if isinstance(edit, Put):
        value = named(edit.value) if isinstance(edit.value, str) else str(edit.value)
        return named(edit.key), f"{named(edit.was) if edit.was else 'missing'} -> {value}"
    return named(edit.key), f"{edit.was} entries -> {edit.length}"


def _files(written: Written, ink: Ink) -> Iterator[Text]:
    yield _line("written", size(written.bytes), ink.line(str(written.file)))
    for link in written.links:
        yield _line("linked", "", ink.line(str(link)))


def _line(label: str, amount: str, path: Text) -> Text:
    """A path whole on one line, to be copied."""
    head = Text(f"  {label:<14}", style="bold")
    return Text.assemble(head, f"{amount:<12}", path, no_wrap=True, overflow="ignore")
