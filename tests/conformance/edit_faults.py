"""The faults of breaking_proxy.py that concern FORK and BACKTRACK."""

from faults import of_entries, of_requests, without_field


@of_entries("forks-begin-with-their-stream")
def forks_begin_one_later(entry, request):
    if "fork_at" in entry:
        entry["fork_at"] += 1


@of_requests("forks-draw-alone")
def forks_have_one_seed(verb, fields):
    if verb == "FORK":
        fields.setdefault("params", {})["seed"] = 1


@of_entries("backtracked-tokens-come-again")
def backtracks_are_not_told(entry, request):
    entry.pop("backtrack", None)


without_field("appended-tokens-are-reported", "append", "BACKTRACK")


@of_requests("wrong-edits-are-refused")
def too_many_forks_are_fewer(verb, fields):
    if verb == "FORK" and len(fields.get("streams") or []) > 64:
        fields["streams"] = fields["streams"][:1]


without_field("bad-words-are-not-generated", "bad_words")
