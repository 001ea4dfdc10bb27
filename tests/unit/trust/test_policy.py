"""Each rule of a policy lets in what it names and keeps out the rest, and the reason names it."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from sparkbuild.errors import ManifestError
from sparkbuild.package.check import verify_wheel
from sparkbuild.package.keys import read_private
from sparkbuild.package.policy import Policy, read_policy
from sparkbuild.package.signed import sign_wheel
from sparkbuild.qualify.model import Qualification

from .conftest import ACCEPTED, NOW, Signed, cuda_toolkit, made, refusal, sha, sign, toolkit


def policy(place: Path, rules: dict[str, Any]) -> Policy:
    path = place / "policy.toml"
    path.write_text(tomli_w.dumps({"schema": 1, **rules}))
    return read_policy(path)


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Signed:
    """A wheel with something for every rule to judge."""
    place = tmp_path_factory.mktemp("cuda")
    chain = cuda_toolkit(accepted=(ACCEPTED,))
    verdict = Qualification(verdict="incomplete", reason="one probe")
    return sign(place, keys, made(place, toolkit=chain, qualification=verdict))


def judge(one: Signed, place: Path, rules: dict[str, Any], *, days: int = 0) -> None:
    now = NOW + dt.timedelta(days=days)
    verify_wheel(one.wheel, [one.public], now=now, policy=policy(place, rules))


LENIENT: dict[str, dict[str, Any]] = {
    "qualification": {"verdicts": ["incomplete"]},
    "advisories": {"accepted": [ACCEPTED.id]},
}
"""Lets the wheel in, so that each further rule is judged alone."""


def lenient(**rules: dict[str, Any]) -> dict[str, Any]:
    return {**LENIENT, **rules}


def test_a_policy_that_fits_lets_in_and_says_so(cuda: Signed, tmp_path: Path) -> None:
    key = cuda.public.keyid
    rules = lenient(
        signature={"keys": [key], "minimum": 1, "max_age_days": 30},
        builder={"ids": [f"urn:sparkbuild:builder:{key}"], "sparkbuild": ">=0.1,<1"},
        toolchain={
            "allowed": ["cuda-13.0"],
            "identities": [cuda.made.toolkit.identity],
            "host_compilers": ["GNU 12.*"],
            "architectures": ["121a"],
        },
        source={
            "variants": ["text"],
            "digests": [cuda.made.source.digest],
            "trees": [cuda.made.tree.tree],
            "patches": [sha(b"p")],
        },
        smoke={"suites": {"canary": 3}},
    )
    found = verify_wheel(cuda.wheel, [cuda.public], now=NOW, policy=policy(tmp_path, rules))
    assert {one.name for one in found.checks} >= {"policy"}
    assert not [note for note in found.notes if "no policy" in note]


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"signature": {"keys": ["0" * 64]}}, "signature.keys: 1 signature by allowed"),
        ({"signature": {"minimum": 2}}, "2 signatures by allowed builder keys expected, 1 found"),
        ({"builder": {"ids": ["urn:ci"]}}, "builder.ids: urn:sparkbuild:builder:"),
        ({"builder": {"sparkbuild": ">=0.2"}}, "builder.sparkbuild: expected >=0.2, found 0.1.0"),
        ({"toolchain": {"allowed": ["cpu", "cuda-13.2.2"]}}, "toolchain.allowed: cuda-13.0 is not"),
        ({"toolchain": {"identities": ["0" * 64]}}, "toolchain.identities: "),
        ({"toolchain": {"host_compilers": ["Clang *", "GNU 13*"]}}, "host_compilers: GNU 12.2.0"),
        ({"toolchain": {"architectures": ["90"]}}, "toolchain.architectures: 121a is not allowed"),
        ({"source": {"variants": ["vision"]}}, "source.variants: text is not allowed"),
        ({"source": {"digests": ["0" * 64]}}, "source.digests: "),
        ({"source": {"trees": ["0" * 40]}}, "source.trees: ffff"),
        ({"source": {"patches": []}}, "source.patches: 0001.patch"),
        ({"smoke": {"suites": {"canary": 4}}}, "at least 4 checks of canary expected, 3 were"),
        ({"smoke": {"suites": {"tiny": 1}}}, "smoke.suites: canary is not allowed (allowed: tiny)"),
        ({"qualification": {"verdicts": ["right"]}}, "qualification.verdicts: incomplete is not"),
        ({"advisories": {"accepted": []}}, "in spite of the known defect cu132-iq3"),
    ],
)  # fmt: skip
def test_each_rule_keeps_out_alone(
    rules: dict[str, Any], words: str, cuda: Signed, tmp_path: Path
) -> None:
    judge(cuda, tmp_path, LENIENT)
    with refusal(words) as lines:
        judge(cuda, tmp_path, lenient(**rules))
    assert len(lines) == 2, lines
    assert "genuine" in lines[0]


def test_every_broken_rule_is_told_at_once(cuda: Signed, tmp_path: Path) -> None:
    with refusal("toolchain.allowed") as lines:
        judge(cuda, tmp_path, {"toolchain": {"allowed": ["cpu"]}, "smoke": {"suites": {"x": 1}}})
    assert {line.split(":")[0] for line in lines[1:]} == {
        "toolchain.allowed", "smoke.suites", "qualification.verdicts", "advisories.accepted",
    }  # fmt: skip


def test_an_empty_policy_asks_for_a_right_compiler_and_no_accepted_defect(
    cuda: Signed, tmp_path: Path, keys: Path
) -> None:
    with refusal("advisories.accepted"):
        judge(cuda, tmp_path, {"qualification": {"verdicts": ["incomplete"]}})
    with refusal("qualification.verdicts: incomplete"):
        judge(cuda, tmp_path, {"advisories": {"accepted": [ACCEPTED.id]}})
    judge(sign(tmp_path, keys, made(tmp_path)), tmp_path, {})


@pytest.mark.parametrize("verdict", ["not tried", "wrong"])
def test_compilers_that_nobody_judged_are_kept_out(
    verdict: Any, tmp_path: Path, keys: Path
) -> None:
    one = sign(
        tmp_path, keys, made(tmp_path, qualification=Qualification(verdict=verdict, reason=""))
    )
    with refusal(f"qualification.verdicts: {verdict}"):
        judge(one, tmp_path, {})


def test_age_is_counted_from_the_signature(cuda: Signed, tmp_path: Path) -> None:
    rules = lenient(signature={"max_age_days": 30})
    judge(cuda, tmp_path, rules, days=30)
    with refusal("at most 30, it was signed 31 days ago"):
        judge(cuda, tmp_path, rules, days=31)


def test_two_signatures_can_be_asked_for(tmp_path: Path, keys: Path) -> None:
    one = sign(tmp_path, keys, made(tmp_path))
    other = read_private(keys / "other.key", now=NOW)
    sign_wheel(one.wheel, one.report, [one.key, other], now=NOW)
    both = [one.public, other.public]

    def ask(allowed: Sequence[str]) -> None:
        rules = {"signature": {"minimum": 2, "keys": list(allowed)}}
        verify_wheel(one.wheel, both, now=NOW, policy=policy(tmp_path, rules))

    ask([key.keyid for key in both])
    ask([])
    with refusal("2 signatures by allowed builder keys expected, 1 found"):
        ask([one.public.keyid])


def test_patches_are_judged_by_their_bytes(tmp_path: Path, keys: Path) -> None:
    one = sign(tmp_path, keys, made(tmp_path, toolkit=toolkit()))
    judge(one, tmp_path, {"source": {"patches": [sha(b"p"), sha(b"q")]}})
    with refusal(f"0001.patch, sha256 {sha(b'p')}, is not allowed"):
        judge(one, tmp_path, {"source": {"patches": [sha(b"q")]}})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("schema = 2", "schema"),
        ("", "schema"),
        ("schema = 1\n[toolchains]\nallowed = []", "unknown key `toolchains`"),
        ('schema = 1\n[toolchain]\nallow = ["cpu"]', "unknown key `toolchain.allow`"),
        ('schema = 1\n[signature]\nkeys = ["team"]', "signature.keys"),
        ("schema = 1\n[signature]\nminimum = 0", "signature.minimum"),
        ('schema = 1\n[qualification]\nverdicts = ["good"]', "qualification.verdicts"),
        ('schema = 1\n[smoke]\nsuites = {canary = "many"}', "smoke.suites"),
        ('schema = 1\n[builder]\nsparkbuild = "new"', "builder.sparkbuild"),
        ("= nonsense", "policy.toml"),
    ],
)
def test_a_policy_with_a_slip_is_refused_by_name(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with refusal(words, ManifestError):
        read_policy(path)


def test_a_policy_does_not_excuse_a_bad_signature(cuda: Signed, tmp_path: Path) -> None:
    data = json.loads(cuda.beside[2].read_bytes())
    old = cuda.beside[2].read_bytes()
    cuda.beside[2].write_text(json.dumps(data))
    try:
        with refusal("the report is not the one that was signed"):
            judge(cuda, tmp_path, LENIENT)
    finally:
        cuda.beside[2].write_bytes(old)
