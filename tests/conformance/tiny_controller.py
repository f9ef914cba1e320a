"""Controllers that answer each call with the same JSON, as WebAssembly, without a compiler."""

import json

DATA_AT = 1024
FUNCTION, MEMORY = 0, 2
NOTHING, TO_INT, FROM_INT, FROM_TEXT = range(4)  # the types below
GOES_ON = {"num_forks": 1, "suspend": False, "ff_tokens": []}


def _number(value):
    """LEB128 of a number that is not negative; signed readers read the same."""
    out = bytearray()
    while value > 0x3F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _bytes(data):
    return _number(len(data)) + data


def _list(items):
    return _number(len(items)) + b"".join(items)


def _section(kind, content):
    return bytes([kind]) + _bytes(content)


def _function(*code):
    return _bytes(b"\0" + b"".join(code) + b"\x0b")  # no locals; end


def controller(pre=GOES_ON, mid={"SampleWithBias": {}}, post={"stop": False}):  # noqa: B006
    """A module of dialect A whose aici_pre_process returns `pre`, and so on."""
    texts = [json.dumps(answer).encode() for answer in ({}, pre, mid, post)]
    returns, at = [], DATA_AT
    for text in texts:
        # i32.const address, i32.const size, call aici_host_return_process_result
        code = b"\x41" + _number(at) + b"\x41" + _number(len(text)) + b"\x10\0"
        returns.append(_function(code))
        at += len(text)
    names = ["init", "create", "init_prompt", "pre_process", "mid_process", "post_process"]
    types = [NOTHING, TO_INT] + [FROM_INT] * 4
    exports = [_bytes(f"aici_{name}".encode()) + bytes([FUNCTION, 1 + i])
               for i, name in enumerate(names)]  # fmt: skip
    function_types = [b"\x60\0\0", b"\x60\0\1\x7f", b"\x60\1\x7f\0", b"\x60\2\x7f\x7f\0"]
    imported = _bytes(b"env") + _bytes(b"aici_host_return_process_result")
    return b"\0asm\1\0\0\0" + b"".join([
        _section(1, _list(function_types)),
        _section(2, _list([imported + bytes([FUNCTION, FROM_TEXT])])),
        _section(3, _list([bytes([kind]) for kind in types])),
        _section(5, _list([b"\0\1"])),  # a page at least
        _section(7, _list([_bytes(b"memory") + bytes([MEMORY, 0]), *exports])),
        _section(10, _list([_function(), _function(b"\x41\1"), *returns])),
        _section(11, _list([b"\0\x41" + _number(DATA_AT) + b"\x0b" + _bytes(b"".join(texts))])),
    ])  # fmt: skip
