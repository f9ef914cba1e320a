"""tools/dev/compat-check in its short form: a folder of each family, as two releases save them."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_S = 600


def test_a_folder_of_each_family_is_read_as_it_was_saved():
    done = subprocess.run(
        [ROOT / "tools" / "dev" / "compat-check", "--quick"],
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "64 folders: all load" in done.stdout
    greedy = [int(line.split()[1]) for line in done.stdout.splitlines() if "greedy" in line]
    assert len(greedy) == 64 and min(greedy) >= 24, "too little was compared"
