"""What is asked of a server, as far as it decides whether a model fits: its flags and the machine.

Defaults are those of llama-server b11434 (common/common.h), except for one slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import psutil

from sparkbuild.model.read import Model

GIB: Final = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Memory in bytes: MemAvailable and MemTotal; ``unified`` where the GPU shares it (GB10)."""

    available: int
    total: int
    unified: bool = False


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A server's flags."""

    context: int = 0
    """``--ctx-size``, of all slots together; 0 is what the model was trained for."""
    slots: int = 1
    """``--parallel``."""
    unified_cache: bool = False
    """``--kv-unified``: one cache that all slots share."""
    cache_k: str = "f16"
    cache_v: str = "f16"
    draft_cache_k: str = "f16"
    draft_cache_v: str = "f16"
    flash_attention: bool = True
    """``--flash-attn`` on or auto."""
    micro_batch: int = 512
    """``--ubatch-size``."""
    speculation: tuple[str, ...] = ()
    """``--spec-type``, ``none`` left out."""
    draft_depth: int = 3
    """``--spec-draft-n-max``."""
    drafter: Model | None = None
    """``--spec-draft-model``."""
    load_mode: str = "auto"
    """``--load-mode``."""
    checkpoints: int = 32
    """``--ctx-checkpoints``, a slot."""
    prompt_cache: int = 8 * GIB
    """``--cache-ram`` in bytes; -1 is no limit."""
    machine: Machine | None = None
    """None where nobody looked: then memory is added up and compared with nothing."""

    @property
    def drafts(self) -> bool:
        """Whether the model's own NextN blocks draft."""
        return "draft-mtp" in self.speculation and self.drafter is None


def this_machine(*, unified: bool = False) -> Machine:
    """The machine's memory now, from ``/proc/meminfo``.

    cudaMemGetInfo would count the page cache as used, which is given back when it is needed.
    """
    memory = psutil.virtual_memory()
    return Machine(available=memory.available, total=memory.total, unified=unified)
