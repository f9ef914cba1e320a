"""libtorch behind its wall: not there before a checkpoint needs it, and missed only then."""

import asyncio
import pathlib
import shutil
import subprocess

import pytest
from auto_server import Auto, finish
from checkpoints import SMALL, pickled_checkpoint
from lmtp_socket import Socket
from servers import LmtpServe, bin_dir

TIMEOUT_S = 60


@pytest.fixture
def pickled(tmp_path):
    folder = tmp_path / "pickled"
    folder.mkdir()
    return pickled_checkpoint(folder)


def libtorch_of(server):
    """The files of libtorch, and what goes with it, that the process has mapped."""
    maps = pathlib.Path(f"/proc/{server.process.pid}/maps").read_text()
    mapped = {pathlib.Path(line.split()[-1]).name for line in maps.splitlines() if "/" in line}
    names = ("liblmtp_torch", "libtorch", "libc10", "libgomp", "libcupti", "libcudart")
    return {name for name in mapped if name.startswith(names)}


def test_it_is_loaded_when_it_is_first_needed(tmp_path, pickled):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            for stream, model in enumerate(("demo", str(SMALL)), 1):
                assert len(await finish(s, stream, model)) > 0
                assert libtorch_of(server) == set()
            assert len(await finish(s, 3, str(pickled))) > 0
            assert {"liblmtp_torch.so", "libtorch_cpu.so"} <= libtorch_of(server)
            assert len(await finish(s, 4, str(SMALL))) > 0

    with Auto(tmp_path / "home") as server:
        asyncio.run(ask(server))
    assert server.exit_code == 0, server.log_tail


@pytest.fixture
def lonely(tmp_path):
    """The program alone, copied to where nothing else of its build is."""
    program = tmp_path / "elsewhere" / "bin" / "lmtp-serve"
    program.parent.mkdir(parents=True)
    return pathlib.Path(shutil.copy(bin_dir() / "lmtp-serve", program))


def test_where_it_is_missing_only_what_needs_it_fails(lonely, pickled):
    server = LmtpServe(SMALL, "--kv-cache", "16MiB")
    server.command[0] = str(lonely)
    with server:
        assert server.http_status("/health") == 200
    assert server.exit_code == 0, server.log_tail

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
        done = subprocess.run(
            [lonely, pickled, "--port", "0", "--kv-cache", "16MiB"],
            capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1, done.stderr
        words = ("pytorch_model.bin: libtorch cannot be loaded (", str(library), reason,
                 "-DLMTP_TORCH=ON", "save_pretrained(FOLDER)")  # fmt: skip
        assert all(word in done.stderr for word in words), done.stderr
