#!/usr/bin/env python3
"""text-generation's own client and LangChain's HuggingFaceEndpoint against lmtp-serve: whole
answers, streams, samples and refusals. Exit code 1 where they differ from each other.

    python3 -m venv VENV && VENV/bin/pip install text-generation langchain-huggingface
    VENV/bin/python tools/dev/tgi_clients_check.py

Neither is among the tests' requirements: both want an older huggingface_hub. The network is not
used."""

import asyncio
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "benchmarks"))
from servers import LmtpServe  # noqa: E402

PROMPT, TOKENS, AT_ONCE = "Once upon a time", 16, 8


def text_generation(url):
    """(what is expected, what came) by name; and the text of the most probable tokens."""
    from text_generation import AsyncClient, Client
    from text_generation.errors import ValidationError

    client = Client(url, timeout=60)
    whole = client.generate(PROMPT, max_new_tokens=TOKENS, decoder_input_details=True,
                            top_n_tokens=2)  # fmt: skip
    text = whole.generated_text
    events = list(client.generate_stream(PROMPT, max_new_tokens=TOKENS))

    def sample():
        return client.generate(PROMPT, max_new_tokens=TOKENS, do_sample=True, seed=3, top_k=20,
                               top_p=0.9, temperature=0.8, repetition_penalty=1.1)  # fmt: skip

    best = client.generate(PROMPT, max_new_tokens=TOKENS, do_sample=True, best_of=2)
    try:
        client.generate(PROMPT, max_new_tokens=1_000_000)
        refusal = ""
    except ValidationError as e:
        refusal = str(e)

    async def at_once():
        several = AsyncClient(url, timeout=60)
        asked = (several.generate(PROMPT, max_new_tokens=TOKENS) for _ in range(AT_ONCE))
        return [answer.generated_text for answer in await asyncio.gather(*asked)]

    return {
        "generate": ((TOKENS, TOKENS), (len(whole.details.tokens), len(whole.details.top_tokens))),
        "generate_stream": ((TOKENS, text, text), (
            len(events), events[-1].generated_text, "".join(e.token.text for e in events))),
        "a seed": (sample().generated_text, sample().generated_text),
        "best_of": (1, len(best.details.best_of_sequences)),
        "a refusal": ("Input validation error", refusal[:22]),
        "AsyncClient": ([text] * AT_ONCE, asyncio.run(at_once())),
    }, text  # fmt: skip


def langchain(url, text):
    from langchain_huggingface import HuggingFaceEndpoint

    # Its defaults draw.
    greedy = {"temperature": None, "top_k": None, "top_p": None, "typical_p": None}
    llm = HuggingFaceEndpoint(endpoint_url=url, huggingfacehub_api_token="none", timeout=60,
                              max_new_tokens=TOKENS, **greedy)  # fmt: skip
    return {"HuggingFaceEndpoint.invoke": (text, llm.invoke(PROMPT)),
            "HuggingFaceEndpoint.stream": (text, "".join(llm.stream(PROMPT)))}  # fmt: skip


def main():
    with LmtpServe("demo", "--kv-cache", "64MiB") as server:
        url = f"http://{server.endpoint}"
        cases, text = text_generation(url)
        cases |= langchain(url, text)
    wrong = 0
    for name, (wanted, got) in cases.items():
        print(f"{name}: {'as it should be' if wanted == got else f'{got!r}, not {wanted!r}'}")
        wrong += wanted != got
    return int(wrong > 0 or server.exit_code != 0)


if __name__ == "__main__":
    sys.exit(main())
