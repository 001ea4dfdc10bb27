"""How values, states and places are written on the pages, and the templates that have them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

from sparkbuild.files import sha256_bytes
from sparkbuild.history.model import Run
from sparkbuild.report.site.charts import scaled
from sparkbuild.report.text import visible

TEMPLATES: Final = Path(__file__).parent / "templates"
PAGES: Final = (
    ("index.html", "Nights"), ("trends.html", "Figures"), ("faults.html", "Fault matrix"),
    ("troubles.html", "Troubles"),
)  # fmt: skip
_TONES: Final[Mapping[str, str]] = {
    "green": "good", "passed": "good", "done": "good", "caught": "good", "well": "good",
    "better": "good", "reused": "good",
    "red": "bad", "failed": "bad", "missed": "bad", "false alarm": "bad", "fault": "bad",
    "late": "bad", "other words": "bad", "cancelled": "bad", "timed out": "bad",
    "did not run": "bad",
    "running": "warn", "not tried": "warn", "note": "warn", "not run": "warn",
}  # fmt: skip
_SYMBOLS: Final[Mapping[str, str]] = {"green": "✓", "red": "✗", "running": "…"}
_MINUTE: Final = 60


@functools.cache
def environment() -> jinja2.Environment:
    """The templates; whatever they are given is escaped, and a name that is missing is an error."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    made.globals.update(
        day=day, log_page=log_page, share=share, symbol=_SYMBOLS.get, tone=tone, took=took,
        trouble_id=trouble_id, value=value, visible=visible, where=where,
    )  # fmt: skip
    return made


def page(template: str, given: Mapping[str, Any]) -> str:
    """A page from its template."""
    return environment().get_template(template).render(given)


def raw(text: str) -> Markup:
    """Markup that this program made; never anything from outside."""
    return Markup(text)  # noqa: S704 - matplotlib's SVG, in which it escapes its own texts


def tone(state: str) -> str:
    """The class of a state: good, bad, warn, or none."""
    return _TONES.get(state, "")


def value(number: float, unit: str) -> str:
    """A value in the unit that reads best."""
    divisor, shown = scaled(unit)
    scale = number / divisor
    digits = f"{scale:,.0f}" if abs(scale) >= 1000 else f"{scale:.4g}"
    return f"{digits} {shown}"


def share(part: float | None) -> str:
    """A change as a share, with its sign."""
    return "" if part is None else f"{part:+.1%}"


def took(seconds: float) -> str:
    """A duration."""
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    minutes = round(seconds / _MINUTE)
    return f"{minutes} min" if minutes < 2 * _MINUTE else f"{minutes / _MINUTE:.1f} h"


def day(moment: str) -> str:
    """The date and minute of a time in ISO 8601."""
    return moment[:16].replace("T", " ")


def where(run: Run) -> str:
    """Stage and check of a run's first failure."""
    return ", ".join(part for part in (run.stage, run.check) if part)


def log_page(place: str) -> str:
    """The page that shows a file of the history; ``place`` is its path there."""
    return f"{place}.html"


def trouble_id(key: str) -> str:
    """What a trouble's record is called on its page."""
    return f"t{sha256_bytes(key.encode())[:16]}"
