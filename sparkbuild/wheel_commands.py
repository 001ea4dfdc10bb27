"""``sparkbuild wheel``: sign wheels, verify them, and serve them from a package index."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click
from click import get_current_context
from rich.markup import escape

from sparkbuild.console import JSON, WORK, console, print_json
from sparkbuild.errors import UsageError
from sparkbuild.wheel_compare_commands import DIFFERENT
from sparkbuild.wheel_rebuild_commands import rebuilt

if TYPE_CHECKING:
    from sparkbuild.package.check import Verified
    from sparkbuild.package.index import Published
    from sparkbuild.package.index_incoming import Verify
    from sparkbuild.package.policy import Policy

_WHEEL = click.argument(
    "wheel", metavar="WHEEL", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
_TRUSTED = click.option(
    "--key",
    "keys",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="TEAM.pub",
    help="A key that is trusted; may be given again. Every signature must be by one of them.",
)
_POLICY = click.option(
    "--policy",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE.toml",
    help="What the team lets in: toolchains, sources, suites, verdicts, builders.",
)


@click.group("wheel")
def wheel_group() -> None:
    """Sign, verify and publish wheels."""


@wheel_group.command("sign")
@_WHEEL
@click.option(
    "--key",
    "keys",
    multiple=True,
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="NAME.key",
    envvar="SPARKBUILD_KEY",
    show_envvar=True,
    help="The private key; may be given again, every key then signs.",
)
@click.option(
    "--report",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The report of the run that made the wheel. Default: the one in its folder.",
)
@click.option("--builder", default="", metavar="URI", help="Who built. Default: named by the key.")
@JSON
def sign_command(
    wheel: Path, keys: tuple[Path, ...], report: Path | None, builder: str, as_json: bool
) -> None:
    """Sign what a wheel and its report say, in files beside it.

    WHEEL.provenance.json and WHEEL.sbom.json are written, and WHEEL.report.json, which they name
    by digest. The wheel itself is not touched: its bytes are the same whoever signs. Exit code 22
    where wheel and report are not of one passed run.
    """
    from sparkbuild.package.keys import read_private
    from sparkbuild.package.signed import find_report, sign_wheel

    now = dt.datetime.now(dt.UTC)
    signers = [read_private(path, now=now) for path in keys]
    files = sign_wheel(wheel, report or find_report(wheel), signers, now=now, builder=builder)
    if as_json:
        facts = {"wheel": str(wheel), "keys": [one.public.keyid for one in signers]}
        print_json({**facts, "files": [str(path) for path in files]})
        return
    screen = console()
    for path in files:
        screen.print(f"written {escape(str(path))}", soft_wrap=True)


@wheel_group.command("verify")
@_WHEEL
@_TRUSTED
@_POLICY
@click.option(
    "--beside",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where the provenance, the SBOM and the report are. Default: the wheel's folder.",
)
@click.option(
    "--rebuild",
    is_flag=True,
    help="Then build it again as `wheel rebuild` does; with --json that one's answer is printed.",
)
@WORK
@JSON
def verify_command(
    wheel: Path,
    keys: tuple[Path, ...],
    policy: Path | None,
    folder: Path | None,
    rebuild: bool,
    work: Path | None,
    as_json: bool,
) -> None:
    """Verify signatures, dates, digests and, with --policy, what the team lets in.

    Compared are the wheel with what was signed, every member with RECORD and with the statement
    inside, the SBOM and the report with their digests. Exit code 22 with every reason where
    anything differs.
    """
    found = _verify(wheel, keys, _policy(policy), folder)
    if as_json and not rebuild:
        from msgspec import to_builtins

        print_json(to_builtins(found))
        return
    screen = console(stderr=as_json)
    screen.print(f"[bold green]trusted[/] {escape(found.wheel)}", soft_wrap=True)
    for check in found.checks:
        screen.print(f"  ✓ {check.name:<11} {escape(check.found)}", soft_wrap=True)
    for note in found.notes:
        screen.print(f"  [yellow]note[/] {escape(note)}", soft_wrap=True)
    if rebuild:
        again = rebuilt(wheel, toolkit=None, jobs=None, recipes=None, work=work, as_json=as_json)
        get_current_context().exit(0 if again.comparison.identical else DIFFERENT)


@wheel_group.command("index")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--add",
    "wheels",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="WHEEL",
    help="Publish a wheel, with what lies beside it; may be given again.",
)
@click.option("--yank", metavar="FILE", help="Withdraw a published wheel, by its file name.")
@click.option("--reason", metavar="TEXT", help="Why it is withdrawn; installers show it.")
@click.option("--unyank", metavar="FILE", help="Put a withdrawn wheel back.")
@_TRUSTED
@_POLICY
@JSON
def index_command(
    folder: Path,
    wheels: tuple[Path, ...],
    yank: str | None,
    reason: str | None,
    unyank: str | None,
    keys: tuple[Path, ...],
    policy: Path | None,
    as_json: bool,
) -> None:
    """Publish wheels as a static package index (PEP 503 and 691) that pip and uv install from.

    `pip install --index-url file:///DIR/simple/ sparkbuild-llama-cpp`, or any static web server
    over DIR. All wheels of a call are published, or none; a published file is never replaced by
    another of its name. With --key (and --policy) every wheel is verified first. Without an option
    every published file is read and compared, and the pages are written anew.
    """
    from sparkbuild.package import index

    if sum((bool(wheels), yank is not None, unyank is not None)) > 1:
        raise UsageError("--add, --yank and --unyank are three calls", next_step="one at a time")
    if (yank is None) != (reason is None):
        raise UsageError(
            "--yank and --reason belong together", next_step='--yank FILE --reason "why"'
        )
    if wheels:
        checks = _checking(keys, policy)
        found = index.add(folder, wheels, now=dt.datetime.now(dt.UTC), verify=checks)
    elif yank is not None:
        found = index.yank(folder, yank, reason)
    elif unyank is not None:
        found = index.yank(folder, unyank, None)
    else:
        found = index.look_after(folder)
    _show_index(found, as_json=as_json)


def _checking(keys: tuple[Path, ...], policy: Path | None) -> Verify | None:
    """What every wheel is asked before it is published; nothing without a key."""
    if not keys:
        if policy is not None:
            raise UsageError("--policy needs --key: nothing unsigned has a say", next_step="--key")
        return None
    rules = _policy(policy)

    def verify(wheel: Path) -> str:
        return _verify(wheel, keys, rules, None).sha256

    return verify


def _verify(
    wheel: Path, keys: tuple[Path, ...], policy: Policy | None, folder: Path | None
) -> Verified:
    from sparkbuild.package.check import verify_wheel
    from sparkbuild.package.keys import read_public

    if not keys:
        raise UsageError(
            "no key is named: a signature by anybody proves nothing",
            next_step=f"sparkbuild wheel verify {wheel} --key TEAM.pub",
        )
    return verify_wheel(
        wheel,
        [read_public(path) for path in keys],
        now=dt.datetime.now(dt.UTC),
        policy=policy,
        folder=folder,
    )


def _policy(path: Path | None) -> Policy | None:
    from sparkbuild.package.policy import read_policy

    return read_policy(path) if path else None


def _show_index(found: Published, *, as_json: bool) -> None:
    if as_json:
        from msgspec import to_builtins

        print_json(to_builtins(found))
        return
    screen = console()
    for name, files in found.projects.items():
        screen.print(f"[bold]{escape(name)}[/]")
        for file in files:
            state = "published now" if file in found.added else ""
            if file in found.yanked:
                state = f"withdrawn: {found.yanked[file]}"
            line = f"  {escape(file)}  [yellow]{escape(state)}[/]" if state else f"  {escape(file)}"
            screen.print(line, soft_wrap=True)
    for note in found.notes:
        screen.print(f"[yellow]note[/] {escape(note)}", soft_wrap=True)
    place = Path(found.index).absolute().as_uri()
    screen.print(f"pip install --index-url {place}/simple/ ...", soft_wrap=True)
