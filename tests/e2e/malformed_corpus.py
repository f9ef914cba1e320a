"""What clients may say wrongly or oddly, as bytes. tests/goldens/malformed.json has what is
answered to each."""

import json

from raw_frames import (
    BINARY, CLOSE, CONTINUED, KEY, PING, PONG, close_frame, frame, upgrade, well_formed,
)  # fmt: skip

VOCAB, CONTEXT = 2048, 512
MESSAGE_MAX = 2 << 20
MIB = 1 << 20

# As the text of a value, right or wrong.
VALUES = [
    "null", "true", "false", "0", "-0", "1", "-1", "2", "7", "1.5", "5.0", "-0.5", "0.99", "1.01",
    "100", "100.5", "-101", "1e2", "1E+2", "1e-400", "1e300", "-1e300", "1e31", "1e400", "-1e400",
    "2147483647", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "18446744073709551615",
    "18446744073709551616", "99999999999999999999999", "-99999999999999999999999",
    "0." + "1" * 400, "1" * 400, "NaN", "Infinity", "-Infinity", "nan", "None", "True", "undefined",
    "01", "+1", ".5", "1.", "0x10", "1_000", "-", "--1", "1e", "1e+", "1 2", "", '""', '"a"', '"7"',
    '"1.5"', '"null"', '"demo"', r'"\ud800"', r'"\udc00\ud800"', r'"\x"', r'"\u12"', r'"\u0000"',
    '"\u00e9\u20ac\U0001f600"', '"a\tb"', '"open', "'a'", "[]", "[1]", "[1, 2]", "[1,]", "[,1]",
    "[1", "[[1]]", "[null]", "[true]", '["1"]', "[1.0]", "[1.5]", "[-1]", f"[{VOCAB - 1}]",
    f"[{VOCAB}]", "[2147483648]", "[1, 99999999999999999999]", "[NaN]", "[{}]", "{}", '{"5": 1}',
    '{"5": 1, "05": 2}', '{"5": 1,}', '{"": 1}', '{"a": 1}', '{"-1": 1}', '{" 1": 1}', '{"1.0": 1}',
    f'{{"{VOCAB}": 1}}', '{"2147483648": 1}', '{"5": null}', '{"5": "1"}', '{"5": 1e31}',
    '{"5": NaN}', '{"5": 1e999}', '{"5": [1]}', '{"5"}', "{5: 1}", "{", "}", "]", ":", ",",
    "[" * 31 + "]" * 31, "[" * 32 + "]" * 32, "[" * 33 + "]" * 33, '{"a":' * 40 + "1" + "}" * 40,
]

# Fields that a case does not change are valid. The bias makes every choice the same.
GENERATE = {"stream_id": "7", "prompt": "[1, 2]", "max_tokens": "1", "logit_bias": '{"5": 1e30}'}
SCORE = {"stream_id": "7", "prompt": "[1, 2]", "scored": "[3]"}
GENERATE_FIELDS = [
    "stream_id", "prompt", "model", "max_tokens", "temperature", "top_k", "top_p",
    "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias", "top_logprobs",
    "seed", "length_penalty",
]


def message(verb, fields):
    return verb + " {" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}"


def field_cases():
    """(name, text): every field of every verb with every value, and without it, and twice."""
    verbs = [
        ("GENERATE", GENERATE, GENERATE_FIELDS),
        ("SCORE", SCORE, ["stream_id", "prompt", "scored", "model", "temperature"]),
        ("MODEL_INFO", {"stream_id": "7"}, ["stream_id", "model", "prompt"]),
        ("CANCEL", {"stream_id": "7"}, ["stream_id", "model"]),
    ]
    for verb, right, fields in verbs:
        for field in fields:
            others = {name: value for name, value in right.items() if name != field}
            for value in VALUES:
                yield f"{verb} {field} {value}", message(verb, others | {field: value})
            yield f"{verb} without {field}", message(verb, others)
            twice = right.get(field, "1")
            again = f'{twice}, "{field}": {twice}'
            yield f"{verb} {field} twice", message(verb, others | {field: again})


