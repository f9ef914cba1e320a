// Everything that can be wrong with a message and be seen without a model: what is said of it, and
// whose stream it is.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <variant>

#include "lmtp/protocol/codec.h"

namespace lmtp::protocol {
namespace {

struct Case {
  std::string name;
  std::string text;
  std::string field;  // the error begins with it and ": "
  std::string says;   // and holds this
  std::optional<StreamId> stream_id = 7;
  bool opens_stream = true;
};

void PrintTo(const Case& item, std::ostream* out) { *out << item.name; }

// A GENERATE that is right but for `fields`.
std::string generate(const std::string& fields) {
  return "GENERATE {\"stream_id\": 7, \"prompt\": [1, 2], " + fields + "}";
}

std::string repeat(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += (i > 0 ? "," : "") + text;
  return all;
}

std::string nested(int depth) {
  return std::string(static_cast<std::size_t>(depth), '[') +
         std::string(static_cast<std::size_t>(depth), ']');
}

const Case kCases[] = {
    {"empty", "", "message", "is empty", {}, false},
    {"blank_line", " \r\n", "message", "is empty", {}, false},
    {"unknown_verb", "FETCH {\"stream_id\": 7}", "verb", "'FETCH' is unknown", 7, false},
    {"lower_case_verb", "generate {\"stream_id\": 7}", "verb", "GENERATE, SCORE", 7, false},
    {"long_verb", std::string(100000, 'A'), "verb", "...' is unknown", {}, false},
    {"no_verb", "{\"stream_id\": 7}", "verb", "is unknown", {}, false},
    {"control_verb", "GEN\x01\xc3\xa9 {}", "verb", "'GEN", {}, false},
    {"no_payload", "GENERATE", "payload", "is missing", {}, true},
    {"blank_payload", "GENERATE  \n", "payload", "is missing", {}, true},
    {"not_json", "GENERATE prompt=1", "payload", "not valid JSON", {}, true},
    {"python_dict", "GENERATE {'stream_id': 7}", "payload", "not valid JSON", {}, true},
    {"cut_off", R"(GENERATE {"stream_id": 7, "prompt": [1, )", "prompt", "not JSON"},
    {"cut_in_string", R"(GENERATE {"stream_id": 7, "model": "gp)", "model", "not closed"},
    {"trailing", R"(GENERATE {"stream_id": 7, "prompt": [1]} x)", "payload", "not valid JSON"},
    {"two_objects", R"(GENERATE {"stream_id": 7, "prompt": [1]} {})", "payload", "not valid JSON"},
    {"array", R"(GENERATE [{"stream_id": 7}])", "payload", "not a JSON object", {}, true},
    {"number_payload", "GENERATE 5", "payload", "not a JSON object", {}, true},
    {"string_payload", "SCORE \"x\"", "payload", "not a JSON object", {}, true},
    {"null_payload", "MODEL_INFO null", "payload", "not a JSON object", {}, false},
    {"deep", generate("\"x\": " + nested(100)), "x", "nested deeper"},
    {"very_deep", generate("\"x\": " + nested(500000)), "x", "nested deeper"},
    {"deep_payload", "GENERATE " + nested(1000), "payload", "nested deeper", {}, true},
    {"deep_open", "GENERATE " + std::string(1000000, '['), "payload", "", {}, true},
    {"lone_surrogate", generate(R"("model": "\ud800")"), "model", "string"},
    {"bad_escape", generate(R"("model": "\x")"), "model", "string"},

    {"no_stream_id", R"(GENERATE {"prompt": [1]})", "stream_id", "is missing", {}, true},
    {"null_stream_id",
     R"(GENERATE {"prompt": [1], "stream_id": null})",
     "stream_id",
     "is missing",
     {},
     true},
    {"text_stream_id",
     R"(GENERATE {"prompt": [1], "stream_id": "7"})",
     "stream_id",
     "a string",
     {},
     true},
    {"fraction_stream_id",
     R"(GENERATE {"prompt": [1], "stream_id": 7.0})",
     "stream_id",
     "is 7.0",
     {},
     true},
    {"bool_stream_id",
     R"(GENERATE {"prompt": [1], "stream_id": true})",
     "stream_id",
     "a truth value",
     {},
     true},
    {"large_stream_id",
     R"(GENERATE {"prompt": [1], "stream_id": 9223372036854775808})",
     "stream_id",
     "9223372036854775808",
     {},
     true},
    {"huge_stream_id",
     R"(GENERATE {"prompt": [1], "stream_id": 99999999999999999999999})",
     "stream_id",
     "too large",
     {},
     true},
    {"stream_id_twice",
     R"(GENERATE {"prompt": [1], "stream_id": 7, "stream_id": 8})",
     "stream_id",
     "given twice",
     {},
     true},
    {"info_without_id", R"(MODEL_INFO {"model": "m"})", "stream_id", "is missing", {}, false},
    {"cancel_without_id", "CANCEL {}", "stream_id", "is missing", {}, false},
    {"cancel_text_id", R"(CANCEL {"stream_id": "a"})", "stream_id", "a string", {}, false},

    {"number_model", generate(R"("model": 5)"), "model", "is 5"},
    {"long_model", generate("\"model\": \"" + std::string(5000, 'm') + "\""), "model", "5000"},
    {"info_number_model", R"(MODEL_INFO {"stream_id": 7, "model": []})", "model", "an array", 7,
     false},

    {"no_prompt", R"(GENERATE {"stream_id": 7})", "prompt", "is missing"},
    {"null_prompt", R"(GENERATE {"stream_id": 7, "prompt": null})", "prompt", "is missing"},
    {"empty_prompt", R"(GENERATE {"stream_id": 7, "prompt": []})", "prompt", "is empty"},
    {"token_among_parts", R"(GENERATE {"stream_id": 7, "prompt": [1, "2"]})", "prompt[0]",
     "is 1; allowed are strings"},
    {"null_token", R"(GENERATE {"stream_id": 7, "prompt": [null]})", "prompt", "entry 0 is null"},
    {"fraction_token", R"(GENERATE {"stream_id": 7, "prompt": [1.5]})", "prompt", "is 1.5"},
    {"nested_part", R"(GENERATE {"stream_id": 7, "prompt": [[[1]]]})", "prompt[0]",
     "entry 0 is an array"},
    {"number_behind_parts", R"(GENERATE {"stream_id": 7, "prompt": ["a", [1], 2]})", "prompt[2]",
     "is 2; allowed are strings"},
    {"null_part", R"(GENERATE {"stream_id": 7, "prompt": ["a", null]})", "prompt[1]", "is null"},
    {"negative_token_of_a_part", R"(GENERATE {"stream_id": 7, "prompt": ["a", [1, -1]]})",
     "prompt[1]", "entry 1 is -1"},
    {"empty_object_part", R"(GENERATE {"stream_id": 7, "prompt": [{}]})", "prompt[0]",
     "an object of other fields"},
    {"misspelt_part", R"(GENERATE {"stream_id": 7, "prompt": [{"buffer": "a", "up_to": 1}]})",
     "prompt[0]", "an object of other fields"},
    {"part_twice", R"(GENERATE {"stream_id": 7, "prompt": [{"buffer": "a", "buffer": "b"}]})",
     "prompt[0]", "an object of other fields"},
    {"part_without_name", R"(GENERATE {"stream_id": 7, "prompt": ["", {"buffer": ""}]})",
     "prompt[1].buffer", "0 bytes; allowed are 1 to 64 bytes"},
    {"number_as_name", R"(SCORE {"stream_id": 7, "prompt": [{"buffer": 5}], "scored": [1]})",
     "prompt[0].buffer", "is 5"},
    {"negative_upto", R"(GENERATE {"stream_id": 7, "prompt": [{"buffer": "a", "upto": -1}]})",
     "prompt[0].upto", "is -1; allowed is a whole number >= 0"},
    {"many_parts", R"(GENERATE {"stream_id": 7, "prompt": [)" + repeat("\"a\"", 257) + "]}",
     "prompt", "has 257 parts; allowed are at most 256"},
    {"negative_token", R"(GENERATE {"stream_id": 7, "prompt": [1, -1]})", "prompt",
     "entry 1 is -1"},
    {"large_token", R"(GENERATE {"stream_id": 7, "prompt": [2147483648]})", "prompt", "2147483648"},
    {"unsigned_token", R"(GENERATE {"stream_id": 7, "prompt": [18446744073709551615]})", "prompt",
     "18446744073709551615"},
    {"huge_token", R"(GENERATE {"stream_id": 7, "prompt": [1, 999999999999999999999]})", "prompt",
     "too large"},
    {"prompt_twice", R"(GENERATE {"stream_id": 7, "prompt": [1], "prompt": [2]})", "prompt",
     "given twice"},

    {"negative_drop", R"(BACKTRACK {"stream_id": 7, "drop": -1})", "drop", "is -1", 7, false},
    {"unsigned_drop", R"(BACKTRACK {"stream_id": 7, "drop": 18446744073709551615})", "drop",
     "is 18446744073709551615; allowed is a whole number from 0 to 9223372036854775807", 7, false},

    {"score_no_prompt", R"(SCORE {"stream_id": 7, "scored": [1]})", "prompt", "is missing"},
    {"score_no_scored", R"(SCORE {"stream_id": 7, "prompt": [1]})", "scored", "is missing"},
    {"score_empty", R"(SCORE {"stream_id": 7, "prompt": [1], "scored": []})", "scored", "is empty"},
    {"score_no_text", R"(SCORE {"stream_id": 7, "prompt": [1], "scored": ""})", "scored",
     "is empty"},
    {"score_parts", R"(SCORE {"stream_id": 7, "prompt": [1], "scored": ["a"]})", "scored",
     "entry 0 is a string"},
    {"score_top_logprobs",
     R"(SCORE {"stream_id": 7, "prompt": [1], "scored": [1], "top_logprobs": -1})", "top_logprobs",
     "is -1"},
    {"score_timeout", R"(SCORE {"stream_id": 7, "prompt": [1], "scored": [1], "timeout_ms": 0})",
     "timeout_ms", "is 0; allowed is a whole number from 1 to 86400000"},
    {"score_negative", R"(SCORE {"stream_id": 7, "prompt": [1], "scored": [-5]})", "scored",
     "is -5"},

    {"negative_temperature", generate(R"("temperature": -0.5)"), "temperature", "is -0.5"},
    {"large_temperature", generate(R"("temperature": 1e6)"), "temperature", "<= 100"},
    {"text_temperature", generate(R"("temperature": "1")"), "temperature", "a string"},
    {"bool_temperature", generate(R"("temperature": true)"), "temperature", "a truth value"},
    {"nan_temperature", generate(R"("temperature": NaN)"), "temperature", "no NaN"},
    {"infinite_temperature", generate(R"("temperature": Infinity)"), "temperature", "Infinity"},
    {"minus_infinite", generate(R"("temperature": -Infinity)"), "temperature", ""},
    {"huge_temperature", generate(R"("temperature": 1e400)"), "temperature", "too large"},
    {"none_temperature", generate(R"("temperature": None)"), "temperature", "None"},
    {"zero_top_p", generate(R"("top_p": 0)"), "top_p", "> 0 and <= 1"},
    {"large_top_p", generate(R"("top_p": 1.01)"), "top_p", "is 1.01"},
    {"negative_top_p", generate(R"("top_p": -0.1)"), "top_p", "is -0.1"},
    {"negative_top_k", generate(R"("top_k": -1)"), "top_k", "is -1"},
    {"fraction_top_k", generate(R"("top_k": 5.0)"), "top_k", "is 5.0; allowed is a whole number"},
    {"large_min_p", generate(R"("min_p": 1.5)"), "min_p", ">= 0 and <= 1"},
    {"negative_min_p", generate(R"("min_p": -0.1)"), "min_p", "is -0.1"},
    {"zero_typical_p", generate(R"("typical_p": 0)"), "typical_p", "> 0 and <= 1"},
    {"large_typical_p", generate(R"("typical_p": 1.01)"), "typical_p", "is 1.01"},
    {"zero_repetition", generate(R"("repetition_penalty": 0)"), "repetition_penalty", "> 0"},
    {"negative_repetition", generate(R"("repetition_penalty": -1)"), "repetition_penalty", "is -1"},
    {"large_repetition", generate(R"("repetition_penalty": 101)"), "repetition_penalty", "<= 100"},
    {"large_presence", generate(R"("presence_penalty": 100.5)"), "presence_penalty", "is 100.5"},
    {"small_frequency", generate(R"("frequency_penalty": -101)"), "frequency_penalty", ">= -100"},
    {"object_frequency", generate(R"("frequency_penalty": {})"), "frequency_penalty", "an object"},
    {"negative_top_logprobs", generate(R"("top_logprobs": -1)"), "top_logprobs", "is -1"},
    {"text_top_logprobs", generate(R"("top_logprobs": "5")"), "top_logprobs", "a string"},
    {"zero_max_tokens", generate(R"("max_tokens": 0)"), "max_tokens", ">= 1"},
    {"negative_max_tokens", generate(R"("max_tokens": -5)"), "max_tokens", "is -5"},
    {"fraction_max_tokens", generate(R"("max_tokens": 1.5)"), "max_tokens", "is 1.5"},
    {"huge_max_tokens", generate(R"("max_tokens": 1e400)"), "max_tokens", "too large"},
    {"text_seed", generate(R"("seed": "x")"), "seed", "a string"},
    {"fraction_seed", generate(R"("seed": 0.5)"), "seed", "is 0.5"},
    {"huge_seed", generate(R"("seed": 18446744073709551616)"), "seed", "too large"},

    {"array_bias", generate(R"("logit_bias": [1])"), "logit_bias", "an array"},
    {"text_key", generate(R"("logit_bias": {"the": 1})"), "logit_bias", "key 'the'"},
    {"empty_key", generate(R"("logit_bias": {"": 1})"), "logit_bias", "key ''"},
    {"negative_key", generate(R"("logit_bias": {"-1": 1})"), "logit_bias", "key '-1'"},
    {"minus_zero_key", generate(R"("logit_bias": {"-0": 1})"), "logit_bias", "key '-0'"},
    {"fraction_key", generate(R"("logit_bias": {"1.0": 1})"), "logit_bias", "key '1.0'"},
    {"blank_key", generate(R"("logit_bias": {" 1": 1})"), "logit_bias", "key ' 1'"},
    {"large_key", generate(R"("logit_bias": {"2147483648": 1})"), "logit_bias", "2147483648"},
    {"key_twice", generate(R"("logit_bias": {"5": 1, "6": 2, "5": 3})"), "logit_bias",
     "5 is given twice"},
    {"key_twice_written_otherwise", generate(R"("logit_bias": {"5": 1, "05": 3})"), "logit_bias",
     "5 is given twice"},
    {"text_bias_value", generate(R"("logit_bias": {"5": "1"})"), "logit_bias", "a string"},
    {"null_bias_value", generate(R"("logit_bias": {"5": null})"), "logit_bias", "null"},
    {"nan_bias_value", generate(R"("logit_bias": {"5": NaN})"), "logit_bias", "no NaN"},
    {"huge_bias_value", generate(R"("logit_bias": {"5": 1e31})"), "logit_bias", "1e+31"},
    {"infinite_bias_value", generate(R"("logit_bias": {"5": -1e999})"), "logit_bias", "too large"},
    {"text_min_tokens", generate(R"("min_tokens": "1")"), "min_tokens", "a string"},
    {"negative_min_tokens", generate(R"("min_tokens": -1)"), "min_tokens", "is -1"},
    {"number_ignore_eos", generate(R"("ignore_eos": 1)"), "ignore_eos",
     "is 1; allowed is true or false"},
    {"unknown_logprobs", generate(R"("logprobs": "cooked")"), "logprobs",
     "is 'cooked'; allowed are processed and raw"},
    {"no_logprobs", generate(R"("logprobs": "")"), "logprobs", "allowed are processed and raw"},
    {"true_logprobs", generate(R"("logprobs": true)"), "logprobs", "a truth value"},
    {"number_stop", generate(R"("stop": 5)"), "stop", "is 5; allowed are 1 to 256 bytes of text"},
    {"empty_stop", generate(R"("stop": "")"), "stop", "has 0 bytes; allowed are 1 to 256"},
    {"empty_stop_of_two", generate(R"("stop": ["a", ""])"), "stop[1]", "has 0 bytes"},
    {"long_stop", generate("\"stop\": [\"" + std::string(257, 'a') + "\"]"), "stop[0]",
     "has 257 bytes; allowed are 1 to 256"},
    {"null_stop", generate(R"("stop": [null])"), "stop[0]", "is null"},
    {"many_stops", generate("\"stop\": [" + repeat("\"a\"", 17) + "]"), "stop",
     "has 17 strings; allowed are at most 16"},
    {"object_stop", generate(R"("stop": {})"), "stop", "an object"},
    {"number_stop_token_ids", generate(R"("stop_token_ids": 5)"), "stop_token_ids", "is 5"},
    {"many_stop_token_ids", generate("\"stop_token_ids\": [" + repeat("-1", 65) + "]"),
     "stop_token_ids", "has 65 token ids; allowed are at most 64"},
    {"text_stop_token_id", generate(R"("stop_token_ids": [5, "6"])"), "stop_token_ids",
     "entry 1 is a string"},
    {"negative_resumed", generate(R"("resumed": -1)"), "resumed", "is -1"},
    {"resumed_beyond", generate(R"("resumed": 3)"), "resumed",
     "is 3; allowed are at most 2 (the tokens of the prompt)"},
    {"zero_samples", generate(R"("n": 0)"), "n", "is 0; allowed is a whole number from 1 to 64"},
    {"many_samples", generate(R"("n": 65)"), "n", "is 65"},
    {"fraction_samples", generate(R"("n": 1.0)"), "n", "is 1.0"},
    {"number_into", generate(R"("into": 5)"), "into", "is 5; allowed are 1 to 64 bytes of text"},
    {"long_into", generate("\"into\": \"" + std::string(65, 'a') + "\""), "into", "has 65 bytes"},
    {"into_of_samples", generate(R"("into": "a", "n": 2)"), "into", "is given with n 2"},
    {"number_grammar", generate(R"("grammar": 5)"), "grammar", "is 5; allowed is {\"type\""},
    {"empty_grammar", generate(R"("grammar": {})"), "grammar", "is an object of other fields"},
    {"typed_grammar", generate(R"("grammar": {"type": 1, "value": "a"})"), "grammar",
     "is an object of other fields"},
    {"grammar_and_more", generate(R"("grammar": {"type": "regex", "value": "a", "x": 1})"),
     "grammar", "is an object of other fields"},
    {"unknown_grammar", generate(R"("grammar": {"type": "x", "value": "a"})"), "grammar.type",
     "is unknown; allowed are regex, choice"},
    {"list_as_regex", generate(R"("grammar": {"type": "regex", "value": ["a"]})"), "grammar.value",
     "is no such; allowed with regex is text"},
    {"number_text", generate(R"("text": 1)"), "text", "is 1; allowed is true or false"},
    {"text_notices", generate(R"("notices": "yes")"), "notices", "a string"},
    {"text_include_stop", generate(R"("include_stop": "no")"), "include_stop", "a string"},
    {"text_bos", generate(R"("add_special_tokens": "no")"), "add_special_tokens", "a string"},
    {"text_skip", generate(R"("skip_special_tokens": "no")"), "skip_special_tokens", "a string"},
    {"zero_timeout", generate(R"("first_token_timeout_ms": 0)"), "first_token_timeout_ms", "is 0"},
    {"negative_timeout", generate(R"("timeout_ms": -5)"), "timeout_ms", "is -5"},
    {"long_timeout", generate(R"("timeout_ms": 86400001)"), "timeout_ms", "is 86400001"},
    {"huge_timeout", generate(R"("timeout_ms": 18446744073709551615)"), "timeout_ms", "is 18446"},
    {"number_mask", generate(R"("mask": 5)"), "mask", "is 5; allowed is a string of base64"},
    {"blank_mask", generate(R"("mask": "AQ Q")"), "mask", "is not base64"},
    {"url_mask", generate(R"("mask": "_-8=")"), "mask", "is not base64"},
    {"odd_mask", generate(R"("mask": "AQEBA")"), "mask", "is not base64"},
    {"short_padding", generate(R"("mask": "AQ=")"), "mask", "is not base64"},
    {"long_padding", generate(R"("mask": "A===")"), "mask", "is not base64"},
    {"padding_within", generate(R"("mask": "AQ==AQ==")"), "mask", "is not base64"},
    {"escaped_mask", generate(R"("mask": "A\u0000==")"), "mask", "is not base64"},
    {"empty_mask", generate(R"("mask": "")"), "mask", "allows no token"},
    {"zero_mask", generate(R"("mask": "AAAAAAAAAAAAAAAAAAAA")"), "mask", "allows no token"},
    {"trailing_bits_of_a_mask", generate(R"("mask": "AB==")"), "mask", "allows no token"},
    {"mask_twice", generate(R"("mask": "AQ==", "mask": "AQ==")"), "mask", "given twice"},
    {"open_mask", R"(GENERATE {"stream_id": 7, "prompt": [1], "mask": "AQ)", "mask", "not closed"},
    {"broken_behind_a_mask", R"(GENERATE {"stream_id": 7, "mask": "AQ==", "prompt": [1)", "prompt",
     "not JSON"},

    {"tokenize_no_text", R"(TOKENIZE {"stream_id": 7})", "text", "is missing", 7, false},
    {"tokenize_number", R"(TOKENIZE {"stream_id": 7, "text": 5})", "text", "is 5", 7, false},
    {"tokenize_no_id", R"(TOKENIZE {"text": "a"})", "stream_id", "is missing", {}, false},
    {"tokenize_model", R"(TOKENIZE {"stream_id": 7, "text": "a", "model": 5})", "model", "is 5", 7,
     false},
    {"detokenize_no_tokens", R"(DETOKENIZE {"stream_id": 7})", "tokens", "is missing", 7, false},
    {"detokenize_parts", R"(DETOKENIZE {"stream_id": 7, "tokens": ["a"]})", "tokens",
     "entry 0 is a string", 7, false},
    {"buffer_no_name", R"(BUFFER {"stream_id": 7, "tokens": [1]})", "buffer", "is missing", 7,
     false},
    {"buffer_empty_name", R"(BUFFER {"stream_id": 7, "buffer": "", "tokens": [1]})", "buffer",
     "has 0 bytes", 7, false},
    {"buffer_no_content", R"(BUFFER {"stream_id": 7, "buffer": "a"})", "tokens", "is missing", 7,
     false},
    {"buffer_both", R"(BUFFER {"stream_id": 7, "buffer": "a", "tokens": [1], "text": "b"})", "text",
     "stands beside tokens", 7, false},
    {"buffer_append", R"(BUFFER {"stream_id": 7, "buffer": "a", "text": "b", "append": 1})",
     "append", "is 1", 7, false},
    {"free_no_name", R"(FREE {"stream_id": 7})", "buffer", "is missing", 7, false},
    {"free_text_id",
     R"(FREE {"stream_id": "a", "buffer": "b"})",
     "stream_id",
     "a string",
     {},
     false},
    {"free_without_id", R"(FREE {"buffer": 5})", "buffer", "is 5", {}, false},
    {"controller_no_op", R"(CONTROLLER {"stream_id": 7})", "op",
     "is missing; allowed are upload, tag and list", 7, false},
    {"controller_op", R"(CONTROLLER {"stream_id": 7, "op": "drop"})", "op",
     "'drop' is unknown; allowed are upload, tag and list", 7, false},
    {"controller_number", R"(CONTROLLER {"stream_id": 7, "op": 5})", "op", "is 5; allowed are", 7,
     false},
    {"controller_no_id", R"(CONTROLLER {"op": "list"})", "stream_id", "is missing", {}, false},
    {"upload_nothing", R"(CONTROLLER {"stream_id": 7, "op": "upload"})", "binary",
     "is missing; allowed is WebAssembly as base64", 7, false},
    {"upload_empty", R"(CONTROLLER {"stream_id": 7, "op": "upload", "binary": ""})", "binary",
     "is empty", 7, false},
    {"upload_list", R"(CONTROLLER {"stream_id": 7, "op": "upload", "binary": [0]})", "binary",
     "is an array", 7, false},
    {"upload_no_base64", R"(CONTROLLER {"stream_id": 7, "op": "upload", "binary": "AA-_"})",
     "binary", "is no base64", 7, false},
    {"upload_odd_base64", R"(CONTROLLER {"stream_id": 7, "op": "upload", "binary": "AAAAA"})",
     "binary", "is no base64", 7, false},
    {"tag_no_module", R"(CONTROLLER {"stream_id": 7, "op": "tag", "tags": ["a"]})", "module_id",
     "is missing; allowed is what the upload gave", 7, false},
    {"tag_empty_module", R"(CONTROLLER {"stream_id": 7, "op": "tag", "module_id": ""})",
     "module_id", "has 0 bytes", 7, false},
    {"tag_no_tags", R"(CONTROLLER {"stream_id": 7, "op": "tag", "module_id": "a"})", "tags",
     "is missing; allowed is a list of names", 7, false},
    {"tag_empty_tags", R"(CONTROLLER {"stream_id": 7, "op": "tag", "module_id": "a", "tags": []})",
     "tags", "is empty", 7, false},
    {"tag_number",
     R"(CONTROLLER {"stream_id": 7, "op": "tag", "module_id": "a", "tags": ["b", 1]})", "tags[1]",
     "is 1; allowed are 1 to 256 bytes of text", 7, false},
    {"tag_many",
     R"(CONTROLLER {"stream_id": 7, "op": "tag", "module_id": "a", "tags": [)" +
         repeat("\"b\"", 65) + "]}",
     "tags", "has 65 strings; allowed are at most 64", 7, false},
    {"bias_twice", generate(R"("logit_bias": {"5": 1}, "logit_bias": {"5": 1})"), "logit_bias",
     "given twice"},
};

class ParseMalformed : public testing::TestWithParam<Case> {};

TEST_P(ParseMalformed, SaysWhatIsWrong) {
  const Case& item = GetParam();
  BiasCache cache;
  // Twice: what the first parse leaves in caches must not change the answer.
  for (int round = 0; round < 2; ++round) {
    const auto parsed = parse_client_message(item.text, cache);
    const auto* error = std::get_if<ParseError>(&parsed);
    ASSERT_NE(error, nullptr) << "was accepted";
    EXPECT_EQ(error->message.rfind(item.field + ": ", 0), 0U) << error->message;
    EXPECT_NE(error->message.find(item.says), std::string::npos) << error->message;
    EXPECT_LT(error->message.size(), 400U) << error->message;
    EXPECT_EQ(error->stream_id, item.stream_id) << error->message;
    EXPECT_EQ(error->opens_stream, item.opens_stream);
    EXPECT_EQ(error->unknown_verb, item.field == "verb");
  }
}

INSTANTIATE_TEST_SUITE_P(All, ParseMalformed, testing::ValuesIn(kCases),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace lmtp::protocol
