#!/usr/bin/env python3
"""The vocabularies of llama.cpp's source distribution (models/ggml-vocab-NAME.gguf, with texts in
.inp and ids in .out) against `lmtp-client --encode`: says for each how many texts have other ids,
or why the file is refused. Exits with 1 if a text has other ids."""

import argparse
import json
import os
import pathlib
import subprocess
import sys

SEPARATOR = "\n__ggml_vocab_test__\n"
BIN = pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "bin"


def check(file, client):
    texts = file.with_name(file.name + ".inp").read_bytes().decode()
    texts = texts.removesuffix(SEPARATOR).split(SEPARATOR)
    lines = file.with_name(file.name + ".out").read_text().splitlines()
    expected = [[int(token) for token in line.split()] for line in lines]
    given = "".join(json.dumps(text) + "\n" for text in texts)
    run = subprocess.run([client, file, "--encode", "--json"], input=given, text=True,
                         capture_output=True)  # fmt: skip
    if run.returncode != 0:
        print(f"{file.stem}: refused: {run.stderr.strip()}")
        return True
    got = [json.loads(line) for line in run.stdout.splitlines()]
    other = [case for case in zip(texts, expected, got, strict=True) if case[1] != case[2]]
    print(f"{file.stem}: {len(texts)} texts, {len(other)} with other ids")
    for text, right, wrong in other:
        print(f"  {text[:60]!r}: {right[:12]} is right, {wrong[:12]} is here")
    return not other


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="llama.cpp's models/")
    folder = parser.parse_args().folder
    client = pathlib.Path(os.environ.get("LMTP_BIN_DIR", BIN)) / "lmtp-client"
    files = sorted(file for file in folder.glob("ggml-vocab-*.gguf")
                   if file.with_name(file.name + ".out").exists())  # fmt: skip
    sys.exit(not all([check(file, client) for file in files]))


if __name__ == "__main__":
    main()
