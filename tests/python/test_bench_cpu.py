"""What `tools/bench cpu` reads, counts and prints, without an engine."""

import json
import pathlib
import subprocess
import sys

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "benchmarks"))

import cpu_page  # noqa: E402
import int4_pairs  # noqa: E402
import peers  # noqa: E402
import random_adapters  # noqa: E402
import shapes  # noqa: E402
from cpu_engines import Scale, read_attention  # noqa: E402
from cpu_rows import (  # noqa: E402
    ATTENTION_CONTEXTS, LLAMA, LLAMA_FLAGS, OURS, TRANSFORMERS, Row, all_rows,
    allowed_tokens_per_s, count_weights, fastest_way, is_met, is_same_mode, names_in_turn,
    paired_ratios, with_kv,
)  # fmt: skip
from cpu_time import START_S, estimate_min, next_round_min  # noqa: E402
from quiet import cores_between  # noqa: E402
from streams import Run, read_llama, read_lmtp  # noqa: E402

MACHINE = {"read_bytes_per_s": 40e9, "f32_flops_per_s": 240e9}


def entry(*speeds, **more):
    return {"runs": [{"tokens_per_s": speed, **more} for speed in speeds]}


# ---- what came over a socket ----


def test_lmtp_entries_go_to_their_streams():
    message = 'TOKEN [{"token": 7, "stream_id": 1}, {"token": 8, "stream_id": 0}]'
    run = read_lmtp(0.0, [(1.0, message), (2.0, 'TOKEN [{"token": 9, "stream_id": 1}]')], 2)
    assert run.ids == [[8], [7, 9]] and run.times == [[1.0], [1.0, 2.0]]
    with pytest.raises(RuntimeError, match="no room"):
        read_lmtp(0.0, [(1.0, 'TOKEN [{"stream_id": 0, "error": "no room"}]')], 1)


def event(**fields):
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def test_llama_events_survive_any_cut_and_are_counted():
    last = event(stop=True, tokens_predicted=3, tokens_evaluated=5)
    text = b"HTTP/1.1 200 OK\r\n\r\n1f\r\n" + event(tokens=[4], stop=False) + b"\r\n1f\r\n"
    text += event(tokens=[6], stop=False) + b"\r\n1f\r\n" + last
    for cut in range(len(text) + 1):
        run = read_llama(0.0, [[(1.0, text[:cut]), (2.0, text[cut:])]], [(5, 3)])
        assert run.ids == [[4, 6]]
        assert len(run.times[0]) == 3 and run.times[0][-1] == (1.0 if cut == len(text) else 2.0)
    for wrong in ((5, 4), (4, 3)):
        with pytest.raises(RuntimeError, match="llama-server"):
            read_llama(0.0, [[(1.0, text)]], [wrong])


def test_figures_of_a_run():
    run = Run(10.0, [[11.0, 13.0, 14.0], [12.0, 13.0, 16.0]], None)
    assert run.first_token_s() == 2.0
    assert run.tokens_per_s() == 6 / 6.0
    assert run.steady_tokens_per_s() == 3 / 2.0  # 13, 14 and 13, from 12 to 14
    assert (run.gap_s(0.5), run.gap_s(0.99)) == (2.0, 3.0)
    with pytest.raises(RuntimeError, match="more tokens"):
        Run(0.0, [[1.0, 2.0], [3.0, 4.0]], None).steady_tokens_per_s()


def test_peers_output_is_checked():
    line = '{"pl": 8, "tg": 16, "t_tg": 0.5, "speed_tg": 1.0}'
    assert peers.read_batched_bench(f"noise\n{line}\nmore", 8, 16) == 256.0
    with pytest.raises(RuntimeError, match="something else"):
        peers.read_batched_bench(line, 8, 32)
    text = json.dumps([{"n_prompt": 256, "n_gen": 0, "samples_ts": [1.5, 2.5]}])
    assert peers.read_bench(text, 256) == 2.5
    with pytest.raises(RuntimeError, match="something else"):
        peers.read_bench(text, 512)
    with pytest.raises(RuntimeError, match="sh failed: why"):
        peers.output_of(["sh", "-c", "echo why >&2; exit 3"], 60)


