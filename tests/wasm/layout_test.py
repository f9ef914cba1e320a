"""Our declarations of wasmtime's types (src/wasm/api.h) have the sizes, and the last members'
places, that its own Python bindings say, and the kinds and the version are the same."""

import ctypes
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(os.environ["LMTP_SOURCE_DIR"])
PROGRAM = Path(os.environ["LMTP_BIN_DIR"]).parent / "tests" / "wasm_layout"


@pytest.fixture(scope="module")
def lines():
    return subprocess.run([PROGRAM], check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.fixture(scope="module")
def bindings(lines):
    sys.path.insert(0, lines[0])
    return importlib.import_module("wasmtime._bindings")


def private_name(ctype, member):
    """ctypes mangles names with two underscores within a class."""
    names = [name for name, _ in ctype._fields_]
    return member if member in names else f"_{ctype.__name__}{member}"


def test_layouts(lines, bindings):
    assert len(lines) == 8
    for line in lines[1:]:
        name, size, offset, member = line.split()
        ctype = getattr(bindings, name)
        assert ctypes.sizeof(ctype) == int(size), name
        assert getattr(ctype, private_name(ctype, member)).offset == int(offset), name


def test_numbers(bindings):
    header = (SOURCE / "src/wasm/api.h").read_text()
    number = {name: int(value) for name, value in re.findall(r"uint8_t (k\w+) = (\d+);", header)}
    ffi = importlib.import_module("wasmtime._ffi")
    assert number["kKindI32"] == ffi.WASM_I32.value
    assert number["kKindI64"] == ffi.WASM_I64.value
    assert number["kExternFunc"] == ffi.WASMTIME_EXTERN_FUNC.value
    assert number["kExternMemory"] == ffi.WASMTIME_EXTERN_MEMORY.value


def test_version():
    header = (SOURCE / "include/lmtp/wasm/wasm.h").read_text()
    version = re.search(r'kVersion = "([^"]*)"', header)[1]
    assert f"wasmtime=={version} " in (SOURCE / "tools/requirements-native.txt").read_text()