def text_cases():
    """Faults of the line as a whole; the text is the name."""
    right = '{"stream_id": 7, "prompt": [1], "max_tokens": 1, "logit_bias": {"5": 1e30}}'
    for verb in ["", " ", "\t", "\n", "FETCH", "generate", "Generate", "GENERATE\t", "GENERATE\n",
                 "GENERATE  ", " GENERATE", "\ufeffGENERATE", "TOKEN", "MSG", "SCORE", "MODEL_INFO",
                 "GEN\x01\u00e9", "A" * 1000, "\u20ac" * 50, "'GENERATE'", "GENERATE,", "{}"]:
        yield verb
        yield verb + right
        yield verb + " " + right
    for payload in ["", " ", "x", "{", "}", "[]", "[" + right + "]", "5", '"x"', "null", "{}", "{]",
                    right + " x", right + right, right + "}", right + ",", right + "\0", right[:-1],
                    right.replace('"', "'"), right.replace(":", "="), right.replace(",", ""),
                    right.replace("{", "{,"), right.replace("7", "7,,"), "\ufeff" + right,
                    "//x\n" + right, right.replace("[1]", "[1 /* x */]"), "\0" + right,
                    "{" + right[1:].replace(" ", "\t\r\n "), "{}" * 3, right.replace("7", "7 8"),
                    right.replace('"stream_id"', r'"\u0073tream_id"'),
                    right.replace('"prompt"', '"Prompt"'), right.replace('"prompt"', '"prompt "'),
                    right.replace('"prompt"', r'"pro\mpt"'), right.replace('"prompt"', '"\ud7ff"'),
                    "[" * 1000, "[" * 1000 + "]" * 1000, '{"a":' * 1000]:
        for verb in ["GENERATE", "SCORE", "MODEL_INFO", "CANCEL"]:
            yield f"{verb} {payload}"
    for end in range(1, len(right)):
        yield "GENERATE " + right[:end]


