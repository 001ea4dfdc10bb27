"""What ends an execution: an error of the program under test, or a lack of the executor."""

from __future__ import annotations

from sparkbuild.qualify.ptx.model import Instruction, Location


class PtxError(Exception):
    """Text that is not PTX as its manual has it; ``line`` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


class UnsupportedError(Exception):
    """Something that the executor does not know: never taken for right."""

    def __init__(self, what: str, instruction: Instruction | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.instruction = instruction


class DeviceFault(Exception):  # noqa: N818  the field's own word for what a GPU raises
    """The program did what no right program does: out of bounds, misaligned, a race, a dead end.

    ``lane`` is (block, thread) as linear indices; ``address`` the first bad one.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        instruction: Instruction | None = None,
        lane: tuple[int, int] | None = None,
        address: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        """``out of bounds``, ``misaligned``, ``read-only``, ``race``, ``deadlock``, ``diverged``,
        ``endless``, ``trap``."""
        self.instruction = instruction
        self.lane = lane
        self.address = address

    @property
    def location(self) -> Location | None:
        """The source line, where the PTX says it."""
        return self.instruction.location if self.instruction else None
