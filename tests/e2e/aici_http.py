"""The HTTP routes of AICI controllers, for tests: what a server answers, and runs put together."""

import json
import urllib.error
import urllib.request

TIMEOUT_S = 60


def ask(server, path, body=None, kind="application/json", method=None):
    """The status and the body."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    url = f"http://{server.endpoint}{path}"
    headers = {"Content-Type": kind} if body else {}
    request = urllib.request.Request(url, data=body, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


class Run:
    """POST /v1/run, read to its end: of each fork its text, its logs and so on, put together."""

    def __init__(self, server, controller, arg=None, **fields):
        body = {"controller": controller, "prompt": "Once", "max_tokens": 32, **fields}
        if arg is not None:
            body["controller_arg"] = arg
        self.status, answer = ask(server, "/v1/run", body)
        self.error = answer if self.status != 200 else None
        self.forks = {}
        if self.error:
            return
        assert answer.endswith("\n\n")
        *events, done = answer.removesuffix("\n\n").split("\n\n")
        assert done == "data: [DONE]"
        self.head, *steps = [json.loads(event.removeprefix("data: ")) for event in events]
        assert self.head["object"] == "initial-run" and self.head["id"].startswith("run-")
        for step in steps:
            assert step["object"] == "run"
            self.usage = step["usage"]
            for news in step["forks"]:
                self.add(news)

    def add(self, news):
        empty = {"text": "", "logs": "", "error": "", "storage": []}
        fork = self.forks.setdefault(news["index"], empty)
        assert "finish_reason" not in fork, news
        for name in empty:
            fork[name] += news[name]
        fork.update({n: news[n] for n in ("finish_reason", "fork_of") if n in news})
