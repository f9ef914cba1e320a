"""python reference.py FOLDER < requests > answers: System One requests, one a line, answered by
transformers' pipeline("decision"), with the log probabilities of the labels; where a request has
"options" (a prompt's last user turn, and texts), those of the texts as the reply, token by token.
Or, with --save FOLDER FILE, the GGUF FILE as a folder of float32 weights; or, with --tiny FOLDER
FAMILY SAVED, a small model of that family with the tokenizer and the template of SAVED."""

import json
import pathlib
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, pipeline


def save(folder, file):
    file = pathlib.Path(file)
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # the weights are float32 already
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def save_tiny(folder, family, saved):
    tokenizer = AutoTokenizer.from_pretrained(saved)
    config = AutoConfig.for_model(
        family, vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        max_position_embeddings=4096, initializer_range=0.2, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)  # fmt: skip
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def logprobs_of(model, tokenizer, content, texts):
    """For each text [num_tokens, sum]; the prompt is one user turn."""
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False,
        enable_thinking=False)  # fmt: skip
    ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    found = []
    for text in texts:
        whole = tokenizer(prompt + text, add_special_tokens=False)["input_ids"]
        assert whole[: len(ids)] == ids, text
        with torch.no_grad():
            logits = model(torch.tensor([whole])).logits[0].double().log_softmax(-1)
        rest = whole[len(ids) :]
        places = range(len(ids) - 1, len(whole) - 1)
        found.append([len(rest), sum(logits[at, token].item() for at, token in zip(places, rest))])
    return found


def main():
    if sys.argv[1] == "--save":
        return save(*sys.argv[2:])
    if sys.argv[1] == "--tiny":
        return save_tiny(*sys.argv[2:])
    decide = pipeline("decision", model=sys.argv[1], dtype=torch.float32)
    for line in sys.stdin:
        request = json.loads(line)
        if "options" in request:
            answer = logprobs_of(decide.model, decide.tokenizer, **request["options"])
        else:
            answer = decide(request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
