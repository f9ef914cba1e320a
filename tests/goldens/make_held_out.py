#!/usr/bin/env python3
"""Writes tests/goldens/held-out/demo.txt: text that models/demo never saw, for its perplexity.

    make_held_out.py TEXT...          (the texts that tools/dev/train_demo.py was given)

Of each text the first BYTES_OF_EACH bytes or so, in whole paragraphs, of the tenth that
tools/dev/train_demo.py holds out. The texts are in the public domain (models/demo/README.md).
"""

import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "dev"))

from train_demo import SEED, split_text  # noqa: E402

BYTES_OF_EACH = 12_000


def first_paragraphs(text):
    taken, size = [], 0
    for paragraph in text.split("\n\n"):
        if size >= BYTES_OF_EACH:
            break
        taken.append(paragraph)
        size += len(paragraph.encode())
    return "\n\n".join(taken)


def main():
    split = random.Random(SEED)
    texts = sorted(map(pathlib.Path, sys.argv[1:]), key=lambda path: path.name)
    held_out = [split_text(path.read_text(encoding="utf-8"), split)[1] for path in texts]
    print(f"{sum(len(text.encode()) for text in held_out)} bytes are held out")
    path = pathlib.Path(__file__).parent / "held-out" / "demo.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n\n".join(map(first_paragraphs, held_out)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
