"""What is answered to malformed and odd input, byte for byte, against tests/goldens/malformed.json.
`python tests/e2e/test_malformed_goldens.py` records what the build in LMTP_BIN_DIR answers. Masked
are the port, the version, what a model's numbers decide, and the server's own folders."""

import json
import pathlib
import re
import sys
import tempfile

import malformed_corpus as corpus
import pytest
from raw_frames import BINARY, Wire, close_frame, frame

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "goldens" / "malformed.json"
OPTIONS = ["--kv-cache", "64MiB", "--max-message-size", str(corpus.MESSAGE_MAX),
           "--max-concurrent-requests", "4", "--threads", "1"]
LAST = b"END"  # an unknown verb: its answer comes after all that was answered at once
SHOWN = 20

ERROR_ENTRY = re.compile(r'\{"stream_id": [^{}]*"error": "(?:[^"\\]|\\.)*"[^{}]*\}')
MASKS = [
    (r'("model_info": ).*(\}\])', r"\1...\2"),
    (r"(text/html(?s:.)*?Content-Length: )\d+", r"\1..."),  # the page names a folder
    (r"<!doctype(?s:.)*</html>\n", "..."),
    (r'"logprob": [^,}]+', '"logprob": ...'),
    (r'"top_logprobs": \{[^}]*\}', '"top_logprobs": ...'),
    (r'("code": "overloaded".*"retry_after_ms": )\d+', r"\1..."),  # by how long others took
    (r"lmtp-serve/[^\r]+", "lmtp-serve/VERSION"),
    (r"X-Request-Id: [^\r]+\r\n", ""),
]


def is_over(text, answers, num_errors=1):
    """All has come: what is answered at once has, and a CANCEL need not be answered."""
    if not text.startswith(("GENERATE", "SCORE", "MODEL_INFO")):
        return True
    errors = sum(b'"error": ' in payload for _, payload in answers)
    ends = (b'"finish_reason": "', b'"model_info": ')
    return errors >= num_errors or any(end in p for _, p in answers for end in ends)


def counted(lines):
    """The same line many times is one line."""
    out = []
    for line in lines:
        if out and out[-1][0] == line:
            out[-1][1] += 1
        else:
            out.append([line, 1])
    return [line if count == 1 else f"{count} x {line}" for line, count in out]


class Recorder:
    def __init__(self, server, folder):
        self.port = int(server.endpoint.rpartition(":")[2])
        self.folder = folder
        self.wire = None

    def mask(self, data):
        text = data.decode(errors="backslashreplace").replace(f":{self.port}", ":PORT")
        text = text.replace(str(self.folder), "FOLDER").replace(str(self.folder.parent), "PARENT")
        for pattern, instead in MASKS:
            text = re.sub(pattern, instead, text)
        return text

    def show(self, answers):
        """A line for each; how many tokens share a message is a question of time."""
        lines = []
        for first, payload in answers:
            if first == 0x88:
                code = int.from_bytes(payload[:2], "big")
                lines.append(f"close {code} {self.mask(payload[2:])}")
            elif first == 0x81:
                one_each = self.mask(payload).replace('}, {"token"', '}]\nTOKEN [{"token"')
                lines += one_each.split("\n")
            else:
                lines.append(f"{first:02x} {self.mask(payload)}")
        return counted(lines)

    def exchange(self, sent, over):
        """Sends frames, and reads until LAST is answered and `over` says that all has come."""
        if self.wire is None:
            self.wire = Wire(self.port)
            self.wire.send(frame(LAST))
            self.last = self.wire.read()
        self.wire.send(sent + frame(LAST))
        answers, last_seen = [], False
        while not (last_seen and over(answers)):
            answer = self.wire.read()
            if answer is None:
                self.wire = None
                return [*self.show(answers), "closed"]
            if answer == self.last:
                last_seen = True
            elif b'"status": "loading"' not in answer[1]:
                answers.append(answer)
        return self.show(answers)

    def text(self, text, num_errors=1):
        return self.exchange(
            frame(text.encode(errors="surrogatepass")), lambda got: is_over(text, got, num_errors))

    def several(self, messages):
        """Errors alone; the first stream, and others like it, go on to their ends."""
        sent = b"".join(
            frame(m, BINARY) if isinstance(m, bytes) else frame(m.encode()) for m in messages)
        live = {json.loads(m.partition(" ")[2])["stream_id"] for m in messages if m in corpus.ALSO}

        def over(answers):
            over_now = set()
            for _, payload in answers:
                kind, _, entries = payload.partition(b" ")
                for entry in json.loads(entries) if kind == b"TOKEN" else []:
                    error = entry.get("error", "")
                    if entry.get("finish_reason") or error.startswith(("cancelled", "overloaded")):
                        over_now.add(entry["stream_id"])
            return live <= over_now

        shown = self.exchange(sent, over)
        return sorted(f"{line.partition(' ')[0]} {entry}"
                      for line in shown for entry in ERROR_ENTRY.findall(line))

    def frames(self, data):
        """With a close frame behind; all that comes until the server closes."""
        with Wire(self.port) as wire:
            wire.send(data + close_frame())
            answers = []
            while (answer := wire.read()) is not None:
                answers.append(answer)
                if answer[0] == 0x88:
                    wire.half_close()
            return self.show(answers)

    def http(self, data):
        with Wire(self.port, opens=False) as wire:
            wire.send(data)
            if b"websocket" in data.lower():
                wire.send(close_frame())
            wire.half_close()
            return self.mask(wire.rest()).split("\r\n")


