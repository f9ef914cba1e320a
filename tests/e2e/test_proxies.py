"""The files of packaging/ for HAProxy, nginx and Kubernetes: Debian's proxies before two servers,
with LMQL's queries and HTTP through them, a server that drains and one that dies; manifests by
Kubernetes' schemas, and their options by the program."""

import asyncio
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import urllib.request

import pytest
import yaml
from lmtp_socket import Socket
from servers import LmtpServe, Server, bin_dir, free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
LMQL_TESTS = ROOT / "tests" / "lmql"
sys.path.insert(0, str(LMQL_TESTS))

from relay import run_queries  # noqa: E402

QUERIES = sorted((LMQL_TESTS / "queries").glob("0[1-4]-*.lmql"))
NGINX_PATHS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
# Of Kubernetes: what is supported today, and an old one that is still met.
KUBERNETES = ("1.28", "1.34")


class Proxy(Server):
    """Debian's, with the project's file in which the ports are those of these servers."""

    def __init__(self, folder, workers):
        program = shutil.which(self.name, path="/usr/sbin:/usr/bin:/sbin:/bin")
        if program is None:
            pytest.skip(f"{self.name} is not there: tools/setup --tests installs it")
        port = free_port()
        text = (PACKAGING / "proxies" / self.file).read_text()
        text = text.replace("127.0.0.1:8080", f"127.0.0.1:{port}")
        for number, worker in enumerate(workers, 8081):
            text = text.replace(f"127.0.0.1:{number}", worker.endpoint)
        text = re.sub(r"(?m)^.*127\.0\.0\.1:808\d.*$", "", text)  # those that are not there
        self.config = folder / self.file
        self.config.write_text(self.prepared(text, folder))
        subprocess.run([program, *self.check, self.config], check=True, capture_output=True)
        super().__init__([program, *self.run, self.config], port)

    def prepared(self, text, _folder):
        return text


class HAProxy(Proxy):
    name, file, check, run = "haproxy", "haproxy.cfg", ("-c", "-f"), ("-db", "-f")


class Nginx(Proxy):
    name, file, check, run = "nginx", "nginx.conf", ("-t", "-c"), ("-c",)

    def prepared(self, text, folder):
        """In the foreground, with its own files in that folder."""
        paths = "".join(f"{name}_temp_path {folder}/{name};\n" for name in NGINX_PATHS)
        head = f"daemon off;\npid {folder}/pid;\nerror_log {folder}/errors;\n"
        return head + text.replace("http {", "http {\n" + paths, 1)


@pytest.fixture(params=[HAProxy, Nginx])
def proxied(request, tmp_path):
    with LmtpServe("demo") as one, LmtpServe("demo") as two:
        with request.param(tmp_path, (one, two)) as proxy:
            yield proxy, (one, two)


def complete(endpoint, **fields):
    body = {"model": "demo", "prompt": "The sea", "max_tokens": 8, "temperature": 0, **fields}
    request = urllib.request.Request(
        f"http://{endpoint}/v1/completions", json.dumps(body).encode(),
        {"content-type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


def tokens_of(worker):
    """Of prompts that it has had."""
    with urllib.request.urlopen(f"http://{worker.endpoint}/metrics", timeout=60) as answer:
        [line] = re.findall(rb"(?m)^lmtp_prefix_cache_queries_total\{.*\} (\S+)", answer.read())
    return float(line)


def test_lmqls_queries_and_http_go_through(proxied):
    proxy, workers = proxied
    through, direct = (
        asyncio.run(run_queries(server.endpoint, "demo", ROOT / "models" / "demo", QUERIES))
        for server in (proxy, workers[0])
    )
    assert len(through) == len(QUERIES)
    for mine, reference in zip(through, direct, strict=True):
        assert "error" not in mine
        assert mine["results"] == reference["results"], mine["query"]
    texts = [json.loads(complete(proxy.endpoint))["choices"][0]["text"] for _ in range(4)]
    assert len(set(texts)) == 1
    streamed = complete(proxy.endpoint, stream=True)
    pieces = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == texts[0]
    assert streamed.rstrip().endswith("data: [DONE]")
    assert all(tokens_of(worker) > 0 for worker in workers), "one server got everything"


async def stream_with(endpoint, meanwhile):
    """A long stream; `meanwhile` is called behind its first token."""
    async with Socket(endpoint) as s:
        await s.send("GENERATE", stream_id=1, prompt=[5, 6, 7], max_tokens=300, temperature=0)
        count, last = 0, {"finish_reason": None}
        while last["finish_reason"] is None:
            last = await s.token_of(1)
            count += 1
            if count == 1:
                meanwhile()
        return count


def test_one_that_drains_finishes_and_gets_nothing_new(proxied):
    proxy, workers = proxied
    before = [tokens_of(worker) for worker in workers]
    drained = []

    def drain():
        busy = [tokens_of(w) > b for w, b in zip(workers, before, strict=True)].index(True)
        drained.append(busy)
        workers[busy].process.send_signal(signal.SIGTERM)

    assert asyncio.run(stream_with(proxy.endpoint, drain)) == 300
    left = workers[1 - drained[0]]
    had = tokens_of(left)
    for _ in range(6):
        complete(proxy.endpoint)
    assert tokens_of(left) > had


def test_one_that_dies_is_passed_over(proxied):
    proxy, workers = proxied
    workers[0].process.kill()
    workers[0].process.wait()
    for _ in range(8):
        assert json.loads(complete(proxy.endpoint))["choices"][0]["text"]


def manifests():
    for file in sorted((PACKAGING / "kubernetes").glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            yield file.name, document


@pytest.mark.parametrize("version", KUBERNETES)
def test_manifests_are_kubernetes_own(version):
    validate = pytest.importorskip("kubernetes_validate")
    found = list(manifests())
    assert len(found) == 7
    for name, document in found:
        validate.validate(document, version, strict=True)
        assert document["metadata"]["name"].startswith("lmtp"), name
    wrong = dict(found[0][1], spec={**found[0][1]["spec"], "replica": 3})
    with pytest.raises(validate.ValidationError):
        validate.validate(wrong, version, strict=True)


def test_their_commands_are_this_programs(tmp_path):
    """--print-config takes the options of each container, or says what is wrong with them."""
    keys = tmp_path / "keys.json"
    keys.write_text('{"keys": [{"name": "one", "key": "0123456789abcdef"}]}')
    keys.chmod(0o600)
    checked = 0
    for name, document in manifests():
        if "template" not in document["spec"]:
            continue
        for container in document["spec"]["template"]["spec"]["containers"]:
            args = [arg.replace("/etc/lmtp/keys.json", str(keys)).replace("$(WORKER_KEY)", "k" * 16)
                    for arg in container["args"]]  # fmt: skip
            if args[0] == "balance":  # it reads no file of options
                continue
            done = subprocess.run([bin_dir() / "lmtp-serve", *args, "--print-config"],
                                  capture_output=True, text=True, timeout=60)  # fmt: skip
            assert done.returncode == 0, (name, done.stderr)
            checked += 1
            assert container["ports"][0]["containerPort"] == 8080
    assert checked == 2