# ---- weights and the roofline ----


def write_header(folder, shapes):
    header = {name: {"shape": shape} for name, shape in shapes.items()}
    text = json.dumps({"__metadata__": {"format": "pt"}} | header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)


def test_tied_weights_count_as_the_head(tmp_path):
    write_header(tmp_path, {
        "transformer.wte.weight": [100, 8], "transformer.wpe.weight": [16, 8],
        "transformer.h.0.mlp.c_fc.weight": [8, 32], "transformer.h.0.mlp.c_fc.bias": [32],
    })  # fmt: skip
    weights = count_weights(tmp_path)
    assert weights.matrix_elements == 100 * 8 + 8 * 32
    assert (weights.head_elements, weights.vector_elements) == (800, 32)
    assert weights.matrix_rows == 100 + 32
    assert weights.all_elements == 800 + 128 + 256 + 32
    assert weights.step_bytes("bfloat16") == 2 * 1056 + 4 * 32
    assert weights.step_bytes("int8") == 1056 + 4 * 132 + 4 * 32
    assert weights.step_bytes("int4") == 800 + 256 * 9 / 16 + 4 * 32


def test_a_head_of_its_own_leaves_the_embedding_out(tmp_path):
    write_header(tmp_path, {
        "model.embed_tokens.weight": [100, 8], "lm_head.weight": [100, 8],
        "model.layers.0.mlp.up_proj.weight": [32, 8], "model.norm.weight": [8],
    })  # fmt: skip
    weights = count_weights(tmp_path)
    assert weights.matrix_elements == 800 + 256 and weights.matrix_rows == 132
    memory = allowed_tokens_per_s(Row("decode", "m", "float32", 1), weights, MACHINE)
    assert memory == pytest.approx(40e9 / (4 * 1056 + 4 * 8))
    compute = allowed_tokens_per_s(Row("decode", "m", "float32", 32), weights, MACHINE)
    assert compute == pytest.approx(240e9 / (2 * 1056))
    prefill = allowed_tokens_per_s(Row("prefill", "m", "float32", 256), weights, MACHINE)
    assert prefill == pytest.approx(240e9 / (2 * 256))
    assert allowed_tokens_per_s(Row("prefill", "m", "int8", 256), weights, MACHINE) is None
    # A step: the weights' bytes, or the products of all its tokens and of those that need the head.
    by_memory = weights.step_s("bfloat16", 256, 1, MACHINE)
    assert by_memory == pytest.approx((2 * 1056 + 4 * 8) / 40e9)
    by_compute = weights.step_s("float32", 256, 2, MACHINE)
    assert by_compute == pytest.approx(2 * (256 * 256 + 2 * 800) / 240e9)


def test_the_work_of_lmql_in_steps():
    all_shapes = [shape for group in shapes.GROUPS for shape in group]
    tokens = {s.__name__: sum(n for n, _ in shapes.steps_of(s)) for s in all_shapes}
    assert tokens.keys() == {"one", "eight", "chunks", "beams", "scores", "again", "mixed"}
    assert tokens["one"] == 64 + 63 and tokens["eight"] == 8 * (64 + 31)
    assert tokens["chunks"] == 200 + 95 and tokens["beams"] == 200 + 8 * 4
    assert tokens["scores"] == 200 + 40 and tokens["again"] == 0
    assert tokens["mixed"] == sum(32 + 8 * i + 8 + 4 * i - 1 for i in range(8))


# ---- pairs of int4, and adapters ----