def long_cases():
    """(name, text): lengths before contents, and nesting without end."""
    many = ", ".join(["1"] * 10_000)
    wrong = ", ".join(["-1"] * 10_000)
    words = ", ".join(['"a"'] * 10_000)
    broken = "1, " * 10_000 + "]"
    biases = ", ".join(f'"{i}": 1' for i in range(10_000))
    bad_biases = ", ".join(f'"{i}": "x"' for i in range(10_000))
    for what, tokens in [("many", many), ("wrong", wrong), ("words", words)]:
        for verb, right in [("GENERATE", GENERATE), ("SCORE", SCORE)]:
            for field in ["prompt", "scored"]:
                yield f"{verb} {field} {what}", message(verb, right | {field: f"[{tokens}]"})
                cut = message(verb, {field: f"[{tokens}"})
                yield f"{verb} {field} {what} cut off", cut
                late = {field: f"[{tokens}]", **right, "stream_id": "7"}
                yield f"{verb} {field} {what} first", message(verb, late)
    yield "prompt broken far on", message("GENERATE", GENERATE | {"prompt": "[" + broken})
    yield "many biases", message("GENERATE", GENERATE | {"logit_bias": f"{{{biases}}}"})
    yield "many bad biases", message("GENERATE", GENERATE | {"logit_bias": f"{{{bad_biases}}}"})
    for count in [CONTEXT - 1, CONTEXT, CONTEXT + 1]:
        ones = f"[{', '.join(['1'] * count)}]"
        yield f"prompt of {count}", message("GENERATE", GENERATE | {"prompt": ones})
        yield f"scored {count}", message("SCORE", SCORE | {"prompt": "[]", "scored": ones})
        yield f"scored {count} and 2", message("SCORE", SCORE | {"scored": ones})
    long = "m" * 5000
    yield "long model", message("GENERATE", GENERATE | {"model": f'"{long}"'})
    long_info = message("MODEL_INFO", {"stream_id": "7", "model": f'"{long}"'})
    yield "long model of MODEL_INFO", long_info
    yield "long key", message("GENERATE", GENERATE | {long: "1"})
    yield "many keys", message("GENERATE", GENERATE | {f"k{i}": "[{}]" for i in range(5000)})
    wide = "[" + "1," * (MIB // 2) + "1]"
    yield "array of more than 1 MiB", message("GENERATE", GENERATE | {"x": wide})
    yield "the same as prompt", message("GENERATE", GENERATE | {"prompt": wide})
    yield "string of more than 1 MiB", message("GENERATE", GENERATE | {"x": f'"{"x" * MIB}"'})
    yield "deep", "GENERATE " + "[" * 500_000
    yield "deep within", message("GENERATE", GENERATE | {"x": "[" * 500_000 + "]" * 500_000})
    yield "blank", " " * 100_000
    yield "as long as may be", message("GENERATE", GENERATE).ljust(MESSAGE_MAX)


def model_cases():
    """(name, text, number of errors of a server of any model): names of models."""
    names = [
        "nobody", "org/name", "org/name@main", "org/name@", "@main", "/", "//", ".", "..",
        "./demo", "/nowhere", "/nowhere/at/all/", "~", "~/x", "a/b/c", "a//b", "org/", "/name",
        "demo/", "Demo", "DEMO", " demo", "demo ", "demo@main", "random:", "random:nothing",
        "random:gpt2:x", "random:gpt2:-1", "random:gpt2:1:2", "random::1", "Random",
        "http://localhost/x", "https://huggingface.co/gpt2", "file:///etc/passwd", "-", "--help",
        "org/na me", "org/na%2Fme", "org/../name", "org\\name", "C:\\x", "\u00e9", "org/\u00e9",
        "<script>", "a\u0000b", "a\nb", "\u0000", "\u202e", "auto", "null", "*", "org/*", "$HOME",
        "n" * 97, "n" * 128, "n" * 129, "\u20ac" * 60, "o/" + "n" * 500, "/" + "n" * 300,
    ]
    for name in names:
        model = {"model": json.dumps(name)}
        for verb, right in [("GENERATE", GENERATE), ("SCORE", SCORE)]:
            yield f"{verb} {model['model']}", message(verb, right | model), 2
        info = message("MODEL_INFO", {"stream_id": "7"} | model)
        yield f"MODEL_INFO {model['model']}", info, 1


LIVE = message("GENERATE", GENERATE | {"stream_id": "1", "max_tokens": "500"})
ALSO = [LIVE.replace('"stream_id": 1', f'"stream_id": {i}') for i in range(1, 6)]
# Several messages at once: of what they give, the errors are looked at.
SEVERAL = {
    "a live id": [LIVE, message("GENERATE", GENERATE | {"stream_id": "1"})],
    "scoring a live id": [LIVE, message("SCORE", SCORE | {"stream_id": "1"})],
    "a wrong request for a live id": [LIVE, message("GENERATE", {"stream_id": "1"})],
    "an unknown verb with a live id": [LIVE, 'FETCH {"stream_id": 1}'],
    "an unknown model for a live id": [
        LIVE, message("GENERATE", GENERATE | {"stream_id": "1", "model": '"x"'})],
    "info of a live id": [LIVE, 'MODEL_INFO {"stream_id": 1, "model": "x"}'],
    "a binary frame beside": [LIVE, b"x"],
    "a live id is cancelled": [LIVE, 'CANCEL {"stream_id": 1}', 'CANCEL {"stream_id": 1}'],
    "others are cancelled": [LIVE, 'CANCEL {"stream_id": 2}', "CANCEL {}"],
    "too many": ALSO,
}


def frame_cases():
    """(name, bytes) after a right upgrade: frames. A close frame follows."""
    text = message("GENERATE", GENERATE).encode()
    ask = b"END"
    yield "nothing", b""
    yield "empty text", frame(b"")
    yield "binary", frame(text, BINARY)
    yield "empty binary", frame(b"", BINARY)
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15]:
        yield f"opcode {opcode}", frame(ask, opcode)
    for reserved in [1, 2, 4, 7]:
        yield f"reserved bits {reserved}", frame(ask, reserved=reserved)
        yield f"reserved bits {reserved} of a ping", frame(ask, PING, reserved=reserved)
    yield "no mask", frame(ask, masked=False)
    yield "a ping without a mask", frame(ask, PING, masked=False)
    yield "a length in eight bytes", frame(ask, length=3)
    yield "a length in two bytes", b"\x81\xfe\x00\x03" + bytes(4) + ask
    for length in [MESSAGE_MAX + 1, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]:
        yield f"a length of {length}", frame(ask, length=length)
    yield "too long", frame(text.ljust(MESSAGE_MAX + 1))
    yield "in fragments", frame(ask[:1], final=False) + frame(ask[1:], CONTINUED)
    many = frame(b"x", CONTINUED, final=False) * 500
    yield "in many fragments", frame(ask, final=False) + many + frame(b"", CONTINUED)
    yield "with a ping between", (
        frame(ask[:1], final=False) + frame(b"x", PING) + frame(ask[1:], CONTINUED))
    yield "a message within a message", frame(ask[:1], final=False) + frame(ask)
    yield "a binary within a message", frame(ask[:1], final=False) + frame(ask, BINARY)
    yield "continued from nothing", frame(ask, CONTINUED)
    yield "continued from nothing, not final", frame(ask, CONTINUED, final=False)
    yield "unfinished", frame(text, final=False)
    yield "binary in fragments", frame(b"x", BINARY, final=False) + frame(b"y", CONTINUED)
    for size in [0, 1, 125, 126]:
        yield f"a ping of {size}", frame(b"x" * size, PING)
        yield f"a pong of {size}", frame(b"x" * size, PONG)
    yield "a ping in fragments", frame(b"x", PING, final=False)
    yield "a ping of no text", frame(b"\xff\xfe", PING)
    yield "no UTF-8", frame(b"\xff\xfe")
    yield "UTF-8 cut off", frame(b"\xe2\x82")
    yield "UTF-8 over fragments", frame(b"\xe2\x82", final=False) + frame(b"\xac", CONTINUED)
    yield "no UTF-8 in the second fragment", frame(b"a", final=False) + frame(b"\xff", CONTINUED)
    yield "overlong UTF-8", frame(b"\xc0\x80")
    yield "a surrogate in UTF-8", frame(b"\xed\xa0\x80")
    yield "beyond Unicode", frame(b"\xf4\x90\x80\x80")
    yield "no UTF-8 in binary", frame(b"\xff\xfe", BINARY)
    for code in [0, 999, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1009, 1011, 1012, 1013,
                 1014, 1015, 1016, 1100, 2000, 2999, 3000, 3999, 4000, 4999, 5000, 65535]:
        yield f"close {code}", close_frame(code)
    yield "close without a code", frame(b"", CLOSE)
    yield "close with half a code", frame(b"\x03", CLOSE)
    yield "close with a reason", frame(b"\x03\xe8bye", CLOSE)
    yield "close with a reason of no UTF-8", frame(b"\x03\xe8\xff", CLOSE)
    yield "close with a long reason", frame(b"\x03\xe8" + b"x" * 123, CLOSE)
    yield "close with a reason too long", frame(b"\x03\xe8" + b"x" * 124, CLOSE)
    yield "close in fragments", frame(b"\x03\xe8", CLOSE, final=False)
    yield "close without a mask", frame(b"\x03\xe8", CLOSE, masked=False)
    yield "close twice", close_frame() * 2
    yield "a message behind a close", close_frame() + frame(ask)
    yield "HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    yield "noise", bytes(range(256))
    yield "ones", b"\xff" * 64
    yield "zeros", bytes(64)


