"""Reads AMD code objects out of objects, libraries and programs: no LLVM tool needed.

clang puts one bundle for each unit into the section .hip_fatbin; a bundle holds one code object, an
ELF file, for each architecture (LLVM: "Clang Offload Bundler", "Code Object V5 Metadata").
"""
import dataclasses
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile

BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED = b"CCOB"
METADATA_NOTE = 32  # NT_AMDGPU_METADATA


@dataclasses.dataclass(frozen=True)
class Kernel:
    """What one kernel needs, of the registers of one lane and of LDS and scratch in bytes."""

    symbol: str
    arch: str
    threads: int  # of a block, at most: the launch bound
    wave: int
    vgprs: int  # with the AGPRs where both come from one file
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    scratch: int  # a lane's
    dynamic_stack: bool
    lds: int  # static


def unpack(data, at=0):
    """One msgpack value at `at`, and where the next begins."""
    code = data[at]
    at += 1

    def number(format_):
        return struct.unpack_from(">" + format_, data, at)[0], at + struct.calcsize(format_)

    def text(size, start):
        return data[start:start + size].decode(errors="replace"), start + size

    def many(count, start):
        values = []
        for _ in range(count):
            value, start = unpack(data, start)
            values.append(value)
        return values, start

    def pairs(count, start):
        flat, start = many(2 * count, start)
        return dict(zip(flat[::2], flat[1::2])), start

    if code <= 0x7F:
        return code, at
    if code <= 0x8F:
        return pairs(code & 0x0F, at)
    if code <= 0x9F:
        return many(code & 0x0F, at)
    if code <= 0xBF:
        return text(code & 0x1F, at)
    if code >= 0xE0:
        return code - 256, at
    if code in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[code], at
    if 0xCA <= code <= 0xD3:
        return number("fdBHIQbhiq"[code - 0xCA])
    kind, sizes = {
        0xC4: (text, "BHI"), 0xC5: (text, "BHI"), 0xC6: (text, "BHI"),
        0xD9: (text, "BHI"), 0xDA: (text, "BHI"), 0xDB: (text, "BHI"),
        0xDC: (many, "HI"), 0xDD: (many, "HI"),
        0xDE: (pairs, "HI"), 0xDF: (pairs, "HI"),
    }[code]
    first = {text: 0xC4 if code < 0xD0 else 0xD9, many: 0xDC, pairs: 0xDE}[kind]
    count, at = number(sizes[code - first])
    return kind(count, at)


def sections(elf):
    """Name and contents of each section of a 64-bit little-endian ELF file."""
    if elf[:6] != b"\x7fELF\x02\x01":
        return
    table, = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * size) for i in range(count)]
    strings = headers[names][4]
    for name, kind, _, _, offset, length, *_ in headers:
        end = elf.index(b"\0", strings + name)
        contents = b"" if kind == 8 else elf[offset:offset + length]  # 8: no bytes in the file
        yield elf[strings + name:end].decode(), contents


def metadata(code_object):
    """The AMDGPU metadata of a code object."""
    for name, note in sections(code_object):
        at = 0
        while name == ".note" and at + 12 <= len(note):
            owner_size, size, kind = struct.unpack_from("<III", note, at)
            start = at + 12 + (owner_size + 3) // 4 * 4
            if kind == METADATA_NOTE and note[at + 12:at + 18] == b"AMDGPU":
                return unpack(note[start:start + size])[0]
            at = start + (size + 3) // 4 * 4
    raise ValueError("a code object without AMDGPU metadata")


def bundles(data):
    """The entries (target, code object) of every bundle in `data`."""
    at = data.find(BUNDLE)
    while at >= 0:
        count, = struct.unpack_from("<Q", data, at + len(BUNDLE))
        entry = at + len(BUNDLE) + 8
        for _ in range(count):
            offset, size, length = struct.unpack_from("<QQQ", data, entry)
            target = data[entry + 24:entry + 24 + length].decode()
            entry += 24 + length
            if size and not target.startswith("host"):
                yield target, data[at + offset:at + offset + size]
        at = data.find(BUNDLE, at + len(BUNDLE))


def code_objects(path):
    """(architecture, code object) of everything in the file at `path`."""
    data = pathlib.Path(path).read_bytes()
    found = [contents for name, contents in sections(data) if name == ".hip_fatbin"]
    if data.startswith((BUNDLE, COMPRESSED)):  # of clang --offload-device-only
        found = [data]
    if not found:
        raise ValueError(f"{path} has no section .hip_fatbin: it is no part of a ROCm build")
    for contents in found:
        if contents.startswith(COMPRESSED):
            raise ValueError(f"{path}: its code objects are compressed; build it with "
                             "-no-offload-compress to have them checked")
        for target, code_object in bundles(contents):
            yield re.search(r"gfx\w+", target).group(), code_object


def kernels_of(arch, code_object):
    for k in metadata(code_object).get("amdhsa.kernels", []):
        yield Kernel(
            symbol=k[".name"], arch=arch, threads=k[".max_flat_workgroup_size"],
            wave=k[".wavefront_size"], vgprs=k[".vgpr_count"], agprs=k.get(".agpr_count", 0),
            sgprs=k[".sgpr_count"], vgpr_spills=k[".vgpr_spill_count"],
            sgpr_spills=k[".sgpr_spill_count"], scratch=k[".private_segment_fixed_size"],
            dynamic_stack=bool(k.get(".uses_dynamic_stack", False)),
            lds=k[".group_segment_fixed_size"])


def demangle(symbols):
    """Readable names: what stands before the arguments, without namespaces and return type."""
    lines = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True,
                           check=True).stdout.splitlines()
    names = {}
    for symbol, line in zip(symbols, lines):
        line = re.sub(r"hipnorm::gpu::|\(anonymous namespace\)::|\(\w+ const&\)$", "", line)
        line = re.sub(r"\(\w+\)(?=[\d-])", "", line)  # (int)4
        line = re.sub(r"^void ", "", line)
        names[symbol] = re.sub(r"\(\w*\)( \[.*\])?$", "", line)
    return names


def find_tool(name, given=None):
    """An LLVM tool: `given`, on the PATH with or without a version, or where ROCm puts it."""
    candidates = [given] if given else [f"/opt/rocm/llvm/bin/{name}",
                                        *(f"{name}-{v}" for v in range(30, 19, -1)), name]
    for candidate in candidates:
        if found := shutil.which(candidate):
            return found
    raise SystemExit(f"{name} is missing: expected it on the PATH or in /opt/rocm/llvm/bin "
                     "(Debian: llvm-22).")


def disassemble(objdump, code_object):
    with tempfile.NamedTemporaryFile(suffix=".co") as file:
        file.write(code_object)
        file.flush()
        return subprocess.run([objdump, "-d", "--no-show-raw-insn", file.name],
                              capture_output=True, text=True, check=True).stdout
