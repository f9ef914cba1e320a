"""Weights in every file that a folder may hold them in, and files that are not what they claim."""

import asyncio
import collections
import fcntl
import json
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import zipfile

import pytest
import torch
import transformers
from auto_server import NO_END, Auto, finish, generate
from lmtp_socket import Socket, wait_until
from safetensors.torch import load_file, save_file
from servers import LmtpServe, bin_dir

FAMILIES = pathlib.Path(__file__).resolve().parents[1] / "goldens" / "families"
FOLDER = FAMILIES / "llama3-tied"
CASE = next(c for c in json.loads((FOLDER / "golden.json").read_text()) if c["kind"] == "greedy")
EMBEDDING = "model.embed_tokens.weight"
TIMEOUT_S = 60


@pytest.fixture
def folder(tmp_path):
    """A copy of the checkpoint without its weights."""
    for name in ("config.json", "generation_config.json"):
        shutil.copy(FOLDER / name, tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def tensors():
    return load_file(FOLDER / "model.safetensors")


def greedy(folder, max_tokens):
    """The TOKEN entries of the golden's prompt."""

    async def ask(server):
        async with Socket(server.endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=CASE["prompt_ids"], max_tokens=max_tokens)
            return [await s.token_of(1) for _ in range(max_tokens)]

    with LmtpServe(folder, "--kv-cache", "16MiB") as server:
        return asyncio.run(ask(server))


def halves(tensors):
    names = sorted(tensors)
    middle = len(names) // 2
    return [{n: tensors[n] for n in part} for part in (names[:middle], names[middle:])]


def write_index(folder, base, files, parts):
    weight_map = {name: file for file, part in zip(files, parts) for name in part}
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / f"{base}.index.json").write_text(json.dumps(index))


def write_safetensors(folder, tensors):
    save_file(tensors, folder / "model.safetensors")


def write_sharded_safetensors(folder, tensors):
    files = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for file, part in zip(files, halves(tensors)):
        save_file(part, folder / file)
    write_index(folder, "model.safetensors", files, halves(tensors))


def write_pickled(folder, tensors):
    torch.save(tensors, folder / "pytorch_model.bin")


def write_sharded_pickled(folder, tensors):
    files = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
    for file, part in zip(files, halves(tensors)):
        torch.save(part, folder / file)
    write_index(folder, "pytorch_model.bin", files, halves(tensors))


def write_views(folder, tensors):
    """Tensors that share one storage, as tied ones do, and numbers that are no tensors."""
    flat = torch.cat([t.flatten() for t in tensors.values()])
    views, at = {"epoch": 3}, 0
    for name, t in tensors.items():
        views[name] = flat[at : at + t.numel()].view(t.shape)
        at += t.numel()
    torch.save(views, folder / "pytorch_model.bin")


class Bare(torch.nn.Module):
    """A module whose state dict has these names."""

    def __init__(self, tensors):
        super().__init__()
        for name, t in tensors.items():
            *path, leaf = name.split(".")
            parent = self
            for part in path:
                if not hasattr(parent, part):
                    parent.add_module(part, torch.nn.Module())
                parent = getattr(parent, part)
            parent.register_parameter(leaf, torch.nn.Parameter(t))


def write_state_dict(folder, tensors):
    """An OrderedDict, with attributes."""
    state_dict = Bare(tensors).state_dict()
    assert isinstance(state_dict, collections.OrderedDict) and set(state_dict) == set(tensors)
    torch.save(state_dict, folder / "pytorch_model.bin")


def write_training_state(folder, tensors):
    optimizer = torch.optim.AdamW(Bare(tensors).parameters())
    state = {"epoch": 3, "loss": 1.5, "done": False, "shape": torch.Size([2]), "rng": (1, None),
             "state_dict": collections.OrderedDict(tensors), "optimizer": optimizer.state_dict()}
    torch.save(state, folder / "pytorch_model.bin")


