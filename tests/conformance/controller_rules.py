"""Level 1.1: controllers, which decide on a stream's tokens, and the verb that brings them."""

import base64
import functools

from base_rules import refused
from suite import PROMPT, Skipped, expect, expect_equal, ids
from suite import rule as any_rule
from tiny_controller import GOES_ON, controller

TAG = "conformance"
PUTS_TOKENS = controller(mid={"Splice": {"backtrack": 0, "ff_tokens": [5, 6]}})
STOPS = controller(pre=GOES_ON | {"num_forks": 0})
FORKS = controller(pre=GOES_ON | {"num_forks": 2})
DRAWS = controller()

rule = functools.partial(any_rule, level="1.1")


async def asked(w, op, **fields):
    """What a CONTROLLER is answered."""
    verb, entry = await w.ask("CONTROLLER", op=op, **fields)
    expect_equal(verb, "MSG", f"the verb of the answer to {op}")
    if entry.get("error", "").startswith("op: "):
        raise Skipped(f"{op} is not for this client: {entry['error']}")
    expect("controller" in entry, f"{op} is answered by {entry}")
    return entry["controller"]


async def uploaded(w, module):
    """The module's id."""
    answer = await asked(w, "upload", binary=base64.b64encode(module).decode())
    return answer["module_id"]


@rule("Uploading controllers", "CONTROLLER")
async def controllers_are_uploaded_and_named(t):
    """The same module has the same id; a tag stands for the one that it was given to last."""
    async with t.wire() as w:
        module_id = await uploaded(w, DRAWS)
        other_id = await uploaded(w, STOPS)
        expect(module_id != other_id, "different modules have the same id")
        expect_equal(await uploaded(w, DRAWS), module_id, "the id of the same module")
        for named in (module_id, other_id):
            tags = (await asked(w, "tag", module_id=named, tags=[TAG]))["tags"]
            expect_equal([(tag["tag"], tag["module_id"]) for tag in tags], [(TAG, named)], "tags")
            listed = (await asked(w, "list"))["tags"]
            of_tag = [tag["module_id"] for tag in listed if tag["tag"] == TAG]
            expect_equal(of_tag, [named], f"the modules of {TAG} in the list")
        entries = await w.generate(controller=TAG)
        expect_equal(ids(entries), [None], "tokens of the module that was named last")


@rule("Controllers", "CONTROLLER")
async def controllers_put_tokens(t):
    """Tokens of a controller come as entries that are `appended`, up to max_tokens."""
    async with t.wire() as w:
        module_id = await uploaded(w, PUTS_TOKENS)
        entries = await w.generate(controller=module_id, max_tokens=7)
        expect_equal(ids(entries), [5, 6, 5, 6, 5, 6, 5], "tokens")
        expect_equal(entries[-1]["finish_reason"], "length", "finish_reason")
        expect(all(e.get("appended") for e in entries[:6]), f"not all are appended: {entries}")
        expect(all(e["logprob"] <= 0 for e in entries), f"no log probabilities: {entries}")


@rule("Controllers", "CONTROLLER")
async def controllers_end_streams(t):
    """A controller that ends a stream without a token ends it by an entry whose token is null."""
    async with t.wire() as w:
        entries = await w.generate(controller=await uploaded(w, STOPS))
        expect_equal(ids(entries), [None], "tokens")
        expect_equal(entries[0]["finish_reason"], "stop", "finish_reason")
        await w.lives()


@rule("Controllers", "CONTROLLER")
async def controllers_fork_samples(t):
    """Forks are told before any of their samples ends; the stream has ended when all have."""
    async with t.wire() as w:
        stream_id = await w.say("GENERATE", prompt=PROMPT, controller=await uploaded(w, FORKS),
                                max_tokens=1)  # fmt: skip
        ends = lambda index: lambda v, e: (  # noqa: E731
            e.get("stream_id") == stream_id and e.get("index") == index and e.get("finish_reason")
        )
        for index in range(2):
            await w.wait(ends(index), f"end of sample {index}")
        entries = w.tokens(stream_id)
        expect_equal({e.get("index") for e in entries}, {0, 1}, "samples")
        fork = next(e for e in entries if e["index"] == 1)
        expect_equal((fork.get("fork_of_index"), fork.get("fork_at")), (0, 0), "of the fork")
        before = entries[: entries.index(fork)]
        expect(not any(e["finish_reason"] for e in before), "a sample ended before the fork came")
        for index in range(2):
            tokens = [e for e in entries if e["index"] == index and e["token"] is not None]
            expect_equal(len(tokens), 1, f"tokens of sample {index}")
        again = await w.say("GENERATE", stream_id=stream_id, prompt=PROMPT, max_tokens=1)
        since = entries[-1]
        await w.wait(lambda v, e: e.get("stream_id") == again and e != since and "token" in e,
                     "a token of the next stream with its id")  # fmt: skip


@rule("Controllers", "CONTROLLER", "FORK", "CANCEL")
async def streams_of_controllers_are_not_edited(t):
    """FORK and BACKTRACK of a stream with a controller are refused, and it goes on."""
    async with t.wire() as w:
        module_id = await uploaded(w, DRAWS)
        for verb, fields in [("FORK", {"streams": [w.new_id()]}), ("BACKTRACK", {"drop": 1})]:
            stream_id = await w.say("GENERATE", prompt=PROMPT, controller=module_id, max_tokens=400)
            await w.wait(lambda v, e: e.get("stream_id") == stream_id and "token" in e, "a token")
            since = len(w.entries)
            await w.say(verb, stream_id=stream_id, **fields)
            await w.wait(lambda v, e: "error" in e, f"a refusal of {verb}", since)
            await w.finish(stream_id)


@rule("Uploading controllers", "CONTROLLER")
async def wrong_controllers_are_refused(t):
    """What is no module, tags of none, and controllers that are not there are refused by name."""
    async with t.wire() as w:
        module_id = await uploaded(w, DRAWS)
        no_wasm = base64.b64encode(b"no wasm").decode()
        for field, fields in [
            ("op", {}), ("op", {"op": "drop"}), ("op", {"op": 5}),
            ("binary", {"op": "upload"}), ("binary", {"op": "upload", "binary": "-"}),
            ("controller", {"op": "upload", "binary": no_wasm}),
            ("module_id", {"op": "tag", "tags": ["x"]}),
            ("controller", {"op": "tag", "module_id": "0" * 64, "tags": ["x"]}),
            ("tags", {"op": "tag", "module_id": module_id}),
            ("tags", {"op": "tag", "module_id": module_id, "tags": []}),
        ]:  # fmt: skip
            await refused(w, "CONTROLLER", field, ["MSG"], **fields)
        grammar = {"type": "regex", "value": "a"}
        for field, fields in [
            ("controller", {"controller": "0" * 64}), ("controller", {"controller": 5}),
            ("controller", {"controller": module_id, "n": 2}),
            ("controller", {"controller": module_id, "grammar": grammar}),
            ("controller_arg", {"controller_arg": "x"}),
        ]:  # fmt: skip
            await refused(w, "GENERATE", field, ["TOKEN"], prompt=PROMPT, **fields)
        await w.lives()
