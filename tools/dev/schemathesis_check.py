#!/usr/bin/env python3
"""Schemathesis against lmtp-serve: requests that it makes of the server's own /openapi.json, right
and wrong ones. Exit code 1 where one is answered with a server error (500 and up), or not at all.

    python3 -m venv VENV && VENV/bin/pip install schemathesis
    tools/dev/schemathesis_check.py --schemathesis VENV/bin/schemathesis

The network is not used."""

import argparse
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "benchmarks"))
from servers import LmtpServe  # noqa: E402

REQUEST_TIMEOUT_S = 60


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemathesis", default="schemathesis")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--max-examples", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    arguments = ["--kv-cache", "64MiB", "--log-level", "warning", "--aici", "--allow-runtime-lora"]
    with (
        tempfile.TemporaryDirectory() as folder,
        LmtpServe(options.model, *arguments, "--aici-cache", folder) as server,
    ):
        command = [options.schemathesis, "run", f"http://{server.endpoint}/openapi.json",
                   "--checks", "not_a_server_error", "--max-examples", str(options.max_examples),
                   "--seed", str(options.seed), "--phases", "examples,coverage,fuzzing",
                   "--continue-on-failure", "--request-timeout", str(REQUEST_TIMEOUT_S),
                   "--suppress-health-check", "all", "--warnings", "off", "--no-color"]  # fmt: skip
        code = subprocess.run(command, check=False, cwd=folder).returncode  # it writes files
    print(f"exit code of the server: {server.exit_code}")
    return int(code or server.exit_code != 0)


if __name__ == "__main__":
    sys.exit(main())
