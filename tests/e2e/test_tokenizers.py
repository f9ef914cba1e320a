"""lmtp-client --encode and --decode beside the libraries `tokenizers` and transformers: the same
ids and texts for every kind of tokenizer.

LMTP_TOKENIZER_TEXTS is the number of random texts for each (10000, a sample; the full run is 100000
and takes less than two minutes on two cores). Where LMTP_TEST_DATA names the folder of larger test
data, its real vocabularies are compared too, and its corpora with all.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import pytest

SOURCE = pathlib.Path(os.environ.get("LMTP_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
CLIENT = pathlib.Path(os.environ.get("LMTP_BIN_DIR", "build/bin")) / "lmtp-client"
NUM_TEXTS = int(os.environ.get("LMTP_TOKENIZER_TEXTS", "10000"))
NUM_DECODED = 5000
SMALL = [*sorted((SOURCE / "tests/goldens/tokenizers").iterdir()), SOURCE / "models/demo"]
REAL = ("gpt2", "llama-32k", "tok512", "tok512-noprefix")  # folders of the test data

sys.path.insert(0, str(SOURCE / "tests" / "goldens"))
from tokenizer_texts import HAND_WRITTEN, Reference, edges, random_text  # noqa: E402


@pytest.fixture(scope="module")
def random_texts():
    rng = random.Random(2024)
    return [random_text(rng) for _ in range(NUM_TEXTS)]


@pytest.fixture(scope="module")
def corpora(test_data):
    files = sorted((test_data / "data" / "corpus").glob("*.txt"))
    texts = [path.read_text(encoding="utf-8") for path in files]
    assert len(texts) == 3
    return texts + [paragraph for text in texts for paragraph in text.split("\n\n")]


@pytest.fixture(params=SMALL, ids=lambda folder: folder.name, scope="module")
def folder(request):
    return request.param


@pytest.fixture(scope="module")
def reference(folder):
    return Reference(folder)


def run_client(folder, *options, lines, meanwhile):
    """What lmtp-client prints, parsed, and what meanwhile() returns, which runs beside it."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as printed:
        given.writelines(line.encode() + b"\n" for line in lines)
        given.seek(0)
        client = subprocess.Popen([CLIENT, folder, *options], stdin=given, stdout=printed)
        expected = meanwhile()
        assert client.wait(timeout=600) == 0
        printed.seek(0)
        return [json.loads(line) for line in printed], expected


def check_same(given, got, expected):
    assert len(got) == len(expected) == len(given)
    wrong = [i for i, (one, other) in enumerate(zip(got, expected)) if one != other]
    shown = [(given[i][:200], got[i][:60], expected[i][:60]) for i in wrong[:5]]
    assert not wrong, f"{len(wrong)} of {len(given)}: {shown}"


def check_encode(folder, reference, texts):
    got, expected = run_client(folder, "--encode", "--json", lines=map(json.dumps, texts),
                               meanwhile=lambda: reference.encode_all(texts))  # fmt: skip
    check_same(texts, got, expected)


def check_decode(folder, reference, many_ids):
    got, expected = run_client(folder, "--decode", "--json", lines=map(json.dumps, many_ids),
                               meanwhile=lambda: reference.decode_all(many_ids))  # fmt: skip
    check_same(many_ids, got, expected)


def check_edges(folder, reference):
    texts = [*HAND_WRITTEN, *edges(reference.added)]
    assert len(texts) > 100
    check_encode(folder, reference, texts)


def check_decoded(folder, reference, texts):
    rng = random.Random(5)

    def draw():
        low = rng.random() < 0.6  # where the special tokens and the bytes are
        return rng.randrange(min(300, reference.vocab_size) if low else reference.vocab_size)

    drawn = [[draw() for _ in range(rng.randint(0, 14))] for _ in range(NUM_DECODED)]
    check_decode(folder, reference, drawn + reference.encode_all(texts[:NUM_DECODED]))


def test_random_texts(folder, reference, random_texts):
    check_encode(folder, reference, random_texts)


def test_edges_of_added_tokens(folder, reference):
    check_edges(folder, reference)


def test_decode(folder, reference, random_texts):
    check_decoded(folder, reference, random_texts)


def test_corpora(folder, reference, corpora):
    check_encode(folder, reference, corpora)


@pytest.mark.parametrize("name", REAL)
def test_real_vocabularies(test_data, name, random_texts, corpora):
    folder = test_data / "data" / "tokenizers" / name
    reference = Reference(folder)
    check_encode(folder, reference, random_texts)
    check_encode(folder, reference, corpora)
    check_edges(folder, reference)
    check_decoded(folder, reference, random_texts)


def test_broken_lines_are_named():
    folder = SOURCE / "models/demo"
    for option, lines, said in (
        ("--decode", "[1]\n[2, x]\n", "line 2 of standard input: not a JSON array"),
        ("--decode", '[1]\n[2, "x"]\n', "line 2 of standard input: '\"x\"' is not a token id"),
        ("--decode", "1 2\n", "line 1 of standard input: not a JSON array"),
        ("--decode", "[1]\n\n", "line 2 of standard input: not a JSON array"),
        ("--decode", "[1, 2048]\n", "line 1 of standard input: there is no token 2048"),
        ("--decode", "[-1]\n", "line 1 of standard input: '-1' is not a token id"),
        ("--encode", '"a"\nb\n', "line 2 of standard input: not a JSON string"),
        ("--encode", '"a" "b"\n', "line 1 of standard input: not a JSON string"),
    ):
        json_option = ["--json"] if option == "--encode" else []
        done = subprocess.run([CLIENT, folder, option, *json_option], input=lines, text=True,
                              capture_output=True, timeout=60, check=False)  # fmt: skip
        assert done.returncode == 1 and said in done.stderr, done.stderr
        assert len(done.stdout.splitlines()) == int(said.split()[1]) - 1


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
