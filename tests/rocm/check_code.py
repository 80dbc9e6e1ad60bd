"""Whether the kernels of a ROCm build move packets where it counts: read from their machine code.

check_code.py FILE… [--strict] [--objdump PROGRAM]

Of every kernel and architecture: in its hot loop (over rows, packets or partial rows) at least as
many 16-byte loads and stores as its source has, nowhere scratch or flat accesses, nowhere a fence
that writes back or empties a cache, as a barrier of a whole system's scope would. Waits for all that
is in flight (vmcnt(0)) in a hot loop are listed, by what they wait for, with the reason why they are
there. Waits are the compiler's: they are listed, not judged. With --strict the rest is an error.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import re
import sys

import code_objects

BRANCH = re.compile(r"s_c?branch\w*$")
ENDS = re.compile(r"s_(branch|endpgm|setpc_b64|trap)\b")
MEMORY = re.compile(r"(global|buffer|flat|scratch)_(load|store)_(\w+)")
FENCES = re.compile(r"buffer_(wbl2|inv|wbinv\w*|invl2|gl1_inv)\b")
WAIT = re.compile(r"vmcnt\(0\)")

# Kernels by their names, with the 16-byte loads and stores of one trip of their hot loop; V: packets
# a lane. Why vmcnt(0) may stand there: gfx9 counts stores with loads, in order, so that a wait for
# the youngest load is a wait for all.
LAST = "the row's last packet: nothing younger is asked for before the row is summed"
COPIED = ("the next row's packets, copied where the loop begins anew; how many stores follow them "
          "varies with the row's ends")
FAMILIES = [
    (r"forward_wave_kernel<\w+, (\d+), \w+>", lambda v: v, lambda v: v, LAST),
    (r"forward_row_kernel<\w+, (\d+), false, \w+>", lambda v: v, lambda v: v, LAST),
    (r"forward_row_kernel<\w+, (\d+), true, \w+>", lambda v: v, lambda v: v,
     "weight and bias, asked for after the next row's packets"),
    (r"forward_stream_kernel<\w+>", lambda v: 8, lambda v: 4,
     "the batch's last packet, and weight and bias of each packet"),
    (r"backward_wave_kernel<\w+, (\d+), \w+>", lambda v: 2 * v, lambda v: v,
     COPIED),
    (r"backward_row_kernel<\w+, (\d+), false, \w+>", lambda v: 2 * v, lambda v: v, LAST),
    (r"backward_row_kernel<\w+, (\d+), true, \w+>", lambda v: 2 * v, lambda v: v,
     COPIED),
    (r"forward_packets_kernel<\w+, (\d+), \w+>", lambda v: v, lambda v: v, LAST),
    (r"backward_packets_kernel<\w+, (\d+), \w+>", lambda v: 2 * v, lambda v: v, LAST),
    (r"backward_row_dx_kernel<\w+, (\d+)>", lambda v: 2 * v, lambda v: v, LAST),
    (r"backward_group_kernel<\w+, (\d+), \w+>", lambda v: 2 * v, lambda v: v,
     "the other blocks' sums, polled"),
    (r"column_sums<\w+>", lambda v: 8, lambda v: 0, "the last of four rows"),
    (r"strips<\w+>", lambda v: 8, lambda v: 4, "the last of four rows"),
    (r"row_sums<\w+>", lambda v: 4, lambda v: 0, "the second row's packet"),
    (r"roles<\w+>", lambda v: 8, lambda v: 0, "the last of four rows; a packet read again"),
    (r"reduce_parts_kernel<\w+>", lambda v: 8, lambda v: 0, "the last of eight partial rows"),
    (r"probe", None, None, ""),
]


@dataclasses.dataclass
class Instruction:
    address: int
    name: str
    text: str
    target: int | None


def functions(text):
    """{symbol: instructions} of llvm-objdump's text."""
    result, body = {}, None
    starts = {m[2]: int(m[1], 16) for m in re.finditer(r"^([0-9a-f]+) <(.+)>:$", text, re.M)}
    for line in text.splitlines():
        if head := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            body = result.setdefault(head[1], [])
        elif body is not None and (match := re.match(r"\s+(\S.*?)\s*// ([0-9A-F]+):(.*)$", line)):
            name = match[1].split()[0]
            target = None
            if BRANCH.match(name):
                to = re.search(r"<(.+?)(?:\+0x([0-9a-f]+))?>\s*$", match[3])
                target = starts[to[1]] + int(to[2] or "0", 16)
            body.append(Instruction(int(match[2], 16), name, match[1], target))
    return result


