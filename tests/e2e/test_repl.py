"""lmtp-client against lmtp-serve: at a terminal, in a pipe, with -p, and without a server."""

import ast
import asyncio
import fcntl
import json
import pathlib
import re
import struct
import subprocess
import termios

import pytest
from checkpoints import ENDLESS_CONTEXT
from lmtp_socket import Socket, wait_all_freed
from repl_terminal import CTRL_C, CTRL_D, Terminal, client, run_client
from servers import free_port
from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
UP = "\x1b[A"


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_file(str(ROOT / "models" / "demo" / "tokenizer.json"))


@pytest.fixture
def terminal(demo, tmp_path):
    with Terminal(tmp_path, "--host", demo.endpoint) as t:
        t.read_prompt()
        yield t


def expected_text(demo, tokenizer, prompt, **params):
    """What follows the prompt, asked for at the wire."""

    async def ask():
        async with Socket(demo.endpoint) as s:
            ids = tokenizer.encode(prompt, add_special_tokens=False).ids
            await s.send("GENERATE", stream_id=1, prompt=ids, **params)
            return (await s.finish(1))[0]

    return tokenizer.decode(asyncio.run(ask()))


# ---- one prompt ----


def test_one_prompt(demo, tokenizer):
    wanted = expected_text(demo, tokenizer, "Once upon a time", max_tokens=12)
    done = run_client("--host", demo.endpoint, "-p", "Once upon a time", "-n", 12)
    assert (done.returncode, done.stdout, done.stderr) == (0, wanted + "\n", "")
    words = run_client("demo", "--host", demo.endpoint, "-p", "Once upon a time", "max_tokens=12")
    assert words.stdout == done.stdout
    echoed = run_client("--host", demo.endpoint, "-p", "Once upon a time", "-n", 12, "--echo")
    assert echoed.stdout == "Once upon a time" + done.stdout


def test_a_prompt_is_taken_as_it_stands(demo, tokenizer):
    prompt = " two  spaces top_k=1 "
    raw = run_client("--host", demo.endpoint, "-p", prompt, "-n", 1, "--raw")
    assert raw.stdout.splitlines()[1].startswith(prompt)


def test_bos(demo, tokenizer):
    bos = tokenizer.token_to_id("<|endoftext|>")

    def first_logprobs(prompt, *options):
        done = run_client(
            "--host", demo.endpoint, "-p", prompt, "-n", 1, "--raw", "--top-logprobs", 5, *options
        )
        assert done.returncode == 0, done.stderr
        return ast.literal_eval(done.stdout.splitlines()[0])["top_logprobs"]

    async def at_the_wire(prompt):
        async with Socket(demo.endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=prompt, max_tokens=1, top_logprobs=5)
            return (await s.token_of(1))["top_logprobs"]

    ids = tokenizer.encode("Once").ids
    assert first_logprobs("Once") == asyncio.run(at_the_wire(ids))
    assert first_logprobs("Once", "--bos") == asyncio.run(at_the_wire([bos, *ids]))
    assert first_logprobs("Once", "bos=true") == first_logprobs("Once", "--bos")
    assert first_logprobs("") == asyncio.run(at_the_wire([bos]))