def test_pairs_alternate_and_the_median_of_their_ratios_counts():
    turns = []
    rates = {"a": iter([10.0, 30.0, 8.0]), "b": iter([10.0, 20.0, 10.0])}

    def measure(name):
        return lambda _: turns.append(name) or next(rates[name])

    pairs = int4_pairs.in_turns(3, measure("a"), measure("b"))
    assert turns == ["a", "b", "b", "a", "a", "b"]
    cells, ratio = int4_pairs.describe(pairs)
    assert ratio == 1.0 and cells == ["10.0", "10.0", "1.000x", "0.800 1.000 1.500"]
    # A pair that finds the machine in two modes is taken again.
    peaks = iter([250e9, 250e9, 500e9] + [500e9] * 6)
    rates = {"a": iter([1.0, 2.0, 3.0]), "b": iter([1.0, 1.0, 1.0])}
    machine = lambda: MACHINE | {"f32_flops_per_s": next(peaks)}  # noqa: E731
    assert int4_pairs.in_turns(2, measure("a"), measure("b"), machine) == [(2.0, 1.0), (3.0, 1.0)]


def test_random_adapters_are_what_peft_reads(tmp_path):
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    base = ROOT / "tests" / "goldens" / "families" / "llama"
    folders = random_adapters.write_adapters(base, tmp_path, 2, 4)
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    ids = torch.tensor([[5, 6, 7]])
    before = model(ids).logits
    logits = []
    for folder in folders:
        with_adapter = peft.PeftModel.from_pretrained(
            transformers.AutoModelForCausalLM.from_pretrained(base), str(folder)
        )
        logits.append(with_adapter(ids).logits)
    assert not torch.equal(logits[0], before) and not torch.equal(logits[0], logits[1])
    assert all(torch.isfinite(some).all() for some in logits)


# ---- verdicts ----


def test_rows_have_names_of_their_own_and_targets():
    names = [row.name for row in all_rows()]
    assert len(set(names)) == len(names)
    assert all(row.wanted >= 1.0 for row in all_rows() if row.has_peers)
    attention = {(row.dtype, row.size) for row in all_rows() if row.kind == "attention"}
    assert {dtype for dtype, _ in attention} == {"float32", "bfloat16"}
    assert {48, 256} < {head for _, head in attention}


def test_the_better_peer_counts():
    row = Row("prefill", "m", "float32", 256, 1.05)
    entries = {OURS: entry(106.0), LLAMA[1]: entry(90.0, 100.0, 101.0), TRANSFORMERS: entry(70.0)}
    assert is_met(row, entries)
    assert not is_met(row, entries | {TRANSFORMERS: entry(101.5)})
    assert is_met(row, {OURS: entry(106.0), LLAMA[0]: {"runs": [], "not_run": "why"}}) is None


def test_ratios_are_of_pairs_and_pairs_of_one_mode():
    """A machine whose processors become one core's threads from one run to the next."""

    def run(speed, *peaks):
        readings = [MACHINE | {"f32_flops_per_s": peak} for peak in peaks]
        return {"tokens_per_s": speed, "readings": readings}

    slow, fast, other = (250e9, 250e9), (500e9, 490e9), (250e9, 500e9)
    ours = [run(10.0, *slow), run(20.0, *fast), run(11.0, *slow), run(30.0, *fast)]
    theirs = [run(10.0, *slow), run(8.0, *slow), run(10.0, *other), run(15.0, *fast)]
    entries = {OURS: {"runs": ours}, LLAMA[0]: {"runs": theirs}}
    assert paired_ratios(entries, LLAMA[0]) == [1.0, 2.0]
    assert is_met(Row("decode", "m", "int8", 8, 1.5), entries)
    assert not is_met(Row("decode", "m", "int8", 8, 1.51), entries)
    assert not is_same_mode(ours[0], theirs[3]) and is_same_mode(entry(1.0)["runs"][0])


def test_decoding_one_stream_has_to_reach_the_bandwidth(tmp_path):
    write_header(tmp_path, {"wte.weight": [1000, 1000]})
    weights = count_weights(tmp_path)  # 4 MB: 10,000 tokens a second
    row = Row("decode", "m", "float32", 1, 1.0)
    for speed, met in ((9001.0, True), (8999.0, False)):
        assert is_met(row, {OURS: entry(speed), LLAMA[0]: entry(8000.0)}, weights, MACHINE) == met
    beside = entry(4600.0, read_bytes_per_s=20e9)  # what was read right beside that run
    assert is_met(row, {OURS: beside, LLAMA[0]: entry(4000.0)}, weights, MACHINE)
    assert not is_met(row, {OURS: beside, LLAMA[0]: entry(4700.0)}, weights, MACHINE)


