"""What the tests of the hub share: a fake hub, an empty cache, and programs that use both."""

import json
import os
import pathlib
import pty
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LMTP_BIN_DIR", ROOT / "build/release/bin"))
HUB_FETCH = BIN.parent / "tests" / "hub_fetch"
TIMEOUT_S = 120

NAME = "org/tiny"
WEIGHTS = bytes(range(256)) * 4096  # 1 MiB

DEMO = ROOT / "models" / "demo"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                   "vocab.json", "merges.txt")


def demo_files():
    """The demo's files as a repository would hold them, and which of them are in LFS."""
    files = {p.name: p.read_bytes() for p in DEMO.iterdir() if p.is_file()}
    return files, {name for name in files if name.endswith(".safetensors")}


def add_demo(hub):
    """The hub, which has the demo under NAME now."""
    files, lfs = demo_files()
    hub.add(NAME, files, lfs=lfs)
    return hub


def add_tiny(hub):
    """The repository NAME: a model's small files, and many that are not needed."""
    files = {"config.json": b'{"model_type": "gpt2"}', "generation_config.json": b"{}",
             "tokenizer.json": b'{"a": 1}', "vocab.json": b"{}", "merges.txt": b"#version\n",
             "model.safetensors": WEIGHTS, "pytorch_model.bin": b"pickle", "tf_model.h5": b"tf",
             "flax_model.msgpack": b"flax", "model.gguf": b"gguf", "README.md": b"read me",
             "onnx/model.onnx": b"onnx", "model.fp16.safetensors": b"half"}
    return hub.add(NAME, files, lfs={"model.safetensors", "pytorch_model.bin"})


def safetensors(header, num_bytes):
    """A file of that header, and so many bytes of data."""
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(num_bytes)


def names_in(folder):
    return sorted(p.name for p in folder.iterdir())


def environment(hub, home, **more):
    """Nothing of this machine's own settings reaches the programs."""
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(("HF_", "HUGGING", "TRANSFORMERS_", "XDG_CACHE_HOME"))
            and "proxy" not in k.lower()}
    chosen = {"HF_HOME": str(home), "HF_ENDPOINT": hub if isinstance(hub, str) else hub.url,
              "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "*", **more}
    return {k: v for k, v in {**kept, **chosen}.items() if v is not None}


class Machine:
    """One user's home: programs run here share a cache."""

    def __init__(self, hub, home):
        self.hub, self.home = hub, pathlib.Path(home)
        self.cache = self.home / "hub"

    def start(self, *args, program=HUB_FETCH, stdin=None, **env):
        return subprocess.Popen([str(program), *args], env=environment(self.hub, self.home, **env),
                                stdin=stdin or subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def run(self, *args, stdin=None, **options):
        process = self.start(*args, stdin=subprocess.PIPE if stdin is not None else None, **options)
        out, err = process.communicate(stdin, timeout=TIMEOUT_S)
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def start_at_terminal(self, *args, program):
        """The process, and our end of the terminal that is its standard error."""
        ours, its = pty.openpty()
        process = subprocess.Popen([str(program), *args], env=environment(self.hub, self.home),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=its)
        os.close(its)
        return process, ours

    def fetch(self, *args, **env):
        """The folder; fails the test where there is none."""
        done = self.run(*args, **env)
        assert done.returncode == 0, done.stderr
        return pathlib.Path(done.stdout.splitlines()[0])

    def error(self, *args, **env):
        """The message; fails the test where there is none, or more than one line."""
        done = self.run(*args, **env)
        assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
        assert len(done.stderr.splitlines()) == 1, done.stderr
        return done.stderr.strip()

    def python(self, code, **env):
        done = self.run("-c", code, program=sys.executable, **env)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def repo(self, name):
        return self.cache / ("models--" + name.replace("/", "--"))

    def partial(self, name, etag):
        """The partial file, of any process; None before it exists and once it is complete."""
        return next((self.repo(name) / "blobs").glob(f"{etag}*.incomplete"), None)

    def partial_size(self, name, etag):
        try:
            return (self.repo(name) / "blobs" / f"{etag}.incomplete").stat().st_size
        except FileNotFoundError:
            return 0

    def blobs(self, name):
        return sorted(p.name for p in (self.repo(name) / "blobs").iterdir())


def says(message, *parts):
    for part in parts:
        assert part in message, f"{message!r} lacks {part!r}"


def shown_at(terminal):
    """All that a program shows there until it ends; our end of the terminal is closed then."""
    shown = b""
    try:
        while piece := os.read(terminal, 65536):
            shown += piece
    except OSError:  # how Linux says that the other end is gone
        pass
    os.close(terminal)
    return shown


def wait_until(condition, process):
    """Until it holds; fails the test where the process ends before."""
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        if process.poll() is not None:
            raise AssertionError(f"ended early: {process.communicate()}")
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
