#!/usr/bin/env python3
"""What nvcc made of the CUDA kernels, for one architecture: of each the registers, the loads and
stores of local memory, the loads that are asked for before the wait for the launch before, and the
longest row of loads of 8 or 16 bytes without a product between them. No GPU is needed.

    tools/dev/machine_code.py [--build build/release] [--arch sm_90] [PART-OF-A-NAME ...]
"""

import argparse
import re
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WAIT = "ACQBULK"  # griddepcontrol.wait
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\d\s+)?([A-Z0-9_.]+)")


@dataclass
class Kernel:
    name: str
    registers: int = 0
    operations: list = field(default_factory=list)

    @property
    def spills(self):
        return sum(o.split(".")[0] in ("LDL", "STL") for o in self.operations)

    def before_wait(self):
        return self.operations[: self.operations.index(WAIT)] if WAIT in self.operations else []

    def bulk_copies_between(self, first, last):
        """Into shared memory, between two waits of the kernel's text; -1: from its begin."""
        waits = [-1] + [i for i, operation in enumerate(self.operations) if operation == WAIT]
        part = self.operations[waits[first + 1] + 1 : waits[last + 1]]
        return sum(operation.startswith("UBLKCP") for operation in part)

    @property
    def loads_before_wait(self):
        return sum(map(is_load, self.before_wait()))

    @property
    def copies_before_wait(self):
        """Into shared memory."""
        return sum(operation.startswith("LDGSTS") for operation in self.before_wait())

    def loads_between(self, stops, *, wanted):
        """The most loads that are `wanted` between two operations whose names begin so."""
        longest = run = 0
        for operation in self.operations:
            if operation.startswith(stops):
                run = 0
            elif is_load(operation) and wanted(operation):
                run += 1
                longest = max(longest, run)
        return longest

    @property
    def loads_in_flight(self):
        """Consecutive loads of 8 or 16 bytes a lane, with others but no product between."""
        return self.loads_between("HMMA", wanted=lambda load: load.endswith(("64", "128")))

    @property
    def fresh_loads_in_flight(self):
        """Consecutive loads of what other blocks of the launch wrote, without a power between."""
        return self.loads_between("MUFU.EX2", wanted=lambda load: "STRONG.GPU" in load)


def is_load(operation):
    return operation.startswith("LDG.")


def find_cuobjdump():
    """None: it is not there."""
    path = Path(sysconfig.get_path("purelib")) / "nvidia/cu13/bin/cuobjdump"
    return path if path.exists() else None


def object_files(build):
    return sorted((Path(build) / "kernels/CMakeFiles").glob("lmtp_kernels*.dir/cuda/*.cu.o"))


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def read_kernels(cuobjdump, file, arch):
    """Those of one object file; what only Hopper has is sm_90a's."""
    arch += "a" if "_sm90a" in str(file) else ""
    kernels = {}
    for line in run(cuobjdump, "-arch", arch, "-sass", file).splitlines():
        if match := re.search(r"Function : (\S+)", line):
            kernel = kernels.setdefault(match[1], Kernel(match[1]))
        elif match := INSTRUCTION.match(line):
            kernel.operations.append(match[1])
    name = None
    for line in run(cuobjdump, "-arch", arch, "-res-usage", file).splitlines():
        if match := re.search(r"Function (\S+):", line):
            name = match[1]
        elif (match := re.search(r"REG:(\d+)", line)) and name in kernels:
            kernels[name].registers = int(match[1])
    return list(kernels.values())


def read_all(build, arch="sm_90"):
    """All kernels of a build, by readable names."""
    cuobjdump = find_cuobjdump()
    files = [file for file in object_files(build) if arch == "sm_90" or "_sm90a" not in str(file)]
    kernels = [k for file in files for k in read_kernels(cuobjdump, file, arch)]
    names = run("c++filt", *(kernel.name for kernel in kernels)).splitlines()
    for kernel, name in zip(kernels, names):
        name = name.replace("lmtp::kernels::cuda::", "").replace("(anonymous namespace)::", "")
        kernel.name = re.sub(r"^void |\(.*$", "", name)
    return kernels


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=ROOT / "build/release")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if not object_files(options.build):
        sys.exit(f"{options.build} has no CUDA kernels; build it after tools/setup --cuda")
    if find_cuobjdump() is None:
        sys.exit("there is no cuobjdump; run tools/setup --tests, and this with .venv/bin/python")
    print("registers  spills  before wait  in flight  kernel")
    for kernel in read_all(options.build, options.arch):
        if not options.names or any(part in kernel.name for part in options.names):
            print(f"{kernel.registers:9}  {kernel.spills:6}  {kernel.loads_before_wait:11}  "
                  f"{kernel.loads_in_flight:9}  {kernel.name}")


if __name__ == "__main__":
    main()
