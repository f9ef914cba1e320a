#!/usr/bin/env python3
"""What others made of that which a package holds: names, versions, hashes and licences, and their
list in the format of CycloneDX.

    tools/dev/bill.py --output FILE      the list of a Debian package of this build
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.parse
import uuid
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOC = pathlib.Path("/usr/share/doc")
EPOCH_OLDEST = 315532800  # 1980, as far as zip goes back

# Debian's packages of which headers are compiled in, or archives linked: a binary package each.
# Boost's name has its version on Debian 12.
HEADERS = ("libboost-dev", "nlohmann-json3-dev", "libcli11-dev", "libtomlplusplus-dev",
           "libstdc++-dev")
ARCHIVES = ("libpcre2-dev", "libxxhash-dev", "libssl-dev", "libedit-dev", "libncurses-dev",
            "libbsd-dev", "libmd-dev")
# Those that are linked as shared libraries where there are no static ones.
SHARED = ("libfmt-dev", "libspdlog-dev", "libsimdjson-dev", "libsentencepiece-dev",
          "prometheus-cpp-dev", "libcurl4-openssl-dev")
VERSIONED = {"libboost-dev": r"libboost1\.\d+-dev", "libstdc++-dev": r"libstdc\+\+-\d+-dev"}
# Whose libraries come along, out of tools/requirements-native.txt.
PYPI = ("llguidance", "wasmtime")


class BillError(Exception):
    pass


@dataclass
class Component:
    name: str
    version: str
    purl: str
    license_text: str
    hashes: list = field(default_factory=list)  # (what of, SHA-256)


def installed_packages():
    """Name -> version, of Debian's that are installed here."""
    columns = "${Package} ${Version} ${db:Status-Status}\n"
    shown = subprocess.run(["dpkg-query", "-W", "-f", columns], check=True, capture_output=True,
                           text=True).stdout
    rows = (line.split(" ") for line in shown.splitlines())
    return {name: version for name, version, status in rows if status == "installed"}


def purl(kind, name, version):
    return f"pkg:{kind}/{name}@{urllib.parse.quote(version, safe='.-~')}"


def debian_package(wanted, packages):
    pattern = re.compile(VERSIONED.get(wanted, re.escape(wanted)))
    names = [name for name in packages if pattern.fullmatch(name)]
    name = wanted if wanted in packages else max(names, default=None, key=lambda n: (len(n), n))
    if name is None:
        raise BillError(f"the Debian package {wanted} is missing: run tools/setup")
    copyright_file = DOC / name / "copyright"
    if not copyright_file.is_file():
        raise BillError(f"{copyright_file}, a licence that is passed on, is missing: "
                        f"apt-get install --reinstall {name}")
    return Component(name, packages[name], purl("deb/debian", name, packages[name]),
                     copyright_file.read_text(errors="replace"))


def static_sources(folder):
    """What tools/dev/static_libraries compiled: sources.txt has a line for each file."""
    found = {}
    for line in (folder / "sources.txt").read_text().splitlines():
        name, version, file, digest = line.split()
        if name not in found:
            found[name] = Component(
                name, version, purl("deb/debian", name, version) + "?arch=source",
                (folder / "licenses" / name).read_text(errors="replace"))
        found[name].hashes.append((file, digest))
    return list(found.values())


def native_folder():
    """tools/setup's, as cmake/LmtpSetupFolder.cmake has it."""
    digest = hashlib.sha256((ROOT / "tools/requirements-native.txt").read_bytes()).hexdigest()
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "lmtp" / f"native-{digest[:12]}"


def pypi_component(name):
    pins = (ROOT / "tools/requirements-native.txt").read_text()
    release, digest = re.search(rf"^{name}==(\S+) --hash=sha256:(\w+)", pins, re.MULTILINE).groups()
    texts = list(native_folder().glob(f"{name}-*.dist-info/licenses/LICENSE"))
    if not texts:
        raise BillError(f"{name}'s licence is not below {native_folder()}: run tools/setup")
    return Component(name, release, purl("pypi", name, release), texts[0].read_text(),
                     [("wheel", digest)])


def components(static):
    """Of others; `static`: the folder of tools/dev/static_libraries, or None."""
    packages = installed_packages()
    result = [debian_package(name, packages) for name in HEADERS + ARCHIVES]
    if static:
        result += static_sources(static)
    else:
        result += [debian_package(name, packages) for name in SHARED]
    return sorted(result + [pypi_component(name) for name in PYPI], key=lambda c: c.name)


def version():
    """This project's."""
    text = (ROOT / "CMakeLists.txt").read_text()
    return re.search(r"^project\(lmtp VERSION ([0-9.]+)", text, re.MULTILINE).group(1)


def epoch():
    """Of all times in a package: SOURCE_DATE_EPOCH, else the last commit's."""
    text = os.environ.get("SOURCE_DATE_EPOCH") or subprocess.run(
        ["git", "-C", ROOT, "log", "-1", "--format=%ct"], check=True, capture_output=True,
        text=True).stdout
    if not re.fullmatch(r"\s*[0-9]+\s*", text):
        raise BillError(f"SOURCE_DATE_EPOCH is '{text}': whole seconds since 1970 are needed")
    return max(int(text), EPOCH_OLDEST)


def cyclonedx(parts, files, seconds):
    """`files`: name in the package -> SHA-256, of the programs and libraries in it."""
    def described(part):
        entry = {"type": "library", "bom-ref": part.purl, "name": part.name,
                 "version": part.version, "purl": part.purl,
                 "licenses": [{"license": {"name": f"licenses/{part.name}.txt"}}]}
        if part.hashes:
            entry["externalReferences"] = [
                {"type": "distribution", "url": part.purl, "comment": what,
                 "hashes": [{"alg": "SHA-256", "content": digest}]}
                for what, digest in part.hashes]
        return entry

    own = purl("pypi", "lmtp", version())
    document = {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)),
            "component": {"type": "application", "bom-ref": own, "name": "lmtp", "purl": own,
                          "version": version(), "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": [described(part) for part in parts] + [
            {"type": "file", "bom-ref": f"file:{name}", "name": name,
             "hashes": [{"alg": "SHA-256", "content": digest}]}
            for name, digest in sorted(files.items())],
        "dependencies": [{"ref": own, "dependsOn": [part.purl for part in parts]}]}
    content = json.dumps(document, sort_keys=True)
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}"
    return json.dumps(document, indent=1) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--output", type=pathlib.Path, metavar="FILE", required=True)
    args = parser.parse_args()
    try:
        args.output.write_text(cyclonedx(components(None), {}, epoch()))
    except BillError as error:
        sys.exit(f"bill.py: {error}")


if __name__ == "__main__":
    main()
