"""The README's commands, against a server on a port of its own: as printed otherwise. What sets up,
builds and installs is left to test_scripts.py, test_install.py and tools/dev/try-debian."""

import asyncio
import json
import os
import pathlib
import re
import shlex
import subprocess

import pytest
from lmtp_socket import Socket
from repl_terminal import Terminal
from servers import bin_dir

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
OPTIONS = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
COMMANDS = [
    line.removeprefix("$ ")
    for language, block in BLOCKS if not language
    for line in block.splitlines() if line.startswith("$ ")
]  # fmt: skip
TIMEOUT_S = 300
LOGPROB_TOLERANCE = 1e-4  # the last bits depend on the processor's instruction set


def block_with(text):
    return next(block for _, block in BLOCKS if text in block)


def program_and_arguments(command):
    program, *arguments = shlex.split(command)
    return bin_dir() / pathlib.Path(program).name, arguments


@pytest.mark.parametrize("command", [c for c in COMMANDS if "lmtp-bench -" in c])
def test_measuring(demo, tmp_path, command):
    program, arguments = program_and_arguments(command)
    done = subprocess.run(
        # Fewer requests than by default: the sweep is not what is tested.
        [program, *arguments, "--port", demo.endpoint.split(":")[1], "--num-prompts", "4"],
        capture_output=True, text=True, cwd=tmp_path, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"completed \d\d*, failed 0,", done.stdout), done.stdout
    assert [p.name for p in tmp_path.iterdir()] == re.findall(r"\S+\.svg", command)


def test_one_answer(demo):
    command = re.search(r'`(lmtp-client -p "[^`]*)`', README)[1]
    program, arguments = program_and_arguments(command)
    for stdin, more in [("", arguments), ("Once upon a time\nHello there\n", [])]:
        done = subprocess.run(
            [program, *more, "--host", demo.endpoint],
            input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.strip()


def test_the_prompt(demo, tmp_path):
    lines = re.findall(r"^>>>> (.*)$", block_with(">>>> "), re.MULTILINE)
    assert "/help" in lines
    with Terminal(tmp_path, "--host", demo.endpoint) as terminal:
        terminal.read_prompt()
        for line in lines:
            answer = terminal.ask(line).replace(line, "", 1).strip()
            assert answer and "error" not in answer, line


def test_a_websocket(demo):
    lines = block_with("< TOKEN").splitlines()

    async def run():
        async with Socket(demo.endpoint) as s:
            for line in lines:
                if line.startswith("> "):
                    await s.send_text(line.removeprefix("> "))
                else:
                    expected = json.loads(line.removeprefix("< TOKEN "))[0]
                    assert await s.token_of(expected["stream_id"]) == approximately(expected)

    asyncio.run(run())


def approximately(value):
    if isinstance(value, dict):
        return {key: approximately(part) for key, part in value.items()}
    return pytest.approx(value, abs=LOGPROB_TOLERANCE) if isinstance(value, float) else value


# .venv-newest has what the `pip install` of the README gives.
@pytest.mark.parametrize("environment", [".venv", ".venv-newest"])
def test_lmql(demo, tmp_path, environment):
    assert "pip install lmql transformers" in README
    text = block_with("lmql.model(").replace("localhost:8080", demo.endpoint)
    assert demo.endpoint in text
    program = tmp_path / "story.py"  # LMQL reads a query's source from its file
    program.write_text(text, encoding="utf-8")
    home = {"HOME": str(tmp_path), "LMQL_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [ROOT / environment / "bin" / "python", program],
        cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S,
        env={**os.environ, **home, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip()) > 4


def test_options_are_those_of_the_program():
    """Each option of --help is in the docs' table, with the same default, and no other."""
    help_text = subprocess.run(
        [bin_dir() / "lmtp-serve", "--help"], capture_output=True, text=True, check=True
    ).stdout
    rows = [line for line in OPTIONS.splitlines() if line.startswith("| `--")]
    in_table = {name for row in rows for name in re.findall(r"--[\w-]+", row.split("|")[1])}
    in_help = set(re.findall(r"^ +(?:-\w,)?(--[\w-]+)", help_text, re.MULTILINE))
    assert in_table == in_help - {"--help", "--version"}