def blocks_of(body):
    """Basic blocks as lists of instructions, and the indices of each one's successors."""
    heads = {body[0].address} | {i.target for i in body if i.target is not None}
    heads |= {b.address for a, b in zip(body, body[1:]) if a.target is not None or ENDS.match(a.name)}
    blocks = []
    for instruction in body:
        if instruction.address in heads:
            blocks.append([])
        blocks[-1].append(instruction)
    index = {block[0].address: i for i, block in enumerate(blocks)}
    successors = []
    for i, block in enumerate(blocks):
        last, to = block[-1], []
        if last.target in index:
            to.append(index[last.target])
        if not ENDS.match(last.name) and i + 1 < len(blocks):
            to.append(i + 1)
        successors.append(to)
    return blocks, successors


def loops_of(successors):
    """The outermost loops, as sets of blocks: strongly connected components (Tarjan, without
    recursion)."""
    order, low, on_stack, stack, loops = {}, {}, set(), [], []
    for root in range(len(successors)):
        if root in order:
            continue
        work = [(root, iter(successors[root]))]
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for to in rest:
                if to not in order:
                    order[to] = low[to] = len(order)
                    stack.append(to)
                    on_stack.add(to)
                    work.append((to, iter(successors[to])))
                    break
                if to in on_stack:
                    low[node] = min(low[node], order[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    component = set()
                    while node not in component:
                        component.add(stack.pop())
                    on_stack -= component
                    if len(component) > 1 or node in successors[node]:
                        loops.append(component)
    return loops


def is_packet(instruction, kind):
    match = MEMORY.match(instruction.name)
    return bool(match and match[2] == kind and re.search(r"(dwordx4|b128)$", match[3]))


def awaited(blocks, successors, loop, block, position):
    """What a wait in `loop` waits for: the youngest vector memory access on each way to it."""
    before = collections.defaultdict(list)
    for i in loop:
        for to in successors[i]:
            before[to].append(i)
    found, seen, ways = set(), set(), [(block, position)]
    while ways:
        at, end = ways.pop()
        for instruction in reversed(blocks[at][:end]):
            if MEMORY.match(instruction.name):
                found.add("packet" if is_packet(instruction, "load") else
                          "store" if "_store_" in instruction.name else "small")
                break
        else:
            for i in before[at]:
                if i not in seen and i in loop:
                    seen.add(i)
                    ways.append((i, len(blocks[i])))
    return next((each for each in ("packet", "store", "small") if each in found), "small")


@dataclasses.dataclass
class Report:
    loads: int = 0
    stores: int = 0
    waits: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    reason: str = ""
    violations: list = dataclasses.field(default_factory=list)


def judge(name, body):
    """A kernel's report."""
    report = Report()
    for pattern, what in ((r"scratch_", "scratch accesses"), (r"flat_(load|store)", "flat accesses"),
                          (FENCES, "cache fences")):
        if count := sum(bool(re.match(pattern, i.name)) for i in body):
            report.violations.append(f"{count} {what}")
    family = next((f for f in FAMILIES if re.fullmatch(f[0], name)), None)
    if family is None:
        report.violations.append("not among the kernels that check_code.py knows")
        return report
    pattern, loads, stores, report.reason = family
    if loads is None:
        return report
    if not any(MEMORY.match(i.name) for i in body) and any(i.name == "s_trap" for i in body):
        return report  # made for another architecture: validate() refuses it on this one
    match = re.fullmatch(pattern, name)
    packets = int(match[1]) if match.groups() else 0
    blocks, successors = blocks_of(body)

    def count(loop, kind):
        return sum(is_packet(i, kind) for b in loop for i in blocks[b])

    hot = [loop for loop in loops_of(successors) if count(loop, "load")]
    wanted = loads(packets), stores(packets)
    best = max(hot, key=lambda l: min(count(l, "load") - wanted[0], count(l, "store") - wanted[1]),
               default=set())
    report.loads, report.stores = count(best, "load"), count(best, "store")
    for got, expected, what in ((report.loads, wanted[0], "loads"),
                                (report.stores, wanted[1], "stores")):
        if got < expected:
            report.violations.append(f"{got} 16-byte {what} in the hot loop, expected {expected}")
    for b in best:
        for position, instruction in enumerate(blocks[b]):
            if instruction.name == "s_waitcnt" and WAIT.search(instruction.text):
                report.waits[awaited(blocks, successors, best, b, position)] += 1
    return report


def markdown(reports):
    """A line for each kernel: of each architecture the packets that its hot loop loads and stores,
    and its waits."""
    archs = sorted({arch for _, arch in reports})
    lines = [f"| kernel | {' | '.join(archs)} | why it waits for packets |",
             "|---" * (len(archs) + 2) + "|"]
    for name in sorted({name for name, _ in reports}):
        of = {arch: reports[name, arch] for arch in archs if (name, arch) in reports}
        if not any(r.loads for r in of.values()):
            continue
        cells = [f"{r.loads}+{r.stores}; {r.waits['packet']}, {r.waits['store']}, "
                 f"{r.waits['small']}" if (r := of.get(arch)) else "" for arch in archs]
        waits = next((r.reason for r in of.values() if r.waits["packet"]), "")
        lines.append(f"| `{name}` | " + " | ".join(cells) + f" | {waits} |")
    return "\n".join(lines)


def reports_of_code(arch, code, objdump):
    """{(kernel, architecture): Report} of one code object."""
    kernels = {k.symbol for k in code_objects.kernels_of(arch, code)}
    bodies = functions(code_objects.disassemble(objdump, code)) if kernels else {}
    names = code_objects.demangle(sorted(kernels & bodies.keys()))
    return {(name, arch): judge(name, bodies[symbol]) for symbol, name in names.items()}


def reports_of(files, objdump):
    """{(kernel, architecture): Report} of everything in the files. A process on each core: in one,
    a release build takes two minutes."""
    reports = {}
    with concurrent.futures.ProcessPoolExecutor() as pool:
        for each in [pool.submit(reports_of_code, arch, code, objdump)
                     for path in files for arch, code in code_objects.code_objects(path)]:
            reports.update(each.result())
    if not reports:
        raise SystemExit(f"{files}: no kernels")
    return reports


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--objdump")
    options = parser.parse_args()
    reports = reports_of(options.files, code_objects.find_tool("llvm-objdump", options.objdump))
    bad = 0
    print(f"{'kernel':44} {'arch':8} {'loads':>5} {'stores':>6}  vmcnt(0): packet store small")
    for (name, arch), r in sorted(reports.items()):
        bad += bool(r.violations)
        print(f"{name:44} {arch:8} {r.loads:5} {r.stores:6}  {r.waits['packet']:16} "
              f"{r.waits['store']:5} {r.waits['small']:5}"
              + "".join(f"  <-- {each}" for each in r.violations))
    print(f"{len(reports)} kernels × architectures, {bad} of them with violations")
    sys.exit(1 if bad and options.strict else 0)


if __name__ == "__main__":
    main()
