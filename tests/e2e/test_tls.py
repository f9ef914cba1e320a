"""lmtp-serve behind TLS: clients of all kinds, files that cannot be served, and a reload."""

import asyncio
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys

import aiohttp
import pytest
import requests
import websockets
from servers import Certificate, LmtpServe, bin_dir

ROOT = pathlib.Path(__file__).resolve().parents[2]
LMQL_TESTS = ROOT / "tests" / "lmql"
sys.path.insert(0, str(LMQL_TESTS))
sys.path.insert(0, str(ROOT / "docs" / "examples"))

import lmtp  # noqa: E402

DEMO = ROOT / "models" / "demo"
TIMEOUT_S = 120
GENERATE = 'GENERATE {"stream_id": 1, "prompt": [46, 789, 579, 258], "max_tokens": 1}'


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, TIMEOUT_S))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return Certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(certificate):
    with LmtpServe("demo", "--kv-cache", "64MiB", certificate=certificate) as running:
        yield running
    assert running.exit_code == 0, running.log_tail
    assert f"wss://{running.endpoint}/" in running.output


def s_client(server, *options, request=b""):
    """What `openssl s_client` prints."""
    command = ["openssl", "s_client", "-connect", server.endpoint, *options]
    return subprocess.run(
        command, input=request, capture_output=True, timeout=TIMEOUT_S
    ).stdout.decode()


def test_openssl_gets_a_verified_http_connection(server, certificate):
    said = s_client(
        server, "-CAfile", certificate.certfile, "-verify_hostname", "localhost",
        "-alpn", "h2,http/1.1", "-ign_eof",
        request=b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    )  # fmt: skip
    assert "Verify return code: 0 (ok)" in said
    assert "ALPN protocol: http/1.1" in said
    assert "HTTP/1.1 200 OK" in said and '"ready"' in said
    assert "TLSv1.3" in said


def test_old_versions_weak_ciphers_and_other_protocols_are_refused(server):
    assert "Cipher is ECDHE-ECDSA-" in s_client(server, "-tls1_2")
    no_cipher = "Cipher is (NONE)"
    assert no_cipher in s_client(server, "-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0")
    assert no_cipher in s_client(server, "-tls1_2", "-cipher", "AES128-SHA")
    assert no_cipher in s_client(server, "-alpn", "h2")
    renegotiated = s_client(server, "-tls1_2", request=b"R\n")
    assert "HTTP/1.1 200" not in renegotiated


def test_plain_http_is_told_to_speak_tls(server):
    answer = requests.get(f"http://{server.endpoint}/health", timeout=TIMEOUT_S)
    assert answer.status_code == 400
    assert "This port speaks TLS: write https:// or wss://" in answer.text


def test_http_libraries(server, certificate):
    with requests.Session() as session:
        session.trust_env = False  # REQUESTS_CA_BUNDLE would precede `verify`
        session.verify = str(certificate.certfile)
        for _ in range(3):  # on one connection
            assert session.get(f"https://{server.endpoint}/health").json()["status"] == "ready"
        page = session.get(f"https://{server.endpoint}/").text
        assert f"wss://{server.endpoint}/" in page
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(f"https://{server.endpoint}/health", timeout=TIMEOUT_S)


def test_websocket_libraries(server, certificate):
    async def over_websockets():
        trust = certificate.client_context()
        async with websockets.connect(f"wss://{server.endpoint}/", ssl=trust) as ws:
            await ws.send(GENERATE)
            return await ws.recv()

    async def over_aiohttp():
        trust = certificate.client_context()
        async with aiohttp.ClientSession() as session:
            async with session.ws_connect(f"https://{server.endpoint}/", ssl=trust) as ws:
                await ws.send_str(GENERATE)
                return (await ws.receive()).data

    assert run(over_websockets()) == run(over_aiohttp())


