// What libFuzzer calls with one text after the other (tools/dev/fuzz.py): the bodies of the HTTP
// endpoints that generate or tokenize, and the file of API keys, read it. What is refused is told
// in JSON, and what is accepted is within the limits.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "access/key_file.h"
#include "fake_tokenizer.h"
#include "generation/generation.h"
#include "lmtp/base/json.h"
#include "lmtp/base/utf8.h"
#include "openai/error.h"
#include "openai/request.h"
#include "tgi/error.h"
#include "tgi/request.h"

namespace lmtp::server {
namespace {

constexpr int kVocabSize = 300;

void check(bool holds, const char* what, const std::string& text) {
  if (holds) return;
  std::fprintf(stderr, "%s: %s\n", what, text.c_str());
  std::abort();
}

const registry::ReadyModel& model() {
  static const registry::ReadyModel kModel = {
      "m",
      {},
      registry::LoadedTokenizer(std::make_shared<const lmtp::testing::FakeTokenizer>(kVocabSize)),
      Error{ErrorCode::kNotFound, "has no chat template"}};
  return kModel;
}

// A body that can be read back, so that no client gets half a sentence.
void check_refusal(const std::string& json, const std::string& body) {
  check(is_utf8(json) && parse_json(json, "error").ok(), "an error that is no JSON", body);
}

void check_generation(const GenerationRequest& request, const std::string& body) {
  const SamplingParams& params = request.params;
  check(request.num_samples >= 1 && request.num_samples <= 128, "samples", body);
  check(params.temperature >= 0.0F && params.temperature <= 100.0F, "a temperature", body);
  check(params.top_p > 0.0F && params.top_p <= 1.0F, "a top_p", body);
  check(params.top_logprobs >= 0 && params.top_logprobs <= kMaxTopLogprobs, "top_logprobs", body);
  check(params.max_tokens >= 0 && params.min_tokens >= 0, "a number of tokens", body);
  const Result<Prompts> prompts = request.make_prompts(model());
  if (!prompts) return check(!prompts.error().message.empty(), "says nothing", body);
  for (const std::vector<TokenId>& prompt : *prompts) {
    for (const TokenId id : prompt) check(id >= 0, "a token", body);
  }
}

void read_as_openai(const std::string& body) {
  const auto check_read = [&](const auto& read, const auto& generation_of) {
    if (!read) return check_refusal(openai_error_json(read.error()), body);
    check_generation(generation_of(*read), body);
  };
  const auto of_request = [](const auto& request) -> const auto& { return request.generation; };
  check_read(read_completion(body), of_request);
  check_read(read_chat(body), of_request);
  check_read(read_tokenize(body), of_request);
}

void read_as_tgi(const std::string& body) {
  for (const TgiMode mode : {TgiMode::kWhole, TgiMode::kStream, TgiMode::kEither}) {
    const auto read = read_tgi(body, mode, {});
    if (const auto* error = std::get_if<TgiError>(&read)) {
      check_refusal(tgi_error_json(*error), body);
    } else {
      check_generation(std::get<TgiRequest>(read).generation, body);
    }
  }
  std::shared_ptr<const std::string> inputs;
  for (const auto& read :
       {read_tgi_inputs(body, inputs), read_tgi_chat(body, std::make_shared<std::string>())}) {
    if (const auto* error = std::get_if<TgiError>(&read)) {
      check_refusal(tgi_error_json(*error), body);
    } else {
      check_generation(std::get<GenerationRequest>(read), body);
    }
  }
}

void read_as_keys(const std::string& text) {
  const auto keys = parse_key_file(text, "keys.json");
  if (!keys) {
    const std::string& message = keys.error().message;
    check(message.starts_with("keys.json"), "does not name the file", text);
    check(message.find("sk-secret") == std::string::npos, "an error has a key in it", text);
    return;
  }
  check(keys->size() <= kKeysMax, "too many keys", text);
  for (const KeyEntry& entry : *keys) {
    check(!entry.name.empty() && entry.name.size() <= 64, "a name", text);
    check(entry.limits.max_streams >= 0 && entry.limits.tokens_per_minute >= 0, "a limit", text);
  }
}

}  // namespace
}  // namespace lmtp::server

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  lmtp::server::read_as_openai(text);
  lmtp::server::read_as_tgi(text);
  lmtp::server::read_as_keys(text);
  return 0;
}
