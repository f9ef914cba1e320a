"""Does anything else run on this machine? A benchmark would measure it, too."""

import os
import pathlib
import time

WATCH_S = 3
BUSY_CORES_MAX = 0.25


def ticks(stat):
    """(busy, all) ticks of all processors together, from the text of /proc/stat. What a virtual
    machine's host took away counts as busy; a guest's time is in user's already."""
    user, nice, system, idle, waiting, *rest = map(int, stat.split("\n", 1)[0].split()[1:9])
    busy = user + nice + system + sum(rest)
    return busy, busy + idle + waiting


def cores_between(before, after, num_cores):
    """How many cores were busy, on average, between two readings of /proc/stat."""
    (busy, total), (busy_then, total_then) = ticks(after), ticks(before)
    return num_cores * (busy - busy_then) / max(1, total - total_then)


def busy_cores():
    """Over the next seconds."""
    stat = pathlib.Path("/proc/stat")
    before = stat.read_text()
    time.sleep(WATCH_S)
    return cores_between(before, stat.read_text(), os.cpu_count())