def record_one(server, folder):
    """Of a server of one model."""
    recorder = Recorder(server, folder)
    models = [case[:2] for case in corpus.model_cases()]
    return {
        "fields": {name: recorder.text(text) for name, text in corpus.field_cases()},
        "texts": {text: recorder.text(text) for text in corpus.text_cases()},
        "models": {name: recorder.text(text) for name, text in models},
        "long": {name: recorder.text(text) for name, text in corpus.long_cases()},
        "several": {name: recorder.several(m) for name, m in corpus.SEVERAL.items()},
        "frames": {name: recorder.frames(data) for name, data in corpus.frame_cases()},
        "http": {name: recorder.http(data) for name, data in corpus.http_cases(recorder.port)},
    }


def record_auto(server, folder):
    recorder = Recorder(server, folder)
    cases = corpus.model_cases()
    return {"models of any": {name: recorder.text(text, count) for name, text, count in cases}}


def record(folder):
    from servers import LmtpServe

    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder), "HF_HUB_CACHE": str(folder),
               "HOME": str(folder)}
    found = {}
    for model, recorded in [("demo", record_one), ("auto", record_auto)]:
        server = LmtpServe(model, *OPTIONS)
        server.environment.update(offline)
        server.popen_options = {"cwd": folder}
        with server:
            found |= recorded(server, folder)
        assert server.exit_code == 0, server.log_tail
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("malformed") / "home"
    folder.mkdir()
    return record(folder)


@pytest.fixture(scope="module")
def golden():
    """By group and case; the file has each answer once, with the cases that it is given to."""
    groups = json.loads(GOLDEN.read_text())
    return {group: {case: entry["answer"] for entry in entries for case in entry["to"]}
            for group, entries in groups.items()}


def by_answer(cases):
    entries = {}
    for case, answer in cases.items():
        entries.setdefault(tuple(answer), []).append(case)
    return [{"answer": list(answer), "to": to} for answer, to in entries.items()]


GROUPS = ["fields", "texts", "models", "long", "several", "frames", "http", "models of any"]


@pytest.mark.parametrize("group", GROUPS)
def test_is_answered_as_ever(found, golden, group):
    assert set(golden[group]) == set(found[group]), "the corpus has changed: record it anew"
    different = [(case, golden[group][case], answer)
                 for case, answer in found[group].items() if answer != golden[group][case]]
    for case, before, now in different[:SHOWN]:
        print(f"{case[:300]!r}\n  was {before}\n  is  {now}")
    assert not different, f"{len(different)} of {len(golden[group])} are answered otherwise"


def main():
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "benchmarks"))
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder) / "home"
        home.mkdir()
        found = record(home)
    grouped = {group: by_answer(cases) for group, cases in found.items()}
    GOLDEN.write_text(json.dumps(grouped, indent=0) + "\n")
    print({group: len(cases) for group, cases in found.items()}, GOLDEN.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
