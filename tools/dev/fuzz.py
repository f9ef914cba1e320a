#!/usr/bin/env python3
"""Fuzzes the parsers of messages (tests/fuzz/parse_fuzz.cpp), those of HTTP bodies and of key
files (tests/server/http_fuzz.cpp), and with --jinja also what a server does with chat templates
(template_fuzz.cpp), by clang's libFuzzer, with AddressSanitizer and UndefinedBehaviorSanitizer.
Exit code 77 where clang or its libFuzzer is not installed (Debian: clang, libclang-rt-dev). What
it starts from is tests/fuzz/corpus.json, to which --keep adds the inputs that reached code that no
other reached; templates start from those of real models. --replay searches nothing: the programs
that a build has of these (preset asan) read what a search starts from, and what one failed on
(tests/fuzz/failed.json, which --failed adds to); chat templates, if --templates names some."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests" / "fuzz" / "corpus.json"
FAILED = ROOT / "tests" / "fuzz" / "failed.json"  # program -> inputs that it failed on once
COMPILERS = ["clang++", *(f"clang++-{release}" for release in range(20, 13, -1))]
FLAGS = ["-std=c++20", "-O1", "-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all",
         "-fsanitize=fuzzer,address,undefined,float-cast-overflow"]  # fmt: skip
SOURCES = ["tests/fuzz/parse_fuzz.cpp", "src/base/*.cpp", "src/protocol/*.cpp",
           "src/request/*.cpp"]  # fmt: skip
HTTP_SOURCES = [
    "tests/server/http_fuzz.cpp", "src/base/*.cpp", "src/request/*.cpp",
    "src/constraint/excluding_schemas.cpp", "src/constraint/negated_schema.cpp",
    "src/constraint/schema_forms.cpp",
    "src/server/access/key_file.cpp", "src/server/generation/encode_text.cpp",
    "src/server/generation/reply_formats.cpp", "src/server/generation/fresh.cpp",
    "src/server/generation/json_fields.cpp", "src/server/generation/read_grammar.cpp",
    "src/server/generation/schema_reading.cpp",
    "src/server/http/message.cpp", "src/server/http/routes.cpp", "src/server/net/mailroom.cpp",
    "src/server/openai/chat_request.cpp", "src/server/openai/common_fields.cpp",
    "src/server/openai/error.cpp", "src/server/openai/request.cpp",
    "src/server/openai/tool_calls.cpp", "src/server/tgi/error.cpp",
    "src/server/tgi/request.cpp", "src/text/chat_template.cpp", "src/text/rendered_chat.cpp",
    "src/text/template_process.cpp", "src/tokenizer/stream_decoder.cpp",
    "src/tokenizer/text_begin.cpp",
]  # fmt: skip
TEMPLATE_SOURCES = [
    "tests/fuzz/template_fuzz.cpp", "src/base/*.cpp", "src/text/chat_template.cpp",
    "src/text/rendered_chat.cpp", "src/text/template_process.cpp",
    "src/tokenizer/stream_decoder.cpp",
]  # fmt: skip
SHORT, LONGEST = 2000, 20_000  # bytes: what is longer than 16 KiB is read in another way
KEPT_LONGEST = 300


def long_messages():
    """Too long for the corpus's file."""
    ones = "1, " * 6000
    for prompt in [f"[{ones}1]", f'["a", [{ones}1], {{"buffer": "b"}}]', f'"{"a, " * 6000}"']:
        yield f'GENERATE {{"stream_id": 1, "prompt": {prompt}}}'
    biases = ", ".join(f'"{i}": 1' for i in range(2000))
    yield f'GENERATE {{"stream_id": 1, "prompt": [1], "logit_bias": {{{biases}}}}}'
    yield f'GENERATE {{"stream_id": 1, "mask": "{"AQID" * 4500}", "prompt": [1]}}'
    yield f'DETOKENIZE {{"stream_id": 1, "tokens": [{ones}1]}}'


CHAT = """"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]},
{"role": "assistant", "content": "b"}]"""
BODIES = [
    '{"model": "m", "prompt": "a", "max_tokens": 5, "logprobs": 3, "echo": true, "n": 2}',
    '{"prompt": [["a"], [1, 2]], "stop": ["x"], "stream": true, "stream_options": {}}',
    '{"prompt": [1, 2], "logit_bias": {"5": -100}, "seed": -1, "truncate_prompt_tokens": 1}',
    f'{{{CHAT}, "continue_final_message": true, "add_generation_prompt": false, "echo": true}}',
    f'{{{CHAT}, "tools": [{{"type": "function"}}], "tool_choice": "none", "top_logprobs": 2}}',
    f'{{{CHAT}, "tools": [{{"function": {{"name": "f"}}}}], "tool_choice": "required"}}',
    '{"prompt": "a", "structured_outputs": {"grammar": "a ::= b"}, "guided_json": {}}',
    '{"prompt": "a", "response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}',
    '{"inputs": "a", "parameters": {"grammar": {"type": "json", "value": {"a": [1]}}}}',
    '{"inputs": "a", "stream": true, "parameters": {"do_sample": true, "best_of": 2}}',
    '{"inputs": "a", "parameters": {"stop": ["a"], "truncate": 5, "top_n_tokens": 3, "seed": 1}}',
    '{"prompt": "a", "return_token_strs": true, "add_special_tokens": false}',
    '{"keys": [{"name": "a", "key": "sk-secret", "admin": true, "models": ["m", "org/*"]}]}',
    f'{{"keys": [{{"name": "b", "key_sha256": "{"0f" * 32}", "max_streams": 3}}]}}',
]


