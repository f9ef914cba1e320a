#!/usr/bin/env python3
"""lm-eval's local-completions against lmtp-serve, and its hf backend on the same model: the log
likelihoods of a task of our own are equal within 1e-4. Needs `pip install lm-eval accelerate peft`
beside .venv-newest; the network is not used."""

import argparse
import json
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "benchmarks"))

TOLERANCE = 1e-4
TASK = """\
task: tales
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{begins}}}}"
doc_to_choice: "{{{{ends}}}}"
doc_to_target: 0
metric_list: [{{metric: acc}}]
"""
DOCS = [
    {"begins": "Once upon a", "ends": [" time", " king", " the"]},
    {"begins": "The king said to his", "ends": [" daughter", " sword", " of"]},
    {"begins": "There was once a poor man who", "ends": [" had three sons", " lived"]},
    {"begins": "To be, or not to", "ends": [" be: that is the question", " have"]},
    {"begins": "And so they lived happily ever", "ends": [" after.", " before."]},
]


def log_likelihoods(folder, model, arguments):
    import lm_eval
    from lm_eval.tasks import TaskManager

    found = lm_eval.simple_evaluate(
        model=model, model_args=arguments, tasks=["tales"], log_samples=True, bootstrap_iters=0,
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        batch_size=4,
    )  # fmt: skip
    samples = sorted(found["samples"]["tales"], key=lambda sample: sample["doc_id"])
    return [(float(r[0][0]), bool(r[0][1])) for s in samples for r in s["resps"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=ROOT / "models" / "demo", type=pathlib.Path)
    options = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    from servers import LmtpServe

    model = options.model.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.environ["HF_DATASETS_CACHE"] = str(folder / "cache")
        data = folder / "tales.jsonl"
        data.write_text("".join(json.dumps(doc) + "\n" for doc in DOCS))
        (folder / "tales.yaml").write_text(TASK.format(data=data))
        reference = log_likelihoods(folder, "hf", f"pretrained={model},dtype=float32,device=cpu")
        with LmtpServe(model, "--kv-cache", "64MiB") as server:
            served = log_likelihoods(
                folder,
                "local-completions",
                f"model={server.model},base_url=http://{server.endpoint}/v1/completions,"
                f"tokenizer={model},tokenizer_backend=huggingface,num_concurrent=2,max_retries=1",
            )
    worst = max(abs(a[0] - b[0]) for a, b in zip(reference, served, strict=True))
    greedy = all(a[1] == b[1] for a, b in zip(reference, served, strict=True))
    print(f"{len(served)} log likelihoods, at most {worst:.2g} apart, greedy flags equal: {greedy}")
    return 0 if worst <= TOLERANCE and greedy else 1


if __name__ == "__main__":
    sys.exit(main())
