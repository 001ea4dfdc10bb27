"""Launches on a driver: buffers in and out, guard zones, what the driver refuses or ends."""

from __future__ import annotations

import struct
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from sparkbuild.qualify.fault import DeviceFault, UnsupportedError
from sparkbuild.qualify.gpu.assemble import Assembled
from sparkbuild.qualify.gpu.driver import DriverError
from sparkbuild.qualify.gpu.judging import Subject, judge_on
from sparkbuild.qualify.gpu.running import GUARD, REFUSED, Gpu
from sparkbuild.qualify.model import Probed
from sparkbuild.qualify.probes.model import Expected
from sparkbuild.qualify.ptx.read import read_module
from sparkbuild.qualify.simt.contract import Buffer, Launch

from .fake_gpu import HEAD, TEXT, THREADS, FakeDriver, cases, probe

MODULE = read_module(TEXT)
UNIT = Assembled(name="unit", ptx="", ptx_sha256="", target="121a", made="native")


def judged(name: str, driver: FakeDriver | None = None) -> Probed:
    gpu = Gpu(driver or FakeDriver())
    return judge_on(gpu, probe(name), Subject(unit=UNIT, module=MODULE, image=TEXT.encode()))


def test_a_right_kernel_is_right_and_has_the_executors_bits() -> None:
    driver = FakeDriver()
    found = judged("right", driver)
    assert (found.outcome, found.compared, found.margin, found.made) == ("right", 32, 0.0, "native")
    assert found.against is not None
    assert (found.against.outcome, found.against.compared, found.against.equal) == ("right", 32, 32)
    assert not driver.memory, "every buffer was given back"


def test_a_wrong_kernel_is_wrong_on_both_with_its_place() -> None:
    found = judged("plus_two")
    assert found.mistake is not None
    assert (found.outcome, found.mistake.kind, found.mistake.wrong) == ("wrong", "value", 32)
    assert "in the executor written by thread 0" in found.mistake.text
    assert found.mistake.where.instruction == "st.global.u32"
    assert found.against is not None
    assert (found.against.outcome, found.against.equal) == ("wrong", 32)


def test_what_the_gpu_alone_does_wrong_is_told_apart_from_the_executor() -> None:
    found = judged("lies_off")
    assert found.outcome == "wrong"
    assert found.against is not None
    assert (found.against.outcome, found.against.equal, found.against.apart) == ("right", 31, 1)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("spills", "out of bounds", "written after out, the nearest 0 bytes after its last"),
        ("before", "out of bounds", "8 bytes written before out, the nearest 1 bytes before"),
        ("scribbles", "read-only", "in is only to be read, and byte 0 was written"),
        ("wild", "out of bounds", "the driver ended it: cuCtxSynchronize: CUDA_ERROR_STICKY (700)"),
    ],
)
def test_what_a_kernel_writes_elsewhere_is_a_mistake(name: str, kind: str, words: str) -> None:
    found = judged(name)
    assert found.outcome == "wrong"
    assert found.mistake is not None
    assert found.mistake.kind == kind
    assert words in found.mistake.text
    assert found.against is not None
    assert found.against.outcome == "wrong", "the executor sees it too"
    assert found.against.where.instruction == "st.global.u32"


def test_what_is_read_outside_is_no_number() -> None:
    found = judged("reads_past")
    assert found.mistake is not None
    poison = int(np.int32(np.uint32(0xFFF5FFF5).astype(np.int32)) + 1)
    assert found.mistake.found == poison


def test_only_a_fault_that_the_driver_ends_spends_the_device() -> None:
    for name, spent in (("right", False), ("spills", False), ("refused", False), ("wild", True)):
        gpu = Gpu(FakeDriver())
        judge_on(gpu, probe(name), Subject(unit=UNIT, module=MODULE, image=TEXT.encode()))
        assert gpu.spent is spent, name


def test_what_cannot_be_judged_is_never_right() -> None:
    refused = judged("refused")
    assert (refused.outcome, refused.against) == ("unsupported", None)
    assert "LAUNCH_OUT_OF_RESOURCES" in refused.reason
    image = Subject(unit=UNIT, module=MODULE, image=b"new")
    unloaded = judge_on(Gpu(FakeDriver()), probe("right"), image)
    assert unloaded.outcome == "unsupported"
    assert unloaded.reason.startswith(REFUSED)
    left = replace_unit(left_out={"right": "ptxas: not on this device"}, made="retargeted")
    without = judge_on(Gpu(FakeDriver()), probe("right"), left)
    assert (without.outcome, without.made) == ("unsupported", "retargeted")
    assert without.reason == "ptxas: not on this device"
    failed = judge_on(Gpu(FakeDriver()), probe("right"), replace_unit(error="ptxas fatal"))
    assert (failed.outcome, failed.reason) == ("not compiled", "ptxas fatal")


def replace_unit(**what: object) -> Subject:
    unit = msgspec.structs.replace(UNIT, **what)
    return Subject(unit=unit, module=MODULE, image=TEXT.encode())


