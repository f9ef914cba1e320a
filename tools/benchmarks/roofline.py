"""What the machine allows: kernels/bench/roofline.cpp, compiled for the processor at hand."""

import json
import pathlib
import subprocess
import tempfile

from servers import ROOT

SOURCE = ROOT / "kernels" / "bench" / "roofline.cpp"
BUFFER_MB = 512  # many times any cache
TIMEOUT_S = 300


def vector_bytes():
    info = pathlib.Path("/proc/cpuinfo").read_text()
    flags = next((row for row in info.splitlines() if row.startswith("flags")), "").split()
    return 64 if "avx512f" in flags else 32 if "avx2" in flags else 16


class Roofline:
    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.program = pathlib.Path(self.folder.name) / "roofline"
        command = ["g++", "-std=c++20", "-O3", "-march=native", "-pthread", SOURCE]
        command += [f"-DLMTP_VECTOR_BYTES={vector_bytes()}", "-o", self.program]
        subprocess.run(command, check=True, timeout=TIMEOUT_S)
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def measure(self, threads):
        """{"read_bytes_per_s": ..., "f32_flops_per_s": ...}"""
        command = [self.program, str(threads), str(BUFFER_MB)]
        text = subprocess.run(
            command, check=True, timeout=TIMEOUT_S, stdout=subprocess.PIPE, text=True
        ).stdout
        return json.loads(text)
