"""cmake --install into a folder that all users may read, and the server as its systemd unit starts
it there."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from servers import LmtpServe, bin_dir

INSTALL_TIMEOUT_S = 300


@contextlib.contextmanager
def installed():
    """The prefix; it goes with the context."""
    prefix = pathlib.Path(tempfile.mkdtemp(prefix="lmtp-install-"))
    try:
        prefix.chmod(0o755)
        command = ["cmake", "--install", bin_dir().parent, "--prefix", prefix]
        subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_TIMEOUT_S)
        yield prefix
    finally:
        shutil.rmtree(prefix)


def unit_command(prefix):
    """What the unit runs, split into words."""
    unit = (prefix / "lib" / "systemd" / "system" / "lmtp-serve.service").read_text()
    arguments = re.search(r'^Environment="LMTP_ARGS=(.*)"$', unit, re.MULTILINE).group(1)
    command = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE).group(1)
    return command.replace("$LMTP_ARGS", arguments).split()


class InstalledServe(LmtpServe):
    """The unit's command, with an environment as bare as a service's; `model`: of this one instead;
    `user`: as this user id."""

    def __init__(self, prefix, model=None, user=None):
        program, *arguments = unit_command(prefix)
        super().__init__(*([model] if model else arguments))
        self.command[0] = program
        self.environment = {"PATH": os.defpath}
        if user is not None:
            self.popen_options = {"user": user, "group": user, "extra_groups": [], "cwd": "/"}
