"""The pages of a static package index: PEP 503 as HTML, PEP 691 as JSON, addresses relative.

The JSON page is the index's own record as well: what it says is what is published.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import quote

import jinja2
import msgspec
from packaging.utils import parse_wheel_filename

from sparkbuild.errors import PackageError

HTML: Final = "index.html"
JSON: Final = "index.json"

FILES: Final = "files"
EVIDENCE: Final = "evidence"
"""Folders of the index: wheels with their metadata, and what lies beside wheels."""

_UP: Final = "../.."
"""From a project's page to the index' folder."""

_DIGEST = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class _Page(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="kebab",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """A part of a page; a key that is not known is none of ours, and never dropped silently."""


class Hashes(_Page, frozen=True):
    """Digests by algorithm, as PEP 691 writes them."""

    sha256: _DIGEST


class Proof(_Page, frozen=True):
    """A file beside a wheel: where it is and what it must be."""

    url: str
    sha256: _DIGEST


class Proofs(_Page, frozen=True):
    """What lies beside a wheel. Not PEP 740's attestations, which are of Sigstore's kind."""

    provenance: Proof
    sbom: Proof
    report: Proof


class Entry(_Page, frozen=True):
    """One wheel of a project's page (PEP 691, 592, 658 with 714, 700)."""

    filename: str
    url: str
    hashes: Hashes
    size: int
    upload_time: str
    core_metadata: Hashes
    requires_python: str = ""
    yanked: bool | str = False
    proofs: Proofs | None = msgspec.field(default=None, name="_sparkbuild")
    """Keys that begin with an underscore are an index' own: PEP 691."""

    @property
    def sha256(self) -> str:
        """The wheel's digest."""
        return self.hashes.sha256


class Meta(_Page, frozen=True):
    """Which version of the interface a page speaks."""

    api_version: Literal["1.1"] = msgspec.field(name="api-version")


class Project(_Page, frozen=True):
    """A project's page."""

    meta: Meta
    name: str
    versions: tuple[str, ...]
    files: tuple[Entry, ...]


class _Named(_Page, frozen=True):
    name: str


class Root(_Page, frozen=True):
    """The page that lists the projects."""

    meta: Meta
    projects: tuple[_Named, ...]


_META: Final = Meta(api_version="1.1")

_HEAD: Final = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="pypi:repository-version" content="1.0">
<title>{{ title }}</title>
</head>
<body>
"""

_PROJECT_HTML: Final = (
    _HEAD
    + """\
{% for one in files %}
<a href="{{ one.url }}#sha256={{ one.sha256 }}"
{%- if one.requires_python %} data-requires-python="{{ one.requires_python }}"{% endif %}
{#- #} data-core-metadata="sha256={{ one.core_metadata.sha256 }}"
{%- if one.yanked is not false %} data-yanked="{{ "" if one.yanked is true else one.yanked }}"
{%- endif %}
{%- if one.proofs %} data-sparkbuild-provenance="{{ one.proofs.provenance.url }}"
{#- #} data-sparkbuild-sbom="{{ one.proofs.sbom.url }}"
{#- #} data-sparkbuild-report="{{ one.proofs.report.url }}"
{%- endif %}>{{ one.filename }}</a><br>
{% endfor %}
</body>
</html>
"""
)

_ROOT_HTML: Final = (
    _HEAD
    + """\
{% for name in names %}
<a href="{{ name }}/">{{ name }}</a><br>
{% endfor %}
</body>
</html>
"""
)


def project(name: str, entries: Sequence[Entry]) -> Project:
    """A project's page: its files by version and name."""
    versions = {one.filename: parse_wheel_filename(one.filename)[1] for one in entries}
    ordered = sorted(entries, key=lambda one: (versions[one.filename], one.filename))
    return Project(
        meta=_META,
        name=name,
        versions=tuple(str(one) for one in sorted(set(versions.values()))),
        files=tuple(ordered),
    )


def pages(projects: Sequence[Project]) -> dict[str, bytes]:
    """Every page of an index, by its path below ``simple/``."""
    names = sorted(one.name for one in projects)
    root = Root(meta=_META, projects=tuple(_Named(name=name) for name in names))
    found = {JSON: _json(root), HTML: _html(_ROOT_HTML, title="Simple index", names=names)}
    for one in projects:
        found[f"{one.name}/{JSON}"] = _json(one)
        text = _html(_PROJECT_HTML, title=f"Links for {one.name}", files=one.files)
        found[f"{one.name}/{HTML}"] = text
    return found


def read_project(path: Path) -> Project:
    """A project's page as it was published. Raises PackageError where it is none of ours."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Project)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PackageError(
            f"{path} is no page that sparkbuild wrote: {error}",
            evidence=[path],
            next_step="name an empty folder, or the index that `sparkbuild wheel index` made",
        ) from error


def file_url(name: str) -> str:
    """From a project's page to a wheel; ``+`` is quoted, some servers take it for a space."""
    return f"{_UP}/{FILES}/{quote(name)}"


def evidence_url(folder: str, name: str) -> str:
    """From a project's page to a file that belongs to a wheel."""
    return f"{_UP}/{EVIDENCE}/{folder}/{quote(name)}"


def _json(page: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(page), indent=1) + b"\n"


def _html(template: str, **values: object) -> bytes:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    return environment.from_string(template).render(**values).encode()