def test_what_the_executor_does_not_know_is_said_and_the_gpu_still_judges() -> None:
    class Knows(FakeDriver):
        """Adds one, whatever the kernel is."""

        def launch(self, *_: object) -> None:
            out, data = sorted(self.memory)
            word = self.memory[data].view(np.int32) + 1
            self.memory[out].view(np.int32)[GUARD // 4 : -GUARD // 4] = word[
                GUARD // 4 : -GUARD // 4
            ]

    found = judged("unknown", Knows())
    assert found.outcome == "right"
    assert found.against is not None
    assert (found.against.outcome, found.against.compared) == ("unsupported", 0)
    assert "frobnicate" in found.against.text


def test_differences_within_bounds_are_parts_of_them() -> None:
    base = cases("lies_off", 1)[0]
    wide = Expected(base.expected["out"].values, np.full(THREADS, 4.0), "wide")
    one = replace(probe("lies_off"), cases=lambda _: (replace(base, expected={"out": wide}),))
    subject = Subject(unit=UNIT, module=MODULE, image=TEXT.encode())
    found = judge_on(Gpu(FakeDriver()), one, subject)
    assert (found.outcome, found.margin) == ("right", 0.25)
    assert found.against is not None
    assert (found.against.equal, found.against.apart, found.against.difference) == (31, 0, 0.25)
    assert found.against.worst == "only, out"


MORE = (
    HEAD
    + """
.const .align 4 .b8 table[4] = {7, 0, 0, 0};
.visible .entry pair(.param .align 8 .b8 both[24])
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [both];
    ld.param.u64 %rd1, [both+16];
    ld.param.u32 %r0, [both+8];
    ld.global.u32 %r1, [%rd1];
    ld.const.u32 %r3, [table];
    add.u32 %r2, %r0, %r1;
    add.u32 %r2, %r2, %r3;
    st.global.u32 [%rd0], %r2;
    ret;
}
"""
)


def test_pointers_inside_structs_and_constants_are_set_and_put_back() -> None:
    out = Buffer("out", np.zeros(1, np.int32), writable=True)
    data = Buffer("in", np.array([9, 30], np.int32), offset=4)
    raw = struct.pack("<QiiQ", 0, 400, 0, 0)
    plain = Launch("pair", (1, 1, 1), (1, 1, 1), (raw,), pointers={(0, 0): out, (0, 16): data})
    gpu, module, image = Gpu(FakeDriver()), read_module(MORE), MORE.encode()
    for constants, wanted in (({}, 437), ({"table": struct.pack("<i", 5)}, 435), ({}, 437)):
        found = gpu.run(module, image, replace(plain, constants=constants))
        assert found.buffers["out"].tolist() == [wanted]


def test_dynamic_shared_memory_is_asked_for() -> None:
    case = cases("right", 1)[0]
    found = Gpu(FakeDriver()).run(MODULE, TEXT.encode(), replace(case.launch, shared=90_000))
    assert found.buffers["out"].tolist() == case.expected["out"].values.tolist()


def test_a_launch_that_does_not_fit_its_kernel_is_a_defect_of_the_probe() -> None:
    case = cases("right", 1)[0]
    gpu = Gpu(FakeDriver())
    for arguments in (case.launch.arguments[:1], (*case.launch.arguments[:1], np.int32(1))):
        with pytest.raises(ValueError, match="right"):
            gpu.run(MODULE, TEXT.encode(), replace(case.launch, arguments=arguments))


def test_an_error_that_is_no_kernels_goes_up() -> None:
    class Lost(FakeDriver):
        def allocate(self, size: int) -> int:
            raise DriverError("cuMemAlloc_v2", 2, "CUDA_ERROR_OUT_OF_MEMORY", f"{size}")

    with pytest.raises(DriverError, match="OUT_OF_MEMORY"):
        judged("right", Lost())


def test_launches_are_announced_before_they_begin_and_when_they_ended() -> None:
    said: list[tuple[bool, str]] = []
    subject = Subject(unit=UNIT, module=MODULE, image=TEXT.encode())
    for name in ("right", "wild"):
        judge_on(
            Gpu(FakeDriver()), probe(name), subject, begun=lambda on, case: said.append((on, case))
        )
    assert said == [(True, "only"), (False, "only")] * 2


def test_faults_of_the_kernel_and_refusals_are_told_apart() -> None:
    gpu = Gpu(FakeDriver())
    with pytest.raises(DeviceFault, match="driver ended it"):
        gpu.run(MODULE, TEXT.encode(), cases("wild", 1)[0].launch)
    with pytest.raises(UnsupportedError, match="does not launch"):
        Gpu(FakeDriver()).run(MODULE, TEXT.encode(), cases("refused", 1)[0].launch)


def test_an_end_that_may_not_be_the_kernels_is_no_verdict_and_spends_the_device() -> None:
    class Broken(FakeDriver):
        def launch(self, *_: object) -> None:
            raise DriverError("cuCtxSynchronize", 214, "CUDA_ERROR_ECC_UNCORRECTABLE", "memory")

    gpu = Gpu(Broken())
    subject = Subject(unit=UNIT, module=MODULE, image=TEXT.encode())
    found = judge_on(gpu, probe("right"), subject)
    assert (found.outcome, gpu.spent) == ("unsupported", True)
    assert "gave it up: cuCtxSynchronize: CUDA_ERROR_ECC_UNCORRECTABLE (214)" in found.reason
