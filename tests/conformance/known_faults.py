"""What LMQL 0.7.3's own server, `lmql serve-model`, does otherwise, by the names of the rules."""

LAST_TWICE = "with transformers later than 4.38 it sends the last token of a stream twice"
OPTIONS = "fields that it does not know go to transformers' generate(), which refuses them"

KNOWN_FAULTS = {
    "max-tokens-counts": LAST_TWICE,
    "max-tokens-is-32": LAST_TWICE,
    "tokens-come-in-order": LAST_TWICE,
    "scores-are-those-of-generate": LAST_TWICE,
    "eos-ends-the-stream": LAST_TWICE,
    "presence-penalty-forbids-repetition": OPTIONS,
    "unknown-fields-are-ignored": OPTIONS,
    "top-logprobs-hold-the-token": "top_logprobs 0 is an error",
    "logprobs-precede-temperature": "it reports scores behind the temperature, not normalised",
    "streams-do-not-mix": "streams of one batch run to the largest max_tokens among them",
    "connections-do-not-mix": "streams of one batch run to the largest max_tokens among them",
    "connections-end-alone": "streams of one batch run to the largest max_tokens among them",
    "live-ids-are-refused": "a second stream of the same id runs, and their tokens mix",
    "wrong-values-end-the-stream": "a negative temperature is taken for 0",
    "null-fields-are-absent": "a field that is null ends the connection",
    "broken-json-is-answered": "a message that is no JSON ends the connection",
    "unknown-models-are-refused": "an unknown model is loaded, which fails without an answer",
}
