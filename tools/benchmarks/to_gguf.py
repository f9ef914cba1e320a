"""llama.cpp's own converter, with the settings that a folder of tools/dev/make-checkpoint lacks.

    PEERS/bin/python to_gguf.py PEERS/llama.cpp FOLDER FILE.gguf f32|bf16|q8_0
"""

import sys

source, folder, file, kind = sys.argv[1:]
sys.path[:0] = [source, source + "/gguf-py"]

import convert_hf_to_gguf  # noqa: E402
from conversion.base import ModelBase, TextModel  # noqa: E402

load_hparams = ModelBase.load_hparams


def load_hparams_with_context(*arguments, **options):
    hparams = load_hparams(*arguments, **options)
    if "n_positions" in hparams:
        hparams.setdefault("n_ctx", hparams["n_positions"])  # what older GPT-2 folders call it
    return hparams


# It identifies a tokenizer by a hash of its output; the synthetic one is unknown to it.
TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
ModelBase.load_hparams = staticmethod(load_hparams_with_context)
sys.argv = [convert_hf_to_gguf.__file__, folder, "--outfile", file, "--outtype", kind]
convert_hf_to_gguf.main()
