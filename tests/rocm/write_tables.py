"""Writes docs/rocm-resources.md: write_tables.py LIBRARY OUTPUT [--objdump PROGRAM] [--compiler TEXT]
"""
import argparse

import check_code
import check_resources
import code_objects

TEXT = """\
# What the kernels take on AMD

Read from the code objects of `libhipnorm.so` as {compiler} makes them; written by
`cmake --build build/ci-rocm --target rocm_tables`, not by hand. Nothing here was measured on
hardware ([rocm.md](rocm.md)). CI checks the same figures at every change (`tests/rocm`).

## Registers and LDS

No kernel spills, uses scratch, AGPRs or a stack. Of each architecture: VGPRs of a lane, SGPRs of a
wave, and the blocks of `threads` (the launch bound) that a compute unit, on gfx1100 a pair of them,
has registers for. Dynamic LDS, which `validate` bounds, comes on top of the static.

{resources}

## Packets and waits

Of each architecture: 16-byte loads + stores in the hot loop, then how many `s_waitcnt vmcnt(0)`
stand in it, on any of its paths, behind a packet's load, behind a store, and behind anything else:
mean, rstd and x₀, or the elements at a row's ends. gfx9 counts loads and stores together and in
order, so a wait for the youngest is a wait for all. gfx1100 counts stores by themselves.

{code}
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("output")
    parser.add_argument("--objdump")
    parser.add_argument("--compiler", default="this compiler")
    options = parser.parse_args()
    kernels = check_resources.kernels_in([options.library])
    names = code_objects.demangle([kernel.symbol for kernel in kernels])
    reports = check_code.reports_of([options.library],
                                    code_objects.find_tool("llvm-objdump", options.objdump))
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(TEXT.format(compiler=options.compiler,
                               resources=check_resources.markdown(kernels, names),
                               code=check_code.markdown(reports)))


if __name__ == "__main__":
    main()