def test_streams_need_a_lower_p99_too():
    row = Row("streams", "m", "int8", 8, 1.4)
    theirs = entry(10.0, p99_ms=5.0)
    assert is_met(row, {OURS: entry(14.0, p99_ms=4.9), LLAMA[0]: theirs})
    assert not is_met(row, {OURS: entry(14.0, p99_ms=5.0), LLAMA[0]: theirs})
    assert not is_met(row, {OURS: entry(13.9, p99_ms=4.0), LLAMA[0]: theirs})


def attention_report(*shares):
    return {"benchmarks": [
        {"name": f"attention/f32/sequences:{n}/new:1/before:{tokens}/head:48/iterations:1",
         "GB/s": 9.5, "of_read": share / 2, "of_least": share}
        for (n, tokens), share in zip(ATTENTION_CONTEXTS, shares)
    ]}  # fmt: skip


def test_attention_has_to_reach_its_share_at_every_context():
    row = Row("attention", "m", "float32", 48)
    for shares, met in (((0.7, 0.9, 0.8, 0.75), True), ((0.7, 0.9, 0.69, 0.75), False)):
        figures = read_attention(attention_report(*shares))
        assert is_met(row, {OURS: {"runs": [figures]}}) == met
    assert is_met(row, {OURS: {"runs": [], "not_run": "why"}}) is None
    with pytest.raises(RuntimeError, match="something else"):
        read_attention(attention_report(0.7, 0.9, 0.8))
    failed = attention_report(0.7, 0.9, 0.8, 0.9)
    failed["benchmarks"][2] |= {"error_occurred": True, "error_message": "never the same"}
    with pytest.raises(RuntimeError, match="before:2000.*never the same"):
        read_attention(failed)


# ---- which engines, and how long they take ----


def first_round(row, speeds):
    """The engines in order, and their entries, where `speeds` says how fast each is."""
    entries, names = {}, []
    for name in names_in_turn(row, {row.name: entries}, 1, LLAMA_FLAGS):
        names.append(name)
        entries[name] = entry(*([speeds[name]] if name in speeds else []))
    return names, entries


def test_each_flag_of_llama_is_tried_on_the_fastest_way_so_far():
    row = Row("prefill", "m", "float32", 256)
    speeds = {OURS: 9.0, "llama.cpp": 2.0, "llama.cpp fa": 1.0, "llama.cpp passive": 3.0,
              "llama.cpp passive no-mmap": 2.5, TRANSFORMERS: 9.0}  # fmt: skip
    names, entries = first_round(row, speeds)
    assert names == list(speeds)
    # The fastest one goes on, whatever its later runs are; the order turns with the rounds.
    entries["llama.cpp passive"]["runs"].append({"tokens_per_s": 0.5})
    assert fastest_way(entries) == "llama.cpp passive"
    later = [OURS, "llama.cpp passive", TRANSFORMERS]
    assert list(names_in_turn(row, {row.name: entries}, 2, LLAMA_FLAGS)) == later[::-1]
    assert list(names_in_turn(row, {row.name: entries}, 3, LLAMA_FLAGS)) == later


