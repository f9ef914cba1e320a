"""The dashboard, the alerts and the files for scaling in packaging/: each metric and label that
they name is one of a server's, alerts fire where they should, and the objects that they point to
are those of the manifests."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml
from servers import LmtpServe
from test_metrics import FOUND_BY_SETUP, get, samples

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
ALERTS = PACKAGING / "prometheus" / "alerts.yaml"
NAME = re.compile(r"\b(?:lmtp|vllm|tgi)[_:]\w+")
FROM_PROMETHEUS = {"job", "instance", "le"}
EVERY_MINUTE = {
    "LmtpDown": {'up{job="lmtp",instance="a"}': "0x30"},
    "LmtpStepsFail": {'lmtp_steps_failed_total{instance="a"}': "0+1x30"},
    "LmtpStandsStill": {'lmtp_num_requests_running{instance="a"}': "1x30",
                        'lmtp_steps_total{instance="a"}': "7x30"},
    "LmtpErrors": {'lmtp_request_failure_total{instance="a",cause="internal"}': "0+1x30"},
    "LmtpKvCacheTooSmall": {'lmtp_num_preemptions_total{instance="a"}': "0+60x30"},
    "LmtpOverloaded": {'lmtp_requests_refused_total{instance="a",cause="overloaded"}': "0+60x30"},
    "LmtpSlowFirstToken": {
        'lmtp_time_to_first_token_seconds_bucket{instance="a",le="4.6"}': "0x30",
        'lmtp_time_to_first_token_seconds_bucket{instance="a",le="10"}': "0+60x30",
        'lmtp_time_to_first_token_seconds_bucket{instance="a",le="+Inf"}': "0+60x30"},
}  # fmt: skip


@pytest.fixture(scope="module")
def series():
    """Name -> labels, of what /metrics has."""
    with LmtpServe("demo", "--kv-cache", "64MiB") as server:
        text = get(server.endpoint)[1]
    found = {}
    for sample in samples(text):
        name, _, labels = sample.partition("{")
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


def queries():
    """(where from, PromQL) of all files."""
    dashboard = json.loads((PACKAGING / "grafana" / "lmtp.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    values = re.compile(r"label_values\((.*), \w+\)")
    for variable in dashboard["templating"]["list"][1:]:
        yield variable["name"], values.fullmatch(variable["definition"])[1]
    for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]:
        yield rule["alert"], rule["expr"]
    for trigger in scaling("ScaledObject")["spec"]["triggers"]:
        yield "KEDA", trigger["metadata"]["query"]


def scaling(kind):
    for file in sorted((PACKAGING / "kubernetes" / "autoscaling").glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            if document["kind"] == kind:
                return document
    raise AssertionError(f"no {kind}")


def test_each_metric_and_label_is_there(series):
    seen = set()
    for where, query in queries():
        names = set(NAME.findall(query)) - {"lmtp"}
        assert names <= series.keys(), where
        known = set.union(*(series[name] for name in names)) if names else set()
        selected = re.findall(r"(\w+)(?:=~|=)\"", query)
        grouped = ",".join(re.findall(r"by \(([^)]*)\)", query))
        labels = {*selected, *re.findall(r"\w+", grouped)}
        assert labels - FROM_PROMETHEUS <= known, where
        seen |= names
    assert len(seen) > 20


def promtool():
    found = shutil.which("promtool") or shutil.which(FOUND_BY_SETUP)
    if found is None:
        pytest.skip("promtool is missing: run tools/setup --tests")
    return found


def test_promtool_takes_the_dashboards_queries(tmp_path):
    rules = [{"record": f"query{number}", "expr": re.sub(r"\$__rate_interval", "5m", query)}
             for number, (_, query) in enumerate(queries())]
    path = tmp_path / "queries.yaml"
    path.write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}))
    done = subprocess.run([promtool(), "check", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", EVERY_MINUTE)
def test_an_alert_fires_alone(alert, tmp_path):
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    assert {rule["alert"] for rule in rules} == EVERY_MINUTE.keys()
    inputs = [{"series": name, "values": values} for name, values in EVERY_MINUTE[alert].items()]
    names = "|".join(EVERY_MINUTE)
    tests = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [
        {"interval": "1m", "input_series": inputs, "promql_expr_test": [
            {"eval_time": "25m", "expr": f'count by (alertname) (ALERTS{{alertstate="firing",'
                                         f'alertname=~"{names}"}})',
             "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1}]}]}]}
    path = tmp_path / "test.yaml"
    path.write_text(json.dumps(tests))
    done = subprocess.run([promtool(), "test", "rules", path], capture_output=True, text=True,
                          env={**os.environ, "TZ": "UTC"})
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_scales_is_what_the_manifests_have():
    documents = list(yaml.safe_load_all((PACKAGING / "kubernetes" / "servers.yaml").read_text()))
    server = next(document for document in documents if document["kind"] == "Deployment")
    assert scaling("ScaledObject")["spec"]["scaleTargetRef"]["name"] == server["metadata"]["name"]
    pool = scaling("InferencePool")
    labels = server["spec"]["template"]["metadata"]["labels"]
    assert pool["spec"]["selector"]["matchLabels"].items() <= labels.items()
    ports = server["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert pool["spec"]["targetPorts"] == [{"number": ports[0]["containerPort"]}]
    backend = scaling("HTTPRoute")["spec"]["rules"][0]["backendRefs"][0]
    assert (backend["kind"], backend["name"]) == (pool["kind"], pool["metadata"]["name"])
    args = server["spec"]["template"]["spec"]["containers"][0]["args"]
    model = re.search(r'model_name="(\w+)"', json.dumps(scaling("ScaledObject")).replace("\\", ""))
    assert model[1] == args[0]


def test_the_picker_finds_vllms_names(series):
    assert {"vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"} <= series.keys()
