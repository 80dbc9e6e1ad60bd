"""What every kernel of a ROCm build takes, for every architecture, and whether it may.

check_resources.py FILE… [--strict] [--assumed PROGRAM]

FILE is a library, a program or an object. A kernel must not spill, must not use scratch, must leave
room for the block that its launch bound promises, and must not take more registers than the cost
model assumes (PROGRAM prints those: assumed_registers.cpp). With --strict a violation is an error.
"""
import argparse
import collections
import dataclasses
import re
import subprocess
import sys

import code_objects


@dataclasses.dataclass(frozen=True)
class Arch:
    """Per SIMD of four: registers of a lane, what they are allocated in, waves; LDS of a block."""

    registers: int
    granule: int
    waves: int
    lds: int


ARCHITECTURES = {
    # CDNA 2 and 3 ISA, "VGPR allocation": 512, the accumulation registers included, in eights.
    "gfx90a": Arch(512, 8, 8, 64 << 10),
    "gfx942": Arch(512, 8, 8, 64 << 10),
    "gfx950": Arch(512, 8, 8, 160 << 10),
    # RDNA 3 ISA: 1536 of a wave of 32, in 24s; blocks run on a WGP of four SIMDs.
    "gfx1100": Arch(1536, 24, 16, 64 << 10),
}
SIMDS = 4


def round_up(value, step):
    return -(-value // step) * step


def variant_of(name):
    """Function, packets, element and whether weights are f32, of a kernel's name:
    forward_packets_kernel<bf16, 8, true>. Of other kernels the third argument means other things."""
    match = re.match(r"(\w+)<(\w+)(?:, (\d+)(?:, (\w+))?)?", name)
    if not match:
        return None
    wide = "_packets_" in match[1] and match[4] == "true"
    return match[1], int(match[3] or 0), match[2], wide


def violations(kernel, assumed):
    arch = ARCHITECTURES.get(kernel.arch)
    if arch is None:
        return [f"no limits are known for {kernel.arch}"]
    found = []
    for count, what in ((kernel.vgpr_spills, "VGPR spills"), (kernel.sgpr_spills, "SGPR spills"),
                        (kernel.scratch, "bytes of scratch a lane"),
                        (kernel.agprs, "AGPRs, which nothing here asks for: spills by another name")):
        if count:
            found.append(f"{count} {what}")
    if kernel.dynamic_stack:
        found.append("a stack of unknown size")
    if kernel.lds > arch.lds:
        found.append(f"{kernel.lds} bytes of LDS, a block has {arch.lds}")
    waves = -(-kernel.threads // kernel.wave // SIMDS)
    room = arch.registers // waves
    if round_up(kernel.vgprs, arch.granule) > room:
        found.append(f"{kernel.vgprs} VGPRs, {kernel.threads} threads have room for {room}")
    if assumed is not None and round_up(kernel.vgprs, 8) > assumed:
        found.append(f"{kernel.vgprs} VGPRs, the cost model assumes {assumed}")
    return found


def blocks_of(kernel):
    """Blocks of the launch bound's size that the registers of a compute unit hold."""
    arch = ARCHITECTURES[kernel.arch]
    held = min(arch.waves, arch.registers // round_up(max(kernel.vgprs, 1), arch.granule))
    return held * SIMDS // -(-kernel.threads // kernel.wave)


def assumptions(program):
    """{(variant, packets, element, f32 weights): registers} as the cost model has them, of CDNA."""
    table = {}
    if program:
        for line in subprocess.run([program], capture_output=True, text=True,
                                   check=True).stdout.splitlines():
            variant, packets, element, wide, registers = line.split()
            table[variant, int(packets), element, wide == "1"] = int(registers)
    return table


def row(name, kernels):
    """One line of the table: a kernel's registers on each architecture."""
    first = next(iter(kernels.values()))
    cells = [f"{k.vgprs}, {k.sgprs}, {blocks_of(k)}" if (k := kernels.get(arch)) else ""
             for arch in ARCHITECTURES]
    return f"| `{name}` | {first.threads} | {first.lds} | " + " | ".join(cells) + " |"


def markdown(kernels, names):
    by_name = collections.defaultdict(dict)
    for kernel in kernels:
        by_name[names[kernel.symbol]][kernel.arch] = kernel
    lines = [f"| kernel | threads | static LDS | {' | '.join(ARCHITECTURES)} |",
             "|---" * (3 + len(ARCHITECTURES)) + "|"]
    return "\n".join(lines + [row(name, by_name[name]) for name in sorted(by_name)])


def kernels_in(files):
    kernels = [kernel for path in files for arch, code in code_objects.code_objects(path)
               for kernel in code_objects.kernels_of(arch, code)]
    if not kernels:
        raise SystemExit(f"{files}: no kernels")
    return kernels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--assumed")
    options = parser.parse_args()

    kernels = kernels_in(options.files)
    names = code_objects.demangle([kernel.symbol for kernel in kernels])
    table = assumptions(options.assumed)
    bad, unused = 0, set(table)
    print(f"{'kernel':44} {'arch':8} {'threads':>7} {'VGPR':>5} {'SGPR':>5} {'LDS':>6} {'blocks':>6}")
    for kernel in sorted(kernels, key=lambda k: (names[k.symbol], k.arch)):
        name = names[kernel.symbol]
        key = variant_of(name)
        unused.discard(key)
        # gfx1100's blocks are bounded by their threads, not by their registers.
        found = violations(kernel, table.get(key) if kernel.wave == 64 else None)
        bad += bool(found)
        print(f"{name:44} {kernel.arch:8} {kernel.threads:7} {kernel.vgprs:5} {kernel.sgprs:5} "
              f"{kernel.lds:6} {blocks_of(kernel) if kernel.arch in ARCHITECTURES else 0:6}"
              + "".join(f"  <-- {each}" for each in found))
    print(f"{len(kernels)} kernels × architectures, {bad} of them with violations")
    if table and unused:
        print("the cost model has entries for kernels that are not here:", sorted(unused))
        bad += 1
    sys.exit(1 if bad and options.strict else 0)


if __name__ == "__main__":
    main()
