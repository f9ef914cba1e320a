"""lib/lmtp/lmtp-jinja, spoken to as the server does (src/text/jinja/frames.h)."""

import json
import os
import pathlib
import socket
import struct
import subprocess

BUILD = pathlib.Path(os.environ.get("LMTP_BIN_DIR", "build/bin")).parent
PROGRAM = BUILD / "lib/lmtp/lmtp-jinja"


def real_templates():
    """Name -> text of the templates of real models that come with the engine's sources."""
    folder = BUILD / "llama_jinja" / "models" / "templates"
    return {path.stem: path.read_text() for path in sorted(folder.glob("*.jinja"))}


class JinjaProcess:
    def __init__(self, template, variables, special_tokens=()):
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(30)
        self.process = subprocess.Popen([PROGRAM], stdin=theirs)
        theirs.close()
        first = {"templates": {"default": template}, "variables": variables}
        self.answer = self.ask({**first, "special_tokens": list(special_tokens)})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        self.process.wait(10)

    def ask(self, json_value):
        """(kind, what follows) of the answer."""
        frame = json.dumps(json_value, ensure_ascii=False).encode()
        self.socket.sendall(struct.pack("=I", len(frame)) + frame)
        answer = self._receive(struct.unpack("=I", self._receive(4))[0])
        return chr(answer[0]), answer[1:]

    def _receive(self, size):
        received = b""
        while len(received) < size:
            part = self.socket.recv(size - len(received))
            assert part, "lmtp-jinja has ended"
            received += part
        return received

    def render(self, chat):
        """The text, or None and the error."""
        kind, rest = self.ask(chat)
        if kind != "d":
            return None, f"{kind}: {rest.decode(errors='replace')}"
        count = struct.unpack_from("=I", rest)[0]
        return rest[4 + 8 * count :].decode(), ""
