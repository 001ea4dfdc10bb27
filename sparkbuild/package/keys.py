"""The team's keys: ed25519 pairs, made and read; the private half never inside a repository."""

from __future__ import annotations

import datetime as dt
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from securesystemslib.signer import CryptoSigner, SSlibKey

from sparkbuild.errors import TrustError, UsageError
from sparkbuild.files import disk_full_refused, fsync_directory
from sparkbuild.package.statement import Moment

PRIVATE: Final = ".key"
PUBLIC: Final = ".pub"

KeyName = Annotated[str, msgspec.Meta(pattern="^[a-z0-9][a-z0-9._-]{0,63}$")]
Hex32 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]

_MOST: Final = 1 << 16
"""Bytes; a key file is a few hundred, and whatever is larger is none."""


class PublicKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``NAME.pub``: what may be given to everybody, as JSON.

    ``keyid`` is the SHA-256 of the key's canonical JSON, as TUF and in-toto count it; the name and
    the dates are not part of it, so that a key's time can be prolonged.
    """

    schema: Literal[1] = 1
    name: KeyName
    keyid: Hex32
    scheme: Literal["ed25519"] = "ed25519"
    public: Hex32
    """The raw public key."""
    created: Moment
    """UTC; no signature is older."""
    expires: dt.date | None = None
    """The last day, by UTC, on which it is believed."""

    def expired(self, now: dt.datetime) -> bool:
        """Whether its last day is over."""
        return self.expires is not None and now.astimezone(dt.UTC).date() > self.expires

    @property
    def shown(self) -> str:
        """Name and the first digits of the id, for sentences."""
        return f"{self.name} ({self.keyid[:12]})"


@dataclass(frozen=True, kw_only=True)
class SigningKey:
    """A private key in memory, with what its public file says."""

    signer: CryptoSigner
    public: PublicKey


def make_key(
    name: str, out: Path, *, now: dt.datetime, expires: dt.date | None = None
) -> tuple[Path, Path, PublicKey]:
    """Make ``out/NAME.key`` (mode 0600) and ``out/NAME.pub``; gives both paths and the key.

    Nothing is ever overwritten. Raises UsageError for a name that is none, a day that is over, a
    folder below a git work tree, or a file that is there already.
    """
    private, public = out / f"{name}{PRIVATE}", out / f"{name}{PUBLIC}"
    _refuse_repository(out, "a private key")
    there = [path for path in (private, public) if os.path.lexists(path)]
    if there:
        raise UsageError(
            f"there is a key {name!r} already",
            evidence=there,
            next_step="choose another NAME; a key that wheels were signed with is still needed",
        )
    signer = CryptoSigner.generate_ed25519()
    made = {
        "name": name,
        "keyid": signer.public_key.keyid,
        "public": signer.public_key.keyval["public"],
        "created": now.astimezone(dt.UTC).replace(microsecond=0),
        "expires": expires,
    }
    try:
        key = msgspec.convert(made, PublicKey)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{name!r} is no name for a key",
            problems=["expected lower-case letters, digits, dots, dashes, up to 64"],
            next_step="sparkbuild key new team",
        ) from error
    if key.expired(now):
        raise UsageError(
            f"--expires {expires}: that day is over (it is {now:%Y-%m-%d} by this machine's clock)",
            next_step="name a day to come",
        )
    with disk_full_refused(out):
        out.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write_new(private, signer.private_bytes, 0o600)
        _write_new(public, public_text(key), 0o644)
        fsync_directory(out)
    return private, public, key


def public_text(key: PublicKey) -> bytes:
    """The public file's bytes."""
    return msgspec.json.format(msgspec.json.encode(key), indent=2) + b"\n"


def read_public(path: Path) -> PublicKey:
    """Read ``NAME.pub``. Raises TrustError where it is no such file, or its id is not its key's."""
    data = _bytes(path)
    try:
        key = msgspec.json.decode(data, type=PublicKey)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = "a private key" if b"PRIVATE KEY" in data else str(error)
        raise TrustError(
            f"{path} is no public key file",
            problems=[f"expected NAME{PUBLIC} as `sparkbuild key new` writes it, found: {what}"],
            evidence=[path],
            next_step=f"name the team's {PUBLIC} file",
        ) from error
    _refuse_other_id(key, path)
    return key