@pytest.mark.parametrize("library", ["aiohttp", "websockets"])
def test_the_python_client(server, certificate, library):
    """In a process of its own, since aiohttp reads SSL_CERT_FILE when it is imported."""
    code = f"import sys, lmtp, websockets; lmtp.websockets = websockets; {library!r}\n"
    if library == "websockets":
        code += "lmtp.aiohttp = None\n"
    code += "import asyncio; sys.exit(asyncio.run(lmtp._main()))"
    command = [sys.executable, "-c", code, "Once upon a", "max_tokens=3",
               "--url", f"wss://{server.endpoint}/", "--api-key", "unused"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "docs" / "examples")}
    refused = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)  # fmt: skip
    assert refused.returncode == 1 and "certificate verify failed" in refused.stderr
    environment["SSL_CERT_FILE"] = str(certificate.certfile)
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_lmql_itself(server, certificate):
    """LMQL 0.7.3 hands `endpoint` to aiohttp, which trusts what SSL_CERT_FILE names."""
    program = (
        "import lmql, sys\n"
        f"model = lmql.model('demo', endpoint='https://{server.endpoint}/', tokenizer='{DEMO}')\n"
        "print('GOT', repr(model.generate_sync('Once upon a', max_tokens=3)))"
    )
    environment = {**os.environ, "SSL_CERT_FILE": str(certificate.certfile), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True,
        timeout=TIMEOUT_S,
    )  # fmt: skip
    assert re.search(r"^GOT '.*\w.*'$", done.stdout, re.MULTILINE), done.stdout + done.stderr


def lmtp_client(*arguments, **environment):
    return subprocess.run(
        list(map(str, [bin_dir() / "lmtp-client", "-n", 3, "-p", "Once upon a", *arguments])),
        capture_output=True, text=True, timeout=TIMEOUT_S, env={**os.environ, **environment},
    )  # fmt: skip


def test_lmtp_client_trusts_whom_it_is_told_to(server, certificate):
    port = server.endpoint.split(":")[1]
    for trust, environment in (
        (("--cacert", certificate.certfile), {}),
        (("--insecure",), {}),
        ((), {"SSL_CERT_FILE": str(certificate.certfile)}),
    ):
        for host in ("localhost", "127.0.0.1"):
            done = lmtp_client("--host", f"wss://{host}:{port}/", *trust, **environment)
            assert done.returncode == 0 and done.stdout.strip(), done.stderr
    for host, options, sentence in (
        ("wss://localhost", (), "certificate is not trusted: self-signed certificate; --cacert"),
        ("wss://127.1", ("--cacert", certificate.certfile), "hostname mismatch"),
        ("wss://localhost", ("--cacert", certificate.keyfile), "has no certificate in PEM"),
        ("localhost", ("--insecure",), "write --host wss://HOST:PORT"),
        ("localhost", (), "400 Bad Request: This port speaks TLS: write https:// or wss://."),
    ):
        done = lmtp_client("--host", f"{host}:{port}", *options)
        assert done.returncode != 0 and sentence in done.stderr, done.stderr


def test_lmtp_client_says_that_there_is_no_tls(demo):
    done = lmtp_client("--host", f"wss://{demo.endpoint}/", "--insecure")
    assert done.returncode == 1 and "does it speak TLS there?" in done.stderr, done.stderr