def field_names():
    """What the readers of HTTP bodies and key files look for."""
    paths = [path for pattern in HTTP_SOURCES if "/server/" in pattern or "request" in pattern
             for path in ROOT.glob(pattern)]  # fmt: skip
    words = {w for path in paths for w in re.findall(r'"([a-z][a-z0-9_]+)"', path.read_text())}
    return "".join(f'"\\"{word}\\""\n' for word in sorted(words))


def dictionary():
    """The names and values that a fuzzer would have to guess."""
    schema = (ROOT / "docs" / "schema" / "lmtp.json").read_text()
    words = set(re.findall(r'"([A-Za-z_]{2,})"', schema))
    return "".join(f'"\\"{word}\\""\n' if word.islower() else f'"{word} "\n' for word in words)


def find_compiler():
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "x.cpp"
        source.write_text('extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) '
                          "{ return 0; }")  # fmt: skip
        for name in COMPILERS:
            command = [name, *FLAGS, source, "-o", source.with_suffix("")]
            if shutil.which(name) and not subprocess.run(command, capture_output=True).returncode:
                return name
    return None


def build(compiler, folder, patterns):
    sources = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    folders = ("include", "src/protocol", "src/server", "src/text", "src/tokenizer",
               "tests/support")  # fmt: skip
    includes = [f"-I{ROOT / name}" for name in folders]
    launcher = ["ccache"] if shutil.which("ccache") else []

    def compile_one(source):
        target = folder / f"{'-'.join(source.relative_to(ROOT).parts)}.o"
        if target.exists():  # of another program
            return target
        subprocess.run([*launcher, compiler, *FLAGS, *includes, "-c", source, "-o", target],
                       check=True)  # fmt: skip
        return target

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, sources))
    program = folder / "bin" / sources[0].stem
    program.parent.mkdir(exist_ok=True)
    libraries = ["-lsimdjson", "-lxxhash", "-lspdlog", "-lfmt", "-lcrypto"]
    subprocess.run([compiler, *FLAGS, *objects, *libraries, "-o", program], check=True)
    return program


def inputs_of(options):
    """Program -> what a search starts from, bytes as Latin-1."""
    inputs = {"parse_fuzz": json.loads(CORPUS.read_text()), "http_fuzz": BODIES}
    if options.templates:
        templates = [path.read_text() for path in sorted(options.templates.glob("*.jinja"))]
        inputs["template_fuzz"] = [t for t in templates if t.isascii() and len(t) < LONGEST]
    for program, texts in inputs.items():
        if not texts:
            sys.exit(f"fuzz: {program} has nothing to start from: no .jinja file of ASCII is in "
                     f"{options.templates}")  # fmt: skip
    return inputs


def write_inputs(folder, texts):
    folder.mkdir()
    for i, text in enumerate(texts):
        (folder / str(i)).write_bytes(text.encode("latin-1"))


def replay(options):
    """Exit code 1 where a program of the build fails on what a search starts from, or failed on."""
    inputs, failed = inputs_of(options), json.loads(FAILED.read_text())
    inputs["parse_fuzz"] += long_messages()
    programs = [options.replay / name for name in inputs]
    missing = [str(path) for path in programs if not path.exists()]
    if missing:
        sys.exit(f"fuzz: not built: {', '.join(missing)}")
    num_bad = 0
    with tempfile.TemporaryDirectory() as name:
        for program in programs:
            folder = pathlib.Path(name) / program.name
            write_inputs(folder, [*inputs[program.name], *failed.get(program.name, [])])
            run = subprocess.run([program, folder], stderr=subprocess.PIPE, text=True,
                                 errors="backslashreplace")  # fmt: skip
            files = re.findall(r"^input: (.+)$", run.stderr, re.M)
            if run.returncode or len(files) < len(inputs[program.name]):
                num_bad += 1
                kept = options.output / f"fuzz-{program.name}"
                kept.write_bytes(pathlib.Path(files[-1]).read_bytes() if files else b"")
                print(f"{run.stderr[-8000:]}\nfuzz: {program.name} fails on {kept}")
            else:
                print(f"fuzz: {program.name} read {len(files)} inputs, no findings")
    return 1 if num_bad else 0


def add_failed(program, path):
    failed = json.loads(FAILED.read_text())
    failed.setdefault(program, []).append(pathlib.Path(path).read_bytes().decode("latin-1"))
    FAILED.write_text(json.dumps(failed, indent=1) + "\n")
    return 0


