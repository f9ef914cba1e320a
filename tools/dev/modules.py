"""The modules and programs of a tree as CMake declares them, and what follows from that: what each
may include, and its level.

A module is a lmtp_module() in src/NAME, kernels or tools/common, with a lmtp_plugin() where it has
one; a program is a folder of tools/ with the lmtp_module()s and lmtp_program()s of its
CMakeLists.txt, taken together.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

# Library as CMake names it -> its name in the docs, and what an include of it looks like. One that
# is not here may not be declared.
LIBRARIES = {
    "Libtorch::cpu": ("libtorch", r"(torch|ATen|c10|caffe2)/"),
    "Boost::headers": ("Boost", r"boost/"),
    "simdjson::simdjson": ("simdjson", r"simdjson"),
    "nlohmann_json::nlohmann_json": ("nlohmann/json", r"nlohmann/"),
    "CLI11::CLI11": ("CLI11", r"CLI/"),
    "Tomlplusplus::headers": ("toml++", r"toml\+\+/"),
    "spdlog::spdlog": ("spdlog", r"(spdlog|fmt)/"),
    "Pcre2::pcre2_8": ("PCRE2", r"pcre2"),
    "CURL::libcurl": ("libcurl", r"curl/"),
    "OpenSSL::SSL": ("OpenSSL", r"openssl/(ssl|err|x509)\.h"),
    "OpenSSL::Crypto": ("OpenSSL", r"openssl/"),
    "Libedit::libedit": ("libedit", r"(histedit|editline/)"),
    "Xxhash::xxhash": ("xxHash", r"xxhash"),
    "Sentencepiece::sentencepiece": ("sentencepiece", r"sentencepiece"),
    "PrometheusCpp::core": ("prometheus-cpp", r"prometheus/"),
    "CUDA::cudart_static": ("CUDA", r"(cuda|cublas|cudnn|nccl)"),
}

DECLARATION = re.compile(r"\blmtp_(?:module|plugin|program)\(\s*([\w-]+)([^)]*)\)")
LINKS = re.compile(r"\btarget_link_libraries\(\s*lmtp_([\w-]+)([^)]*)\)")
KEYWORDS = {"SOURCES", "DEPS", "PUBLIC_LIBS", "PRIVATE_LIBS", "PUBLIC", "PRIVATE", "COMPUTES"}


@dataclass
class Module:
    """`deps`, `public` and `private` map a name to the line that declares it."""

    folder: Path  # below the root
    line: int
    deps: dict = field(default_factory=dict)
    public: dict = field(default_factory=dict)
    private: dict = field(default_factory=dict)

    @property
    def cmake(self):
        return self.folder / "CMakeLists.txt"

    def declare(self, keyword, name, line):
        if keyword in ("PUBLIC_LIBS", "PUBLIC") and "::" in name:
            self.public[name] = line
        elif keyword in ("PRIVATE_LIBS", "PRIVATE", "DEPS") and "::" in name:
            self.private[name] = line
        elif keyword == "DEPS":
            self.deps[name] = line


def read_text(root, path):
    text = (root / path).read_text(encoding="utf-8") if (root / path).exists() else ""
    return re.sub(r"#.*", "", text)


def read_module(root, folder):
    """The declarations of a folder's CMakeLists.txt as one module, or None where it has none."""
    text = read_text(root, folder / "CMakeLists.txt")
    declared = list(DECLARATION.finditer(text))
    if not declared:
        return None
    names = {match[1] for match in declared}
    module = Module(folder, text.count("\n", 0, declared[0].start()) + 1)
    for match in [*declared, *(m for m in LINKS.finditer(text) if m[1] in names)]:
        keyword = ""
        for word in re.finditer(r"\S+", match[2]):
            if word[0] in KEYWORDS:
                keyword = word[0]
            elif word[0] not in names:
                line = text.count("\n", 0, match.start(2) + word.start()) + 1
                module.declare(keyword, word[0], line)
    return module


def read_modules(root):
    """Name -> Module of the whole tree."""
    folders = [Path("kernels")]
    for parent in ("src", "tools"):
        found = sorted((root / parent).glob("*/CMakeLists.txt"))
        folders += [path.parent.relative_to(root) for path in found]
    modules = {folder.name: read_module(root, folder) for folder in folders}
    return {name: module for name, module in modules.items() if module is not None}


def reach(modules, name):
    """All that the module depends on, directly or not; it is among them where there is a cycle."""
    found, todo = set(), [name]
    while todo:
        module = modules.get(todo.pop())
        for dep in module.deps if module else ():
            if dep not in found:
                found.add(dep)
                todo.append(dep)
    return found


def level(modules, name):
    """0 without DEPS, else one more than the highest of them. REQUIRES: all are there, no cycle."""
    return 1 + max((level(modules, dep) for dep in modules[name].deps), default=-1)


def libraries(modules, name, with_private):
    """The external libraries that the module may include: its own, and public ones it reaches."""
    own = modules[name]
    found = set(own.public) | (set(own.private) if with_private else set())
    for dep in reach(modules, name) & modules.keys():
        found |= set(modules[dep].public)
    return found


def library_of(include):
    """The library that an include belongs to, or None."""
    for library, (_, pattern) in LIBRARIES.items():
        if re.match(pattern, include):
            return library
    return None


def test_deps(root, folder):
    """The DEPS of the tests of a folder of tests/."""
    text = read_text(root, Path("tests") / folder / "CMakeLists.txt")
    given = re.findall(r"\bDEPS\s([^)]*?)(?=\)|\b(?:LABELS|SOURCES|TIMEOUT|TEST_DATA)\b)", text)
    return set(" ".join(given).split())


def table_row(modules, name):
    """(level, libraries) as the table of docs/architecture.md has them."""
    module = modules[name]
    titles = sorted(LIBRARIES[lib][0] for lib in {**module.public, **module.private})
    return str(level(modules, name)), ", ".join(titles) or "none"
