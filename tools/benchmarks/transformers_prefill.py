"""transformers' time for one forward pass over a prompt, as JSON; run by PEERS/bin/python.

    transformers_prefill.py FOLDER float32|bfloat16 TOKENS REPETITIONS THREADS
"""

import json
import sys
import time

import torch
import transformers

folder, dtype, count, repetitions, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
transformers.logging.set_verbosity_error()
model = transformers.AutoModelForCausalLM.from_pretrained(
    folder, dtype=getattr(torch, dtype), attn_implementation="sdpa"
).eval()
generator = torch.Generator().manual_seed(1)
seconds = []
with torch.inference_mode():
    for _ in range(1 + int(repetitions)):  # the first one warms up
        ids = torch.randint(model.config.vocab_size, (1, int(count)), generator=generator)
        start = time.perf_counter()
        model(ids, logits_to_keep=1, use_cache=True)
        seconds.append(time.perf_counter() - start)
print(json.dumps(seconds[1:]))
