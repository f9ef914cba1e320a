"""The faults of breaking_proxy.py. Each bears the name of the rule that must notice it."""

import json

FAULTS = {}  # name -> (kind of fault, function)


def fault(name, kind):
    def add(function):
        FAULTS[name] = (kind, function)
        return function

    return add


def of_entries(name):
    """function(entry, request): changes an entry, whose request was that, or returns those that are
    sent in its place."""
    return fault(name, "entry")


def of_requests(name):
    """function(verb, fields): changes the fields of a request; False keeps it from the server."""
    return fault(name, "request")


def of_messages(name):
    """function(verb, entries): the texts that are sent in place of a message of the server."""
    return fault(name, "message")


def without_field(name, field, verb="GENERATE"):
    """The server does as if the field were not there."""

    def drop(its_verb, fields):
        if its_verb == verb:
            fields.pop(field, None)

    of_requests(name)(drop)


def is_token(entry):
    return "token" in entry


# --- level base ---------------------------------------------------------------------------


@of_messages("answers-are-arrays")
def object_instead_of_array(verb, entries):
    return [f"{verb} {json.dumps(entry)}" for entry in entries]


@of_messages("model-info-is-one-entry")
def model_info_twice(verb, entries):
    text = f"{verb} {json.dumps(entries)}"
    return [text, text] if "model_info" in entries[0] else [text]


@of_entries("entries-have-stream-ids")
def missing_stream_id(entry, _):
    entry.pop("stream_id", None)


@of_entries("stream-ids-have-64-bits")
def stream_id_through_a_double(entry, _):
    if entry.get("stream_id") is not None:
        entry["stream_id"] = int(float(entry["stream_id"]))


@of_entries("token-fields-have-their-types")
def logprob_as_text(entry, _):
    if is_token(entry):
        entry["logprob"] = str(entry["logprob"])


@of_entries("finish-reason-is-always-there")
def missing_finish_reason(entry, _):
    if is_token(entry) and entry["finish_reason"] is None:
        del entry["finish_reason"]


@of_entries("max-tokens-counts")
def last_token_twice(entry, _):
    return [entry | {"finish_reason": None}, entry] if entry.get("finish_reason") else [entry]


@of_entries("nothing-follows-the-end")
def token_after_the_end(entry, _):
    return [entry, entry | {"finish_reason": None}] if entry.get("finish_reason") else [entry]


@of_entries("tokens-come-in-order")
def second_token_before_the_first(entry, request):
    if not is_token(entry):
        return [entry]
    if request.num_entries == 0 and not entry["finish_reason"]:
        request.held = entry
        return []
    if request.num_entries == 1:
        ends = {"finish_reason": entry["finish_reason"]}
        return [entry | {"finish_reason": None}, request.held | ends]
    return [entry]


@of_entries("greedy-takes-the-best")
def another_alternative_is_better(entry, _):
    if is_token(entry) and "top_logprobs" in entry:
        entry["top_logprobs"]["0"] = 0.0


@of_entries("logprobs-are-not-positive")
def positive_logprob(entry, _):
    if is_token(entry):
        entry["logprob"] = -entry["logprob"]


@of_entries("logprobs-are-normalised")
def logits_for_logprobs(entry, _):
    for key in entry.get("top_logprobs", {}):
        entry["top_logprobs"][key] += 1.0


@of_entries("logprobs-precede-temperature")
def logprobs_after_temperature(entry, request):
    for key in entry.get("top_logprobs", {}):
        entry["top_logprobs"][key] /= request.fields.get("temperature") or 1


@of_entries("top-logprobs-hold-the-token")
def alternatives_without_the_token(entry, _):
    if len(entry.get("top_logprobs", {})) > 1:
        del entry["top_logprobs"][str(entry["token"])]


@of_entries("scores-come-in-order")
def score_ends_with_length(entry, request):
    if request.verb == "SCORE" and entry.get("finish_reason"):
        entry["finish_reason"] = "length"


@of_entries("scores-have-no-alternatives")
def alternatives_of_score(entry, request):
    if request.verb == "SCORE" and is_token(entry):
        entry["top_logprobs"] = {str(entry["token"]): entry["logprob"]}


@of_entries("scores-are-those-of-generate")
def score_off_by_a_tenth(entry, request):
    if request.verb == "SCORE" and is_token(entry):
        entry["logprob"] -= 0.1


@of_entries("nothing-precedes-the-first")
def first_token_has_a_probability(entry, request):
    if request.fields.get("prompt") == [] and request.num_entries == 0:
        entry["logprob"] = -7.6


@of_entries("eos-ends-the-stream")
def eos_is_length(entry, _):
    if entry.get("finish_reason") == "stop":
        entry["finish_reason"] = "length"


@of_requests("max-tokens-is-32")
def max_tokens_16(verb, fields):
    fields.setdefault("max_tokens", 16)


@of_requests("greedy-is-deterministic")
def warm_by_default(verb, fields):
    if verb == "GENERATE" and not fields.get("temperature"):
        fields["temperature"] = 3.0


