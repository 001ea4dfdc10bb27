"""A GGUF file made of another one: other metadata, and some of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Change = Callable[[str, Any], tuple[str, Any] | None]
"""A key and its value to what they become; None leaves them out."""


def rewritten(
    source: Path,
    out: Path,
    *,
    architecture: str = "",
    change: Change = lambda key, value: (key, value),
    keep: Callable[[str], bool] = lambda _: True,
    added: Mapping[str, Array] | None = None,
    numbers: Mapping[str, int] | None = None,
) -> Path:
    """Write ``source`` with what ``change`` makes of its metadata, and the tensors to ``keep``.

    ``added`` are further tensors, ``numbers`` metadata that comes in place of what is there.
    Weights are of types that numpy knows.
    """
    reader = gguf.GGUFReader(source)
    own = str(reader.fields["general.architecture"].contents())
    out.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(out, architecture or own)
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture" or key in (numbers or {}):
            continue
        changed = change(key, field.contents())
        if changed is None or changed[1] == []:  # gguf-py does not write empty lists
            continue
        kinds = field.types
        inner = kinds[-1] if kinds[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(changed[0], changed[1], kinds[0], sub_type=inner)
    for key, number in (numbers or {}).items():
        writer.add_uint32(key, number)
    for tensor in reader.tensors:
        if keep(tensor.name):
            writer.add_tensor(tensor.name, tensor.data)
    for name, weights in (added or {}).items():
        writer.add_tensor(name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out
