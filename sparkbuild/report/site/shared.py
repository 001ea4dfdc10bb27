"""What each page of the site is given: where it stands, links to nights and runs."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from sparkbuild import __version__
from sparkbuild.report.site.data import Book
from sparkbuild.report.site.words import PAGES


def common(book: Book, here: str) -> dict[str, Any]:
    """What each page of the site has."""
    return {
        "pages": PAGES,
        "here": here,
        "up": "../" * here.count("/"),
        "footer": f"Written {book.made[:16].replace('T', ' ')} UTC by sparkbuild {__version__} "
        "from the history of this machine.",
        "link_night": functools.partial(_link_night, book, here),
        "link_run": functools.partial(_link_run, book, here),
    }


def _link_night(book: Book, here: str, nights: Sequence[str]) -> Markup:
    """A link to the last of ``nights``, where it has a page."""
    if not nights:
        return Markup("")
    known = any(night.id == nights[-1] for night in book.nights)
    return _linked(nights[-1], f"{'../' * here.count('/')}nights/", known=known)


def _link_run(book: Book, here: str, run: str) -> Markup:
    known = any(one.id == run for one in book.runs)
    return _linked(run, f"{'../' * here.count('/')}runs/", known=known)


def _linked(name: str, folder: str, *, known: bool) -> Markup:
    if not known:
        return Markup("{}").format(name)
    return Markup('<a href="{}{}.html">{}</a>').format(folder, name, name)
