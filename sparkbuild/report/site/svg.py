"""matplotlib's SVG made fit to stand inside a page: its colours, its identifiers, its links.

matplotlib draws because it is kept well and needs no browser: a chart is 10 to 20 kB of SVG in the
page, seen without JavaScript, where a charting library in JavaScript brings 1 to 4 MB.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

from sparkbuild.errors import HostError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK: Final = "#010203"
FAINT: Final = "#010204"
RULE: Final = "#010205"
CONTROL: Final = "#010206"
CANDIDATE: Final = "#010207"
BAND: Final = "#010208"
PAPER: Final = "#010209"
BAD: Final = "#01020a"
_COLOURS: Final = {
    INK: "var(--ink)", FAINT: "var(--faint)", RULE: "var(--rule)", CONTROL: "var(--control)",
    CANDIDATE: "var(--candidate)", BAND: "var(--band)", PAPER: "var(--paper)", BAD: "var(--bad)",
}  # fmt: skip
"""Colours that stand for the page's own, which differ between light and dark."""

_SVG: Final = "http://www.w3.org/2000/svg"
_LINK: Final = "{http://www.w3.org/1999/xlink}href"
_REFERENCE: Final = re.compile(r"url\(#([^)]+)\)")
_FONT: Final = re.compile(r"font-family: [^;]+;? ?")
_BETWEEN: Final = re.compile(r">\s+<")
_NUMBER: Final = re.compile(r"(?<![\w.-])-?\d+\.\d{2,}(?![\w.%])")
"""A coordinate with more digits than a tenth of a pixel."""
_PLACES: Final = {"d", "transform", "x", "y"}
"""Attributes that hold coordinates; numbers of texts are for a reader, and stay."""

_SETTINGS: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "sparkbuild",
    "font.family": "sans-serif",
    "font.size": 10.5,
    "axes.edgecolor": RULE,
    "axes.labelcolor": FAINT,
    "axes.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
}


@contextlib.contextmanager
def canvas(width: float, height: float) -> Iterator[Figure]:
    """An empty drawing of so many inches (72 of the page's pixels each), without a background.

    matplotlib's settings are the pages' until it is left. Raises HostError without matplotlib.
    """
    try:
        from matplotlib import figure, rc_context  # noqa: PLC0415 - half a second, for pages alone
    except ImportError as error:
        raise HostError(
            "the charts need matplotlib",
            problems=[str(error)],
            next_step="pip install 'sparkbuild[site]'",
        ) from error
    with rc_context(_SETTINGS):
        yield figure.Figure(figsize=(width, height), layout="constrained", facecolor="none")


def drawn(drawing: Figure, *, name: str, label: str, titles: Mapping[str, str]) -> str:
    """The drawing as an ``svg`` element.

    ``name`` keeps its identifiers apart from others' on the page, ``label`` says in words what it
    shows, ``titles`` what a link's address is of.
    """
    out = io.BytesIO()
    drawing.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    ET.register_namespace("", _SVG)
    root = ET.fromstring(out.getvalue())  # noqa: S314 - written a line above
    for element in list(root):
        if element.tag == f"{{{_SVG}}}metadata":
            root.remove(element)
    for parent in root.iter():
        for element in list(parent):
            if element.tag == f"{{{_SVG}}}style":
                parent.remove(element)
    _lighten(root)
    _rename(root, name)
    _link(root, titles)
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.set("role", "img")
    root.set("aria-label", label)
    root.set("stroke-linejoin", "round")
    text = _BETWEEN.sub("><", ET.tostring(root, encoding="unicode"))
    for colour, variable in _COLOURS.items():
        text = text.replace(colour, variable)
    return text


def _lighten(root: ET.Element) -> None:
    """Take out of each text and point what the page or the first of them says for all."""
    for element in root.iter():
        for place in _PLACES.intersection(element.keys()):
            element.set(place, _NUMBER.sub(_tenth, element.attrib[place]))
    for element in root.iter(f"{{{_SVG}}}text"):
        element.set("style", _FONT.sub("", element.get("style", "")))
    for group in root.iter(f"{{{_SVG}}}g"):
        for link in group.findall(f"{{{_SVG}}}a"):
            use = link.find(f"{{{_SVG}}}g/{{{_SVG}}}use")
            if use is not None:
                group.set("style", use.attrib.pop("style", ""))
                link[:] = [use]


def _tenth(match: re.Match[str]) -> str:
    return f"{float(match[0]):.1f}".removesuffix(".0")


def _rename(root: ET.Element, name: str) -> None:
    """Keep the identifiers that something refers to, each with ``name`` before it."""
    used: set[str] = set()
    for element in root.iter():
        for value in element.attrib.values():
            used.update(_REFERENCE.findall(value))
        if element.get(_LINK, "").startswith("#"):
            used.add(element.attrib[_LINK][1:])
    for element in root.iter():
        own = element.attrib.pop("id", None)
        if own in used:
            element.set("id", f"{name}-{own}")
        for key, value in list(element.attrib.items()):
            if "url(#" in value:
                element.set(key, _REFERENCE.sub(rf"url(#{name}-\1)", value))
        if element.get(_LINK, "").startswith("#"):
            element.set("href", f"#{name}-{element.attrib.pop(_LINK)[1:]}")


def _link(root: ET.Element, titles: Mapping[str, str]) -> None:
    for element in root.iter(f"{{{_SVG}}}a"):
        address = element.attrib.pop(_LINK, "")
        for key in [key for key in element.attrib if key.startswith("{")]:
            element.attrib.pop(key)
        element.attrib.pop("target", None)
        element.set("href", address)
        if address in titles:
            title = ET.SubElement(element, f"{{{_SVG}}}title")
            title.text = titles[address]
