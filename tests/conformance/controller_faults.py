"""The faults of breaking_proxy.py that concern controllers."""

from faults import of_entries, of_requests


@of_entries("controllers-are-uploaded-and-named")
def lists_are_empty(entry, request):
    if request.fields.get("op") == "list":
        entry["controller"]["tags"] = []


@of_entries("controllers-put-tokens")
def appended_is_not_told(entry, request):
    entry.pop("appended", None)


@of_entries("controllers-end-streams")
def ends_have_a_token(entry, request):
    if "token" in entry and entry["token"] is None:
        entry["token"] = 0


@of_entries("controllers-fork-samples")
def forks_are_not_told(entry, request):
    return [] if "fork_of_index" in entry else [entry]


@of_requests("streams-of-controllers-are-not-edited")
def edits_are_lost(verb, fields):
    return verb != "FORK"


@of_requests("wrong-controllers-are-refused")
def unknown_ones_are_passed_over(verb, fields):
    if verb == "GENERATE" and fields.get("controller") == "0" * 64:
        del fields["controller"]
