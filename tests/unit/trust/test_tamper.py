"""A signed wheel is believed as it is, and refused for whatever else: with the reason."""

from __future__ import annotations

import datetime as dt
import io
import json
import random
import stat
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkbuild.errors import TrustError
from sparkbuild.package import archive, identity
from sparkbuild.package.check import Verified, verify_wheel
from sparkbuild.package.contents import read_contents
from sparkbuild.package.envelope import open_envelope, seal
from sparkbuild.package.keys import PublicKey, read_private, read_public
from sparkbuild.package.signed import find_report, sign_wheel

from .conftest import (
    ACCEPTED,
    NOW,
    SERVER,
    Signed,
    build_wheel,
    checks,
    made,
    refusal,
    report_of,
    sha,
    sign,
    toolkit,
    version_of,
)

FLIPS = 1100
SEED = 11434


def verify(one: Signed, *, now: dt.datetime = NOW, keys: Sequence[PublicKey] = ()) -> Verified:
    return verify_wheel(one.wheel, keys or [one.public], now=now)


def test_what_was_signed_is_believed(signed: Signed) -> None:
    found = verify(signed)
    assert found.sha256 == sha(signed.wheel.read_bytes())
    assert found.keys == (signed.public.keyid,)
    assert found.signed_on == NOW
    assert {one.name for one in found.checks} >= {"signatures", "wheel", "report", "members"}
    (note,) = found.notes
    assert note.startswith("no policy was asked")


def test_signing_leaves_the_wheel_as_it_was(tmp_path: Path, keys: Path) -> None:
    one = sign(tmp_path, keys, made(tmp_path))
    before = one.wheel.read_bytes()
    texts = [path.read_bytes() for path in one.beside]
    other = read_private(keys / "other.key", now=NOW)
    sign_wheel(one.wheel, one.report, [other], now=NOW + dt.timedelta(days=1))
    assert one.wheel.read_bytes() == before
    proof, bill, report = one.beside
    assert [path.read_bytes() == text for path, text in zip(one.beside, texts, strict=True)] == [
        False, False, True,
    ]  # fmt: skip
    assert report.read_bytes() == one.report.read_bytes()
    assert proof.parent == bill.parent == one.wheel.parent
    verify(one, keys=[other.public], now=NOW + dt.timedelta(days=1))


def test_signing_again_at_the_same_moment_gives_the_same_bytes(signed: Signed) -> None:
    before = [path.read_bytes() for path in signed.beside]
    sign_wheel(signed.wheel, signed.report, [signed.key], now=NOW)
    assert [path.read_bytes() for path in signed.beside] == before


def test_the_signed_statement_is_what_the_specifications_ask_for(signed: Signed) -> None:
    opened = open_envelope(signed.beside[0].read_bytes(), [signed.public])
    found = json.loads(opened.payload)
    assert found["subject"] == [
        {
            "name": signed.wheel.name,
            "digest": {"sha256": sha(signed.wheel.read_bytes())},
            "annotations": {"size": signed.wheel.stat().st_size},
        }
    ]
    run = found["predicate"]["runDetails"]
    assert run["builder"]["id"] == f"urn:sparkbuild:builder:{signed.public.keyid}"
    assert run["metadata"] == {
        "invocationId": f"urn:sparkbuild:run:{sha(signed.report.read_bytes())}",
        "startedOn": "2026-11-30T11:30:00Z",
        "finishedOn": "2026-11-30T11:40:00Z",
        "sparkbuild_signedOn": "2026-11-30T12:00:00Z",
    }
    products = {one["name"]: one for one in run["byproducts"]}
    assert products["smoke results"]["annotations"] == {"checks": 3, "failed": 0}
    assert products["qualification results"]["digest"] == {"sha256": sha(b"q")}
    assert products["report"]["digest"]["sha256"] == sha(signed.report.read_bytes())
    bill = json.loads(open_envelope(signed.beside[1].read_bytes(), [signed.public]).payload)
    assert bill["predicateType"] == "https://cyclonedx.org/bom"
    assert bill["predicate"]["bomFormat"] == "CycloneDX"