@of_requests("one-candidate-is-greedy")
def no_top_k(verb, fields):
    fields.pop("top_k", None)


without_field("presence-penalty-forbids-repetition", "presence_penalty")
without_field("bias-forces-and-forbids", "logit_bias")
without_field("seeds-draw-the-same", "seed")


@of_requests("chunks-under-one-seed-are-one-stream")
def seed_of_the_request_alone(verb, fields):
    if "seed" in fields:
        fields["seed"] += len(fields["prompt"])


@of_requests("cancel-ends-the-stream")
def cancel_is_lost(verb, fields):
    return verb != "CANCEL"


@of_entries("cancel-of-nothing-is-silent")
def cancel_of_nothing_is_answered(entry, request):
    unknown = {"stream_id": 12345, "error": "unknown stream", "code": "internal"}
    return [{**unknown, "retryable": False}, entry]


@of_requests("wrong-fields-are-refused")
def temperature_is_clipped(verb, fields):
    if isinstance(fields.get("temperature"), float):
        fields["temperature"] = min(max(fields["temperature"], 0), 100)


@of_requests("wrong-values-end-the-stream")
def temperature_is_absolute(verb, fields):
    if isinstance(fields.get("temperature"), int):
        fields["temperature"] = abs(fields["temperature"])


@of_requests("token-ids-are-of-the-vocabulary")
def large_ids_are_one(verb, fields):
    fields["prompt"] = [token if token < 2**20 else 1 for token in fields.get("prompt", [])]


@of_requests("null-fields-are-absent")
def null_is_one(verb, fields):
    fields.update({name: 1 for name, value in fields.items() if value is None})


@of_requests("unknown-fields-are-ignored")
def unknown_field_is_wrong(verb, fields):
    if "no_such_field" in fields:
        fields["prompt"] = []


@of_requests("unknown-verbs-are-answered")
def unknown_verb_is_lost(verb, fields):
    return verb != "FETCH"


@of_entries("unknown-models-are-refused")
def unknown_model_without_msg(entry, request):
    is_msg_of_stream = request.answer == "MSG" and request.verb == "GENERATE"
    return [] if "error" in entry and is_msg_of_stream else [entry]


# --- level 1.1: errors and time --------------------------------------------------------------


@of_entries("model-info-says-1-1")
def missing_numerics(entry, _):
    if "model_info" in entry:
        entry["model_info"].pop("numerics", None)


@of_entries("base-streams-stay-base")
def text_for_all(entry, _):
    if is_token(entry):
        entry["text"] = ""


@of_entries("entries-keep-their-order-of-fields")
def fields_in_reverse(entry, _):
    return [dict(reversed(entry.items()))]


@of_entries("messages-are-of-the-schema")
def one_field_more(entry, _):
    entry["time"] = 0


@of_entries("errors-have-codes")
def missing_code(entry, _):
    entry.pop("code", None)


@of_entries("errors-say-whether-to-retry")
def all_errors_are_retryable(entry, _):
    if "error" in entry:
        entry |= {"retryable": True, "retry_after_ms": 1}


without_field("first-token-timeouts-end-streams", "first_token_timeout_ms")
without_field("timeouts-end-streams", "timeout_ms")

# --- level 1.1: text -------------------------------------------------------------------------


@of_entries("text-pieces-join")
def no_spaces_between_pieces(entry, _):
    if is_token(entry) and "text" in entry:
        entry["text"] = entry["text"].strip(" ")


@of_entries("scored-text-comes-back")
def characters_in_halves(entry, request):
    if request.verb == "SCORE" and entry.get("text") == "":
        entry["text"] = "\ufffd"


@of_requests("text-comes-where-it-is-due")
def text_is_always_sent(verb, fields):
    fields["text"] = True


@of_entries("stop-strings-end-the-text")
def stop_string_is_leaked(entry, _):
    if "stop_text" in entry:
        entry["text"] = entry.get("text", "") + entry["stop_text"]


@of_requests("the-first-stop-string-ends")
def one_stop_string_alone(verb, fields):
    if isinstance(fields.get("stop"), list):
        fields["stop"] = fields["stop"][:2]


@of_entries("stop-strings-work-without-text")
def missing_stop_text(entry, _):
    entry.pop("stop_text", None)


@of_entries("detokenize-is-the-way-back")
def detokenize_in_ascii(entry, request):
    if request.verb == "DETOKENIZE" and "text" in entry:
        entry["text"] = entry["text"].encode("ascii", "replace").decode()


@of_entries("candidates-are-sums-of-scores")
def candidates_are_means(entry, _):
    for one in entry.get("candidates", []):
        one["logprob"] /= one["num_tokens"]


without_field("wrong-candidates-are-refused", "candidates", "SCORE")
without_field("stop-strings-are-held-back", "stop")
without_field("include-stop-keeps-it", "include_stop")
without_field("stop-token-ids-end-the-stream", "stop_token_ids")
without_field("ignore-eos-goes-on", "ignore_eos")
without_field("min-tokens-come-first", "min_tokens")
without_field("min-p-1-is-greedy", "min_p")
without_field("typical-p-close-to-0-leaves-one-token", "typical_p")
without_field("special-tokens-give-no-text", "skip_special_tokens")
without_field("scores-can-have-alternatives", "top_logprobs", "SCORE")

