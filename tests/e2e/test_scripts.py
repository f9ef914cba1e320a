"""What the shell scripts of tools/ print, with everything that takes long replaced by nothing."""

import os
import pathlib
import shutil
import subprocess

import pytest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"


def write_script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


@pytest.fixture
def serve(tmp_path):
    """tools/serve with these arguments, in a tree where setup and cmake do nothing and lmtp-serve
    prints its arguments; (stdout, the two lines that tell what to type next)."""
    shutil.copytree(TOOLS, tmp_path / "tools", ignore=lambda _, names: set(names) - {"serve"})
    write_script(tmp_path / "tools" / "setup", "")
    write_script(tmp_path / "path" / "cmake", "")
    programs = tmp_path / "build" / "release" / "bin"
    write_script(programs / "lmtp-serve", 'printf "%s\\n" "$@"')

    def run(*arguments):
        path = f"{tmp_path / 'path'}:{os.environ['PATH']}"
        done = subprocess.run(
            [tmp_path / "tools" / "serve", *arguments],
            capture_output=True, text=True, env={**os.environ, "PATH": path},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        client = f"  {programs / 'lmtp-client'}"
        lines = done.stderr.splitlines()
        hints = [line.removeprefix(client) for line in lines if line.startswith(client)]
        return done.stdout.split("\n")[:-1], hints

    return run


@pytest.mark.parametrize(
    "arguments, hint",
    [
        ([], ""),
        (["demo"], ""),
        (["demo", "--port", "9000"], " --port 9000"),
        (["--host=10.0.0.7", "--port=9000", "demo"], " --host 10.0.0.7 --port 9000"),
        (["demo", "--host", "0.0.0.0", "--threads", "2"], ""),
        (["/srv/my models/a", "--host", "::1"], r" /srv/my\ models/a --host ::1"),
        (["gpt2-medium", "--cuda"], " gpt2-medium"),
        (["random:gpt2", "--port", "9"], " --port 9"),
    ],
)
def test_serve_says_how_to_reach_it(serve, arguments, hint):
    passed_on, hints = serve(*arguments)
    assert passed_on == (arguments or ["demo"])
    assert len(hints) == 2
    assert hints[0].startswith(hint + "     ")
    assert hints[1].startswith(hint + ' -p "Once upon"')


@pytest.mark.parametrize("script", ["make-checkpoint"])
def test_usage_is_the_comment_alone(script):
    done = subprocess.run([TOOLS / script], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    lines = done.stderr.splitlines()
    assert any(f"tools/{script}" in line for line in lines)
    comment = (TOOLS / script).read_text().splitlines()[1 : 1 + len(lines)]
    assert [line.removeprefix("#").removeprefix(" ") for line in comment] == lines
    assert not any("set -e" in line for line in lines)
