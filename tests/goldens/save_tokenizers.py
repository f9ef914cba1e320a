#!/usr/bin/env python3
"""Writes small tokenizers as a release of transformers saves them: run it with each release.

    .venv/bin/python tests/goldens/save_tokenizers.py [FOLDER]
    .venv-newest/bin/python tests/goldens/save_tokenizers.py [FOLDER]

Some of tests/goldens/tokenizers/ are loaded and saved by save_pretrained into
tests/goldens/saved_tokenizers/RELEASE/; tokenizer.json loses its line breaks. Beside each lies
cases.json: what this release gives for the folder that it has written.
"""

import json
import os
import pathlib
import shutil
import sys

import transformers

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from make_tiny_tokenizers import Folder, write_cases  # noqa: E402

NAMES = ("gemma", "llama2", "llama2-bare", "llama3", "opt", "phi3", "qwen2")


def main():
    release = ".".join(transformers.__version__.split(".")[:2])
    root = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else HERE / "saved_tokenizers"
    os.chdir(HERE)  # the library notes where it has found some of the files
    shutil.rmtree(root / release, ignore_errors=True)
    for name in NAMES:
        folder = Folder(root / release, name)
        tokenizer = transformers.AutoTokenizer.from_pretrained(f"./tokenizers/{name}")
        tokenizer.save_pretrained(folder.path)
        folder.tokenizer((folder.path / "tokenizer.json").read_text(encoding="utf-8"))
        print(release, name, write_cases(folder, every=3), "cases")


if __name__ == "__main__":
    main()