def verifier(key: PublicKey) -> SSlibKey:
    """The key as the signature library takes it."""
    return SSlibKey(key.keyid, "ed25519", key.scheme, {"public": key.public})


def read_private(path: Path, *, now: dt.datetime) -> SigningKey:
    """Read ``NAME.key``, and ``NAME.pub`` beside it for its name and dates.

    Raises TrustError for a file that others may read, one inside a git work tree, one that is no
    ed25519 key, a pair that does not fit together, or a key whose last day is over.
    """
    data = _bytes(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise TrustError(
            f"the private key {path} can be read by others",
            problems=[f"expected mode 0600, found {mode:04o}"],
            evidence=[path],
            next_step=f"chmod 600 {path}, and make a new key if somebody may have read it",
        )
    _refuse_repository(path, f"the private key {path.name}", error=TrustError)
    signer = CryptoSigner(_private(data, path))
    found = signer.public_key
    pair = path.with_suffix(PUBLIC)
    key = read_public(pair)
    if key.keyid != found.keyid:
        raise TrustError(
            f"{path.name} and {pair.name} are not one pair",
            problems=[f"the private key's id is {found.keyid}", f"the public file's {key.keyid}"],
            evidence=[path, pair],
            next_step="put the files together that `sparkbuild key new` made together",
        )
    if key.expired(now):
        raise TrustError(
            f"the key {key.shown} expired on {key.expires}",
            problems=[f"it is {now:%Y-%m-%d} by this machine's clock"],
            evidence=[pair],
            next_step="make a new key: sparkbuild key new NAME --expires DATE",
        )
    return SigningKey(signer=signer, public=key)


def repository_above(place: Path) -> Path | None:
    """The git repository that a path lies in, links followed; None where it lies in none."""
    here = Path(os.path.realpath(place))
    for folder in [here, *here.parents]:
        if os.path.lexists(folder / ".git") or _bare(folder):
            return folder
    return None


def _bare(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and all(
        (folder / name).is_dir() for name in ("objects", "refs")
    )


def _refuse_repository(
    place: Path, what: str, *, error: type[UsageError | TrustError] = UsageError
) -> None:
    found = repository_above(place)
    if found is not None:
        raise error(
            f"{what} must not lie inside a git repository",
            problems=[f"{place.absolute()} lies in the one at {found}"],
            evidence=[found],
            next_step="keep it where nobody commits it: --out DIR outside of every checkout",
        )


def _private(data: bytes, path: Path) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _no_private(path, str(error)) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _no_private(path, f"another kind of key: {type(key).__name__}")
    return key


def _no_private(path: Path, found: str) -> TrustError:
    return TrustError(
        f"{path} is no private key that wheels are signed with",
        problems=[f"expected NAME{PRIVATE}, an ed25519 key as PEM (PKCS #8), found: {found}"],
        evidence=[path],
        next_step="sparkbuild key new NAME",
    )


def _refuse_other_id(key: PublicKey, path: Path) -> None:
    raw = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.public))
    counted = SSlibKey.from_crypto(raw).keyid
    if counted != key.keyid:
        raise TrustError(
            f"{path} is damaged: its id is not its key's",
            problems=[f"its key's id is {counted}", f"it says {key.keyid}"],
            evidence=[path],
            next_step="get the team's public key again",
        )


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MOST)
    except OSError as error:
        raise TrustError(
            f"cannot read the key {path}: {error.strerror}",
            evidence=[path],
            next_step="name a key that is there, or make one: sparkbuild key new NAME",
        ) from error


def _write_new(path: Path, data: bytes, mode: int) -> None:
    """Write a file that was not there: its mode comes before its first byte, its name last."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError as error:
        raise UsageError(
            f"{path} is there already", evidence=[path], next_step="choose another NAME"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
