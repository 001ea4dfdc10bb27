"""DSSE envelopes: a payload and the team's signatures over it, in one form only.

The form is canonical on purpose: whatever differs in a single byte from what ``seal`` writes is
refused, also where the signature itself would not notice (white space, base64's unused bits, names
of keys, members that nobody reads).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import Signature

from sparkbuild.package.keys import PublicKey, SigningKey, verifier

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
"""Of every payload: in-toto's attestation framework, "Envelope"."""

_SIGNATURE_BYTES: Final = 64
"""Of ed25519: RFC 8032, section 5.1.6."""


class _Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    keyid: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    sig: str


class _Document(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    payload: str
    payload_type: str
    signatures: Annotated[tuple[_Signature, ...], msgspec.Meta(min_length=1, max_length=64)]


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A payload that every signature of its envelope stands for, and the keys of those."""

    payload: bytes
    keys: tuple[PublicKey, ...]


def seal(payload: bytes, keys: Sequence[SigningKey]) -> bytes:
    """The envelope's bytes: signed by every key, in the order of their ids."""
    envelope = Envelope(payload, PAYLOAD_TYPE, {})
    for key in sorted(keys, key=lambda one: one.public.keyid):
        envelope.sign(key.signer)
    return _canonical(msgspec.convert(envelope.to_dict(), _Document))


def open_envelope(data: bytes, keys: Sequence[PublicKey]) -> Opened:
    """The payload of an envelope; each of its signatures must be by one of ``keys``.

    Raises ValueError, one line of reason, for whatever is no such envelope.
    """
    document = _document(data)
    known = {key.keyid: key for key in keys}
    unknown = [one.keyid for one in document.signatures if one.keyid not in known]
    if unknown:
        names = ", ".join(key.shown for key in keys) or "none"
        raise ValueError(f"it is signed by key {unknown[0][:12]}, and trusted here: {names}")
    envelope = _envelope(document)
    signers = [known[one.keyid] for one in document.signatures]
    for signer in signers:
        try:
            _only(envelope, signer.keyid).verify([verifier(signer)], 1)
        except VerificationError as error:
            raise ValueError(
                f"the signature by {signer.shown} does not fit what is signed"
            ) from error
    return Opened(payload=envelope.payload, keys=tuple(signers))


def _document(data: bytes) -> _Document:
    try:
        document = msgspec.json.decode(data, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"it is no DSSE envelope: {error}") from error
    if _canonical(document) != data:
        raise ValueError("it is no envelope in the form that sparkbuild writes: bytes were changed")
    if document.payload_type != PAYLOAD_TYPE:
        raise ValueError(f"its payload is {document.payload_type!r}, expected {PAYLOAD_TYPE}")
    return document


def _envelope(document: _Document) -> Envelope:
    signatures = {}
    ids = [one.keyid for one in document.signatures]
    if ids != sorted(set(ids)):
        raise ValueError("its signatures are not one for each key, in the order of their ids")
    for one in document.signatures:
        raw = _decoded(one.sig, "a signature")
        if len(raw) != _SIGNATURE_BYTES:
            raise ValueError(f"a signature has {len(raw)} bytes, expected {_SIGNATURE_BYTES}")
        signatures[one.keyid] = Signature(one.keyid, raw.hex())
    return Envelope(_decoded(document.payload, "the payload"), document.payload_type, signatures)


def _only(envelope: Envelope, keyid: str) -> Envelope:
    """The same envelope with one signature: the library stops at the first that is right."""
    one = {keyid: envelope.signatures[keyid]}
    return Envelope(envelope.payload, envelope.payload_type, one)


def _decoded(text: str, what: str) -> bytes:
    """Standard base64 with its one way to write each byte string."""
    try:
        raw = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(f"{what} is no base64: {error}") from error
    if base64.b64encode(raw).decode("ascii") != text:
        raise ValueError(f"{what} is no canonical base64: bytes were changed")
    return raw


def _canonical(document: _Document) -> bytes:
    return msgspec.json.encode(document) + b"\n"


def signed_by(opened: Mapping[str, Opened]) -> tuple[PublicKey, ...]:
    """The keys that signed every one of several envelopes, by id."""
    sets = [{key.keyid: key for key in one.keys} for one in opened.values()]
    shared = set.intersection(*(set(one) for one in sets)) if sets else set()
    return tuple(sets[0][keyid] for keyid in sorted(shared))
