"""Addresses as they may be shown, and the refusal of a place that does not deliver."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit


class OriginUnavailableError(Exception):
    """A place cannot deliver now; the text is the reason. The next one may."""


def shown(url: str) -> str:
    """An address without user name and password."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