without_field("stop-strings-wait-for-min-tokens", "min_tokens")
without_field("special-tokens-can-be-left-out", "skip_special_tokens", "DETOKENIZE")


@of_requests("text-prompts-are-their-tokens")
def a_space_behind_text(verb, fields):
    if isinstance(fields.get("prompt"), str):
        fields["prompt"] += " "


@of_requests("wrong-questions-are-msg-errors")
def anything_is_text(verb, fields):
    if verb == "TOKENIZE":
        fields["text"] = str(fields.get("text"))


@of_requests("wrong-new-fields-are-refused")
def n_is_clipped(verb, fields):
    if isinstance(fields.get("n"), int):
        fields["n"] = min(max(fields["n"], 1), 64)


@of_requests("wrong-scores-are-refused")
def alternatives_are_clipped(verb, fields):
    if isinstance(fields.get("top_logprobs"), int):
        fields["top_logprobs"] = max(fields["top_logprobs"], 0)


@of_requests("limits-are-taken")
def one_stop_string_more(verb, fields):
    if isinstance(fields.get("stop"), list):
        fields["stop"].append("y")


@of_requests("new-null-fields-are-absent")
def null_is_true(verb, fields):
    fields.update({name: True for name, value in fields.items() if value is None})


# --- level 1.1: samples, masks, notices, retry, buffers ---------------------------------------


@of_entries("samples-are-streams-of-their-seeds")
def index_of_another_sample(entry, _):
    if "index" in entry:
        entry["index"] = 2 - entry["index"]


@of_entries("samples-all-end")
def missing_index(entry, request):
    entry.pop("index", None)


@of_entries("cancel-ends-all-samples")
def cancelled_is_no_error(entry, _):
    if "error" in entry:
        entry["error"] = "ended"


without_field("raw-logprobs-are-the-models", "logprobs")
without_field("listed-tokens-have-their-logprobs", "logprob_token_ids", "SCORE")
without_field("entropy-and-rank-are-those-of-the-reported-probabilities", "rank", "SCORE")
without_field("masks-allow-their-tokens-alone", "mask")


@of_requests("masks-are-biases")
def mask_replaces_the_bias(verb, fields):
    if "mask" in fields:
        fields.pop("logit_bias", None)


@of_requests("masks-may-lack-padding")
def mask_needs_padding(verb, fields):
    if len(fields.get("mask", "")) % 4:
        fields["mask"] = ""


without_field("wrong-masks-are-refused", "mask")


@of_requests("notices-are-asked-for")
def notices_for_all(verb, fields):
    if verb in ("GENERATE", "SCORE"):
        fields["notices"] = True


@of_entries("accepted-comes-first")
def nothing_is_accepted(entry, _):
    return [] if entry.get("status") == "accepted" else [entry]


@of_entries("accepted-has-the-seed")
def wrong_seed(entry, _):
    if "seed" in entry:
        entry["seed"] += 1


without_field("resumed-text-counts-for-stops", "resumed")
without_field("resumed-tokens-count-for-min-tokens", "resumed")
without_field("resumed-stays-in-the-prompt", "resumed")


@of_requests("resumed-streams-go-on")
def resumed_draws_anew(verb, fields):
    if "resumed" in fields:
        fields["seed"] = fields.get("seed", 0) + 1


@of_requests("clients-continue-exactly")
def retry_draws_anew(verb, fields):
    resumed_draws_anew(verb, fields)


@of_requests("parts-are-joined")
def parts_in_reverse(verb, fields):
    if any(isinstance(part, (list, dict, str)) for part in fields.get("prompt", [])):
        fields["prompt"] = fields["prompt"][::-1]


@of_requests("bare-numbers-are-no-parts")
def bare_numbers_are_left_out(verb, fields):
    if any(isinstance(part, (list, dict, str)) for part in fields.get("prompt", [])):
        fields["prompt"] = [part for part in fields["prompt"] if not isinstance(part, int)]


@of_requests("buffers-have-a-limit")
def the_last_buffer_is_an_older_one(verb, fields):
    if fields.get("buffer") == "more":
        fields["buffer"] = "b1"


@of_requests("wrong-buffers-are-refused")
def long_names_are_cut(verb, fields):
    if isinstance(fields.get("buffer"), str):
        fields["buffer"] = fields["buffer"][:64]


@of_requests("freed-buffers-are-unknown")
def free_without_an_id_is_lost(verb, fields):
    return verb != "FREE" or "stream_id" in fields


@of_entries("buffers-have-their-length")
def length_of_one_more(entry, _):
    if "length" in entry:
        entry["length"] += 1


@of_requests("buffers-are-prompts")
def upto_is_ignored(verb, fields):
    for part in fields.get("prompt", []):
        if isinstance(part, dict):
            part.pop("upto", None)


without_field("into-keeps-the-stream", "into")
without_field("samples-have-no-into", "into")
