"""`tools/gpu-check --pack`: what another machine needs of a build, as small as it goes. The folder,
and the archive of it, is a small copy of this tree with the programs in build/."""

import pathlib
import shutil
import subprocess
import sys

import report
from servers import ROOT

REVISION_FILE = "REVISION"
BYTES_MAX = 64 << 20  # of the archive
# From standalone/ where the build has them so (cmake/LmtpStandalone.cmake).
PROGRAMS = ("bin/lmtp-serve", "bin/lmtp-bench", "bin/gpu-bench", "bin/make-checkpoint",
            "tests/kernels_gpu_test", "tests/agent_gpu_test", "tests/numerics_grid",
            "tests/step_anatomy")  # fmt: skip
FILES = ("tools/gpu-check", "tools/benchmarks", "tests/goldens/demo.json", "tests/goldens/families",
         "tests/goldens/checkpoints", "tests/goldens/quantized", "tests/goldens/gguf",
         "tests/goldens/ranks")  # fmt: skip
DEMO = "share/lmtp/models/demo"
# What the other machine has: glibc and libstdc++.
SYSTEM = ("linux-vdso", "ld-linux", "libc.", "libm.", "libdl.", "librt.", "libpthread.",
          "libutil.", "libgcc_s.", "libstdc++.")  # fmt: skip


def pack(build, folder):
    if folder.exists() and any(folder.iterdir()):
        sys.exit(f"gpu-check: {folder} is not empty")
    missing = [name for name in PROGRAMS if not found_program(build, name)]
    if missing:
        sys.exit(f"gpu-check: {build} lacks {', '.join(missing)}: build gpu_check_bundle")
    for name in FILES:
        copy(ROOT / name, folder / name)
    copy(build / DEMO, folder / "build" / DEMO)
    (folder / REVISION_FILE).write_text(report.revision() + "\n")
    for name in PROGRAMS:
        copy_program(found_program(build, name), folder / "build" / name)
    carried = copy_libraries(folder / "build")
    return report_size(folder, carried)


def found_program(build, name):
    places = (build / "standalone" / pathlib.Path(name).name, build / name)
    return next((place for place in places if place.exists()), None)


def copy(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy2(source, target)


def copy_program(source, target):
    """Without its symbols."""
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["strip", "-o", target, source], check=True)


def copy_libraries(build):
    """Shared libraries that are not the system's go into lib/; their names."""
    carried = {}
    for name in PROGRAMS:
        listed = subprocess.run(["ldd", build / name], capture_output=True, text=True, check=True)
        for line in listed.stdout.splitlines():
            library, _, path = line.strip().partition(" => ")
            if path and not library.startswith(SYSTEM):
                carried[library] = path.split(" (")[0]
    for library, path in carried.items():
        copy(pathlib.Path(path).resolve(), build / "lib" / library)
    return sorted(carried)


def report_size(folder, carried):
    files = [path for path in folder.rglob("*") if path.is_file()]
    sizes = {path: path.stat().st_size for path in files}
    for path in sorted(files, key=sizes.get, reverse=True)[: len(PROGRAMS) + 2]:
        print(f"{sizes[path] / 2**20:8.1f} MiB  {path.relative_to(folder)}")
    archive = pathlib.Path(shutil.make_archive(folder, "gztar", folder.parent, folder.name))
    packed = archive.stat().st_size
    print(f"{sum(sizes.values()) / 2**20:8.1f} MiB  in all")
    print(f"{packed / 2**20:8.1f} MiB  as {archive.name}, of {BYTES_MAX / 2**20:.0f} MiB")
    print(f"shared libraries beside glibc and libstdc++: {', '.join(carried) or 'none'}")
    return int(packed > BYTES_MAX)
