"""What the shell scripts of tools/ print and do, with setup and cmake replaced by nothing."""

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

    def hints(self, stderr):
        """The two lines that tell what to type next, without the program's name."""
        client = f"  {self.programs / 'lmtp-client'}"
        lines = stderr.splitlines()
        return [line.removeprefix(client) for line in lines if line.startswith(client)]


@pytest.fixture
def serve(tmp_path):
    """Runs it with these arguments; (what lmtp-serve got, the hints, what setup got)."""
    tree = Serve(tmp_path)
    write_script(tree.programs / "lmtp-serve", 'printf "%s\\n" "$@"')

    def run(*arguments):
        done = subprocess.run(
            [tree.command, *arguments],
            capture_output=True, text=True, env=tree.environment, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        for_setup = (tmp_path / "setup-arguments").read_text().split()
        return done.stdout.split("\n")[:-1], tree.hints(done.stderr), for_setup

    return run


@pytest.mark.parametrize(
    "arguments, hint",
    [
        ([], " demo"),
        (["demo"], " demo"),
        (["auto"], " demo"),
        (["--port", "9000"], " demo --port 9000"),
        (["demo", "--port", "9000"], " demo --port 9000"),
        (["--host=10.0.0.7", "--port=9000", "demo"], " demo --host 10.0.0.7 --port 9000"),
        (["demo", "--host", "0.0.0.0", "--threads", "2"], " demo"),
        (["/srv/my models/a", "--host", "::1"], r" /srv/my\ models/a --host ::1"),
        (["gpt2-medium", "--cuda"], " gpt2-medium"),
        (["--cuda", "gpt2-medium"], " gpt2-medium"),
        (["--kv-cache", "1GiB", "--static", "org/name@v2"], " org/name@v2"),
        (["random:gpt2", "--port", "9"], " --port 9"),
        (["demo", "--listen", "unix:/run/a b"], r" demo --host unix:/run/a\ b"),
    ],
)
def test_serve_says_how_to_reach_it(serve, arguments, hint):
    passed_on, hints, _ = serve(*arguments)
    assert passed_on == (arguments or ["demo"])
    assert len(hints) == 2
    assert hints[0].startswith(hint + "     ")
    assert hints[1].startswith(hint + ' -p "Once upon"')


def test_what_speaks_over_stdio_is_reached_by_nobody_else(serve):
    passed_on, hints, _ = serve("demo", "--stdio")
    assert (passed_on, hints) == (["demo", "--stdio"], [])


def test_a_folder_is_named_so_that_it_is_found_from_elsewhere(serve, tmp_path):
    (tmp_path / "models" / "mine").mkdir(parents=True)
    assert serve("models/mine")[1][0].startswith(f" {tmp_path.resolve()}/models/mine   ")


@pytest.mark.parametrize("device", [["--cuda"], ["--device", "cuda:1"], ["--device=cuda"]])
def test_a_device_is_set_up_for(serve, device):
    assert serve("demo", *device)[2] == ["--cuda"]
    assert serve("demo", "--device", "cpu")[2] == []


def test_options_without_a_value_are_known():
    """FLAGS of tools/serve: those after which lmtp-serve --help names no value."""
    help_text = subprocess.run(
        [bin_dir() / "lmtp-serve", "--help"], capture_output=True, text=True, check=True
    ).stdout
    flags = set(re.findall(r"^ +(?:-h,)?(--[\w-]+)(?: {2,}|$)", help_text, re.MULTILINE))
    script = (TOOLS / "serve").read_text().replace("\\\n", "")
    known = re.search(r'^readonly FLAGS="(.*)"$', script, re.MULTILINE)
    assert set(known[1].split()) == flags - {"--help", "--version"}


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
        hint = next(h for h in tree.hints(server.read_log()) if " -p " in h)
        line = f"{tree.programs}/lmtp-client{hint.removesuffix('one answer')}"
        done = subprocess.run(
            ["bash", "-c", f"{line} -n 4"],
            capture_output=True, text=True, cwd=tmp_path, timeout=TIMEOUT_S, env=tree.environment,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    if "random:gpt2" in arguments:  # most of its tokens are none of the demo's
        assert "note: the tokenizer" in done.stderr
    else:
        assert (done.stdout.strip() != "", done.stderr) == (True, "")


@pytest.mark.parametrize("script", ["dev/make-checkpoint"])
def test_usage_is_the_comment_alone(script):
    done = subprocess.run([TOOLS / script], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    lines = done.stderr.splitlines()
    assert any(f"tools/{script}" in line for line in lines)
    comment = (TOOLS / script).read_text().splitlines()[1 : 1 + len(lines)]
    assert [line.removeprefix("#").removeprefix(" ") for line in comment] == lines
    assert not any("set -e" in line for line in lines)
