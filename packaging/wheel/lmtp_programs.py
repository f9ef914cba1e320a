"""The commands lmtp-serve, lmtp-client and lmtp-bench: each becomes the program of its name, which
lies beside this file with what it needs, so that signals and exit codes are the program's own."""

import os
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent

# The system's certificates: the programs know the first place, distributions have others.
CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def _become(name):
    program = str(FOLDER / "bin" / name)
    if not {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys():
        found = [path for path in CERTIFICATES if os.path.exists(path)]
        os.environ.update({"SSL_CERT_FILE": found[0]} if found else {})
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {program} cannot be started ({error.strerror}): install it again, with "
                 "pip install --force-reinstall lmtp, on a file system that allows programs")


def serve():
    _become("lmtp-serve")


def client():
    _become("lmtp-client")


def bench():
    _become("lmtp-bench")
