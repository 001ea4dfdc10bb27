"""Envelopes: one form, every signature by a trusted key, and no byte that may change."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from sparkbuild.package.envelope import PAYLOAD_TYPE, open_envelope, seal, signed_by
from sparkbuild.package.keys import PublicKey, SigningKey, read_private, read_public

from .conftest import NOW

PAYLOAD = b'{"a": 1}\n'


@pytest.fixture
def team(keys: Path) -> SigningKey:
    return read_private(keys / "team.key", now=NOW)


@pytest.fixture
def other(keys: Path) -> SigningKey:
    return read_private(keys / "other.key", now=NOW)


def public(*keys: SigningKey) -> list[PublicKey]:
    return [key.public for key in keys]


def test_what_was_sealed_is_opened(team: SigningKey, other: SigningKey) -> None:
    opened = open_envelope(seal(PAYLOAD, [team]), public(other, team))
    assert opened.payload == PAYLOAD
    assert [key.name for key in opened.keys] == ["team"]


def test_the_signature_is_over_the_encoding_that_dsse_prescribes(team: SigningKey) -> None:
    document = json.loads(seal(PAYLOAD, [team]))
    assert document["payloadType"] == PAYLOAD_TYPE
    assert base64.b64decode(document["payload"]) == PAYLOAD
    kind = PAYLOAD_TYPE.encode()
    text = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(PAYLOAD), PAYLOAD)
    raw = Ed25519PublicKey.from_public_bytes(bytes.fromhex(team.public.public))
    raw.verify(base64.b64decode(document["signatures"][0]["sig"]), text)


def test_equal_payloads_have_equal_envelopes(team: SigningKey, other: SigningKey) -> None:
    assert seal(PAYLOAD, [team, other]) == seal(PAYLOAD, [other, team])


def test_every_signature_has_to_be_by_a_trusted_key(team: SigningKey, other: SigningKey) -> None:
    both = seal(PAYLOAD, [team, other])
    assert {key.name for key in open_envelope(both, public(team, other)).keys} == {"team", "other"}
    for trusted in ([team], [other], []):
        with pytest.raises(ValueError, match="it is signed by key"):
            open_envelope(both, public(*trusted))


def test_one_right_signature_does_not_hide_a_wrong_one(team: SigningKey, other: SigningKey) -> None:
    document = json.loads(seal(PAYLOAD, [team, other]))
    foreign = json.loads(seal(b"else", [team, other]))
    for number in (0, 1):
        mixed = json.loads(json.dumps(document))
        mixed["signatures"][number]["sig"] = foreign["signatures"][number]["sig"]
        with pytest.raises(ValueError, match="does not fit what is signed"):
            open_envelope(compact(mixed), public(team, other))


def compact(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def test_the_form_is_compact_json(team: SigningKey) -> None:
    data = seal(PAYLOAD, [team])
    assert compact(json.loads(data)) == data


def resigned(document: dict[str, Any], **changes: Any) -> bytes:
    return compact(document | changes)


def test_another_form_is_refused(team: SigningKey, other: SigningKey) -> None:
    data = seal(PAYLOAD, [team, other])
    document = json.loads(data)
    first, second = document["signatures"]
    short = {**first, "sig": base64.b64encode(b"x" * 63).decode()}
    changed = {
        "white space": json.dumps(document).encode() + b"\n",
        "no line break": data[:-1],
        "two": data + data,
        "a further member": resigned(document, note="hello"),
        "another type": resigned(document, payloadType="text/plain"),
        "no signature": resigned(document, signatures=[]),
        "twice": resigned(document, signatures=[first, first]),
        "another order": resigned(document, signatures=[second, first]),
        "short": resigned(document, signatures=[short, second]),
        "no base64": resigned(document, payload="***"),
        "not ASCII": resigned(document, payload="ä" * 4),
        "another payload": resigned(document, payload=base64.b64encode(b"x").decode()),
        "url-safe": resigned(document, payload=base64.urlsafe_b64encode(b"\xff\xfe\xfd").decode()),
        "a list": b"[]\n",
        "nothing": b"",
        "deep": b"[" * 200_000,
        "not UTF-8": b"\xff\xfe",
        "an id in capitals": data.replace(first["keyid"].encode(), first["keyid"].upper().encode()),
    }
    for text in changed.values():
        with pytest.raises(ValueError, match=r"\w+"):
            open_envelope(text, public(team, other))


def test_another_type_is_refused_though_it_was_signed(
    team: SigningKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The type is a part of what is signed: a signature for another use is none for this one."""
    monkeypatch.setattr("sparkbuild.package.envelope.PAYLOAD_TYPE", "text/plain")
    data = seal(PAYLOAD, [team])
    monkeypatch.undo()
    with pytest.raises(ValueError, match="its payload is 'text/plain'"):
        open_envelope(data, public(team))


def test_unused_bits_of_base64_are_no_place_to_hide(team: SigningKey) -> None:
    data = seal(b"x", [team])  # one byte: two characters, four bits unused
    document = json.loads(data)
    assert document["payload"] == "eA=="
    hidden = compact(document | {"payload": "eB=="})
    assert base64.b64decode("eB==") == b"x"
    with pytest.raises(ValueError, match="canonical base64"):
        open_envelope(hidden, public(team))


def test_every_byte_and_every_bit_counts(team: SigningKey) -> None:
    data = seal(PAYLOAD, [team])
    for place in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            with pytest.raises(ValueError, match=r"\w+"):
                open_envelope(bytes(changed), public(team))


@given(data=st.binary(max_size=300))
def test_noise_is_refused_with_a_reason(data: bytes, keys: Path) -> None:
    with pytest.raises(ValueError, match=r"\w+"):
        open_envelope(data, [read_public(keys / "team.pub")])


def test_keys_of_several_envelopes_are_those_of_all(team: SigningKey, other: SigningKey) -> None:
    trusted = public(team, other)
    both = open_envelope(seal(PAYLOAD, [team, other]), trusted)
    one = open_envelope(seal(PAYLOAD, [other]), trusted)
    assert [key.name for key in signed_by({"a": both, "b": one})] == ["other"]
    mine = open_envelope(seal(PAYLOAD, [team]), trusted)
    assert signed_by({"a": mine, "b": one}) == ()