def test_later_rows_of_a_kind_try_flash_attention_alone():
    first, later = all_rows()[:2]
    assert (first.kind, first.dtype) == (later.kind, later.dtype)
    results = {first.name: {OURS: entry(9.0), "llama.cpp": entry(1.0),
                            "llama.cpp fa no-mmap": entry(2.0)}, later.name: {}}  # fmt: skip
    names = list(names_in_turn(later, results, 1, LLAMA_FLAGS))
    assert names == [OURS, "llama.cpp no-mmap", "llama.cpp fa no-mmap"]
    # The fastest one also with our type of keys and values, in every round.
    results[later.name]["llama.cpp no-mmap"] = entry(3.0)
    with_ours = with_kv("llama.cpp no-mmap")
    assert list(names_in_turn(later, results, 2, LLAMA_FLAGS)) == [
        "llama.cpp no-mmap", with_ours, OURS
    ]  # fmt: skip
    assert peers.LlamaCpp(None, with_ours.split()).kv(later.dtype)[1] == "f32"
    assert peers.LlamaCpp(None, ["llama.cpp"]).kv(later.dtype)[1] == "f16"
    # Where llama.cpp never ran, and in other kinds, all ways are tried.
    results[later.name] = {}
    results[first.name] = {"llama.cpp": {"runs": [], "not_run": "why"}}
    assert len(list(names_in_turn(later, results, 1, LLAMA_FLAGS))) == 2 + len(LLAMA_FLAGS)


def test_engines_of_rows_without_a_peer_or_with_one_that_fails():
    assert first_round(Row("start", "m", "float32", 1), {})[0] == [OURS]
    attention = Row("attention", "m", "float32", 48)
    assert first_round(attention, {})[0] == [OURS]
    assert names_in_turn(attention, {attention.name: {}}, 2, LLAMA_FLAGS) == []
    names, _ = first_round(Row("decode", "m", "float32", 8), {"llama.cpp fa": 1.0})
    assert names == [OURS, "llama.cpp", "llama.cpp fa", "llama.cpp fa passive",
                     "llama.cpp fa no-mmap", "llama.cpp fa kv"]  # fmt: skip
    assert set(names[1:-1]) <= set(LLAMA) and len(set(LLAMA)) == 2 ** len(LLAMA_FLAGS)
    names, entries = first_round(Row("prefill", "m", "int8", 8), {})
    assert TRANSFORMERS not in names and fastest_way(entries) is None


def test_the_time_is_estimated_then_counted(tmp_path):
    write_header(tmp_path, {"wte.weight": [1000, 1000]})
    weights = {"m": count_weights(tmp_path)}
    rows = [Row("decode", "m", "float32", 1), Row("start", "m", "float32", 1)]
    first, later = estimate_min(rows, weights, MACHINE, Scale(quick=False, rounds=3))
    # By starting processes alone: ours and a peer twice, three more ways in the first round.
    assert first == pytest.approx((6 + 1) * START_S / 60, rel=0.01)
    assert later == pytest.approx((3 + 1) * START_S / 60, rel=0.01)
    # Another row of the kind tries one way more.
    again = [*rows, Row("decode", "m", "float32", 8)]
    assert estimate_min(again, weights, MACHINE, Scale(quick=False, rounds=3))[0] == pytest.approx(
        first + 4 * START_S / 60, rel=0.01
    )
    # What has rounds of its own is measured once.
    attention = [*rows, Row("attention", "m", "float32", 48)]
    times = estimate_min(attention, weights, MACHINE, Scale(quick=False, rounds=3))
    assert times[0] > first and times[1] == later
    slow = {"read_bytes_per_s": 1e6, "f32_flops_per_s": 1e6}
    assert estimate_min(rows, weights, slow, Scale(quick=False, rounds=3))[1] > 10 * later
    entries = {
        OURS: entry(9.0) | {"seconds": 7.0}, LLAMA[0]: entry(2.0) | {"seconds": 50.0},
        LLAMA[1]: entry(3.0) | {"seconds": 40.0}, TRANSFORMERS: {"runs": [], "not_run": "why"},
        with_kv(LLAMA[1]): entry(2.5) | {"seconds": 30.0},
    }  # fmt: skip
    assert next_round_min(rows, {rows[0].name: entries}) == pytest.approx((7 + 40 + 30) / 60)


# ---- a machine that is busy ----


