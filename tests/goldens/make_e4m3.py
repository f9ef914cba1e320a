#!/usr/bin/env python3
"""Writes e4m3.json: what torch's float8_e4m3fn is of every code and of many numbers, all as bits.

    .venv/bin/python tests/goldens/make_e4m3.py

Beyond 464 torch makes no number of a number; caches of keys and values keep 448 there, so that
such numbers are left out.
"""

import json
import pathlib

import torch

TYPE = torch.float8_e4m3fn


def floats_near(value):
    """It and the two next to it."""
    of = torch.tensor(value)
    infinity = torch.tensor(float("inf"))
    return [float(torch.nextafter(of, -infinity)), value, float(torch.nextafter(of, infinity))]


def main():
    numbers = torch.arange(256).to(torch.uint8).view(TYPE).float()
    finite = sorted(float(n) for n in numbers[:0x7F])
    inputs = []
    for low, high in zip(finite, finite[1:]):
        inputs += floats_near(low) + floats_near((low + high) / 2)
    inputs += [448.0, 460.0, 464.0, 1e-30, 2.0**-149]
    torch.manual_seed(1)
    inputs += torch.exp(torch.empty(300).uniform_(-9, 6)).tolist()
    inputs = torch.tensor([sign * i for i in inputs for sign in (1.0, -1.0)])
    codes = inputs.to(TYPE).view(torch.uint8)
    bits = [int(i) & 0xFFFFFFFF for i in inputs.view(torch.int32)]
    golden = {
        "numbers": [int(n) & 0xFFFFFFFF for n in numbers.view(torch.int32)],
        "rounded": [[i, int(code)] for i, code in zip(bits, codes)],
    }
    path = pathlib.Path(__file__).with_name("e4m3.json")
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
