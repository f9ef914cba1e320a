"""tools/conformance against lmtp-serve: every rule holds, and each fault of a proxy that breaks one
rule is noticed by the rule of that name."""

import asyncio
import collections
import json
import pathlib
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from auto_server import Auto
from lmtp_socket import Socket
from servers import LmtpServe, Server, free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "conformance"))

import main  # noqa: E402
from breaking_proxy import FAULTS, Proxy  # noqa: E402
from suite import RULES, Schema, Target  # noqa: E402

PAGE = (ROOT / "docs" / "lmtp.md").read_text(encoding="utf-8")
SCHEMAS = ROOT / "docs" / "schema"
LEVEL = "1.1"
LEVEL_RULES = [rule for rule in RULES if main.LEVELS.index(rule.level) <= main.LEVELS.index(LEVEL)]
TIMEOUT_S = 300
# It waits long, or its streams run long beyond what was asked.
SLOW_FOR_LMQL = {
    "unknown-models-are-refused", "max-tokens-is-32", "live-ids-are-refused", "streams-do-not-mix",
    "connections-do-not-mix", "connections-end-alone", "one-candidate-is-greedy",
    "tokens-come-in-order", "null-fields-are-absent",
}  # fmt: skip
LOST_S = 2  # what a fault keeps back does not come later either


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """With all that the rules can ask for."""
    options = ["--max-message-size", "1MiB", "--aici", "--aici-cache", tmp_path_factory.mktemp("c")]
    with LmtpServe("demo", "--kv-cache", "64MiB", *options) as server:
        yield server
    assert server.exit_code == 0, server.log_tail


def conformance(*arguments):
    return subprocess.run(
        [ROOT / "tools" / "conformance", *map(str, arguments)],
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip


def section_titles():
    return {line.lstrip("# ") for line in PAGE.splitlines() if line.startswith("## ")}


def test_rules_name_sections_of_the_page():
    assert {rule.section for rule in RULES} <= section_titles()


@pytest.mark.parametrize("section", ["TOKENIZE and DETOKENIZE", "Buffers"])
def test_examples_of_the_page(demo, section):
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^    ([A-Z]+ .*)", text, re.MULTILINE)
    assert len(lines) >= 4

    async def run():
        async with Socket(demo.endpoint) as s:
            for line in lines:
                if not line.startswith("MSG "):
                    await s.send_text(line)
                    continue
                wanted = json.loads(line.removeprefix("MSG "))
                await s.wait_for(lambda kind, entry: (kind, [entry]) == ("MSG", wanted))

    asyncio.run(run())


def test_every_rule_holds(demo, tmp_path):
    """Through the proxy that other tests break things with: alone it breaks nothing."""
    junit = tmp_path / "junit.xml"

    async def run():
        async with Proxy(demo.endpoint) as proxy:
            arguments = [proxy.url(""), "--level", LEVEL, "--junit", junit]
            return await asyncio.to_thread(conformance, *arguments)

    done = asyncio.run(run())
    assert done.returncode == 0, done.stdout + done.stderr
    suite = ElementTree.parse(junit).getroot()
    assert int(suite.get("tests")) == len(LEVEL_RULES) + 1
    assert suite.get("failures") == "0"


def test_every_rule_holds_on_a_server_of_any_model_behind_a_unix_socket(tmp_path):
    url = f"unix:{tmp_path}/lmtp.sock"
    options = ["--listen", url, "--aici", "--aici-cache", tmp_path / "aici"]
    with Auto(tmp_path, *options):  # without a hub, where no name can be said to be unknown
        done = conformance(url, "--level", LEVEL)
    assert done.returncode == 0, done.stdout + done.stderr
    skipped = re.findall(r"^skip +(\S+).*", done.stdout, re.MULTILINE)
    assert done.stdout.count("the model has no chat template") == len(skipped), done.stdout
    assert {rule.section for rule in RULES if rule.name in skipped} == {"Chats", "Parsed replies"}
    num_passed = len(re.findall(r"^pass ", done.stdout, re.MULTILINE))
    assert num_passed + len(skipped) == len(LEVEL_RULES) + 1, "none is left out"


def test_what_a_server_does_not_list_is_not_asked_of_it():
    rules = [rule.name for rule in LEVEL_RULES if "CONTROLLER" in rule.needs]
    with LmtpServe("demo", "--kv-cache", "64MiB") as server:
        done = conformance(server.endpoint, *(o for name in rules for o in ("--only", name)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("skip ") == len(rules) > 4, done.stdout


def test_a_broken_rule_is_a_failure_by_name(demo, tmp_path):
    async def run():
        async with Proxy(demo.endpoint) as proxy:
            return await asyncio.to_thread(
                conformance, proxy.url("seeds-draw-the-same"), "--level", "base",
                "--junit", tmp_path / "junit.xml",
            )  # fmt: skip

    done = asyncio.run(run())
    assert done.returncode == 1, done.stderr
    assert "FAIL  seeds-draw-the-same " in done.stdout
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    failed = {case.get("name") for case in suite if case.find("failure") is not None}
    assert "seeds-draw-the-same" in failed and "greedy-is-deterministic" not in failed


def test_no_server_and_no_such_rule():
    assert conformance("127.0.0.1:1", "--level", "base").returncode == 2
    done = conformance("127.0.0.1:1", "--only", "no-such-rule")
    assert (done.returncode, "no such rule" in done.stderr) == (2, True)


async def results_behind(demo, name, timeout_s=60, only=()):
    target = Target(demo.endpoint, schema=Schema(SCHEMAS, LEVEL), timeout_s=timeout_s)
    await target.learn()
    async with Proxy(demo.endpoint) as proxy:
        target.url = proxy.url(name)
        return [r async for r in main.run_rules(target, LEVEL, only)]


class LmqlServeModel(Server):
    """LMQL's own server, in this environment."""

    name = "lmql serve-model"

    def __init__(self, home):
        port = free_port()
        code = "from lmql.models.lmtp.lmtp_serve import serve; serve('demo', port=%d)" % port
        offline = {"HF_HUB_OFFLINE": "1", "HOME": str(home), "LMQL_HOME": str(home)}
        offline["OMP_NUM_THREADS"] = "1"  # of a model that small; more wait for each other
        self.popen_options = {"cwd": ROOT / "models"}  # where its name is a folder
        super().__init__([sys.executable, "-c", code], port, offline)
        self.endpoint = f"localhost:{port}"

    def is_ready(self):
        return self.http_status("/") is not None


def test_lmqls_own_server(tmp_path):
    """Level base asks for nothing that it lacks, and it has no other faults than those listed."""
    names = [rule.name for rule in RULES if rule.level == "base" and rule.name not in SLOW_FOR_LMQL]
    only = [option for name in names for option in ("--only", name)]
    with LmqlServeModel(tmp_path) as server:
        arguments = ["--level", "base", "--model", "demo", "--eos", "2047", *only]
        done = conformance(server.endpoint, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    statuses = collections.Counter(line.split()[0] for line in done.stdout.splitlines())
    assert statuses["pass"] > 15 and statuses["known"] > 5, done.stdout
    assert "known broken-json-is-answered " in done.stdout


@pytest.mark.parametrize("name", [n for n in FAULTS if n in {r.name for r in LEVEL_RULES}])
def test_a_fault_is_noticed_by_its_rule(demo, name):
    only = {name} if name != main.SCHEMA_RULE.name else {name, "answers-are-arrays"}
    results = asyncio.run(results_behind(demo, name, LOST_S, only))
    assert results[-1].rule.name == name
    assert results[-1].status == "FAIL"
