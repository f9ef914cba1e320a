"""Folders with random weights in the cache, which every engine can load."""

import os
import pathlib
import subprocess
import sys

from servers import ROOT


def random_model(shape):
    """A folder with the weights that `random:SHAPE` has, made where it is missing."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = cache / "lmtp" / "checkpoints" / shape
    if not (folder / "model.safetensors").exists():
        print(f"making {folder} (up to 2.2 GB)", file=sys.stderr, flush=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([ROOT / "tools" / "dev" / "make-checkpoint", shape, folder], check=True)
    return folder
