#!/usr/bin/env python3
"""Writes tests/goldens/pickled/pytorch_model.bin as torch.save does, the same bytes on every run of
one release (2.11.0): what tests/model/zip_directory_test.cpp changes byte by byte.

    make_pickled.py [FOLDER]
"""

import pathlib
import sys

import torch

default = pathlib.Path(__file__).parent / "pickled"
folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
a = torch.arange(6, dtype=torch.float32).view(2, 3)
torch.save({"a": a, "b": torch.ones(2, dtype=torch.bfloat16)}, folder / "pytorch_model.bin")