def test_busy_cores_are_counted_from_proc_stat():
    before = "cpu  100 10 20 5000 50 1 2 7 90 9\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
    after = "cpu  300 10 40 5700 130 1 2 7 290 9\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
    assert cores_between(before, after, 4) == 4 * 220 / 1000
    assert cores_between(after, after, 4) == 0.0
    stolen = after.replace(" 2 7 290", " 2 1007 290")
    assert cores_between(after, stolen, 2) == 2.0


def test_a_busy_machine_is_refused_at_once():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        done = subprocess.run(
            [sys.executable, ROOT / "tools" / "benchmarks" / "bench_cpu.py", "--rows", "start"],
            capture_output=True, text=True,
        )  # fmt: skip
        other.kill()
    assert done.returncode == 1 and done.stdout == ""
    assert "busy" in done.stderr and "--busy-ok" in done.stderr


# ---- the page ----


def test_the_page_is_what_its_results_give():
    results = ROOT / "docs" / "benchmarks" / "cpu.json"
    page = cpu_page.page(json.loads(results.read_text()))
    assert page == results.with_suffix(".md").read_text()


def test_the_page_of_a_run_that_was_cut(tmp_path):
    write_header(tmp_path, {"wte.weight": [1000, 900], "h.0.c_fc.weight": [1000, 100]})
    streams = {"p50_ms": 1.0, "p99_ms": 2.0, "first_ids": [3, 4]}
    start = {"version_ms": 12.5, "first_token_s": 3.25, "anonymous_bytes": 9e6,
             "weight_bytes": 4e6, "kv_bytes": 1e6, "beyond_bytes": 4e6}  # fmt: skip
    name = "gpt2-medium/float32/"
    data = {
        "facts": dict.fromkeys(("command", "date", "machine", "versions"), "?")
        | {"threads": 2, "rounds": 3, "decoded": 64, "minutes": 1.5},
        "machine": [MACHINE],
        "weights": {"gpt2-medium": vars(count_weights(tmp_path))},
        "rows": {
            name + "decode-1": {
                OURS: entry(9100.0, 9500.0), LLAMA[0]: entry(7000.0), LLAMA[1]: entry(8000.0),
            },
            name + "prefill-256": {OURS: entry(5.0), LLAMA[0]: {"runs": [], "not_run": "no peers"}},
            name + "streams-8": {
                OURS: entry(20.0, **streams),
                LLAMA[1]: entry(10.0, **streams | {"first_ids": [3, 5]}),
            },
            name + "start-1": {OURS: {"runs": [start]}},
            name + "attention-48": {OURS: {"runs": [
                read_attention(attention_report(0.8, 0.75, 0.704, 0.69))
            ]}},
            name + "attention-64": {OURS: {"runs": [], "not_run": "no program"}},
        },
    }  # fmt: skip
    text = cpu_page.page(json.loads(json.dumps(data)))
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert (
        "| gpt2-medium | float32 | 1 | 9300.0 (9100.0–9500.0) | 8000.0 fa | 1.14x | 1x, 90% "
        "| – | 10000 | 93% | yes |" in rows
    )
    assert any("not run: no peers" in row and row.endswith("| – |") for row in rows)
    assert any("| 1.0 / 1.0 | 2.0 / 2.0 | 1 of 2 | **no** |" in row for row in rows)
    assert any("| 12.5 | <= 20 | yes |" in row for row in rows)
    assert any("| 3.25 | <= 2.5 | **no** |" in row for row in rows)
    assert any("| 4 | <= 300 | yes |" in row for row in rows)
    assert "| float32 | 48 | 8 | 2000 | 9.5 | 70% | yes |" in rows
    assert "| float32 | 48 | 1 | 16000 | 9.5 | 69% | **no** |" in rows
    assert "| float32 | 64 | – | – | not run: no program | – | – |" in rows
    assert "40.0 GB/s" in text
    assert "medians of 3 rounds (lowest–highest). Engines run" in text
    data["facts"] |= {"rounds": 2, "rounds_left_out": 1}
    assert "medians of 2 rounds (lowest–highest), 1 more left out" in cpu_page.page(data)