@pytest.mark.parametrize("number", range(4), ids=["provenance", "sbom", "report", "wheel"])
def test_a_flipped_byte_anywhere_is_refused_with_a_reason(number: int, signed: Signed) -> None:
    """Issue 8 asks for 1,000 places at random in all; here they are so many in each file."""
    path = [*signed.beside, signed.wheel][number]
    data = path.read_bytes()
    chance = random.Random(SEED + number)  # noqa: S311 - places to try
    reasons = {
        "provenance": "provenance.json: ",
        "sbom": "sbom.json: ",
        "report": "the report is not the one that was signed",
        "wheel": "the wheel is not the one that was signed",
    }
    wanted = list(reasons.values())[number]
    for _ in range(FLIPS):
        changed = bytearray(data)
        changed[chance.randrange(len(data))] ^= chance.randrange(1, 256)
        path.write_bytes(changed)
        with pytest.raises(TrustError) as caught:
            verify(signed)
        assert any(wanted in line for line in caught.value.problems), caught.value.problems
    path.write_bytes(data)
    verify(signed)


@pytest.mark.parametrize("number", range(4), ids=["provenance", "sbom", "report", "wheel"])
def test_a_cut_or_longer_file_is_refused(number: int, signed: Signed) -> None:
    path = [*signed.beside, signed.wheel][number]
    data = path.read_bytes()
    chance = random.Random(SEED)  # noqa: S311 - places to try
    cuts = [0, 1, len(data) // 2, len(data) - 1, *(chance.randrange(len(data)) for _ in range(20))]
    for text in [*(data[:cut] for cut in cuts), data + b"\n", data + data]:
        path.write_bytes(text)
        with pytest.raises(TrustError):
            verify(signed)


def test_a_cut_wheel_is_told_by_its_length(signed: Signed) -> None:
    size = signed.wheel.stat().st_size
    signed.wheel.write_bytes(signed.wheel.read_bytes()[:300])
    with refusal(f"300 bytes instead of {size}"):
        verify(signed)


@pytest.mark.parametrize("number", range(3), ids=["provenance", "sbom", "report"])
def test_a_missing_file_is_told(number: int, signed: Signed) -> None:
    signed.beside[number].unlink()
    with refusal(f"{signed.beside[number].name} is not in"):
        verify(signed)


def test_files_beside_may_lie_in_another_folder(signed: Signed, tmp_path: Path) -> None:
    place = tmp_path / "proofs"
    place.mkdir()
    for path in signed.beside:
        path.rename(place / path.name)
    with pytest.raises(TrustError):
        verify(signed)
    verify_wheel(signed.wheel, [signed.public], now=NOW, folder=place)


def test_another_teams_key_is_told(signed: Signed, keys: Path) -> None:
    other = read_public(keys / "other.pub")
    with refusal(f"signed by key {signed.public.keyid[:12]}, and trusted here: {other.shown}"):
        verify(signed, keys=[other])
    verify(signed, keys=[other, signed.public])


def test_a_key_is_not_believed_for_its_id(signed: Signed, keys: Path) -> None:
    """A key file that claims another's id: what it would verify is refused all the same."""
    other = read_public(keys / "other.pub")
    with refusal("does not fit what is signed"):
        verify(signed, keys=[msgspec.structs.replace(other, keyid=signed.public.keyid)])


def test_two_keys_that_sign_are_both_needed(signed: Signed, keys: Path) -> None:
    other = read_private(keys / "other.key", now=NOW)
    sign_wheel(signed.wheel, signed.report, [signed.key, other], now=NOW)
    assert set(verify(signed, keys=[signed.public, other.public]).keys) == {
        signed.public.keyid,
        other.public.keyid,
    }
    with refusal("it is signed by key"):
        verify(signed)


def test_provenance_and_sbom_need_one_signer(signed: Signed, keys: Path) -> None:
    proof = signed.beside[0].read_bytes()
    other = read_private(keys / "other.key", now=NOW)
    sign_wheel(signed.wheel, signed.report, [other], now=NOW)
    signed.beside[0].write_bytes(proof)
    with refusal("no key signed both"):
        verify(signed, keys=[signed.public, other.public])


def test_an_expired_key_is_told_with_the_clock(tmp_path: Path, keys: Path) -> None:
    one = sign(tmp_path, keys, made(tmp_path))
    brief = read_private(keys / "brief.key", now=NOW)
    sign_wheel(one.wheel, one.report, [brief], now=NOW)
    verify(one, keys=[brief.public], now=dt.datetime(2026, 12, 31, 23, 59, tzinfo=dt.UTC))
    with refusal("expired on 2026-12-31; it is 2027-01-01 by this machine's clock"):
        verify(one, keys=[brief.public], now=dt.datetime(2027, 1, 1, tzinfo=dt.UTC))


def test_a_clock_in_the_past_is_told(signed: Signed) -> None:
    verify(signed, now=NOW - dt.timedelta(minutes=4))
    with refusal("with a clock in the past no expiry can be judged"):
        verify(signed, now=NOW - dt.timedelta(minutes=6))


def test_a_clock_in_the_future_is_told(signed: Signed) -> None:
    notes = verify(signed, now=NOW + dt.timedelta(days=365)).notes
    assert notes[0] == "it was signed 365 days ago by this machine's clock"


def test_a_signature_older_than_its_key_is_told(signed: Signed) -> None:
    younger = msgspec.structs.replace(signed.public, created=NOW + dt.timedelta(hours=1))
    with refusal("before the key team"):
        verify(signed, keys=[younger], now=NOW + dt.timedelta(days=1))


def test_a_renamed_wheel_is_told(signed: Signed, tmp_path: Path) -> None:
    new = signed.wheel.name.replace("7.0.0", "8.0.0")
    for path in [signed.wheel, *signed.beside]:
        path.rename(tmp_path / path.name.replace("7.0.0", "8.0.0"))
    with refusal("not about a file of this name"):
        verify_wheel(tmp_path / new, [signed.public], now=NOW)


def test_a_wheel_from_elsewhere_is_told(tmp_path: Path, signed: Signed) -> None:
    elsewhere = tmp_path / "click-8.0-py3-none-any.whl"
    with zipfile.ZipFile(elsewhere, "w") as out:
        out.writestr("click-8.0.dist-info/RECORD", "click-8.0.dist-info/RECORD,,\n")
    with refusal("provenance.json is not in"):
        verify_wheel(elsewhere, [signed.public], now=NOW)
    with refusal("it has no click-8.0.dist-info/provenance.json, which sparkbuild's wheels have"):
        sign_wheel(elsewhere, signed.report, [signed.key], now=NOW)
    for path in signed.beside:
        borrowed = path.name.replace(signed.wheel.name, elsewhere.name)
        (tmp_path / borrowed).write_bytes(path.read_bytes())
    with refusal("the wheel is not the one that was signed"):
        verify_wheel(elsewhere, [signed.public], now=NOW)


# What a builder might sign by mistake, or on purpose: the signatures are right, and yet.


def forged(one: Signed, change: Callable[[dict[str, bytes]], object], *, record: bool) -> None:
    """Change the members, bring RECORD up where asked, and sign the result without any look."""
    folder = identity.dist_info(version_of(one.made))
    with zipfile.ZipFile(one.wheel) as opened:
        members = {name: opened.read(name) for name in opened.namelist()}
        modes = {info.filename: info.external_attr for info in opened.infolist()}
    change(members)
    if record:
        rows = [
            (name, archive.record_digest(data), str(len(data)))
            for name, data in members.items()
            if not name.endswith("/RECORD")
        ]
        text = archive.record_text([*rows, (f"{folder}/RECORD", "", "")])
        members[f"{folder}/RECORD"] = text.encode()
    with zipfile.ZipFile(one.wheel, "w") as out:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = modes.get(name, (stat.S_IFREG | 0o644) << 16)
            out.writestr(info, data)
    resign(one)


def resign(one: Signed, change: Callable[[dict[str, Any]], object] = lambda _: None) -> None:
    """Sign again what the files say, with the wheel's and the report's digests brought up."""
    data = one.wheel.read_bytes()
    for path in one.beside[:2]:
        found = json.loads(open_envelope(path.read_bytes(), [one.public]).payload)
        found["subject"][0]["digest"]["sha256"] = sha(data)
        found["subject"][0]["annotations"]["size"] = len(data)
        if path == one.beside[0]:
            with one.wheel.open("rb") as file:
                inside = read_contents(file)
            digests = {"report": sha(one.beside[2].read_bytes()), "sbom": sha(inside.sbom),
                       "statement in the wheel": inside.statement_sha256}  # fmt: skip
            for product in found["predicate"]["runDetails"]["byproducts"]:
                if product["name"] in digests:
                    product["digest"]["sha256"] = digests[product["name"]]
            change(found)
        path.write_bytes(seal(json.dumps(found).encode(), [one.key]))


def edit_report(one: Signed, **changes: Any) -> None:
    report = json.loads(one.beside[2].read_bytes())
    one.beside[2].write_text(json.dumps(report | changes))
    resign(one)


def test_signing_again_by_hand_is_believed(signed: Signed) -> None:
    forged(signed, lambda _: None, record=True)
    report = json.loads(signed.beside[2].read_bytes())
    edit_report(signed, wheel={**report["wheel"], "sha256": sha(signed.wheel.read_bytes())})
    verify(signed)


INFO = "sparkbuild_llama_cpp/build-info.json"
SERVER_PATH = f"{identity.BIN}/llama-server"


def put(name: str, data: bytes) -> Callable[[dict[str, bytes]], object]:
    return lambda members: members.update({name: data})


def ending(suffix: str, data: bytes | None) -> Callable[[dict[str, bytes]], object]:
    def change(members: dict[str, bytes]) -> None:
        (name,) = [one for one in members if one.endswith(suffix)]
        members.pop(name)
        if data is not None:
            members[name] = data

    return change


def within(suffix: str, old: bytes, new: bytes) -> Callable[[dict[str, bytes]], object]:
    def change(members: dict[str, bytes]) -> None:
        (name,) = [one for one in members if one.endswith(suffix)]
        assert old in members[name]
        members[name] = members[name].replace(old, new)

    return change


def stated(members: dict[str, bytes], change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the byproducts in the statement inside."""
    (name,) = [one for one in members if one.endswith("/provenance.json")]
    found = json.loads(members[name])
    change(found["predicate"]["runDetails"]["byproducts"])
    members[name] = json.dumps(found).encode()


def other_digest_of_smoke(members: dict[str, bytes]) -> None:
    stated(members, lambda products: products[1]["digest"].update(sha256="0" * 64))


def no_smoke(members: dict[str, bytes]) -> None:
    stated(members, lambda products: products.pop())


def repeat_a_row(members: dict[str, bytes]) -> None:
    (name,) = [one for one in members if one.endswith("/RECORD")]
    (row,) = [one for one in members[name].splitlines(keepends=True) if b"/__init__.py," in one]
    members[name] += row


@pytest.mark.parametrize(
    ("change", "record", "words"),
    [
        (put("../evil", b"x"), True, "'../evil' would be written outside"),
        (put("/etc/evil", b"x"), True, "would be written outside"),
        (put("a/../../evil", b"x"), True, "would be written outside"),
        (put("a\\..\\evil", b"x"), True, "would be written outside"),
        (put("C:evil", b"x"), True, "would be written outside"),
        (put("folder/", b""), True, "is no plain file path"),
        (put(SERVER_PATH, SERVER + b"!"), True, f"for {SERVER_PATH}, it is"),
        (put(SERVER_PATH, SERVER + b"!"), False, f"RECORD, {SERVER_PATH}: expected"),
        (put("sparkbuild_llama_cpp/more.py", b""), True, "nothing for sparkbuild_llama_cpp/more"),
        (put("sparkbuild_llama_cpp/more.py", b""), False, "RECORD does not list"),
        (lambda members: members.pop(SERVER_PATH), False, "which is not there"),
        (lambda members: members.pop(SERVER_PATH), True, "it is not there"),
        (other_digest_of_smoke, True, "the digest of smoke is not that of its content"),
        (no_smoke, True, "the statement inside: it says nothing of the smoke"),
        (repeat_a_row, False, "RECORD lists sparkbuild_llama_cpp/__init__.py 2 times"),
        (ending("/RECORD", None), False, "expected one RECORD in it, found 0"),
        (ending("/RECORD", b"\xff"), False, "RECORD cannot be read"),
        (ending("/RECORD", b"a,b\n"), False, "RECORD has a line of 2 fields"),
        (ending("/provenance.json", None), True, "which sparkbuild's wheels have"),
        (ending("/provenance.json", b"{}"), True, "no in-toto statement"),
        (ending("/sparkbuild.cdx.json", None), True, "sboms/sparkbuild.cdx.json"),
        (ending("/sparkbuild.cdx.json", b"[]"), True, "is no CycloneDX document"),
        (within("/sparkbuild.cdx.json", b"MIT", b"GPL"), True, "for sparkbuild_llama_cpp-7"),
        (within("build-info.json", b'"text"', b'"else"'), True, "variant: sparkbuild_llama_cpp/b"),
        (within("build-info.json", b"0001.patch", b"0002.patch"), True, "patches: spark"),
        (within("build-info.json", b'"cpu"', b'"gpu"'), True, "toolchain: sparkbuild_llama_cpp"),
        (put(INFO, b"[]"), True, "build-info.json cannot be read"),
    ],
)  # fmt: skip
def test_a_wheel_that_contradicts_itself_is_refused_though_signed(
    change: Callable[[dict[str, bytes]], object], record: bool, words: str, signed: Signed
) -> None:
    forged(signed, change, record=record)
    with refusal(words):
        verify(signed)
    signed.report.write_text(json.dumps(report_of(signed.wheel, signed.made)))
    with refusal(words):
        sign_wheel(signed.wheel, signed.report, [signed.key], now=NOW)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"result": "failed"}, "the run's result: expected passed, found failed"),
        ({"variant": "vision"}, "variant: expected text, found vision"),
        ({"toolchain": "cuda-13.0"}, "toolchain: expected cpu"),
        ({"wheel": None}, "its wheel: expected"),
        ({"wheel": {"sha256": "0" * 64}}, "its wheel: expected"),
        ({"accepted": [{"id": "x"}]}, "accepted defects"),
        ({"smoke_checks": []}, "smoke: expected passed, found failed"),
        ({"smoke_checks": msgspec.to_builtins(checks(passed=False))}, "smoke: expected passed"),
        ({"stages": []}, "smoke suite: expected canary, found None"),
        ({"sparkbuild": "9"}, "sparkbuild: expected 0.1.0, found 9"),
        ({"schema": 2}, "schema 2"),
        ({"seconds": "long"}, "no report of `sparkbuild make`"),
        ({"started": "2026-11-30T11:30:00"}, "no report of `sparkbuild make`"),
    ],
)
def test_a_report_of_another_run_is_refused_though_signed(
    changes: dict[str, Any], words: str, signed: Signed
) -> None:
    before = [path.read_bytes() for path in signed.beside]
    signed.report.write_text(json.dumps(report_of(signed.wheel, signed.made, **changes)))
    with refusal(words):
        sign_wheel(signed.wheel, signed.report, [signed.key], now=NOW)
    assert [path.read_bytes() for path in signed.beside] == before
    edit_report(signed, **changes)
    with refusal(words):
        verify(signed)


def test_fewer_checks_than_were_signed_are_told(signed: Signed) -> None:
    edit_report(signed, smoke_checks=msgspec.to_builtins(checks(2)))
    with refusal("report, smoke results: expected"):
        verify(signed)


def test_a_report_from_the_future_is_not_signed(signed: Signed) -> None:
    later = report_of(signed.wheel, signed.made, started="2026-12-01T00:00:00+00:00")
    signed.report.write_text(json.dumps(later))
    with refusal("the report's run began at"):
        sign_wheel(signed.wheel, signed.report, [signed.key], now=NOW)


def edits() -> dict[str, tuple[Callable[[dict[str, Any]], object], str]]:
    def built(found: dict[str, Any]) -> dict[str, Any]:
        return found["predicate"]["buildDefinition"]  # type: ignore[no-any-return]

    def run(found: dict[str, Any]) -> dict[str, Any]:
        return found["predicate"]["runDetails"]  # type: ignore[no-any-return]

    def product(found: dict[str, Any], name: str) -> dict[str, Any]:
        (one,) = [one for one in run(found)["byproducts"] if one["name"] == name]
        return one  # type: ignore[no-any-return]

    other = "tells of another build"
    return {
        "flags": (lambda f: built(f)["internalParameters"]["cmake"].append("-DX=1"), other),
        "variant": (lambda f: built(f)["externalParameters"].update(variant="x"), other),
        "dependencies": (lambda f: built(f)["resolvedDependencies"].pop(), other),
        "smoke": (lambda f: product(f, "smoke").update(digest={"sha256": "0" * 64}), other),
        "qualification": (lambda f: run(f)["byproducts"].pop(0), other),
        "no metadata": (lambda f: run(f).pop("metadata"), "when it was signed"),
        "unknown field": (lambda f: run(f).update(more=1), "no SLSA v1 provenance"),
        "type": (lambda f: f.update(predicateType="https://x"), "expected https://slsa.dev"),
        "build type": (lambda f: built(f).update(buildType="x"), "its build type is 'x'"),
        "two subjects": (lambda f: f["subject"].append(f["subject"][0]), "about 2 files"),
        "no digest": (lambda f: f["subject"][0].pop("digest"), "expected sha256 none"),
        "sbom": (lambda f: product(f, "sbom").update(digest={}), "the sbom is not the signed one"),
        "report": (lambda f: product(f, "report").pop("digest"), "the report is not the one"),
        "statement": (
            lambda f: product(f, "statement in the wheel").update(name="x"),
            "the statement in the wheel is not the signed one",
        ),
        "naive time": (
            lambda f: run(f)["metadata"].update(startedOn="2026-11-30T11:30:00"),
            "no SLSA v1 provenance",
        ),
    }  # fmt: skip


@pytest.mark.parametrize("kind", edits())
def test_a_signed_statement_that_differs_from_the_wheels_is_refused(
    kind: str, signed: Signed
) -> None:
    change, words = edits()[kind]
    resign(signed, change)
    with refusal(words):
        verify(signed)


def test_an_sbom_of_another_build_is_refused(signed: Signed) -> None:
    found = json.loads(open_envelope(signed.beside[1].read_bytes(), [signed.public]).payload)
    found["predicate"]["components"] = []
    signed.beside[1].write_bytes(seal(json.dumps(found).encode(), [signed.key]))
    with refusal("the SBOM inside the wheel is not the signed one"):
        verify(signed)


def test_provenance_and_sbom_do_not_stand_in_for_each_other(signed: Signed) -> None:
    proof, bill, _ = signed.beside
    texts = proof.read_bytes(), bill.read_bytes()
    bill.write_bytes(texts[0])
    with refusal("what was signed is not what sparkbuild signs"):
        verify(signed)
    proof.write_bytes(texts[1])
    with refusal("what was signed is not what sparkbuild signs"):
        verify(signed)


def test_an_accepted_defect_is_noted(tmp_path: Path, keys: Path) -> None:
    one = sign(tmp_path, keys, made(tmp_path, toolkit=toolkit(accepted=(ACCEPTED,))))
    found = verify(one)
    assert found.accepted == ("cu132-iq3",)
    assert "made in spite of the known defect cu132-iq3" in found.notes


def test_the_report_is_found_beside_the_wheel(signed: Signed, tmp_path: Path) -> None:
    assert find_report(signed.wheel) == signed.beside[2]
    signed.beside[2].unlink()
    (tmp_path / "a-report.json").write_text("{}")
    assert find_report(signed.wheel) == signed.report
    signed.report.write_text(json.dumps(report_of(signed.wheel, signed.made, wheel=None)))
    with refusal("there is no report of the run"):
        find_report(signed.wheel)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
@given(noise=st.binary(max_size=200), at=st.integers(0, 4000))
def test_damage_inside_is_told_and_never_raised(noise: bytes, at: int, signed: Signed) -> None:
    data = signed.wheel.read_bytes()
    damaged = data[:at] + noise + data[at + len(noise) :]
    found = read_contents(io.BytesIO(damaged))
    whole = read_contents(io.BytesIO(data))
    # What is neither told here nor in a member's bytes, the wheel's own digest tells.
    assert found.damage or found.problems or found.members == whole.members


def test_a_huge_text_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkbuild.package.contents._LARGEST_TEXT", 10)
    wheel = build_wheel(tmp_path, made(tmp_path))
    with wheel.open("rb") as file:
        (problem,) = read_contents(file).damage
    assert "unpacks to" in problem