def http_cases(port):
    """(name, bytes) of a connection, after which the client's side is closed. What is upgraded gets
    a close frame."""

    def ask(line, *headers, body=b"", hosts=(f"Host: 127.0.0.1:{port}",)):
        return "\r\n".join([line, *hosts, *headers, "", ""]).encode("latin-1") + body

    for cases in [line_cases, connection_cases, header_cases, origin_cases, body_cases,
                  upgrade_cases]:
        yield from cases(port, ask)


def line_cases(port, ask):
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH",
                   "PROPFIND", "FOO", "get", "", "G\0T", "GET\t", "\u00e9"]:
        yield f"method {method!r}", ask(f"{method} /health HTTP/1.1")
    for target in ["/health?", "/health?x=1", "/health#x", "/health/", "/Health", "//health",
                   "/./health", "/%68ealth", "/x", "/x?y", "/favicon.ico", "/../etc/passwd", "*",
                   "health", "", f"http://127.0.0.1:{port}/health", "http://example.org/health",
                   "/\u00e9", "/\0", "/a b", "/" + "x" * 4000, "/<script>"]:
        name = target[:40].replace(str(port), "PORT")
        yield f"target {name!r}", ask(f"GET {target} HTTP/1.1")
    for version in ["HTTP/1.0", "HTTP/0.9", "HTTP/1.2", "HTTP/2.0", "HTTP/2", "http/1.1", "HTTP/",
                    "HTTP/1.1 ", "FTP/1.1", "", "HTTP/11.1", "HTTP/1.10"]:
        yield f"version {version!r}", ask(f"GET /health {version}")
    yield "no version", ask("GET /health")