def test_a_tokenizer_that_puts_bos_and_a_space_in_front(demo):
    """Llama's, on a model whose vocabulary is large enough."""
    folder = ROOT / "tests" / "goldens" / "tokenizers" / "mistral"
    llama = Tokenizer.from_file(str(folder / "tokenizer.json"))
    bos, the, you = (llama.token_to_id(t) for t in ("<s>", "▁the", "▁you"))

    def run(*options):
        done = run_client("demo", "--tokenizer", folder, "--host", demo.endpoint, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def first_token(*options):
        return ast.literal_eval(run(*options, "-n", 1, "--raw").splitlines()[0])["top_logprobs"]

    async def at_the_wire(prompt):
        async with Socket(demo.endpoint) as s:
            await s.send("GENERATE", stream_id=1, prompt=prompt, max_tokens=1)
            return (await s.token_of(1))["top_logprobs"]

    assert llama.encode("the", add_special_tokens=False).ids == [the]
    assert first_token("-p", "the") == asyncio.run(at_the_wire([bos, the]))
    spelt_out = llama.encode("<s>the", add_special_tokens=False).ids
    assert spelt_out[0] == bos  # once is enough
    assert first_token("-p", "<s>the") == asyncio.run(at_the_wire(spelt_out))
    assert first_token("-p", "the", "--no-bos") == asyncio.run(at_the_wire([the]))
    # At the beginning of a text the space goes again; amid one it stays.
    ask = ("-n", 2, "--logit-bias", f"{{{you}:100}}")
    assert run("-p", "", *ask) == "you you\n"
    assert run("-p", "the", *ask) == " you you\n"
    assert run("-p", "the", *ask, "--echo") == "the you you\n"
    table = run("-p", "the", "--score", " you")
    assert "' you'" in table and "1 token\n" in table


def test_characters_split_over_tokens(demo, tokenizer):
    """Three tokens of a byte each make one character; two make none."""
    euro = tokenizer.encode("€").ids
    assert len(euro) == 3
    # Each is the likeliest until it has been generated.
    bias = ",".join(f"{token}:{100 - i}" for i, token in enumerate(euro))
    options = ["--host", demo.endpoint, "-p", "Once", "--logit-bias", f"{{{bias}}}"]
    options += ["--presence-penalty", 100]
    assert run_client(*options, "-n", 3).stdout == "€\n"
    assert run_client(*options, "-n", 2).stdout == "\ufffd\n"


def test_raw_entries_are_python(demo, tokenizer):
    done = run_client("--host", demo.endpoint, "-p", "Once upon", "-n", 4, "--raw")
    lines = done.stdout.splitlines()
    entries = [ast.literal_eval(line) for line in lines[:4]]
    assert [e["finish_reason"] for e in entries] == [None, None, None, "length"]
    for entry, line in zip(entries, lines):
        assert str(entry["token"]) in entry["top_logprobs"]
        assert repr(entry) == line  # to the character as Python prints it
    text = "Once upon" + tokenizer.decode([e["token"] for e in entries])
    assert "\n".join(lines[4:]) == text


def test_score(demo, tokenizer):
    done = run_client("--host", demo.endpoint, "-p", "Once upon a", "--score", " time", "--raw")
    entries = [ast.literal_eval(line) for line in done.stdout.splitlines()]
    assert [e["token"] for e in entries] == tokenizer.encode(" time").ids
    table = run_client("--host", demo.endpoint, stdin="/score Once upon a ||| time\n").stdout
    assert f"{entries[0]['logprob']:10.4f}  ' time'\n" in table
    assert "in all" in table and "1 token\n" in table
    both = run_client(
        "--host", demo.endpoint, stdin="/score Once upon a ||| time ||| there was\n"
    ).stdout.splitlines()
    assert f"{entries[0]['logprob']:10.4f}  ' time', 1 token" in both
    assert any(line.endswith("  ' there was', 2 tokens") for line in both), both


def test_decide(demo):
    question = {"type": "choice", "instructions": "Who eats?",
                "criteria": {"the lion": None, "the mouse": None}}  # fmt: skip
    is_tale = {"type": "noul", "instructions": "Is it?"}

    async def ask():
        async with Socket(demo.endpoint) as s:
            fields = {"state": "A tale.", "questions": {"a": question, "b": is_tale}}
            await s.send("DECIDE", stream_id=1, **fields)
            _, entry = await s.wait_for(lambda kind, _: kind == "TOKEN")
            return entry["answers"]

    answers = asyncio.run(ask())
    asked = (
        "/decide Who eats? ||| the lion ||| the mouse\nA tale.\n/decide Is it?\nA tale.\n"
        "/decide Is it?\n/decide\nOnce max_tokens=1\n"
    )
    for locale, block in ("C.UTF-8", "█"), ("C", "#"):
        done = run_client("--host", demo.endpoint, stdin=asked, environment={"LC_ALL": locale})
        assert done.stderr.startswith("error: write /decide QUESTION") and done.returncode == 1
        yes = answers["b"]["noul"]
        probabilities = {**answers["a"]["probabilities"], "yes": yes, "no": 1 - yes}
        lines = done.stdout.splitlines()
        assert len(lines) == 5, lines  # the last one goes on from a prompt
        for line, (name, probability) in zip(lines, probabilities.items()):
            cells = line[: line.rindex(block) + 1].count(block) if block in line else 0
            assert line.startswith(name) and abs(cells - 32 * probability) <= 0.51, line
            assert line.endswith(f" {100 * probability:5.1f} %"), line


def test_text_that_the_server_encodes_is_what_a_tokenizer_here_gives(demo):
    for words in (["-p", "Once upon a time"], ["-p", "  é…  ", "--raw"], ["--score", " time"]):
        here, there = (
            run_client("--host", demo.endpoint, "-n", 12, *words, *text)
            for text in ([], ["--text"])
        )
        assert (there.returncode, there.stderr) == (0, "")
        if "--raw" in words:  # the entries have their pieces too
            entries = [ast.literal_eval(line) for line in there.stdout.splitlines()[:12]]
            shown = [ast.literal_eval(line)["token"] for line in here.stdout.splitlines()[:12]]
            assert [entry["token"] for entry in entries] == shown
            assert there.stdout.endswith("".join(entry["text"] for entry in entries) + "\n")
        else:
            assert there.stdout == here.stdout


def test_without_a_tokenizer_here_the_server_encodes(demo, tmp_path):
    """A folder with the model's name, and nothing in it."""
    folder = tmp_path / "demo"
    folder.mkdir()
    here = run_client("demo", "--host", demo.endpoint, "-p", "Once", "-n", 5)
    done = run_client(
        "demo", "--host", demo.endpoint, "-p", "Once", "-n", 5, "--tokenizer", str(folder)
    )
    assert done.stdout == here.stdout and done.returncode == 0
    assert done.stderr.startswith("note: no tokenizer here, so the server encodes and decodes (")
    without_server = run_client("--port", free_port(), "-p", "x", "--tokenizer", str(folder))
    assert without_server.returncode == 1 and "note" not in without_server.stderr


def test_a_stop_ends_the_text_before_it(demo, tokenizer):
    whole = expected_text(demo, tokenizer, "Once upon a time", max_tokens=40)
    stop = whole[20:24]
    before = whole[: whole.index(stop)]
    for text in ([], ["--text"]):
        done = run_client(
            "--host", demo.endpoint, "-p", "Once upon a time", "-n", 40, "--stop", stop, *text
        )
        assert (done.stdout, done.returncode) == (before + "\n", 0)
    stops = json.dumps([stop]).replace(" ", "\\u0020")
    line = f"Once upon a time max_tokens=40 stop={stops}\n"
    assert run_client("--host", demo.endpoint, stdin=line).stdout == before + "\n"


def test_errors_are_one_line_and_an_exit_code(demo):
    for arguments, said in [
        (["-p", "x", "--temperature", "-1"], "temperature"),
        (["-p", "x " * 600], "prompt"),
        (["--score", ""], "no text to score"),
        (["-p", "x", "nosuchmodel", "--tokenizer", "demo"], "nosuchmodel"),
    ]:
        done = run_client("--host", demo.endpoint, *arguments)
        assert done.returncode == 1, arguments
        assert done.stderr.count("\n") == 1 and said in done.stderr, done.stderr
        assert done.stdout == ""


def test_a_wrong_command_line_is_exit_code_2():
    for arguments in (
        ["--nonsense"],
        ["demo", "other"],
        ["-p", "x", "--temperature", "warm"],
        ["--host", "a/b"],
        ["--encode", "--decode"],
        ["--encode", "-p", "x"],
    ):
        done = run_client(*arguments)
        assert done.returncode == 2, arguments
        assert done.stderr.startswith("lmtp-client: ") and done.stderr.count("\n") == 1


def test_without_a_server():
    port = free_port()
    done = run_client("--port", port, "-p", "x")
    assert done.returncode == 1 and done.stdout == ""
    assert f"localhost:{port}" in done.stderr and "refused" in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_unknown_model_is_named_before_anything_is_asked():
    offline = {"HF_HUB_CACHE": "/nowhere", "HF_HUB_OFFLINE": "1"}
    done = run_client("no-such-model", "-p", "x", environment=offline)
    assert done.returncode == 1
    assert "no-such-model" in done.stderr and "/nowhere" in done.stderr
    assert "--tokenizer" in done.stderr and done.stderr.count("\n") == 1


def test_help_and_version():
    helped = run_client("--help")
    assert helped.returncode == 0 and "--max-tokens" in helped.stdout and "BOS" in helped.stdout
    version = run_client("--version")
    assert version.returncode == 0 and version.stdout.startswith("lmtp-client ")


def test_links_no_torch():
    lines = subprocess.run(["ldd", client()], capture_output=True, text=True, check=True).stdout
    # Names alone: an address may well hold "c10".
    libraries = " ".join(line.split()[0] for line in lines.splitlines())
    assert "libedit" in libraries and "torch" not in libraries and "c10" not in libraries


# ---- in a pipe ----


def test_a_pipe_answers_each_line(demo, tokenizer):
    lines = ["Once upon a max_tokens=5", "", "/set max_tokens=3", "The king", "/quit", "never"]
    done = run_client("--host", demo.endpoint, stdin="\n".join(lines))
    first = expected_text(demo, tokenizer, "Once upon a", max_tokens=5)
    second = expected_text(demo, tokenizer, "The king", max_tokens=3)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{first}\n{second}\n"


def test_a_pipe_goes_on_after_an_error(demo, tokenizer):
    lines = "x top_p=7\n/nonsense\nOnce temprature=1\nOnce max_tokens=2\n"
    done = run_client("--host", demo.endpoint, stdin=lines)
    assert done.returncode == 1
    errors = done.stderr.splitlines()
    assert len(errors) == 3 and all(e.startswith("error: ") for e in errors), errors
    assert "top_p" in errors[0] and "/nonsense" in errors[1] and "temperature" in errors[2]
    assert done.stdout == expected_text(demo, tokenizer, "Once", max_tokens=2) + "\n"


def test_encode_and_decode(tokenizer):
    lines = ["Once upon a time", "", "€ 你好 <|endoftext|>", "  two  spaces "]
    encoded = run_client("--encode", stdin="\n".join(lines) + "\n")
    assert encoded.returncode == 0
    ids = [json.loads(line) for line in encoded.stdout.splitlines()]
    assert ids == [tokenizer.encode(line, add_special_tokens=False).ids for line in lines]
    decoded = run_client("demo", "--decode", stdin=encoded.stdout)
    assert decoded.stdout.splitlines() == lines
    wrong = run_client("--decode", stdin="[1]\n[x]\n")
    assert wrong.returncode == 1 and "line 2" in wrong.stderr


# ---- at a terminal ----


def test_a_prompt_streams_its_text(terminal, demo, tokenizer):
    text = expected_text(demo, tokenizer, "Once upon a time", max_tokens=5)
    shown = terminal.ask("Once upon a time max_tokens=5")
    assert shown.endswith("Once upon a time" + text + "\n"), shown


def test_commands(terminal):
    assert "/score PROMPT ||| TEXT" in terminal.ask("/help")
    assert '"vocab_size": 2048' in terminal.ask("/info")
    assert "max_tokens=32\n" in terminal.ask("/set")
    terminal.ask("/set max_tokens=7 seed=3")
    shown = terminal.ask("/set")
    assert "max_tokens=7\n" in shown and "seed=3\n" in shown
    assert "in all" in terminal.ask("/score Once upon a ||| time")
    assert "error: " in terminal.ask("/set nothing")
    assert "error: " in terminal.ask("x temperature=-3")
    assert terminal.ask("").strip() == ""
    terminal.type("/quit\n")
    assert terminal.wait() == 0


def test_alternatives_are_lines_after_the_text(demo, tokenizer, tmp_path):
    async def ask():
        async with Socket(demo.endpoint) as s:
            ids = tokenizer.encode("Once upon a", add_special_tokens=False).ids
            await s.send("GENERATE", stream_id=1, prompt=ids, max_tokens=1, top_logprobs=2)
            return await s.token_of(1)

    entry = asyncio.run(ask())
    taken, *others = sorted(entry["top_logprobs"].items(), key=lambda one: -one[1])
    with Terminal(tmp_path, "demo", "--host", demo.endpoint) as t:
        t.read_prompt()
        shown = t.ask("Once upon a max_tokens=1 top_logprobs=2").splitlines()
    names = [repr(tokenizer.decode([int(token)])) for token, _ in (taken, *others)]
    best = "  ".join(f"{name} {number:.4f}"
                     for name, (_, number) in zip(names, (taken, *others), strict=True))
    assert shown[-1] == f"  {names[0]} {entry['logprob']:.4f}  of  {best}"
    with Terminal(tmp_path, "--text", "--host", demo.endpoint) as t:  # which knows ids alone
        t.read_prompt()
        shown = t.ask("Once upon a max_tokens=1 top_logprobs=2").splitlines()
    assert shown[-1].startswith(f"  {names[0]} ")
    assert shown[-1].endswith(f"  {others[0][0]} {others[0][1]:.4f}")


def test_an_error_is_broken_between_words(terminal):
    fcntl.ioctl(terminal.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    lines = terminal.ask("/set nothing").splitlines()
    lines = lines[next(n for n, line in enumerate(lines) if line.startswith("error: ")):]
    assert len(lines) > 2 and all(len(line) < 60 for line in lines)
    assert " ".join(lines).startswith("error: 'nothing' is not key=value; known keys are ")
    assert all(re.fullmatch(r"[\w']+[,;]?", word) for line in lines[1:] for word in line.split())
    assert terminal.ask("/set temperature 0.5").count("error") == 0
    assert "temperature=0.5\n" in terminal.ask("/set")


def test_ctrl_c_cancels_the_stream_alone(endless, tokenizer, tmp_path):
    (the,) = tokenizer.encode(" the").ids
    with Terminal(tmp_path, "--host", endless.endpoint) as terminal:
        terminal.read_prompt()
        terminal.type(f"Once max_tokens={ENDLESS_CONTEXT} logit_bias={{{the}:100}}\n")
        terminal.read_until(" the the the")
        terminal.type(CTRL_C)
        terminal.read_until("[cancelled]")
        terminal.read_prompt()
        asyncio.run(wait_all_freed(endless.endpoint))
        assert "max_tokens=32" in terminal.ask("/set")
        assert terminal.ask("Once max_tokens=2").count("Once") >= 2


def test_ctrl_c_at_the_prompt_clears_the_line(terminal):
    terminal.type("half a thought")
    terminal.read_until("thought")
    terminal.type(CTRL_C)
    assert "Ctrl-D" not in terminal.read_prompt()
    terminal.type(CTRL_C)
    assert "Ctrl-D or /quit" in terminal.read_prompt()
    assert "top_k=0" in terminal.ask("/set")
    terminal.type(CTRL_D)
    assert terminal.wait() == 0


def test_history_outlives_the_program(demo, tmp_path):
    for _ in range(2):
        with Terminal(tmp_path, "--host", demo.endpoint) as t:
            t.read_prompt()
            t.ask("/set max_tokens=11")
            t.type(CTRL_D)
            assert t.wait() == 0
    lines = (tmp_path / ".lmtp_history").read_text().splitlines()
    assert len([line for line in lines if "11" in line]) == 1  # the same line is kept once
    with Terminal(tmp_path, "--host", demo.endpoint) as t:
        t.read_prompt()
        t.type(UP)
        t.read_until("/set max_tokens=11")
        t.type("\n")
        t.read_prompt()
        assert "max_tokens=11\n" in t.ask("/set")


def test_line_editing_counts_characters(terminal, demo, tokenizer):
    """Backspace takes a whole character away, however many bytes it has."""
    text = expected_text(demo, tokenizer, "naïve x", max_tokens=2)
    shown = terminal.ask("naïve é你\x7f\x7fx max_tokens=2")
    assert shown.endswith(f"naïve x{text}\n"), shown


def test_a_terminal_without_a_server(tmp_path):
    port = free_port()
    with Terminal(tmp_path, "--port", port) as t:
        assert "refused" in t.read_prompt()
        assert "refused" in t.ask("Hello")
        t.type(CTRL_D)
        assert t.wait() == 0


def test_a_tokenizer_that_is_not_the_models(demo, tmp_path):
    """It has more tokens than the demo's model, so its ids mean nothing there."""
    vocabulary = {chr(c): c - 0x21 for c in range(0x21, 0x7F)}
    vocabulary |= {f"token{i}": len(vocabulary) + i for i in range(3000)}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    (tmp_path / "merges.txt").write_text("")
    arguments = ["--tokenizer", tmp_path, "--host", demo.endpoint]
    done = run_client(*arguments, stdin="x max_tokens=2\nx max_tokens=2\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("error: the tokenizer has 3095 tokens") == 2, done.stderr
