"""lmtp-serve --tensor-parallel-size: one model that is divided among ranks."""

import pathlib
import subprocess

import pytest
from auto_server import run
from lmtp_socket import Socket, info_of, seeded_streams
from servers import LmtpServe, bin_dir
from wire_schema import SCHEMA, Validator

OPTIONS = ("--kv-cache", "16MiB", "--dtype", "float32")
PROMPT = list(range(5, 60))
NUM_STREAMS = 5
TIMEOUT_S = 60


def served(*options):
    return LmtpServe("demo", *OPTIONS, *options)


def refused(*arguments):
    done = subprocess.run([bin_dir() / "lmtp-serve", *arguments, "--port", "0", *OPTIONS],
                          capture_output=True, text=True, timeout=TIMEOUT_S)  # fmt: skip
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def undivided():
    with served() as server:
        greedy = run(seeded_streams(server.endpoint, PROMPT, [0], temperature=0))
        yield run(info_of(server.endpoint)), greedy


@pytest.mark.parametrize(("size", "option"), [(2, "--tp"), (4, "--num-shard")])
def test_ranks_compute_what_one_does(undivided, size, option):
    info, greedy = undivided
    numbers = range(NUM_STREAMS)
    with served(option, str(size)) as server:
        divided = run(info_of(server.endpoint))
        own = run(seeded_streams(server.endpoint, PROMPT, [0], temperature=0))
        together = run(seeded_streams(server.endpoint, PROMPT, numbers))
        for number in numbers:
            alone = run(seeded_streams(server.endpoint, PROMPT, [number]))
            assert alone[number] == together[number], number
        ready = server.ready_line()
    assert [token for token, _ in own[0]] == [token for token, _ in greedy[0]]
    for (_, logprob), (_, expected) in zip(own[0], greedy[0], strict=True):
        assert logprob == pytest.approx(expected, abs=1e-4)
    assert [rank["device"] for rank in divided["ranks"]] == ["cpu"] * size
    assert "ranks" not in info
    Validator({**SCHEMA, "$ref": "#/$defs/model_info"}).validate(divided)
    held = sum(rank["weights_bytes"] for rank in divided["ranks"])
    assert max(rank["weights_bytes"] for rank in divided["ranks"]) < 1.3 * held / size
    assert divided["numerics"] != info["numerics"]
    for field in ("num_parameters", "device", "dtype", "context_length"):
        assert divided[field] == info[field], field
    assert divided["stats"]["num_blocks"] == info["stats"]["num_blocks"]
    assert f" ready on cpu in {size} ranks (weights " in ready, ready


def bits_of(endpoint):
    """Of streams together and one alone: JSON's numbers are those of the bits."""
    together = run(seeded_streams(endpoint, PROMPT, range(NUM_STREAMS)))
    return together, run(seeded_streams(endpoint, PROMPT, [2]))


@pytest.mark.usefixtures("with_gloo")
@pytest.mark.parametrize("size", [2, 4])
def test_gloo_gives_the_bits_of_local(size):
    with served("--tp", str(size), "--communicator", "local") as server:
        local = run(info_of(server.endpoint))
        expected = bits_of(server.endpoint)
    with served("--tp", str(size), "--communicator", "gloo") as server:
        info = run(info_of(server.endpoint))
        assert bits_of(server.endpoint) == expected
    assert server.exit_code == 0, server.log_tail
    assert "notes" not in local
    assert info["notes"] == ["the ranks are connected by gloo"]
    assert info["numerics"] == local["numerics"]


def test_more_ranks_than_kv_heads_have_copies_of_them():
    folder = pathlib.Path(__file__).resolve().parents[1] / "goldens" / "ranks" / "llama-two-kv"
    blocks, greedy = [], []
    for size in (1, 2, 4):
        with LmtpServe(folder, *OPTIONS, "--tp", str(size)) as server:
            blocks.append(run(info_of(server.endpoint))["stats"]["num_blocks"])
            greedy.append(run(seeded_streams(server.endpoint, PROMPT, [0], temperature=0))[0])
    assert [token for token, _ in greedy[2]] == [token for token, _ in greedy[0]]
    for (_, logprob), (_, expected) in zip(greedy[2], greedy[0], strict=True):
        assert logprob == pytest.approx(expected, abs=1e-4)
    # A token takes twice the memory where each KV head is in two ranks.
    assert blocks[0] == blocks[1]
    assert abs(blocks[2] - blocks[0] / 2) <= 1


def test_a_stream_that_was_cut_goes_on_with_the_same_bits(tmp_path):
    config = tmp_path / "serve.toml"
    config.write_text("tensor-parallel-size = 2\n")

    async def resumed(endpoint, tokens, cut):
        async with Socket(endpoint) as s:
            received = [token for token, _ in tokens[:cut]]
            await s.send("GENERATE", stream_id=1, prompt=PROMPT[1:] + received, resumed=cut,
                         max_tokens=len(tokens) - cut, temperature=0.8, seed=1)  # fmt: skip
            found = []
            while len(found) < len(tokens) - cut:
                entry = await s.token_of(1)
                found.append((entry["token"], entry["logprob"]))
            return found

    with served("--config", str(config)) as server:
        whole = run(seeded_streams(server.endpoint, PROMPT, [1]))[1]
    with served("--tp", "2", "--threads", "3") as server:
        assert run(resumed(server.endpoint, whole, 17)) == whole[17:]


def test_what_cannot_be_is_refused_in_a_line():
    assert "4 heads, 4 KV heads and an MLP of 768 allow 1, 2, 4\n" in refused("demo", "--tp", "3")
    adapters = pathlib.Path(__file__).resolve().parents[1] / "goldens" / "adapters"
    said = refused("demo", "--tp", "2", "--lora-modules", f"tales={adapters / 'demo'}")
    assert "adapters are not divided among ranks yet" in said
    assert "give --tensor-parallel-size" in refused("demo", "--communicator", "gloo")
    assert "give --cuda" in refused("demo", "--tp", "2", "--communicator", "nccl")
    said = refused("demo", "--tp", "2", "--communicator", "mpi")
    assert "--communicator: 'mpi' is unknown; allowed are auto, local, gloo and nccl\n" in said
    done = subprocess.run([bin_dir() / "lmtp-serve", "demo", "--tp", "65"],
                          capture_output=True, text=True, timeout=TIMEOUT_S)  # fmt: skip
    assert done.returncode == 2 and "--tensor-parallel-size" in done.stderr


def test_a_client_that_leaves_and_a_stop_end_the_ranks():
    async def leave(endpoint):
        async with Socket(endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=PROMPT, max_tokens=400)
            await s.token_of(1)
            await s.vanish()

    with served("--tp", "4") as server:
        run(leave(server.endpoint))
        assert run(info_of(server.endpoint))["state"] == "ready"
    assert server.exit_code == 0, server.log_tail
