"""What a release's metadata pins, and the one wheel of a pin for a platform."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pypi_simple
from packaging.metadata import Metadata
from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from sparkbuild.errors import ToolkitMismatchError
from sparkbuild.toolkit.lock import Platform

OTHER_RELEASE: Final = "name another release with --version"


def pinned(release: Metadata, part: str, platform: Platform) -> SpecifierSet | None:
    """What a release asks of the project ``nvidia-<part>`` on a platform, under any extra.

    None where it does not ask for it. Raises ToolkitMismatchError where it asks for several
    versions.
    """
    place = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix",
             "platform_machine": platform.partition("-")[2]}  # fmt: skip
    extras = ["", *(release.provides_extra or ())]
    found = set()
    for requirement in release.requires_dist or ():
        if canonicalize_name(requirement.name) != f"nvidia-{part}":
            continue
        marker = requirement.marker
        if marker is None or any(marker.evaluate({**place, "extra": name}) for name in extras):
            found.add(requirement.specifier)
    if len(found) > 1:
        raise ToolkitMismatchError(
            f"{release.name} {release.version} asks for several versions of nvidia-{part} "
            f"on {platform}",
            problems=sorted(map(str, found)),
            next_step=OTHER_RELEASE,
        )
    return found.pop() if found else None


def exactly(pins: SpecifierSet, version: str) -> bool:
    """True where ``pins`` are one equality, and ``version`` meets it."""
    operators = [specifier.operator for specifier in pins]
    return operators in (["=="], ["==="]) and version in pins


def choose_wheel(
    files: Iterable[pypi_simple.DistributionPackage],
    project: str,
    pins: SpecifierSet,
    platform: Platform,
) -> pypi_simple.DistributionPackage:
    """The one wheel of a project for glibc on a platform: the newest version that ``pins`` allow.

    Yanked files and prereleases do not count. Raises ToolkitMismatchError where there is none, or
    more than one of the same version.
    """
    machine = platform.partition("-")[2]
    fitting: dict[Version, list[pypi_simple.DistributionPackage]] = {}
    for file in files:
        version = _version_for(file, machine)
        if version is not None and not version.is_prerelease and version in pins:
            fitting.setdefault(version, []).append(file)
    if not fitting:
        raise ToolkitMismatchError(
            f"the index has no wheel {project}{pins} for {platform}", next_step=OTHER_RELEASE
        )
    newest = fitting[max(fitting)]
    if len(newest) > 1:
        raise ToolkitMismatchError(
            f"the index has {len(newest)} wheels {project} {max(fitting)} for {platform}",
            problems=sorted(file.filename for file in newest),
            next_step=f"which of them is meant cannot be known: {OTHER_RELEASE}",
        )
    return newest[0]


def _version_for(file: pypi_simple.DistributionPackage, machine: str) -> Version | None:
    """The version of a wheel for glibc on ``machine``, None for any other file."""
    if file.is_yanked or file.package_type != "wheel":
        return None
    try:
        _, version, _, tags = parse_wheel_filename(file.filename)
    except InvalidWheelFilename:
        return None
    fits = all(
        tag.platform.startswith("manylinux")
        and tag.platform.endswith(f"_{machine}")
        and tag.interpreter == "py3"
        and tag.abi == "none"
        for tag in tags
    )
    return version if fits else None
