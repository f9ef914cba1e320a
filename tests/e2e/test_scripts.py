"""What the shell scripts of tools/ print and do; nothing is installed, fetched or built."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from servers import Server, bin_dir, free_port

TIMEOUT_S = 120
ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"


class Started(Server):
    name = "tools/serve"
    popen_options = {"cwd": ROOT}


def write_script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


class Serve:
    """tools/serve, in a tree where cmake does nothing and setup notes its arguments."""

    def __init__(self, folder):
        self.folder = folder
        shutil.copytree(TOOLS, folder / "tools", ignore=lambda _, names: set(names) - {"serve"})
        write_script(folder / "tools" / "setup", f'echo "$@" > "{folder}/setup-arguments"\n')
        write_script(folder / "path" / "cmake", "")
        self.programs = folder / "build" / "release" / "bin"
        self.command = folder / "tools" / "serve"
        path = f"{folder / 'path'}:{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "HF_HUB_OFFLINE": "1"}


@pytest.fixture
def serve(tmp_path):
    """Runs it with these arguments; (the model and the arguments of lmtp-serve, those of setup)."""
    tree = Serve(tmp_path)
    write_script(tree.programs / "lmtp-serve", 'printf "%s\\n" "$LMTP_DEFAULT_MODEL" "$@"')

    def run(*arguments):
        done = subprocess.run(
            [tree.command, *arguments],
            capture_output=True, text=True, env=tree.environment, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        for_setup = (tmp_path / "setup-arguments").read_text().split()
        return done.stdout.split("\n")[:-1], for_setup

    return run


@pytest.mark.parametrize(
    "arguments", [[], ["--port", "9000"], ["/srv/my models/a", "--host", "::1"], ["doctor"]]
)
def test_serve_passes_all_arguments_on(serve, arguments):
    assert serve(*arguments) == (["demo", *arguments], [])


@pytest.mark.parametrize("device", [["--cuda"], ["--device", "cuda:1"], ["--device=cuda"]])
def test_a_device_is_set_up_for(serve, device):
    assert serve("demo", *device)[1] == ["--cuda"]
    assert serve(*device, "demo")[1] == ["--cuda"]
    assert serve("demo", "--device", "cpu")[1] == []


def test_what_fails_is_said_and_nothing_is_served(tmp_path):
    tree = Serve(tmp_path)
    write_script(tree.programs / "lmtp-serve", "echo served")
    write_script(tmp_path / "path" / "cmake", 'echo "the reason" >&2; [ "$1" != --build ]')
    done = subprocess.run([tree.command], capture_output=True, text=True, env=tree.environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-2:] == [
        "the reason",
        "serve: the build failed, for the reason above; when that is mended, start again",
    ]


def client_line(log):
    """What lmtp-serve says that one should type."""
    return re.search(r"^lmtp-serve: to talk to it: (.*)$", log, re.MULTILINE)[1]


@pytest.mark.parametrize(
    "arguments",
    [[], ["auto"], ["--kv-cache", "64MiB"], ["models/demo"], ["random:gpt2", "--static"]],
)
def test_the_line_for_the_client_works_as_printed(tmp_path, arguments):
    tree = Serve(tmp_path)
    tree.programs.parent.mkdir(parents=True)
    tree.programs.symlink_to(bin_dir())
    port = str(free_port())
    with Started([tree.command, *arguments, "--port", port], port, tree.environment) as server:
        log = server.wait_for_log("lmtp-serve: to talk to it: ")
        answer(tmp_path, client_line(log), noted="random:gpt2" in arguments)


def answer(folder, line, noted=False):
    done = subprocess.run(
        ["bash", "-c", f"{line} -p 'Once upon' -n 4"],
        capture_output=True, text=True, cwd=folder, timeout=TIMEOUT_S,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    if noted:  # most of its tokens are none of the demo's
        assert "note: the tokenizer" in done.stderr
    else:
        assert (done.stdout.strip() != "", done.stderr) == (True, "")


def test_what_speaks_over_stdio_is_reached_by_nobody_else():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [bin_dir() / "lmtp-serve", "demo", "--stdio"]
    with subprocess.Popen(command, text=True, **pipes) as server:
        assert any(" ready on " in line for line in server.stderr)
        written, log = server.communicate()  # its input ends
    assert (server.returncode, written) == (0, "")
    assert "to talk to it" not in log


class Setup:
    """tools/setup, in a tree of its own, on a system that has all Debian packages."""

    def __init__(self, folder):
        self.folder = folder / "tree"
        shutil.copytree(TOOLS, self.folder / "tools", ignore=self._but_setup)
        write_script(folder / "path" / "dpkg-query", 'shift 2; printf "%s installed\\n" "$@"')
        path = f"{folder / 'path'}:{os.environ['PATH']}"
        # A port at which nobody listens.
        self.environment = {
            **os.environ, "PATH": path, "XDG_CACHE_HOME": str(folder / "cache"),
            "PIP_INDEX_URL": "http://127.0.0.1:1/simple", "PIP_NO_INDEX": "", "PIP_RETRIES": "1",
        }  # fmt: skip
        self.environment.pop("PIP_FIND_LINKS", None)
        self.native = self._folder("native", "requirements-native.txt")
        self.jinja = self._folder("jinja", "requirements-jinja.txt")

    @staticmethod
    def _but_setup(_, names):
        return {n for n in names if n != "setup" and not n.endswith(".txt")}

    def _folder(self, name, file):
        hash = hashlib.sha256((TOOLS / file).read_bytes()).hexdigest()[:12]
        return pathlib.Path(self.environment["XDG_CACHE_HOME"]) / "lmtp" / f"{name}-{hash}"

    def have_native(self):
        for name in ("llguidance/_lib.abi3.so", "wasmtime/linux-x86_64/_libwasmtime.so"):
            (self.native / name).parent.mkdir(parents=True, exist_ok=True)
            (self.native / name).touch()

    def have_jinja(self):
        (self.jinja / "models" / "templates").mkdir(parents=True)
        (self.jinja / "LICENSE").write_text("kept")

    def run(self, *arguments, user=None, **environment):
        environment = {**self.environment, **environment}
        environment = {name: value for name, value in environment.items() if value is not None}
        return subprocess.run(
            [*(user or []), self.folder / "tools" / "setup", *arguments],
            capture_output=True, text=True, env=environment, timeout=TIMEOUT_S,
        )  # fmt: skip

    def mistake(self, *arguments, **environment):
        """The one line on standard error."""
        done = self.run(*arguments, **environment)
        assert done.returncode == 1, done
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("setup: "), done.stderr
        return done.stderr


@pytest.fixture
def setup(tmp_path):
    return Setup(tmp_path)


def test_setup_without_a_network_says_so_and_leaves_nothing_half_done(setup):
    for arguments in ((), ("--jinja", setup.folder / "jinja")):
        line = setup.mistake(*arguments)
        assert "PyPI was not reached; check the network" in line and "start again" in line
    assert [p.name for p in setup.native.parent.iterdir()] == ["setup.lock"]


def test_setup_takes_what_is_kept_and_fetches_what_somebody_deleted(setup, tmp_path):
    setup.have_native()
    setup.have_jinja()
    assert setup.run().returncode == 0
    assert not (setup.folder / ".venv").exists()  # serving needs no Python
    copy = tmp_path / "copy"
    copy.mkdir()  # as ninja does
    assert setup.run("--jinja", copy).returncode == 0
    assert (copy / "LICENSE").read_text() == "kept"
    (setup.native / "llguidance" / "_lib.abi3.so").unlink()
    assert "PyPI was not reached" in setup.mistake()


def test_setup_without_a_place_to_write_names_the_variable(setup, tmp_path):
    assert "HOME is not set" in setup.mistake(HOME=None, XDG_CACHE_HOME=None)
    (tmp_path / "file").touch()
    line = setup.mistake(HOME=str(tmp_path / "file"), XDG_CACHE_HOME=None)
    assert "Not a directory; have XDG_CACHE_HOME name a folder that can be written" in line


def test_setup_on_a_full_disk_says_so(setup, tmp_path):
    (tmp_path / "cache").mkdir()
    mounting = ["unshare", "--mount", "--map-root-user", "bash", "-c",
                f'mount -t tmpfs -o size=2m none "{tmp_path}/cache" && exec "$@"', "-"]  # fmt: skip
    tried = subprocess.run([*mounting, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {tried.stderr.strip()}")
    line = setup.mistake(user=mounting)
    assert "no space is left" in line and "XDG_CACHE_HOME" in line and "start again" in line


def test_setup_removes_what_was_left_half_done(setup):
    setup.have_native()
    (setup.native.parent / "jinja-0.new" / "download").mkdir(parents=True)
    setup.mistake("--jinja", setup.folder / "jinja")
    assert not (setup.native.parent / "jinja-0.new").exists()


def test_setup_without_root_prints_what_to_run(setup, tmp_path):
    write_script(tmp_path / "path" / "dpkg-query", "exit 1")
    write_script(tmp_path / "path" / "id", "echo 1000")
    assert "run this as root, and start again: apt-get update && apt-get install" in setup.mistake()


@pytest.mark.parametrize("kept", ["torch-cuda-0123abcd", "torch-cpu-0123abcd"])
def test_setup_lets_go_of_a_libtorch_that_an_earlier_layout_brought(setup, kept):
    setup.have_native()
    (setup.folder / ".venv").symlink_to(setup.native.parent / kept)
    done = setup.run()
    assert done.returncode == 0
    assert f"libtorch is no longer needed: {kept} in {setup.native.parent} may go" in done.stdout
    assert not (setup.folder / ".venv").is_symlink()


@pytest.mark.parametrize("script", ["conformance", "quantize", "serve-check", "soak"])
def test_what_needs_python_packages_says_how_to_get_them(tmp_path, script):
    shutil.copytree(TOOLS, tmp_path / "tools", ignore=shutil.ignore_patterns("benchmarks", "dev"))
    done = subprocess.run([tmp_path / "tools" / script], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.endswith("that are not there: run tools/setup --tests\n")


@pytest.mark.parametrize("script", ["dev/make-checkpoint"])
def test_usage_is_the_comment_alone(script):
    done = subprocess.run([TOOLS / script], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    lines = done.stderr.splitlines()
    assert any(f"tools/{script}" in line for line in lines)
    comment = (TOOLS / script).read_text().splitlines()[1 : 1 + len(lines)]
    assert [line.removeprefix("#").removeprefix(" ") for line in comment] == lines
    assert not any("set -e" in line for line in lines)