def write_parameters(folder, tensors):
    parameters = dict(Bare(tensors).named_parameters())
    next(iter(parameters.values())).note = "an attribute"
    torch.save(parameters, folder / "pytorch_model.bin")


def write_protocol(protocol):
    def write(folder, tensors):
        state_dict = Bare(tensors).state_dict()
        torch.save(state_dict, folder / "pytorch_model.bin", pickle_protocol=protocol)

    write.__name__ = f"write_protocol_{protocol}"
    return write


def write_by_transformers(folder, tensors):
    """As transformers 4 writes where safetensors are not wanted."""
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER)
    model.save_pretrained(folder, safe_serialization=False)
    assert (folder / "pytorch_model.bin").exists()


def write_of_a_larger_model(folder, tensors):
    """As a compiled and wrapped vision model's."""
    renamed = {f"_orig_mod.language_model.{n}": t for n, t in tensors.items()}
    save_file(renamed | {"_orig_mod.vision_tower.patch.weight": torch.ones(3)},
              folder / "model.safetensors")


def write_head_alone(folder, tensors):
    """As safetensors' save_model does of two names of one tensor."""
    head = {n: t for n, t in tensors.items() if n != EMBEDDING}
    write_safetensors(folder, head | {"lm_head.weight": tensors[EMBEDDING]})


def write_equal_head(folder, tensors):
    write_safetensors(folder, tensors | {"lm_head.weight": tensors[EMBEDDING].clone()})


def write_float64(folder, tensors):
    write_safetensors(folder, {n: t.double() for n, t in tensors.items()})


@pytest.mark.parametrize(
    "write",
    [
        write_head_alone, write_equal_head, write_float64,
        write_of_a_larger_model, write_safetensors, write_sharded_safetensors, write_pickled,
        write_sharded_pickled, write_views, write_training_state, write_parameters,
        *(write_protocol(protocol) for protocol in (2, 3, 4, 5)), write_by_transformers,
    ],
)  # fmt: skip
def test_the_same_model_from_every_file(folder, tensors, write):
    write(folder, tensors)
    entries = greedy(folder, len(CASE["ids"]))
    assert [e["token"] for e in entries] == CASE["ids"]
    worst = max(abs(e["logprob"] - s["logprob"]) for e, s in zip(entries, CASE["steps"]))
    assert worst < 1e-4


def test_a_tied_models_own_head_is_used(folder, tensors, tmp_path_factory):
    """As by transformers 5, which both releases do where config.json ties nothing."""
    own = torch.randn(tensors[EMBEDDING].shape, generator=torch.Generator().manual_seed(1))
    write_safetensors(folder, tensors | {"lm_head.weight": own})
    untied = tmp_path_factory.mktemp("untied")
    save_file(tensors | {"lm_head.weight": own}, untied / "model.safetensors", {"format": "pt"})
    config = json.loads((FOLDER / "config.json").read_text()) | {"tie_word_embeddings": False}
    (untied / "config.json").write_text(json.dumps(config))
    model = transformers.AutoModelForCausalLM.from_pretrained(untied, dtype=torch.float32)
    with torch.no_grad():
        scores = model(torch.tensor([CASE["prompt_ids"]])).logits[0, -1].log_softmax(-1)
    first = greedy(folder, 1)[0]
    assert first["token"] == int(scores.argmax()) != CASE["ids"][0]
    assert first["logprob"] == pytest.approx(float(scores.max()), abs=1e-4)
    info, log = info_and_log(folder)
    assert "'lm_head.weight' differs from the embedding" in info["notes"][0]
    assert "transformers 4 leaves it out" in log


