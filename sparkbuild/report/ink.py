"""What every text on a terminal is made with: harmless, and in characters that it can show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sparkbuild.report.model import State
from sparkbuild.report.text import encodable, visible

_LOOK: Final[dict[State, tuple[str, str, str]]] = {
    "done": ("✓", "+", "green"),
    "reused": ("=", "=", "cyan"),
    "not applicable": ("-", "-", "dim"),
    "not tried": ("!", "!", "yellow"),
    "failed": ("✗", "x", "bold red"),
    "not reached": ("·", ".", "dim"),
}
"""State to symbol, symbol where the terminal has only ASCII, and style. The word always stands
beside the symbol: colour and shape are extras."""

RULED: Final = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
"""One line of dashes below the heading: ASCII, light, and the same on a terminal and in a file."""


@dataclass(frozen=True)
class Ink:
    """Makes text for one terminal: harmless, and in characters that it can show."""

    encoding: str
    ascii_only: bool

    def text(self, value: str, style: str = "", *, whole: bool = False) -> Text:
        """Text that folds at the edge, or with ``whole`` runs over it and stays one line."""
        shown = encodable(visible(value), self.encoding)
        overflow = "ignore" if whole else "fold"
        return Text(shown, style=style, no_wrap=whole, overflow=overflow)  # type: ignore[arg-type]

    def state(self, state: State) -> Text:
        """A state's symbol and word."""
        symbol, plain, style = _LOOK[state]
        return Text(f"{plain if self.ascii_only else symbol} {state}", style=style)

    def line(self, value: str, style: str = "") -> Text:
        """Text in which line breaks and tabs are spelled out too: a file's name may hold them."""
        return self.text(visible(value).replace("\n", "\\n").replace("\t", "\\t"), style)

    def headed(self, head: str, value: str, style: str = "") -> Text:
        """A bold beginning, then a value that does not take its style."""
        return Text.assemble(self.text(head, "bold"), self.line(value, style), overflow="fold")

    def labelled(self, label: str, value: str, style: str = "") -> Text:
        """A label in a column of its own, then the whole value on the same line."""
        line = Text(f"  {label:<10}", style="bold", no_wrap=True, overflow="ignore")
        return line.append_text(self.text(value, style, whole=True))


def item(mark: str, text: Text, style: str = "") -> RenderableType:
    """A list item whose further lines hang below its first."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True, overflow="fold")
    grid.add_column(overflow="fold")
    grid.add_row(Text(f"  {mark}", style=style), text)
    return grid
