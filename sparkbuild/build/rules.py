"""The rule by which nvcc makes an object: the same bytes in any folder, with a cache or without.

Three things differ between two equal compiles by nvcc (13.0 to 13.5, compared byte by byte):

- the name of a temporary file, with a process id in it, which gcc writes into the symbol table
  (``tmpxft_000115d_00000000-6_acc.cudafe1.cpp``; sccache has names of its own);
- a CRC of the source's absolute path, in the names of what C++ hides in a file (``_INTERNAL_`` and
  ``_GLOBAL__N_``), on the host and inside the GPU code;
- what ``--frandom-seed`` is there for, random parts of names.

Seed and path are therefore the object's own name below the build folder, which differs from file
to file and not from machine to machine, and the temporary name is removed afterwards.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

OBJCOPY: Final = "objcopy"
SEED: Final = "--frandom-seed="
ORIGIN: Final = "-Xcudafe --orig_src_path_name="
"""Goes to cudafe++ and cicc after nvcc's own word, and the last one counts."""
TEMPORARY: Final = "*.cudafe1.cpp"
"""Name of the symbol that is removed: a file that is gone when the compile ends."""

_RULE: Final = re.compile(
    r"^rule (?P<name>CUDA_COMPILER\S*)$(?P<body>(?:\n[ #].*|\n$)*)", re.MULTILINE
)


def cuda_object(host: str) -> str:
    """CMake's ``CMAKE_CUDA_COMPILE_OBJECT``: nvcc as CMake itself calls it, then objcopy.

    ``host`` is the C++ compiler, and objcopy the one on the build's path, as ``as`` and ``ld`` are.
    writes what stands for angle brackets in, and puts a launcher before the first command only.
    """
    compile_it = [
        "<CMAKE_CUDA_COMPILER>",
        "-forward-unknown-to-host-compiler",
        shlex.quote(f"-ccbin={host}"),
        "<DEFINES>",
        "<INCLUDES>",
        "<FLAGS>",
        f"{SEED}<OBJECT>",
        f"{ORIGIN}<OBJECT>",
        "-x cu",
        "<CUDA_COMPILE_MODE>",
        "<SOURCE>",
        "-o <OBJECT>",
    ]
    clean_it = [OBJCOPY, "--wildcard", f"--strip-symbol='{TEMPORARY}'", "<OBJECT>"]
    return " ".join(compile_it) + ";" + " ".join(clean_it)


def rule_problems(binary_dir: Path) -> Iterator[str]:
    """What CMake's rules for CUDA objects lack of ``cuda_object``, and that there is none."""
    text = (binary_dir / "CMakeFiles" / "rules.ninja").read_text(errors="replace")
    rules = list(_RULE.finditer(text))
    if not rules:
        yield "rules for CUDA objects: expected one for each target, found none"
    for rule in rules:
        for wanted in (f"{SEED}$out", f"{ORIGIN}$out", f"--strip-symbol='{TEMPORARY}' $out"):
            if wanted not in rule["body"]:
                yield f"rule {rule['name']}: {wanted} is missing: objects would differ each time"