def test_half_precision_files_give_what_they_hold(folder, tensors):
    answers = []
    for dtype in (torch.bfloat16, torch.float16):
        rounded = {n: t.to(dtype) for n, t in tensors.items()}
        widened = {n: t.float() for n, t in rounded.items()}
        for write, cast in (
            (write_safetensors, rounded),
            (write_pickled, rounded),
            (write_state_dict, rounded),
            (write_safetensors, widened),
        ):
            for old in folder.glob("*model*"):
                old.unlink()
            write(folder, cast)
            answers.append([(e["token"], e["logprob"]) for e in greedy(folder, 20)])
    assert answers[0] == answers[1] == answers[2] == answers[3]
    assert answers[4] == answers[5] == answers[6] == answers[7]
    assert answers[0] != answers[4]


class Evil:
    def __reduce__(self):
        return os.system, ("touch evil-was-here",)


def write_evil(folder, tensors):
    torch.save({"a": Evil()}, folder / "pytorch_model.bin")


def write_legacy(folder, tensors):
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)


def write_plain_pickle(folder, tensors):
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"a": 1}))


def write_truncated(folder, tensors):
    write_pickled(folder, tensors)
    path = folder / "pytorch_model.bin"
    path.write_bytes(path.read_bytes()[:-20000])


def write_short_record(folder, tensors):
    """A record that holds less than the pickle says of it."""
    write_pickled(folder, tensors)
    path = folder / "pytorch_model.bin"
    with zipfile.ZipFile(path) as old:
        records = {i.filename: old.read(i) for i in old.infolist()}
    largest = max((n for n in records if "/data/" in n), key=lambda n: len(records[n]))
    records[largest] = records[largest][:-64]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as new:
        for name, data in records.items():
            new.writestr(name, data)


def write_deflated(folder, tensors):
    write_pickled(folder, tensors)
    path = folder / "pytorch_model.bin"
    with zipfile.ZipFile(path) as old:
        records = {i.filename: old.read(i) for i in old.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, data in records.items():
            new.writestr(name, data)


def write_whole_model(folder, tensors):
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER)
    torch.save(model, folder / "pytorch_model.bin")


def write_list(folder, tensors):
    torch.save(list(tensors.values()), folder / "pytorch_model.bin")


def write_strided(folder, tensors):
    wrong = {n: t.t().contiguous().t() if t.ndim == 2 else t for n, t in tensors.items()}
    write_pickled(folder, wrong)


def write_missing(folder, tensors):
    write_pickled(folder, {n: t for n, t in tensors.items() if "norm" not in n})


def write_misshaped(folder, tensors):
    write_pickled(folder, {n: t[:-1] for n, t in tensors.items()})


def write_more(folder, tensors):
    norm = {f"model.layers.{i}.self_attn.inner_attn_ln.weight": torch.ones(3) for i in range(2)}
    write_safetensors(folder, tensors | norm)


def write_gptq(folder, tensors):
    name = "model.layers.1.mlp.up_proj."
    rest = {n: t for n, t in tensors.items() if not n.startswith(name)}
    write_safetensors(folder, rest | {name + "qweight": torch.ones(4, dtype=torch.int32)})


def write_integers(folder, tensors):
    write_pickled(folder, {n: t.long() for n, t in tensors.items()})


def write_absent_shard(folder, tensors):
    write_sharded_pickled(folder, tensors)
    (folder / "pytorch_model-00002-of-00002.bin").unlink()


