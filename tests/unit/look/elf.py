"""A shared library in miniature, byte by byte: as much of ELF as anything here reads."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

FATBINS = Path(__file__).parents[2] / "data" / "build" / "fatbin"
AARCH64, X86 = 183, 62
_HEADER, _PROGRAM, _SECTION = 64, 56, 64
_TYPES = {"text": 1, "strings": 3, "rela": 4, "dynamic": 6, "note": 7, "dynsym": 11}
RELATIVE = {AARCH64: 1027, X86: 8}


@dataclass(kw_only=True)
class Elf:
    """What the file is to hold; every address is the offset in the file."""

    machine: int = AARCH64
    soname: str = "libggml-cuda.so.0"
    needed: tuple[str, ...] = ("libc.so.6",)
    runpath: str = "$ORIGIN"
    rpath: str = ""
    build_id: bytes = bytes(range(20))
    fatbin: bytes = b""
    texts: tuple[str, ...] = ()
    build: int | None = None
    commit: str | None = None
    relocated: bool = True
    """Whether the commit's pointer is filled in by a relocation."""
    symbols: tuple[str, ...] = ("ggml_backend_cuda_init",)
    flags: dict[str, int] = field(default_factory=dict)
    """Fields of the header that are not what they should be."""

    def data(self) -> bytes:
        body = bytearray(bytes(_HEADER + 4 * _PROGRAM))
        sections: list[tuple[str, int, int, int, int, int]] = []

        def put(name: str, kind: str, data: bytes, link: int = 0, entry: int = 0) -> int:
            body.extend(bytes(-len(body) % 16))
            sections.append((name, _TYPES[kind], len(body), len(data), link, entry))
            body.extend(data)
            return sections[-1][2]

        texts = "\0".join(("", *self.texts, self.commit or "", "")).encode()
        at = put(".rodata", "text", texts)
        commit_at = at + texts.rindex((self.commit or "").encode() + b"\0")
        pointer = 0 if self.relocated else commit_at
        data_at = put(".data", "text", struct.pack("<iiQ", self.build or 0, 0, pointer))
        names = ["LLAMA_BUILD_NUMBER"] * (self.build is not None)
        names += ["LLAMA_COMMIT"] * (self.commit is not None)
        values = {"LLAMA_BUILD_NUMBER": data_at, "LLAMA_COMMIT": data_at + 8}
        words = [*names, *self.symbols, self.soname, *self.needed, self.runpath, self.rpath]
        strings = "\0".join(["", *words, ""]).encode()
        where = {word: strings.index(f"\0{word}\0".encode()) + 1 for word in words}
        strings_at = put(".dynstr", "strings", strings)
        symbols = bytes(24) + b"".join(
            struct.pack("<IBBHQQ", where[name], 0x11, 0, 2, values.get(name, 16), 8)
            for name in [*names, *self.symbols]
        )
        put(".dynsym", "dynsym", symbols, link=3, entry=24)
        if self.commit is not None and self.relocated:
            rela = struct.pack("<QQq", data_at + 8, RELATIVE[self.machine], commit_at)
            put(".rela.dyn", "rela", rela, entry=24)
        note = struct.pack("<III4s", 4, len(self.build_id), 3, b"GNU\0") + self.build_id
        note_at = put(".note.gnu.build-id", "note", note)
        if self.fatbin:
            put(".nv_fatbin", "text", self.fatbin)
        tags = [(5, strings_at), (10, len(strings)), (14, where[self.soname])]
        tags += [(1, where[name]) for name in self.needed]
        tags += [(29, where[self.runpath])] * bool(self.runpath)
        tags += [(15, where[self.rpath])] * bool(self.rpath)
        dynamic = b"".join(struct.pack("<qQ", *tag) for tag in [*tags, (0, 0)])
        dynamic_at = put(".dynamic", "dynamic", dynamic, link=3, entry=16)
        index = "\0".join(["", *(one[0] for one in sections), ".shstrtab", ""]).encode()
        put(".shstrtab", "strings", index)
        return self._finished(body, sections, index, (dynamic_at, dynamic), (note_at, note))

    def _finished(
        self,
        body: bytearray,
        sections: list[tuple[str, int, int, int, int, int]],
        index: bytes,
        dynamic: tuple[int, bytes],
        note: tuple[int, bytes],
    ) -> bytes:
        body.extend(bytes(-len(body) % 16))
        table = len(body)
        body.extend(bytes(_SECTION))
        for name, kind, at, size, link, entry in sections:
            word = index.index(f"\0{name}\0".encode()) + 1
            body.extend(struct.pack("<IIQQQQIIQQ", word, kind, 2, at, at, size, link, 0, 16, entry))
        segments = [
            (1, 7, 0, len(body)),
            (2, 6, dynamic[0], len(dynamic[1])),
            (4, 4, note[0], len(note[1])),
            (0x6474E551, 6, 0, 0),
        ]
        for number, (kind, flags, at, size) in enumerate(segments):
            struct.pack_into("<IIQQQQQQ", body, _HEADER + number * _PROGRAM,
                             kind, flags, at, at, at, size, size, 4)  # fmt: skip
        count = len(sections) + 1
        fields = {
            "phoff": _HEADER, "shoff": table, "phentsize": _PROGRAM, "phnum": 4,
            "shentsize": _SECTION, "shnum": count, "shstrndx": count - 1, **self.flags,
        }  # fmt: skip
        struct.pack_into(
            "<16sHHIQQQIHHHHHH", body, 0, b"\x7fELF\x02\x01\x01", 3, self.machine, 1, 0,
            fields["phoff"], fields["shoff"], 0, _HEADER, fields["phentsize"], fields["phnum"],
            fields["shentsize"], fields["shnum"], fields["shstrndx"],
        )  # fmt: skip
        return bytes(body)

    def write(self, path: Path) -> Path:
        path.write_bytes(self.data())
        return path


def fatbin(*names: str) -> bytes:
    """Captured fat binaries, one behind the other."""
    return bytes(16).join((FATBINS / name).read_bytes() for name in names)


def kernel(k: int, v: int) -> str:
    """The name of an attention kernel for one pair of types, as a library of b11434 has it."""
    return f"_Z18flash_attn_ext_vecILi128ELi1EL9ggml_type{k}ELS0_{v}ELb0EEvPKcS2_"