def connection_cases(port, ask):
    yield "HTTP/1.0 kept alive", ask("GET /health HTTP/1.0", "Connection: keep-alive") * 2
    yield "closed after the first", ask("GET /health HTTP/1.1", "Connection: close") * 2
    yield "two at once", ask("GET /health HTTP/1.1") + ask("GET /x HTTP/1.1")
    yield "a right and a wrong one", ask("GET /health HTTP/1.1") + b"x\r\n\r\n"
    yield "empty lines first", b"\r\n\r\n" + ask("GET /health HTTP/1.1")
    yield "nothing", b""
    yield "one byte", b"G"
    yield "cut off", ask("GET /health HTTP/1.1")[:-2]
    yield "cut off in a header", ask("GET /health HTTP/1.1", "X: y")[:-7]
    yield "line feeds alone", ask("GET /health HTTP/1.1").replace(b"\r\n", b"\n")
    yield "carriage returns alone", ask("GET /health HTTP/1.1").replace(b"\r\n", b"\r")
    yield "HTTP/2's preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    yield "TLS", bytes.fromhex("16030100c8010000c40303") + bytes(200)
    yield "noise", bytes(range(256))
    yield "zeros", bytes(100)
    yield "an LMTP line", message("GENERATE", GENERATE).encode() + b"\r\n\r\n"


def header_cases(port, ask):
    for header in ["X", "X y", ": y", "X : y", " X: y", "X: y\r\n z", "X: \0", "X: \x7f", "X:",
                   "X\u00e9: y", "X: \u00e9", "X(y): z", "X: " + "y" * 4000, "X" * 4000 + ": y"]:
        yield f"header {header[:40]!r}", ask("GET /health HTTP/1.1", header)
    yield "many headers", ask("GET /health HTTP/1.1", *[f"X{i}: y" for i in range(900)])
    yield "too many headers", ask("GET /health HTTP/1.1", *[f"X{i}: y" for i in range(2000)])
    yield "a header too long", ask("GET /health HTTP/1.1", "X: " + "y" * 16384)
    yield "a target too long", ask("GET /" + "x" * 16384 + " HTTP/1.1")
    yield "a body far too long", ask("GET /" + "x" * 500_000 + " HTTP/1.1")


def origin_cases(port, ask):
    host = f"Host: 127.0.0.1:{port}"
    for hosts in [[], ["Host:"], ["Host: "], [host, host], [host, "Host: example.org"],
                  ["Host: example.org"], ["Host: example.org:80"], ["Host: localhost"],
                  ["Host: LOCALHOST:1"], ["Host: localhost."], ["Host: localhost.example.org"],
                  ["Host: 127.0.0.1"], ["Host: 127.0.0.2"], ["Host: 127.1"], ["Host: 2130706433"],
                  ["Host: [::1]"], [f"Host: [::1]:{port}"], ["Host: ::1"], ["Host: 0.0.0.0"],
                  ["Host: 10.0.0.1"], ["Host: 127.0.0.1@example.org"], ["Host: a b"],
                  ["Host: localhost:99999"], ["Host: localhost:x"], ["Host: :80"],
                  ["Host: <script>"], ["Host: " + "x" * 300]]:
        name = ", ".join(hosts).replace(str(port), "PORT")[:60]
        yield f"hosts [{name}]", ask("GET /health HTTP/1.1", hosts=hosts)
    for origin in ["", "null", "http://example.org", f"http://127.0.0.1:{port}", "http://127.0.0.1",
                   f"https://127.0.0.1:{port}", f"http://localhost:{port}", f"127.0.0.1:{port}",
                   f"HTTP://127.0.0.1:{port}", f"http://127.0.0.1:{port}/", "file://", "*", "x y",
                   f"http://127.0.0.1:{port}, http://example.org"]:
        name = origin.replace(str(port), "PORT")
        yield f"origin {name!r}", ask("GET /health HTTP/1.1", f"Origin: {origin}")
        yield f"origin {name!r} of an upgrade", upgrade(
            port, "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {KEY}", f"Origin: {origin}")
    yield "two origins", ask("GET /health HTTP/1.1", "Origin: null", f"Origin: http://{host[6:]}")