@pytest.mark.parametrize(
    "write, words",
    [
        (write_evil, ["pytorch_model.bin", "asks for 'posix.system'", "save_pretrained(FOLDER)"]),
        (write_legacy, ["pytorch_model.bin", "before 1.6", "save_pretrained(FOLDER)"]),
        (write_plain_pickle, ["pytorch_model.bin", "zip", "save_pretrained(FOLDER)"]),
        (write_whole_model, ["asks for 'transformers.models.", "save_pretrained(FOLDER)"]),
        (write_list, ["no dictionary of tensors", "save_pretrained(FOLDER)"]),
        (write_deflated, ["record 'data.pkl' is compressed", "save_pretrained(FOLDER)"]),
        (write_truncated, ["pytorch_model.bin", "truncated or corrupt"]),
        (write_short_record, ["pytorch_model.bin", "beyond the end"]),
        (write_strided, ["tensor '", "contiguous"]),
        (write_missing, ["norm.weight' is missing"]),
        (write_more, ["no use for (2: 'model.layers.0.self_attn.inner_attn_ln.weight'", "--force"]),
        (write_gptq, ["up_proj.weight' is missing", "up_proj.qweight': a GPTQ or AWQ checkpoint"]),
        (write_misshaped, ["its shape is", "config.json asks for"]),
        (write_integers, ["its type is I64"]),
        (write_absent_shard, ["pytorch_model-00002-of-00002.bin", "No such file"]),
    ],
)
def test_what_is_wrong_is_named(folder, tensors, write, words):
    write(folder, tensors)
    done = subprocess.run(
        [bin_dir() / "lmtp-serve", folder, "--port", "0", "--kv-cache", "16MiB"],
        capture_output=True, text=True, timeout=TIMEOUT_S, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert all(word in done.stderr for word in words), done.stderr
    assert not (folder / "evil-was-here").exists()


def info_and_log(folder, *options):
    async def ask(server):
        async with Socket(server.endpoint) as s:
            await s.send("MODEL_INFO", stream_id=1)
            return (await s.wait_for(lambda k, e: "model_info" in e))[1]["model_info"]

    with LmtpServe(folder, "--kv-cache", "16MiB", *options) as server:
        info = asyncio.run(ask(server))
        server.ready_line()
    return info, server.log_tail


def test_what_is_passed_over_is_told(folder, tensors):
    """In MODEL_INFO, the log and the ready line."""
    write_more(folder, tensors)
    info, log = info_and_log(folder, "--force")
    assert [note for note in info["notes"] if "inner_attn_ln" in note and "--force" in note]
    assert log.count("inner_attn_ln.weight") >= 2, log
    write_of_a_larger_model(folder, tensors)
    info, log = info_and_log(folder)
    assert info["notes"] == ["the weights of 'vision_tower' are left out"]
    assert log.count("'vision_tower' are left out") >= 2, log


class Lease:
    """Processes that open the file meanwhile wait until this ends."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.before = signal.signal(signal.SIGIO, signal.SIG_IGN)
        self.descriptor = os.open(self.path, os.O_RDWR)
        fcntl.fcntl(self.descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        return self

    async def is_asked_for(self):
        return fcntl.fcntl(self.descriptor, fcntl.F_GETLEASE) != fcntl.F_WRLCK

    def __exit__(self, *_):
        os.close(self.descriptor)
        signal.signal(signal.SIGIO, self.before)


def test_a_checkpoint_that_shrinks_while_it_is_loaded_fails_alone(tmp_path, tensors):
    folder = tmp_path / "shrinking"
    folder.mkdir()
    # Untied: of a tied model the weights are looked at before they are loaded.
    config = json.loads((FOLDER / "config.json").read_text()) | {"tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = tensors | {"lm_head.weight": tensors[EMBEDDING].clone()}
    write_sharded_safetensors(folder, tensors)

    async def ask(server):
        async with Socket(server.endpoint) as s:
            await generate(s, 1, "demo", max_tokens=100, logit_bias=NO_END)
            # The first file is open, and the second is not yet.
            with Lease(folder / "model-00002-of-00002.safetensors") as second:
                await generate(s, 2, str(folder))
                await wait_until(second.is_asked_for, "the second file is opened")
                os.truncate(folder / "model-00001-of-00002.safetensors", 0)
            error = await s.error_of(2)
            assert "model-00001-of-00002.safetensors: ends at byte" in error, error
            assert "somebody writes to it" in error
            assert (await s.finish(1))[1] == "length"
            write_sharded_safetensors(folder, tensors)
            await finish(s, 3, str(folder))

    with Auto(tmp_path / "hub") as server:
        asyncio.run(ask(server))
    assert server.exit_code == 0
