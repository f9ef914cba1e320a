"""The faults of breaking_proxy.py that concern grammars."""

from faults import of_entries, of_requests, without_field

without_field("texts-match-their-regex", "grammar")


@of_requests("choices-are-one-of-them")
def another_choice(verb, fields):
    if "grammar" in fields:
        fields["grammar"]["value"] = ["blue"]


@of_requests("json-is-of-its-schema")
def any_object_will_do(verb, fields):
    if "grammar" in fields:
        fields["grammar"] = {"type": "choice", "value": ["{}"]}


@of_entries("grammars-leave-log-probabilities")
def nothing_else_was_possible(entry, request):
    if "grammar" in request.fields and "token" in entry:
        entry["logprob"] = 0.0


@of_requests("grammars-hold-in-company")
def seeds_depend_on_the_stream(verb, fields):
    if "grammar" in fields:
        fields["seed"] += fields["stream_id"]


without_field("resumed-tokens-count-for-grammars", "resumed")


@of_requests("samples-each-have-the-grammar")
def samples_have_none(verb, fields):
    if fields.get("n", 1) > 1:
        fields.pop("grammar", None)


@of_entries("edits-keep-the-grammar")
def forks_lack_a_token(entry, request):
    return [] if "fork_of" in entry else [entry]


@of_requests("wrong-grammars-are-refused")
def unknown_types_are_passed_over(verb, fields):
    if isinstance(fields.get("grammar"), dict) and fields["grammar"].get("type") == "rgx":
        fields.pop("grammar")


@of_requests("streams-end-while-grammars-are-read")
def cancel_is_lost(verb, fields):
    return verb != "CANCEL"
