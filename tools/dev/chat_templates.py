"""Chat templates of published models, rendered by lmtp-serve as transformers does.

    .venv/bin/python tools/dev/chat_templates.py FOLDER [NAME...]     FOLDER/NAME.jinja

Serves a model with each template in turn and asks /chat_tokenize for the text of several chats
(those of tests/e2e/test_chat_templates.py): it must be apply_chat_template's, or both refuse. One
such folder is models/templates of llama.cpp, which `tools/setup --jinja FOLDER` fetches. Exit code
1 where any differs beyond those that the test knows.
"""

import argparse
import copy
import json
import pathlib
import shutil
import sys
import tempfile
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / "benchmarks"), str(ROOT / "tests" / "e2e")]

from servers import LmtpServe  # noqa: E402
from test_chat_templates import CHATS, KNOWN, by_transformers  # noqa: E402

TOKENIZER = ROOT / "tests" / "goldens" / "tokenizers" / "mistral"  # <s>, </s> and <unk>


def write_model(folder):
    import torch
    import transformers
    from compat_folders import build

    torch.set_grad_enabled(False)
    tokenizer = transformers.AutoTokenizer.from_pretrained(TOKENIZER)
    build("llama", 1, len(tokenizer)).float().save_pretrained(folder)
    shutil.copytree(TOKENIZER, folder, dirs_exist_ok=True)


def as_sent(chat):
    """With arguments as texts, as OpenAI's clients send them; few templates want them so."""
    chat = copy.deepcopy(chat)
    for message in chat["messages"]:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    return chat


def rendered(server, chat):
    """The text; None and the answer where it is refused."""
    body = {"model": server.model, "add_generation_prompt": True, **as_sent(chat)}
    body["chat_template_kwargs"] = body.pop("template_kwargs", {})
    request = urllib.request.Request(
        f"http://{server.endpoint}/chat_tokenize", json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )  # fmt: skip
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["templated_text"], ""
    except urllib.error.HTTPError as error:
        return None, f"{error.code}: {error.read().decode()[:200]}"


def check(model, template):
    """How many chats are alike, how many both refuse, and those that differ."""
    alike, refused, unlike = 0, 0, []
    with LmtpServe(model, "--chat-template", template, "--log-level", "error") as server:
        server.ready_line()
        for kind, chat in CHATS.items():
            text, said = rendered(server, chat)
            wanted = by_transformers(template.read_text(), chat)
            if isinstance(wanted, type):
                wanted = by_transformers(template.read_text(), as_sent(chat))
            if text == wanted:
                alike += 1
            elif text is None and isinstance(wanted, type):
                refused += 1
            else:
                known = " (known)" if f"{template.stem}/{kind}" in KNOWN else ""
                unlike.append(f"{kind}{known}: {said or repr(text)[:300]} for {wanted!r:.300}")
    return alike, refused, unlike


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    names = arguments.names or sorted(path.stem for path in arguments.folder.glob("*.jinja"))
    num_wrong = 0
    with tempfile.TemporaryDirectory() as made:
        write_model(pathlib.Path(made))
        for name in names:
            alike, refused, unlike = check(made, arguments.folder / f"{name}.jinja")
            said = f"{name}: {alike} alike, {refused} refused by both"
            print(said, *unlike, sep="; ", flush=True)
            num_wrong += any(" (known): " not in case for case in unlike)
    print(f"{len(names)} templates, {num_wrong} differ")
    sys.exit(bool(num_wrong))


if __name__ == "__main__":
    main()
