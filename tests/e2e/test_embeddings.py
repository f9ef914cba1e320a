"""/v1/embeddings and /rerank over HTTP, by OpenAI's own client: folders as sentence-transformers
writes them, of the class without a head, against transformers' hidden states."""

import json
import math

import numpy
import openai
import pytest
import torch
from safetensors.torch import load_file, save_file
from servers import LmtpServe
from test_decisions import post
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, Qwen3Model

END = 256
TEXTS = ["hello world", "a", "the quick brown fox jumps over the lazy dog " * 5]
QUERY = "Instruct: find\nQuery:"
MODULES = ["Transformer", "Pooling", "Normalize"]
YES, NO = ord("y"), ord("n")


def write_tokenizer(folder):
    """Bytes, and an end after each text, as Qwen3-Embedding's has it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    assert tokenizer.token_to_id("<|endoftext|>") == END
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="$A <|endoftext|>",
                                      special_tokens=[("<|endoftext|>", END)]),
    ])  # fmt: skip
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>",
                            pad_token="<|endoftext|>").save_pretrained(folder)  # fmt: skip


def write_model(folder, kind=Qwen3Model, dtype=torch.float32):
    torch.manual_seed(1)
    config = Qwen3Config(
        vocab_size=300, hidden_size=128, intermediate_size=256, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=512,
        tie_word_embeddings=True, eos_token_id=END, initializer_range=0.02,
    )  # fmt: skip
    kind(config).to(dtype).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_modules(folder, pooling="lasttoken", modules=MODULES):
    """As sentence-transformers 6.2 does."""
    rows = [{"idx": i, "name": str(i), "path": "" if i == 0 else f"{i}_{name}",
             "type": f"sentence_transformers.sentence_transformer.modules.{name.lower()}.{name}"}
            for i, name in enumerate(modules)]  # fmt: skip
    (folder / "modules.json").write_text(json.dumps(rows))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(
        {"embedding_dimension": 128, "pooling_mode": pooling, "include_prompt": True}))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(
        {"prompts": {"query": QUERY, "document": ""}, "default_prompt_name": None}))


def states(folder, ids):
    """Hidden states of the widened numbers, [tokens, hidden]."""
    model = Qwen3Model.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(torch.tensor([ids])).last_hidden_state[0].double().numpy()


def expected(folder, text, pooling="lasttoken"):
    all_states = states(folder, [*byte_ids(folder, text), END])
    pooled = {"lasttoken": all_states[-1], "cls": all_states[0], "mean": all_states.mean(0)}
    return pooled[pooling] / numpy.linalg.norm(pooled[pooling])


def byte_ids(folder, text):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return tokenizer.encode(text, add_special_tokens=False).ids


def embed(server, texts=TEXTS, **options):
    client = openai.OpenAI(base_url=f"http://{server.endpoint}/v1", api_key="none", max_retries=0)
    answer = client.embeddings.create(model="m", input=texts, **options)
    return answer, numpy.array([item.embedding for item in answer.data])


def serve(folder, *options):
    return LmtpServe(folder, "--served-model-name", "m", "--kv-cache", "16MiB", *options)


@pytest.mark.parametrize("pooling", ["lasttoken", "mean", "cls"])
def test_a_folder_of_sentence_transformers(tmp_path, pooling):
    write_modules(write_model(tmp_path), pooling)
    with serve(tmp_path) as server:
        answer, got = embed(server)
        wanted = numpy.array([expected(tmp_path, text, pooling) for text in TEXTS])
        assert numpy.abs(got - wanted).max() < 1e-5
        assert answer.usage.prompt_tokens == sum(len(text) + 1 for text in TEXTS)
        # The client asks for base64 by itself.
        floats = embed(server, encoding_format="float")[1]
        assert (floats.astype(numpy.float32) == got.astype(numpy.float32)).all()
        for text, alone in zip(TEXTS, got, strict=True):
            assert (embed(server, text)[1][0] == alone).all(), "company changes no bit"
        query = embed(server, extra_body={"prompt_name": "query"})[1]
        wanted = numpy.array([expected(tmp_path, QUERY + text, pooling) for text in TEXTS])
        assert numpy.abs(query - wanted).max() < 1e-5
        few = embed(server, dimensions=16)[1]
        wanted = got[:, :16] / numpy.linalg.norm(got[:, :16], axis=1, keepdims=True)
        assert few.shape == (3, 16) and numpy.abs(few - wanted).max() < 1e-6
        with pytest.raises(openai.BadRequestError, match="allowed are document, query"):
            embed(server, extra_body={"prompt_name": "code"})
        with pytest.raises(openai.BadRequestError, match="has 513 tokens; allowed are at most 512"):
            embed(server, "a" * 512)
        with pytest.raises(openai.BadRequestError, match="without an output head"):
            openai.OpenAI(base_url=f"http://{server.endpoint}/v1", api_key="none",
                          max_retries=0).completions.create(model="m", prompt="a")  # fmt: skip
    assert server.exit_code == 0, server.log_tail


@pytest.mark.parametrize(
    ("saved", "dtype", "bound"),
    [
        (torch.bfloat16, "bfloat16", 1e-3),
        (torch.bfloat16, "float32", 1e-5),
        (torch.float16, "float16", 1e-5),
    ],
)
def test_sixteen_bits(tmp_path, saved, dtype, bound):
    write_modules(write_model(tmp_path, dtype=saved))
    wanted = numpy.array([expected(tmp_path, text) for text in TEXTS])
    with serve(tmp_path, "--dtype", dtype, "--kv-cache-dtype", "float32") as server:
        assert numpy.abs(embed(server)[1] - wanted).max() < bound


def test_documents_are_ranked_by_embeddings(tmp_path):
    write_modules(write_model(tmp_path))
    query = expected(tmp_path, QUERY + "lions")
    scores = {i: float(expected(tmp_path, text) @ query) for i, text in enumerate(TEXTS)}
    with serve(tmp_path) as server:
        body = {"model": "m", "query": "lions", "documents": [*TEXTS[:2], {"text": TEXTS[2]}]}
        for path in ("/rerank", "/v1/rerank"):
            status, answer = post(server, path, body)
            assert status == 200, answer
            order = [result["index"] for result in answer["results"]]
            assert order == sorted(scores, key=scores.get, reverse=True)
            for result in answer["results"]:
                assert abs(result["relevance_score"] - scores[result["index"]]) < 1e-5
                assert result["document"] == {"text": TEXTS[result["index"]]}
        best = post(server, "/rerank", body | {"top_n": 1, "return_documents": False})[1]["results"]
        assert best == [{k: answer["results"][0][k] for k in ("index", "relevance_score")}]
        status, error = post(server, "/rerank", {"query": "a", "documents": [3]})
        assert status == 400 and "documents[0]: allowed are" in error


def test_documents_are_ranked_by_yes_and_no(tmp_path):
    """Qwen3-Reranker's layout, with sentence-transformers' module that names the two tokens."""
    write_model(tmp_path, Qwen3ForCausalLM)
    write_modules(tmp_path, modules=["Transformer", "LogitScore"])
    (tmp_path / "1_LogitScore").mkdir()
    (tmp_path / "1_LogitScore" / "config.json").write_text(
        json.dumps({"true_token_id": YES, "false_token_id": NO}))
    model = Qwen3ForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()

    def score(document):
        text = ("<|im_start|>system\nJudge whether the Document meets the requirements based on "
                "the Query and the Instruct provided. Note that the answer can only be \"yes\" or "
                f"\"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: i\n<Query>: q\n<Document>: "
                f"{document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
        with torch.no_grad():
            logits = model(torch.tensor([byte_ids(tmp_path, text)])).logits[0, -1].double()
        return 1 / (1 + math.exp(float(logits[NO] - logits[YES])))

    documents = ["a", "bc", "lions eat"]
    with serve(tmp_path) as server:
        body = {"query": "q", "instruction": "i", "documents": documents}
        status, answer = post(server, "/v1/rerank", body)
        assert status == 200, answer
        got = {result["index"]: result["relevance_score"] for result in answer["results"]}
        for i, document in enumerate(documents):
            assert abs(got[i] - score(document)) < 1e-5


def test_what_is_no_embedding_model_is_refused(tmp_path):
    write_modules(write_model(tmp_path), modules=["Transformer", "Pooling", "Dense"])
    with serve(tmp_path) as server:
        with pytest.raises(openai.BadRequestError, match="the module 'Dense' is not computed here"):
            embed(server)
    config = json.loads((tmp_path / "config.json").read_text())
    for change, reason in [
        ({"model_type": "bert", "architectures": ["BertModel"]}, "is an encoder"),
        ({"architectures": ["Qwen3ForSequenceClassification"]}, "a classifier's head"),
    ]:
        (tmp_path / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(Exception, match=reason):
            with serve(tmp_path):
                pass


def test_any_model_gives_embeddings(tmp_path):
    """Without files that say how: the last token's, with a line of the log."""
    write_model(tmp_path, Qwen3ForCausalLM)
    weights = load_file(tmp_path / "model.safetensors")
    body = {name.removeprefix("model."): tensor for name, tensor in weights.items()}
    wanted = expected(tmp_path, TEXTS[0])
    # Qwen3-Embedding's own: the class with a head, and names as of that without.
    save_file(body, tmp_path / "model.safetensors", {"format": "pt"})
    with serve(tmp_path) as server:
        assert numpy.abs(embed(server, TEXTS[0])[1][0] - wanted).max() < 1e-5
    assert "were not trained for them" in server.log_tail
