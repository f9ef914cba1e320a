#!/usr/bin/env python3
"""Packs what cmake --install installed as a wheel: the programs with their libraries and the demo
as the package lmtp_programs, whose commands become them, and docs/examples/lmtp.py as the module
lmtp.

    tools/dev/wheel.py PREFIX FOLDER [--static FOLDER] [--auditwheel PROGRAM]

Writes FOLDER/lmtp-VERSION-py3-none-TAG.whl and the list of what is in it, FOLDER/NAME.cdx.json
(CycloneDX), and prints the wheel's name. --static: what tools/dev/static_libraries made and the
programs are linked with. --auditwheel says the tag, and that the wheel needs nothing else of a
system than what the tag stands for; without it the tag is linux_x86_64, for this machine alone.
The same files give the same bytes: times are SOURCE_DATE_EPOCH, else the last commit's.
"""

import argparse
import base64
import csv
import hashlib
import io
import pathlib
import re
import subprocess
import sys
import time
import zipfile

import bill

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ("lmtp-serve", "lmtp-client", "lmtp-bench", "lmtp-aicirt")
LEVELS = range(1, 10)  # of compression
COMMANDS = {"serve": "lmtp-serve", "client": "lmtp-client", "bench": "lmtp-bench"}
HELPERS = ("libllguidance.so", "liblmtp_python_stubs.so", "libwasmtime.so", "lmtp-jinja",
           "lmtp-wasm")
METADATA = """\
Metadata-Version: 2.4
Name: lmtp
Version: {version}
Summary: A server for language models: LMTP, and the APIs of OpenAI, Anthropic and TGI
License-Expression: Apache-2.0
{licenses}Classifier: Operating System :: POSIX :: Linux
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Requires-Python: >=3.9
Requires-Dist: websockets>=12
Description-Content-Type: text/markdown

{description}"""


class WheelError(Exception):
    pass


class Entry:
    def __init__(self, data, executable=False):
        self.data, self.executable = data, executable


def read_entry(path):
    if not path.is_file():
        raise WheelError(f"{path} is missing: give a prefix that cmake --install wrote")
    data = path.read_bytes()
    return Entry(data, executable=data.startswith(b"\x7fELF") or data.startswith(b"#!"))


def installed_files(prefix):
    """Name in the wheel -> entry, of what is installed. Libtorch, which connects ranks by gloo and
    has half a gigabyte, stays away."""
    paths = [prefix / "bin" / name for name in PROGRAMS]
    paths += [prefix / "lib" / "lmtp" / name for name in HELPERS]
    paths += [p for p in (prefix / "share" / "lmtp").rglob("*") if p.is_file()]
    files = {f"lmtp_programs/{p.relative_to(prefix)}": read_entry(p) for p in paths}
    data = f"lmtp-{bill.version()}.data/data"
    for kind in ("share/man", "share/bash-completion", "share/zsh", "share/fish"):
        for path in (prefix / kind).rglob("*"):
            if path.is_file():
                files[f"{data}/{path.relative_to(prefix)}"] = read_entry(path)
    return files


def text_entry(text):
    return Entry(text.encode())


def all_files(prefix, static, tag, seconds):
    files = installed_files(prefix)
    files["lmtp_programs/__init__.py"] = read_entry(ROOT / "packaging/wheel/lmtp_programs.py")
    files["lmtp.py"] = Entry((ROOT / "docs/examples/lmtp.py").read_bytes())
    info = f"lmtp-{bill.version()}.dist-info"
    components = bill.components(static)
    licenses = {"LICENSE": read_entry(ROOT / "LICENSE")}
    licenses |= {c.name + ".txt": text_entry(c.license_text) for c in components}
    files |= {f"{info}/licenses/{name}": entry for name, entry in licenses.items()}
    listed = "".join(f"License-File: {name}\n" for name in sorted(licenses))
    files[f"{info}/METADATA"] = text_entry(METADATA.format(
        version=bill.version(), licenses=listed,
        description=(ROOT / "packaging/wheel/description.md").read_text()))
    files[f"{info}/WHEEL"] = text_entry(
        f"Wheel-Version: 1.0\nGenerator: lmtp\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n")
    files[f"{info}/entry_points.txt"] = text_entry("[console_scripts]\n" + "".join(
        f"{command} = lmtp_programs:{function}\n" for function, command in COMMANDS.items()))
    hashes = {name: hashlib.sha256(entry.data).hexdigest() for name, entry in files.items()
              if entry.executable}
    files[f"{info}/sboms/lmtp.cdx.json"] = text_entry(
        bill.cyclonedx(components, hashes, seconds))
    files[f"{info}/RECORD"] = text_entry(record(files, f"{info}/RECORD"))
    return files


def record(files, own_name):
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    for name, entry in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(entry.data).digest()).rstrip(b"=").decode()
        writer.writerow([name, f"sha256={digest}", len(entry.data)])
    writer.writerow([own_name, "", ""])
    return rows.getvalue()


def write_wheel(path, files, seconds, level):
    """In order of names, dist-info last, as the specification asks for."""
    moment = time.gmtime(seconds)[:6]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files, key=lambda name: (".dist-info/" in name, name)):
            info = zipfile.ZipInfo(name, moment)
            info.create_system = 3  # whose modes are in external_attr
            info.external_attr = (0o100755 if files[name].executable else 0o100644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, files[name].data, compresslevel=level)


def audited_tag(auditwheel, wheel):
    """The one of the oldest systems that have all that the wheel needs."""
    shown = subprocess.run([auditwheel, "show", wheel], capture_output=True, text=True)
    text = " ".join(shown.stdout.split())
    found = re.search(r'platform tag: "(\w+)"', text)
    if not found or found.group(1).startswith("linux_"):
        raise WheelError("the wheel needs what not every Linux has; auditwheel says: "
                         f"{text or shown.stderr.strip()}")
    return found.group(1)


def build(prefix, folder, static, auditwheel, level):
    seconds = bill.epoch()
    folder.mkdir(parents=True, exist_ok=True)
    tag = "linux_x86_64"
    while True:
        wheel = folder / f"lmtp-{bill.version()}-py3-none-{tag}.whl"
        files = all_files(prefix, static, tag, seconds)
        write_wheel(wheel, files, seconds, level if auditwheel is None else LEVELS[0])
        if auditwheel is None:
            break
        tag, auditwheel = audited_tag(auditwheel, wheel), None
        wheel.unlink()
    listed = files[f"lmtp-{bill.version()}.dist-info/sboms/lmtp.cdx.json"].data
    (folder / f"{wheel.stem}.cdx.json").write_bytes(listed)
    return wheel


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("prefix", type=pathlib.Path, metavar="PREFIX")
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--static", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--auditwheel", metavar="PROGRAM")
    parser.add_argument("--level", type=int, choices=LEVELS, default=LEVELS[-1],
                        help="how much time to take for a small file")
    args = parser.parse_args()
    try:
        print(build(args.prefix, args.folder, args.static, args.auditwheel, args.level))
    except (WheelError, bill.BillError) as error:
        sys.exit(f"wheel.py: {error}")


if __name__ == "__main__":
    main()
