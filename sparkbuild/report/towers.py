"""What a person reads about an mmproj that was named without a model."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from sparkbuild.model.finding import named, shown
from sparkbuild.model.tower import Tower
from sparkbuild.report.findings import findings_table, reasons
from sparkbuild.report.ink import Ink, item
from sparkbuild.report.looks import grid, result, whole
from sparkbuild.report.models import amount, size, weights_table


def tower_view(found: Tower) -> RenderableType:
    """Facts, weights, findings."""
    return _Tower(found=found)


@dataclass(frozen=True, kw_only=True)
class _Tower:
    """See ``tower_view``."""

    found: Tower

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        ink = Ink(options.encoding, options.ascii_only)
        found, vision = self.found, self.found.vision
        for file in found.files:
            yield whole("mmproj", size(file.bytes), file.path, ink)
        width = "not known" if vision.width is None else f"{vision.width}, of the model's vectors"
        bounded = vision.least is not None and vision.most is not None
        rows = [
            ("name", shown(found.name) if found.name else "none stated"),
            ("projector", named(vision.projector) if vision.projector else "none stated"),
            ("width", width),
            ("blocks", f"{vision.blocks}, {amount(vision.total.weights)} parameters"),
            ("picture", f"{vision.least:,} to {vision.most:,} tokens" if bounded
             else "tokens not bounded by the file"),
        ]  # fmt: skip
        if vision.around:
            told = " and ".join(shown(token.text) for token in vision.around)
            rows.append(("", f"between {told}"))
        yield grid(rows, ink)
        yield Text("")
        yield weights_table((vision.total,), ink)
        yield Text("")
        yield findings_table(found.findings, ink, options.max_width)
        yield Text("")
        yield from reasons(found.findings, ink)
        for one in found.mendable:
            told = f"sparkbuild inspect {shlex.quote(one.path)} --fix OUT"
            yield item("+", ink.headed("can be mended: ", told, "green"))
        yield Text("")
        yield result(found.findings, found.exit_code, ink)
