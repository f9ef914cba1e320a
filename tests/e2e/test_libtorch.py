"""libtorch behind its wall: loaded to connect ranks by gloo, and missed only then."""

import pathlib
import shutil
import subprocess

import pytest
from checkpoints import pickled_checkpoint
from servers import LmtpServe, bin_dir

GLOO = ("--tp", "2", "--communicator", "gloo")
TIMEOUT_S = 60


@pytest.fixture
def pickled(tmp_path):
    folder = tmp_path / "pickled"
    folder.mkdir()
    return pickled_checkpoint(folder)


def libtorch_of(folder, *options):
    """The files of libtorch, and what goes with it, that a server of this model has mapped."""
    with LmtpServe(folder, "--kv-cache", "16MiB", *options) as server:
        maps = pathlib.Path(f"/proc/{server.process.pid}/maps").read_text()
    assert server.exit_code == 0, server.log_tail
    mapped = {pathlib.Path(line.split()[-1]).name for line in maps.splitlines() if "/" in line}
    names = ("liblmtp_torch", "libtorch", "libc10", "libgomp", "libcupti", "libcudart")
    return {name for name in mapped if name.startswith(names)}


@pytest.mark.usefixtures("with_gloo")
def test_it_is_loaded_for_gloo_alone(pickled):
    assert libtorch_of(pickled) == set()
    assert libtorch_of(pickled, "--tp", "2") == set()
    assert {"liblmtp_torch.so", "libtorch_cpu.so"} <= libtorch_of(pickled, *GLOO)


@pytest.fixture
def lonely(tmp_path):
    """The program alone, copied to where nothing else of its build is."""
    program = tmp_path / "elsewhere" / "bin" / "lmtp-serve"
    program.parent.mkdir(parents=True)
    return pathlib.Path(shutil.copy(bin_dir() / "lmtp-serve", program))


def test_where_it_is_missing_only_gloo_fails(lonely, pickled):
    server = LmtpServe(pickled, "--kv-cache", "16MiB")
    server.command[0] = str(lonely)
    with server:
        assert server.http_status("/health") == 200
    assert server.exit_code == 0, server.log_tail

    def run(*arguments):
        return subprocess.run([lonely, *arguments, pickled, "--port", "0", *GLOO],
                              capture_output=True, text=True, timeout=TIMEOUT_S)  # fmt: skip

    library = lonely.parents[1] / "lib" / "lmtp" / "liblmtp_torch.so"
    library.parent.mkdir(parents=True)
    for reason in ("No such file", "file too short", "invalid ELF header", "lmtp_libtorch"):
        if reason == "file too short":
            library.write_bytes(b"")
        elif reason == "invalid ELF header":
            library.write_bytes(b"no library" * 1000)
        elif reason == "lmtp_libtorch":  # a library, but another one
            command = ["cc", "-shared", "-x", "c", "/dev/null", "-o", library]
            subprocess.run(command, check=True)
        done = run()
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1, done.stderr
        words = ("--communicator: libtorch cannot be loaded (", str(library), reason,
                 "run tools/setup --torch and build again")  # fmt: skip
        assert all(word in done.stderr for word in words), done.stderr
    doctor = run("doctor")
    assert doctor.returncode == 1 and "--communicator: libtorch" in doctor.stdout, doctor.stdout
