"""config.json of a folder: what is not served as it stands, and --force and --context-length."""

import asyncio
import json
import pathlib
import shutil
import subprocess

import pytest
from lmtp_socket import Socket
from servers import LmtpServe, bin_dir
from wire import Connection, logprobs_of

FAMILIES = pathlib.Path(__file__).resolve().parents[1] / "goldens" / "families"
TIMEOUT_S = 60
KV = ("--kv-cache", "16MiB")


def copy(name, to, **changes):
    """A checkpoint of the goldens with other settings."""
    shutil.copytree(FAMILIES / name, to, dirs_exist_ok=True)
    config = json.loads((to / "config.json").read_text()) | changes
    (to / "config.json").write_text(json.dumps(config))
    return to


def refusal(folder, *options):
    done = subprocess.run(
        [bin_dir() / "lmtp-serve", folder, "--port", "0", *KV, *options],
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def info_of(server):
    async def ask():
        async with Socket(server.endpoint) as s:
            await s.send("MODEL_INFO", stream_id=1)
            return (await s.wait_for(lambda k, e: "model_info" in e))[1]["model_info"]

    return asyncio.run(ask())


def test_a_classifier_is_refused_and_forced(tmp_path):
    folder = copy("qwen2", tmp_path, architectures=["Qwen2ForSequenceClassification"])
    assert "Qwen2ForSequenceClassification" in refusal(folder)
    with LmtpServe(folder, *KV, "--force") as server:
        [note] = info_of(server)["notes"]
        server.ready_line()
    assert "Qwen2ForSequenceClassification" in note
    log = server.log_tail
    assert log.count("Qwen2ForSequenceClassification") >= 2, log  # the warning and the ready line


def test_a_quantised_folder_is_refused_with_the_remedy(tmp_path):
    folder = copy("llama", tmp_path, quantization_config={"quant_method": "gptq", "bits": 3})
    line = refusal(folder)
    assert "(gptq)" in line and "dequantize" in line


@pytest.mark.parametrize(
    "family, changes, options, words",
    [
        ("opt", {"hidden_size": 1028, "num_attention_heads": 2}, (), "514 dimensions"),
        ("gemma2", {"attn_logit_softcapping": -50.0}, (), "attn_logit_softcapping"),
        ("llama", {"intermediate_size": 65600}, ("--dtype", "int8"), "65600 inputs"),
        ("llama", {"vocab_size": 1}, ("--tensor-parallel-size", "2"), "a vocabulary of 1 cannot"),
    ],
)
def test_what_the_kernels_do_not_take_is_refused(tmp_path, family, changes, options, words):
    """At the start, and not by the end of a server that has begun."""
    assert words in refusal(copy(family, tmp_path, **changes), *options)


@pytest.mark.parametrize("wanted, served, notes", [(50, 50, 0), (500, 160, 1)])
def test_the_context_is_what_is_asked_for_up_to_the_models_own(wanted, served, notes):
    with LmtpServe(FAMILIES / "llama", *KV, "--context-length", str(wanted)) as server:
        info = info_of(server)
    assert info["context_length"] == served
    assert len(info.get("notes", [])) == notes


def test_long_factors_are_those_of_transformers(tmp_path):
    """Beyond its first context (160 tokens) transformers turns all positions by the long ones."""
    import torch
    from transformers import AutoModelForCausalLM

    folder = FAMILIES / "phi3-longrope"
    ids = [(7 * i * i + 3 * i + 1) % 131 for i in range(400)]
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        rows = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
    wanted = [float(rows[i - 1, ids[i]]) for i in range(1, len(ids))]

    async def score(server):
        async with Connection(server.endpoint) as c:
            return logprobs_of(await c.score(ids[:1], ids[1:]))

    with LmtpServe(folder, *KV, "--context-length", "400") as server:
        info = info_of(server)
        got = asyncio.run(score(server))
    assert info["context_length"] == 400
    assert "long factors" in info["notes"][0]
    assert len(got) == len(wanted)
    assert max(abs(g - w) for g, w in zip(got, wanted)) < 1e-4


def test_the_ready_line_says_which_parts_of_a_larger_model_are_left_out(tmp_path):
    folder = copy("llama", tmp_path)
    text = json.loads((folder / "config.json").read_text())
    outer = {
        "model_type": "llava", "architectures": ["LlavaForConditionalGeneration"],
        "text_config": text, "vision_config": {"model_type": "clip_vision_model"},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(outer))
    with LmtpServe(folder, *KV) as server:
        info, ready = info_of(server), server.ready_line()
    assert info["model_type"] == "llama"
    assert info["notes"][0] in ready and "'llava' alone, without vision" in ready
