"""lmtp-serve --config and --print-config: the options in a TOML file."""

import tomllib

import pytest
from lmtp_socket import Socket
from servers import LmtpServe
from test_lifecycle import expect_one_line, lmtp_serve, run

FULL = """
model = "demo"  # as on the command line, but in quotes
port = 9001
force = true
static = false
kv-cache = "64MiB"
allow-origin = ["https://a.example",
                "http://b:3000"]  # lists may have several lines
shutdown-timeout = 2.5
model-dir = ["/srv/a b#'c\\"d\\\\e", "ä"]
"""


def printed(*arguments):
    result = lmtp_serve(*arguments, "--print-config")
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    return result.stdout


def test_what_is_printed_reads_back(tmp_path):
    file = tmp_path / "lmtp.toml"
    file.write_text(FULL)
    first = printed("--config", file)
    wanted = tomllib.loads(FULL)
    del wanted["static"]  # as if it had not been given
    assert tomllib.loads(first) == wanted
    for default in ("# host = '127.0.0.1'", "# static = false", "# listen ="):
        assert default in first.splitlines(), first
    again = tmp_path / "again.toml"
    again.write_text(first)
    assert printed("--config", again) == first


def test_the_command_line_counts_before_the_file(tmp_path):
    file = tmp_path / "lmtp.toml"
    file.write_text(FULL + 'device = "cuda:3"\n')
    said = tomllib.loads(
        printed("--config", file, "auto", "--port", "1", "--allow-origin", "http://c", "--cuda")
    )
    assert (said["model"], said["port"], said["cuda"]) == ("auto", 1, True)
    assert said["allow-origin"] == ["http://c"]
    assert "device" not in said and said["kv-cache"] == "64MiB"
    file.write_text("cuda = true\n")
    assert tomllib.loads(printed("--config", file, "--device", "cpu")) == {"device": "cpu"}


def test_flags_with_values(tmp_path):
    file = tmp_path / "lmtp.toml"
    for value in ("true", '"org/*"', '["org/*", "gpt2"]'):
        file.write_text(f"allow-download = {value}\n")
        first = printed("--config", file)
        file.write_text(first)
        assert printed("--config", file) == first
    assert tomllib.loads(first)["allow-download"] == ["org/*", "gpt2"]
    file.write_text("allow-download = false\n")
    assert tomllib.loads(printed("--config", file)) == {}


MISTAKES = {
    "\nprot = 1": ("{}:2: ", "'prot'", "nearest is port"),
    "max_models = 1": ("{}:1: ", "'max_models'", "max-models"),
    "[server]\nport = 1": ("{}:1: ", "[server]", "sections"),
    "port = 1\nport = 2": ("{}:2: ", "port"),
    "port = ": ("{}:1: ",),
    "a\x00b": ("{}:1: ",),
    "force = 1": ("{}:1: ", "true or false"),
    'host = ["a", "b"]': ("{}:1: ", "no list"),
    'kv-cache = ""': ("{}:1: ", "leave it out"),
    "api-key = []": ("{}:1: ", "api-key", "leave it out"),
    "host = true": ("{}:1: ", "no flag"),
    "port = 2020-01-01": ("{}:1: ", "port"),
    'allow-origin = ["http://a", ["http://b"]]': ("{}:1: ", "allow-origin"),
    'config = "more.toml"': ("{}:1: ", "'config'"),
    "port = 70000": ("{}: ", "--port", "70000"),
    'threads = "x"': ("{}: ", "--threads"),
    'model = "demo"\nmax-models = 2': ("--max-models", "for auto"),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_one_line(tmp_path, text):
    file = tmp_path / "lmtp.toml"
    file.write_text(text)
    result = lmtp_serve("--config", file)
    expect_one_line(result, *(part.format(file) for part in MISTAKES[text]))
    assert result.returncode == 2


def test_a_file_that_cannot_be_read_is_one_line(tmp_path):
    (tmp_path / "latin1.toml").write_bytes(b'model = "\xe4"\n')
    for name in ("missing.toml", ".", "latin1.toml"):
        expect_one_line(lmtp_serve("--config", tmp_path / name), str(tmp_path / name))


def test_a_server_from_a_file(tmp_path):
    file = tmp_path / "lmtp.toml"
    file.write_text('model = "demo"\nkv-cache = "32MiB"\nshutdown-timeout = 0\nport = 1\n')

    async def ask(server):
        async with Socket(server.endpoint) as s:
            assert (await s.model_info())["model"] == "demo"

    with LmtpServe("demo", "--config", file) as server:
        run(ask(server))
        assert "KV cache 31" in server.ready_line()
    assert server.exit_code == 0, server.log_tail