def body_cases(port, ask):
    for line in ["POST / HTTP/1.1", "POST /health HTTP/1.1", "GET /health HTTP/1.1",
                 "HEAD /health HTTP/1.1", "PUT /x HTTP/1.1"]:
        for name, headers, body in [
            ("a body", ["Content-Length: 2"], b"{}"),
            ("no body yet", ["Content-Length: 20"], b"{}"),
            ("more than its length", ["Content-Length: 1"], b"{}{}"),
            ("a negative length", ["Content-Length: -1"], b""),
            ("a length of words", ["Content-Length: x"], b""),
            ("a huge length", ["Content-Length: 99999999999999999999"], b""),
            ("a large length", ["Content-Length: 9223372036854775807"], b"{}"),
            ("two lengths", ["Content-Length: 1", "Content-Length: 2"], b"{}"),
            ("chunks", ["Transfer-Encoding: chunked"], b"2\r\n{}\r\n0\r\n\r\n"),
            ("bad chunks", ["Transfer-Encoding: chunked"], b"x\r\n{}\r\n"),
            ("a length and chunks", ["Content-Length: 2", "Transfer-Encoding: chunked"],
             b"0\r\n\r\n"),
            ("an unknown coding", ["Transfer-Encoding: gzip"], b"{}"),
            ("a wait for 100", ["Content-Length: 2", "Expect: 100-continue"], b"{}"),
            ("a type", ["Content-Length: 2", "Content-Type: application/json"], b"{}"),
        ]:
            yield f"{line.rsplit(' ', 1)[0]} with {name}", ask(line, *headers, body=body)
    yield "POST / with a megabyte", ask(
        "POST / HTTP/1.1", "Content-Length: 1000000", body=b"x" * 1_000_000)


def upgrade_cases(port, ask):
    right = ["Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {KEY}"]
    yield "upgrade", well_formed(port)
    for path in ["/", "/?x", "/x", "/health", "*", "//"]:
        yield f"upgrade of {path}", upgrade(port, *right, path=path)
    for method in ["HEAD", "POST", "PUT", "OPTIONS", "CONNECT"]:
        yield f"upgrade by {method}", upgrade(port, *right, method=method)
    for version in ["1.0", "0.9", "2.0"]:
        yield f"upgrade of HTTP/{version}", upgrade(port, *right, version=version)
    for version in ["", "0", "8", "12", "14", "13.0", "x", "13, 8"]:
        yield f"upgrade to version {version!r}", upgrade(
            port, f"Sec-WebSocket-Version: {version}", right[1])
    yield "upgrade to no version", upgrade(port, right[1])
    yield "upgrade without a key", upgrade(port, right[0])
    for key in ["", "x", "AAAA", KEY + "AAAA", "\u00e9" * 24, KEY * 10]:
        yield f"upgrade with the key {key[:30]!r}", upgrade(
            port, right[0], f"Sec-WebSocket-Key: {key}")
    yield "upgrade with two keys", upgrade(port, *right, right[1])
    yield "upgrade with an extension", upgrade(
        port, *right, "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits")
    yield "upgrade with a bad extension", upgrade(port, *right, "Sec-WebSocket-Extensions: ;;,=")
    yield "upgrade with a protocol", upgrade(port, *right, "Sec-WebSocket-Protocol: lmtp, x")
    yield "upgrade with a body", upgrade(port, *right, "Content-Length: 2") + b"{}"
    for name, headers in [
        ("no Connection", ["Upgrade: websocket"]),
        ("no Upgrade", ["Connection: Upgrade"]),
        ("Connection: close", ["Connection: close", "Upgrade: websocket"]),
        ("two connections", ["Connection: keep-alive, Upgrade", "Upgrade: websocket"]),
        ("Upgrade: h2c", ["Connection: Upgrade", "Upgrade: h2c"]),
        ("Upgrade: WebSocket", ["Connection: upgrade", "Upgrade: WebSocket"]),
        ("two upgrades", ["Connection: Upgrade", "Upgrade: h2c, websocket"]),
    ]:
        yield f"upgrade, {name}", ask("GET / HTTP/1.1", *headers, *right)
        yield f"upgrade of /x, {name}", ask("GET /x HTTP/1.1", *headers, *right)
