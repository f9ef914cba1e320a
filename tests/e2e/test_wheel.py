"""tools/dev/wheel.py: the wheel of what this build installs; what is in it, the same bytes twice,
and its commands in an environment of their own."""

import base64
import csv
import hashlib
import io
import json
import os
import pathlib
import subprocess
import sys
import sysconfig
import venv
import zipfile

import pytest
from installed import installed
from servers import LmtpServe

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tools" / "dev" / "wheel.py"
ASK = """
import asyncio, sys, lmtp

async def main():
    async with lmtp.connect(sys.argv[1]) as client:
        print([token.id async for token in client.generate([46, 789, 579, 258], max_tokens=3)])

asyncio.run(main())
"""


def pack(prefix, folder, **environment):
    command = [sys.executable, PROGRAM, prefix, folder, "--level", "1"]
    return subprocess.run(command, capture_output=True, text=True,
                          env={**os.environ, **environment})


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Packed twice, at different times, and the prefix is gone."""
    folder = tmp_path_factory.mktemp("wheel")
    with installed() as prefix:
        first = pack(prefix, folder / "1")
        assert first.returncode == 0, first.stderr
        for path in prefix.rglob("*"):
            os.utime(path, (1, 1), follow_symlinks=False)
        second = pack(prefix, folder / "2")
        assert second.returncode == 0, second.stderr
    paths = [pathlib.Path(run.stdout.strip()) for run in (first, second)]
    for ending in (".whl", ".cdx.json"):
        one, two = (path.with_name(path.stem + ending).read_bytes() for path in paths)
        assert one == two, ending
    return paths[0]


@pytest.fixture(scope="module")
def content(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def in_info(content, name):
    return next(data for key, data in content.items() if key.endswith(".dist-info/" + name))


def test_the_record_has_each_file(content):
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(in_info(content, "RECORD").decode()))}
    assert rows.keys() == content.keys()
    for name, data in content.items():
        if not name.endswith("/RECORD"):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert rows[name] == [f"sha256={digest}", str(len(data))]


def test_licences_and_the_list_of_parts(content):
    metadata = in_info(content, "METADATA").decode()
    licences = [line[14:] for line in metadata.splitlines() if line.startswith("License-File: ")]
    assert {"LICENSE", "llguidance.txt", "wasmtime.txt", "nlohmann-json3-dev.txt"} <= set(licences)
    assert all(in_info(content, f"licenses/{name}").strip() for name in licences)
    bill = json.loads(in_info(content, "sboms/lmtp.cdx.json"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    parts = {part["name"]: part for part in bill["components"]}
    assert {f"{name}.txt" for name, part in parts.items() if part["type"] == "library"} == \
        set(licences) - {"LICENSE"}
    programs = {name: hashlib.sha256(data).hexdigest() for name, data in content.items()
                if data.startswith(b"\x7fELF")}
    assert {"lmtp_programs/bin/lmtp-serve", "lmtp_programs/lib/lmtp/libwasmtime.so"} <= \
        programs.keys()
    assert not any("torch" in name for name in content)
    for name, digest in programs.items():
        assert parts[name]["hashes"] == [{"alg": "SHA-256", "content": digest}]


def test_it_serves_from_an_empty_folder(wheel, tmp_path):
    environment, elsewhere = tmp_path / "venv", tmp_path / "empty"
    elsewhere.mkdir()
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    # This interpreter's pip and websockets.
    packages = {"PYTHONPATH": sysconfig.get_path("purelib")}
    subprocess.run([python, "-m", "pip", "-q", "--disable-pip-version-check", "install",
                    "--no-index", "--no-deps", wheel], check=True, cwd=elsewhere,
                   env={**os.environ, **packages})
    server = LmtpServe("demo")
    server.command[0] = environment / "bin" / "lmtp-serve"
    server.environment = {"PATH": os.defpath, "HOME": "/nonexistent"}
    server.popen_options = {"cwd": elsewhere}
    with server:
        asked = subprocess.run([python, "-c", ASK, server.endpoint], capture_output=True, text=True,
                               cwd=elsewhere, env={"PATH": os.defpath, **packages})
        client = [environment / "bin" / "lmtp-client", "--host", server.endpoint, "-p", "Once"]
        answer = subprocess.run([*client, "-n", "2"], capture_output=True, text=True, check=True)
    assert server.exit_code == 0, server.log_tail
    assert len(json.loads(asked.stdout)) == 3, asked.stderr
    assert answer.stdout.strip()
    bench = subprocess.run([environment / "bin" / "lmtp-bench", "--nothing"], capture_output=True)
    assert bench.returncode != 0 and b"--nothing" in bench.stderr


def test_a_command_whose_program_is_gone_says_what_to_do(tmp_path):
    (tmp_path / "lmtp_programs").mkdir()
    source = ROOT / "packaging" / "wheel" / "lmtp_programs.py"
    (tmp_path / "lmtp_programs" / "__init__.py").write_bytes(source.read_bytes())
    run = subprocess.run([sys.executable, "-c", "import lmtp_programs; lmtp_programs.serve()"],
                         cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 1
    assert "lmtp-serve cannot be started (No such file or directory)" in run.stderr
    assert "pip install --force-reinstall lmtp" in run.stderr


def test_what_cannot_be_packed(tmp_path):
    empty = pack(tmp_path, tmp_path)
    assert empty.returncode == 1
    assert "bin/lmtp-serve is missing: give a prefix that cmake --install wrote" in empty.stderr
    late = pack(tmp_path, tmp_path, SOURCE_DATE_EPOCH="soon")
    assert "SOURCE_DATE_EPOCH is 'soon': whole seconds since 1970 are needed" in late.stderr