def test_lmtp_bench_over_tls(server, certificate):
    done = subprocess.run(
        [bin_dir() / "lmtp-bench", "--host", f"wss://{server.endpoint}/",
         "--cacert", certificate.certfile, "--num-prompts", "8", "--max-concurrency", "4",
         "--connections", "4"],
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_key_goes_into_the_header():
    """What is sent, by lmtp-client and by docs/examples/lmtp.py."""

    def heads(key, *command, **environment):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            process = subprocess.Popen(
                [*map(str, command), f"ws://127.0.0.1:{port}/"],
                env={**os.environ, **environment}, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            connection, _ = listener.accept()
            with connection:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += connection.recv(4096)
            process.kill()
            process.wait()
        assert f"\r\nAuthorization: Bearer {key}\r\n".encode() in head, head

    client = (bin_dir() / "lmtp-client", "-p", "x", "--host")
    heads("from-env", *client, LMTP_API_KEY="from-env")
    heads("given", *client[:-1], "--api-key", "given", "--host", LMTP_API_KEY="from-env")
    example = (sys.executable, ROOT / "docs" / "examples" / "lmtp.py", "x")
    heads("given", *example, "--api-key", "given", "--url")
    heads("from-env", *example, "--url", LMTP_API_KEY="from-env")


def serial_of(server, certificate):
    with socket.create_connection(server.endpoint.split(":")) as plain:
        with certificate.client_context().wrap_socket(plain, server_hostname="localhost") as tls:
            return tls.getpeercert()["serialNumber"]


def test_sighup_reloads_and_a_bad_file_changes_nothing(tmp_path):
    shown, second = Certificate(tmp_path, "shown"), Certificate(tmp_path, "second")
    first_certfile = shutil.copy(shown.certfile, tmp_path / "first.pem")

    async def go(server):
        first = serial_of(server, shown)
        trust = ssl.create_default_context(cafile=first_certfile)
        async with websockets.connect(f"wss://{server.endpoint}/", ssl=trust) as ws:
            shown.certfile.write_text("no certificate")
            server.process.send_signal(signal.SIGHUP)
            server.wait_for_log("what was read before stays in use")
            server.wait_for_log("--ssl-certfile: ")
            shutil.copy(first_certfile, tmp_path / "trusted.pem")
            shown.certfile.write_bytes(pathlib.Path(first_certfile).read_bytes())
            assert serial_of(server, shown) == first

            shutil.copy(second.certfile, shown.certfile)
            shutil.copy(second.keyfile, shown.keyfile)
            server.process.send_signal(signal.SIGHUP)
            server.wait_for_log("what may change has been read again")
            assert serial_of(server, second) != first
            await ws.send(GENERATE)  # the old connection goes on
            assert (await ws.recv()).startswith("TOKEN")

    with LmtpServe("demo", "--kv-cache", "64MiB", certificate=shown) as server:
        run(go(server))
    assert server.exit_code == 0


def test_what_cannot_be_served_is_refused_at_start(tmp_path):
    one, other = Certificate(tmp_path, "one"), Certificate(tmp_path, "other")
    locked = tmp_path / "locked.key"
    subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-in", one.keyfile, "-out", locked, "-passout", "pass:x"],
        check=True, capture_output=True,
    )  # fmt: skip
    for options, sentence in (
        (("--ssl-certfile", tmp_path / "no.pem"), "No such file or directory; name a PEM file"),
        (("--ssl-certfile", one.keyfile), "is no certificate that can be served"),
        (("--ssl-certfile", one.certfile), "is no private key in PEM"),
        (("--ssl-certfile", one.certfile, "--ssl-keyfile", other.keyfile),
         "is not the key of the certificate"),
        (("--ssl-certfile", one.certfile, "--ssl-keyfile", locked), "is encrypted; write the key"),
        (("--ssl-keyfile", one.keyfile), "give --ssl-certfile too"),
        (("--ssl-certfile", one.certfile, "--stdio"), "--stdio opens none"),
    ):  # fmt: skip
        port = ("--port", 0) if "--stdio" not in options else ()
        command = [bin_dir() / "lmtp-serve", "demo", *port, *options]
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=TIMEOUT_S)  # fmt: skip
        assert done.returncode in (1, 2)
        assert sentence in done.stderr, done.stderr
        # On a busy machine the model may not have ended in time, which is a line of the log.
        lines = [line for line in done.stderr.splitlines() if "did not stop within" not in line]
        assert len(lines) == 1, done.stderr