def keep(program, folder, corpus):
    """The fewest of what there is that reach the same code; bytes are kept as Latin-1."""
    merged = folder / "merged"
    merged.mkdir()
    subprocess.run([program, "-merge=1", f"-max_len={KEPT_LONGEST}", merged, corpus], check=True,
                   capture_output=True)  # fmt: skip
    texts = sorted(path.read_bytes().decode("latin-1") for path in merged.iterdir())
    CORPUS.write_text(json.dumps(texts, indent=0) + "\n")
    print(f"fuzz: kept {len(texts)} inputs, {CORPUS.stat().st_size} bytes")


JINJA_WORDS = """{{ }} {% %} {%- -%} {{- -}} {# #} for in endfor if elif else endif set endset macro
endmacro call endcall filter endfilter break continue generation range( namespace( dict( loop.index0
messages tools role content tool_calls is not and or defined none string mapping iterable | tojson
trim join( replace( split( length upper title string items() list map( selectattr( default( [0] [1:]
raise_exception( strftime_now( ~ + * // % == <""".split()


def fuzz_parsers(compiler, folder, options):
    program = build(compiler, folder, SOURCES)
    (folder / "words").write_text(dictionary())
    corpus, long = folder / "corpus", folder / "long"
    write_inputs(corpus, inputs_of(options)["parse_fuzz"])
    write_inputs(long, long_messages())
    # Long messages take a hundred times as long.
    for what, inputs, longest, share in [
        ("short messages", [corpus], SHORT, 0.4),
        ("long messages", [long, corpus], LONGEST, 0.15),
    ]:
        run_fuzzer(program, options, what, inputs, longest, options.seconds * share)
    if options.keep:
        keep(program, folder, corpus)


def fuzz_http(compiler, folder, options):
    program = build(compiler, folder, HTTP_SOURCES)
    (folder / "words").write_text(field_names())
    corpus = folder / "corpus-of-http"
    write_inputs(corpus, BODIES)
    run_fuzzer(program, options, "HTTP bodies and key files", [corpus], SHORT,
               options.seconds * 0.2)  # fmt: skip


def fuzz_templates(compiler, folder, options):
    """Each template is read and run by lmtp-jinja, in a process of its own."""
    program = build(compiler, folder, TEMPLATE_SOURCES)
    (folder / "lib" / "lmtp").mkdir(parents=True)
    (folder / "lib" / "lmtp" / "lmtp-jinja").symlink_to(options.jinja.resolve())
    words = "".join(json.dumps(word) + "\n" for word in JINJA_WORDS)
    (folder / "words").write_text(words)
    corpus = folder / "corpus-of-templates"
    write_inputs(corpus, inputs_of(options)["template_fuzz"])
    run_fuzzer(program, options, "templates", [corpus], LONGEST, options.seconds * 0.25)


def run_fuzzer(program, options, what, inputs, longest, seconds):
    """Ends the program with code 1 where there are findings."""
    seconds = max(1, round(seconds))
    run = subprocess.run(
        [program, f"-max_total_time={seconds}", f"-seed={options.seed}", "-timeout=30",
         "-rss_limit_mb=2048", f"-max_len={longest}", f"-dict={program.parents[1] / 'words'}",
         "-print_final_stats=1", f"-artifact_prefix={options.output}/fuzz-", *inputs],
        stderr=subprocess.PIPE, text=True, errors="backslashreplace")  # fmt: skip
    if run.returncode:
        print(run.stderr[-8000:])
        sys.exit(1)
    count = re.findall(r"stat::number_of_executed_units:\s+(\d+)", run.stderr)[-1]
    edges = re.findall(r"cov: (\d+)", run.stderr)[-1]
    print(f"fuzz: {count} {what} in {seconds} s, {edges} edges, no findings")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    parser.add_argument("--keep", action="store_true", help="write the corpus anew")
    parser.add_argument("--jinja", type=pathlib.Path,
                        help="fuzzes --templates too: where lmtp-jinja is")  # fmt: skip
    parser.add_argument("--templates", type=pathlib.Path, help="a folder of templates")
    parser.add_argument("--replay", type=pathlib.Path, metavar="FOLDER",
                        help="search nothing: where the programs of a build are")  # fmt: skip
    parser.add_argument("--failed", nargs=2, metavar=("PROGRAM", "FILE"),
                        help="adds what it failed on to what --replay reads")  # fmt: skip
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path.cwd(),
                        help="where an input that fails is written")  # fmt: skip
    options = parser.parse_args()
    if options.jinja and not options.templates:
        parser.error("--jinja needs --templates")
    if options.failed:
        return add_failed(*options.failed)
    if options.replay:
        return replay(options)
    compiler = find_compiler()
    if compiler is None:
        print("fuzz: SKIPPED, there is no clang with libFuzzer (install clang and libclang-rt-dev)")
        return 77
    if options.seconds < 120:  # optimising takes longer than it wins
        FLAGS.append("-O0")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        fuzz_parsers(compiler, folder, options)
        fuzz_http(compiler, folder, options)
        if options.jinja:
            fuzz_templates(compiler, folder, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
