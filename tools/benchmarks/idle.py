#!/usr/bin/env python3
"""What idle clients cost: what memory lmtp-serve takes for each, and how often it wakes up.

    .venv/bin/python tools/benchmarks/idle.py [--clients 500] [--plain] [--seconds 10]

Opens so many WebSockets over TLS (--plain: without) that say nothing, and counts the voluntary
context switches of the server's threads meanwhile: a server without clients has as many. Exit code
1 where they take more than 50 MB for 500, or wake it more than once a second."""

import argparse
import pathlib
import socket
import sys
import tempfile
import time

from attacks import REQUEST
from servers import Certificate, LmtpServe

BYTES_MAX = 100_000  # each: 50 MB for 500
WAKE_UPS_MAX = 1.0  # a second, more than without clients


def connect(server):
    """A WebSocket."""
    address = ("127.0.0.1", int(server.endpoint.split(":")[1]))
    client = socket.create_connection(address, timeout=30)
    if server.certificate:
        context = server.certificate.client_context()
        client = context.wrap_socket(client, server_hostname="127.0.0.1")
    client.sendall(f"{REQUEST}Host: localhost\r\n\r\n".encode())
    answer = client.recv(4096)
    assert answer.startswith(b"HTTP/1.1 101"), answer
    return client


def num_switches(server):
    tasks = pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()
    lines = [line for task in tasks for line in (task / "status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt"))


def wake_ups(server, seconds):
    """A second."""
    time.sleep(1)  # what was under way is done
    before = num_switches(server)
    time.sleep(seconds)
    return (num_switches(server) - before) / seconds


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--plain", action="store_true", help="without TLS")
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        certificate = None if options.plain else Certificate(pathlib.Path(folder))
        with LmtpServe("demo", "--kv-cache", "32MiB", certificate=certificate) as server:
            for _ in range(8):  # what the first ones take, and leave behind
                connect(server).close()
            alone, before = wake_ups(server, options.seconds), server.rss_bytes("RssAnon")
            clients = [connect(server) for _ in range(options.clients)]
            beside = wake_ups(server, options.seconds)
            each = (server.rss_bytes("RssAnon") - before) / len(clients)
            for client in clients:
                client.close()
    kind = "plain" if options.plain else "TLS"
    print(f"{len(clients)} idle WebSockets ({kind}): {each / 1000:.1f} KB each, "
          f"{each * len(clients) / 1e6:.1f} MB in all; {beside:.1f} wake-ups a second, "
          f"without clients {alone:.1f}")  # fmt: skip
    return int(each > BYTES_MAX or beside > alone + WAKE_UPS_MAX)


if __name__ == "__main__":
    sys.exit(main())
