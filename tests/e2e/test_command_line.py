"""What a shell completes, options by the environment, and the lines that say how a server is
reached."""

import json
import os
import re
import shlex
import shutil
import subprocess

import pytest
from servers import LmtpServe, bin_dir

PROGRAMS = ("lmtp-serve", "lmtp-client", "lmtp-bench")


def run(command, folder=None, **environment):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          cwd=folder, env={**os.environ, **environment})


def script(program, shell):
    done = run([bin_dir() / program, "--completion", shell])
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def bash_completes(program, folder, *words):
    """What bash offers for the last word."""
    ask = (f"{script(program, 'bash')}\nCOMP_WORDS=({shlex.join([program, *words])})\n"
           f"COMP_CWORD={len(words)}\n_{program.replace('-', '_')}\n"
           'printf "%s\\n" "${COMPREPLY[@]}"')
    done = run(["bash", "-c", ask], folder)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_bash_completes_options_and_their_values(tmp_path):
    (tmp_path / "a.toml").touch()
    (tmp_path / "demo-2").mkdir()

    def offered(*words):
        return bash_completes("lmtp-serve", tmp_path, *words)

    assert sorted(offered("--kv-c")) == ["--kv-cache", "--kv-cache-dtype"]
    assert offered("demo", "--kv-cache-d") == ["--kv-cache-dtype"]
    assert offered("--completion", "") == ["bash", "zsh", "fish"]
    assert offered("--tie-embeddings", "t") == ["true"]
    assert offered("--config", "a") == ["a.toml"]
    assert offered("--port", "") == []
    assert offered("de") == ["demo", "demo-2"]
    assert "--api-key" in bash_completes("lmtp-client", tmp_path, "--a")
    assert "--num-prompts" in bash_completes("lmtp-bench", tmp_path, "--num")


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_option_of_the_help_is_completed(program, tmp_path):
    listed = re.findall(r"^ +(-\S+)", run([bin_dir() / program, "--help"]).stdout, re.MULTILINE)
    names = {name.split("=")[0] for part in listed for name in part.split(",")}
    names = {re.match(r"-+[\w-]+", name)[0] for name in names}
    assert len(names) > 10
    assert names <= set(bash_completes(program, tmp_path, "-"))


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_their_scripts(program, shell, tmp_path):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / "script"
    path.write_text(script(program, shell))
    home = {"HOME": str(tmp_path)}
    if shell == "fish":
        ask = f"source {path}; complete -C '{program} --he'"
        done = run(["fish", "--no-config", "-c", ask], tmp_path, **home)
        assert (done.stdout.split()[0], done.stderr) == ("--help", "")
    else:
        ask = f"autoload -Uz compinit; compinit -D; . {path}; print $_comps[{program}]"
        done = run(["zsh", "-f", "-c", ask], tmp_path, **home)
        assert done.stdout.strip() == "_" + program.replace("-", "_"), done.stderr


def test_an_unknown_shell_is_refused():
    done = run([bin_dir() / "lmtp-serve", "--completion", "csh"])
    assert done.returncode == 2 and "bash" in done.stderr


def config(*arguments, **environment):
    done = run([bin_dir() / "lmtp-serve", *arguments, "--print-config"], **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_the_environment_gives_options(tmp_path):
    lines = config("demo", LMTP_ARG_PORT="9000", LMTP_ARG_INSECURE="true", LMTP_ARG_DTYPE="")
    assert {"port = 9000", "insecure = true"} <= set(lines)
    assert any(line.startswith("# dtype") for line in lines)
    assert "port = 1" in config("demo", "--port", "1", LMTP_ARG_PORT="9000")
    file = tmp_path / "serve.toml"
    file.write_text('port = 2\nhost = "::1"\n')
    assert {"port = 9000", "host = '::1'"} <= set(config("--config", file, LMTP_ARG_PORT="9000"))


@pytest.mark.parametrize(("name", "value", "message"), [
    ("LMTP_ARG_PROT", "1", "LMTP_ARG_PROT in the environment is no option's; the nearest is "
     "LMTP_ARG_PORT"),
    ("LMTP_ARG_MAX_MODEL_LEN", "9", "is no option's; write LMTP_ARG_CONTEXT_LENGTH ("),
    ("LMTP_ARG_PORT", "tcp://10.0.0.1:80", "(--port is LMTP_ARG_PORT's)"),
])
def test_a_wrong_variable_is_named(name, value, message):
    done = run([bin_dir() / "lmtp-serve", "demo"], **{name: value})
    assert done.returncode == 2
    assert message in done.stderr and done.stderr.count("\n") == 1


def test_a_wrong_option_beside_a_variable_is_the_options(tmp_path):
    done = run([bin_dir() / "lmtp-serve", "demo", "--port", "x"], LMTP_ARG_PORT="1")
    assert done.returncode == 2 and "LMTP_ARG_PORT" not in done.stderr


def test_the_line_with_curl_works_as_printed(tmp_path):
    with LmtpServe("demo", "--served-model-name", "it's mine") as server:
        log = server.wait_for_log("lmtp-serve: to talk to it: ")
        url, command = re.search(r"^lmtp-serve: OpenAI's API: (\S+), as in: (curl .*)$", log,
                                 re.MULTILINE).groups()
        assert url == f"http://{server.endpoint}/v1"
        done = run(["bash", "-c", command + " -fsS"], tmp_path)
    answer = json.loads(done.stdout)
    assert answer["model"] == "it's mine"
    assert answer["usage"]["completion_tokens"] == 16
