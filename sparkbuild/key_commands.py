"""``sparkbuild key``: the ed25519 keys that a team signs its wheels with."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import rich_click as click

from sparkbuild.console import JSON, answer, console


@click.group("key")
def key_group() -> None:
    """Make and show the keys that wheels are signed with."""


@key_group.command("new")
@click.argument("name")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where both files go; never inside a git repository. Default: the user's configuration "
    "folder.",
)
@click.option(
    "--expires",
    type=click.DateTime(formats=["%Y-%m-%d"]),
    metavar="DATE",
    help="The last day, by UTC, on which the key is believed: 2027-11-30. Default: no end.",
)
@JSON
def new_key(name: str, out: Path | None, expires: dt.datetime | None, as_json: bool) -> None:
    """Make NAME.key, which signs and stays secret, and NAME.pub, which everybody may have.

    NAME.key has mode 0600 and no password. A key that is there is never overwritten.
    """
    from sparkbuild.package.keys import make_key

    private, public, key = make_key(
        name,
        out or _default_folder(),
        now=dt.datetime.now(dt.UTC),
        expires=expires.date() if expires else None,
    )
    facts = {
        "name": key.name,
        "keyid": key.keyid,
        "expires": str(key.expires) if key.expires else "never",
        "private": str(private.absolute()),
        "public": str(public.absolute()),
    }
    answer(facts, as_json=as_json, out=console(stderr=as_json))


@key_group.command("show")
@click.argument("key", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@JSON
def show_key(key: Path, as_json: bool) -> None:
    """Show a key's name, id and dates; of a private key, whether it may be used.

    FILE is NAME.pub or NAME.key. Exit code 22 where it is damaged, expired (NAME.key), readable by
    others or inside a git repository.
    """
    from sparkbuild.package.keys import PRIVATE, read_private, read_public

    now = dt.datetime.now(dt.UTC)
    private = key.suffix == PRIVATE
    found = read_private(key, now=now).public if private else read_public(key)
    facts = {
        "name": found.name,
        "keyid": found.keyid,
        "scheme": found.scheme,
        "public": found.public,
        "created": f"{found.created:%Y-%m-%d %H:%M} UTC",
        "expires": str(found.expires) if found.expires else "never",
        "state": "expired" if found.expired(now) else "good",
        "signs": private,
    }
    answer(facts, as_json=as_json, out=console(stderr=as_json))


def _default_folder() -> Path:
    import platformdirs

    return platformdirs.user_config_path("sparkbuild") / "keys"
