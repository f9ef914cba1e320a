"""cmake --install: what is there, and that it needs nothing of the build's place."""

import pathlib
import re
import subprocess

import pytest
from installed import InstalledServe, installed, unit_command


@pytest.fixture(scope="module")
def prefix():
    with installed() as folder:
        yield folder


def test_what_is_there(prefix):
    for program in ("lmtp-serve", "lmtp-client", "lmtp-bench", "lmtp-aicirt"):
        assert (prefix / "bin" / program).stat().st_mode & 0o777 == 0o755
        page = prefix / "share" / "man" / "man1" / f"{program}.1"
        assert page.read_text().startswith(f".TH {program.upper()} 1")
    demo = {f.name for f in (prefix / "share" / "lmtp" / "models" / "demo").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= demo
    assert (prefix / "lib" / "systemd" / "system" / "lmtp-serve.socket").exists()
    assert unit_command(prefix)[:2] == [str(prefix / "bin" / "lmtp-serve"), "demo"]


def test_everybody_may_read_it(prefix):
    for path in prefix.rglob("*"):
        wanted = 0o555 if path.is_dir() else 0o444
        assert path.stat().st_mode & wanted == wanted, path


def mapped_files(server):
    maps = pathlib.Path(f"/proc/{server.process.pid}/maps").read_text()
    return set(re.findall(r"/.*$", maps, re.MULTILINE))


def foreign_libraries(mapped, prefix):
    system = ("/usr/", "/lib", "/dev/")
    return {path for path in mapped if not path.startswith((str(prefix), *system))}


def test_the_server_runs_on_what_was_installed(prefix):
    with InstalledServe(prefix) as server:
        mapped = mapped_files(server)
        client = prefix / "bin" / "lmtp-client"
        command = [client, "--host", server.endpoint, "-p", "Once", "-n", "2"]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert server.exit_code == 0, server.log_tail
    assert answer.strip()
    assert not foreign_libraries(mapped, prefix)


@pytest.mark.usefixtures("with_gloo")
def test_libtorch_is_installed_for_gloo(prefix):
    server = InstalledServe(prefix)
    server.command += ["--tp", "2", "--communicator", "gloo"]
    with server:
        mapped = mapped_files(server)
    assert server.exit_code == 0, server.log_tail
    assert str(prefix / "lib/lmtp/torch/lib/libtorch_cpu.so") in mapped
    assert not foreign_libraries(mapped, prefix)
