// The sampling parameters in each API's requests, and the keys that no API knows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "aici/run.h"
#include "lmtp/base/json.h"
#include "lmtp/protocol/codec.h"
#include "lmtp/request/sampling_table.h"
#include "openai/request.h"
#include "tgi/request.h"

namespace lmtp::server {
namespace {

// What an API makes of a body.
struct Read {
  SamplingParams params;
  std::vector<std::string> unknown_keys;
  std::string error;
};

Read read_of(const Result<GenerationRequest>& request) {
  if (!request) return {{}, {}, request.error().message};
  return {request->params, request->unknown_keys, {}};
}

Read read_of(const Result<OpenAiRequest>& request) {
  return read_of(request ? Result<GenerationRequest>(request->generation) : request.error());
}

Read read_lmtp(Json fields) {
  fields.update({{"stream_id", 1}, {"prompt", {5}}});
  protocol::BiasCache biases;
  auto read = protocol::parse_client_message("GENERATE " + fields.dump(), biases);
  if (auto* error = std::get_if<protocol::ParseError>(&read)) return {{}, {}, error->message};
  auto& message = std::get<protocol::GenerateMessage>(std::get<protocol::ClientMessage>(read));
  return {std::move(message.params), std::move(message.unknown_keys), {}};
}

Read read_completions(Json fields) {
  fields["prompt"] = "a";
  return read_of(read_completion(fields.dump()));
}

Read read_chats(Json fields) {
  fields["messages"] = {{{"role", "user"}, {"content", "a"}}};
  return read_of(read_chat(fields.dump()));
}

Read read_runs(Json fields) {
  fields["controller"] = "c";
  return read_of(read_run(fields.dump()));
}

Read read_tgis(Json fields) {
  fields["do_sample"] = true;
  auto read = read_tgi(Json({{"inputs", "a"}, {"parameters", fields}}).dump(), TgiMode::kWhole, {});
  if (auto* error = std::get_if<TgiError>(&read)) return {{}, {}, error->sentence};
  return read_of(Result<GenerationRequest>(std::get<TgiRequest>(std::move(read)).generation));
}

struct Api {
  const char* name;
  Read (*read)(Json fields);
  // Its parameters that are not as they are in the table: how they are spelled, or "refused", or
  // "unknown".
  std::vector<std::pair<std::string_view, std::string>> others;
};
const std::vector<Api> kApis = {
    {"LMTP", read_lmtp, {}},
    {"completions", read_completions, {{kTopLogprobsName, "refused"}}},
    {"chats", read_chats, {{kTopLogprobsName, "refused"}}},  // without logprobs
    {"AICI", read_runs, {{kTopLogprobsName, "refused"}}},
    {"TGI", read_tgis, {{kTopLogprobsName, "unknown"}, {kMaxTokensName, "unknown"}}},
};

// One that is no API's default, and that all allow.
Json other_value(const SamplingParam& row) {
  const auto value = []<typename T>(T SamplingParams::*) -> Json {
    if constexpr (std::is_same_v<T, float>) return 0.5;
    if constexpr (std::is_same_v<T, int> || std::is_same_v<T, std::uint64_t>) return 3;
    if constexpr (std::is_same_v<T, bool>) return true;
    return {{"5", 0.5}};
  };
  return std::visit(value, row.member);
}

std::string shown(const Json& value) { return value.is_object() ? "{5:0.5}" : value.dump(); }

TEST(Params, EachApiReadsEachOrSaysThatItDoesNot) {
  for (const Api& api : kApis) {
    for (const SamplingParam& row : kSamplingTable) {
      SCOPED_TRACE(std::string(api.name) + " " + std::string(row.name));
      const Json value = other_value(row);
      const Read read = api.read({{std::string(row.name), value}});
      const auto other = std::ranges::find(api.others, row.name, [](auto& o) { return o.first; });
      if (other == api.others.end()) {
        EXPECT_EQ(read.error, "");
        EXPECT_EQ(param_text(read.params, row), shown(value));
        EXPECT_EQ(read.unknown_keys, std::vector<std::string>());
      } else if (other->second == "refused") {
        EXPECT_TRUE(read.error.starts_with(std::string(row.name) + ": ")) << read.error;
      } else {
        EXPECT_EQ(read.unknown_keys,
                  std::vector<std::string>{"parameters." + std::string(row.name)});
      }
    }
  }
}

TEST(Params, OutsideTheirRangeTheyAreRefusedByName) {
  for (const Api& api : kApis) {
    for (const SamplingParam& row : kSamplingTable) {
      const auto other = std::ranges::find(api.others, row.name, [](auto& o) { return o.first; });
      if (other != api.others.end() && other->second == "unknown") continue;
      const std::string name(row.name);
      const Read read = api.read({{name, "x"}});
      EXPECT_NE(read.error.find(name), std::string::npos) << api.name << " " << name;
    }
  }
}

TEST(Params, KeysThatNoApiKnowsAreNamed) {
  const std::string long_key(1000, 'k');
  for (const Api& api : kApis) {
    SCOPED_TRACE(api.name);
    const bool is_tgi = std::string_view(api.name) == "TGI";
    const auto named = [&](Json fields) {
      const Read read = api.read(std::move(fields));
      EXPECT_EQ(read.error, "");
      return read.unknown_keys;
    };
    EXPECT_EQ(named({{"my_own_key", "my value"}, {"none", nullptr}}).front(),
              is_tgi ? "parameters.my_own_key" : "my_own_key");
    EXPECT_LT(named({{long_key, 1}}).front().size(), 100U);
    Json many;
    for (int i = 0; i < 100; ++i) many["key_" + std::to_string(i)] = i;
    EXPECT_EQ(named(many).size(), protocol::kMaxUnknownKeysKept);
  }
}

// Bodies of well-known clients.
TEST(Params, KeysThatClientsAlwaysSendAreNotNamed) {
  const std::vector<std::pair<Read (*)(Json), const char*>> cases = {
      {read_chats, R"({"model": "m", "user": "u", "store": false, "metadata": {"a": "b"},
        "service_tier": "auto", "max_tokens": 3, "max_completion_tokens": 3, "stream": true,
        "stream_options": {"include_usage": true}, "parallel_tool_calls": false, "tools": [],
        "chat_template_kwargs": {}, "continue_final_message": false, "seed": null})"},
      {read_completions, R"({"model": "m", "n": 1, "best_of": 1, "echo": false, "logprobs": null,
        "suffix": null, "truncate_prompt_tokens": 4, "user": "u", "response_format": {"type":
        "text"}, "stop": ["a"], "stop_token_ids": [], "return_token_ids": true})"},
      {read_runs, R"({"controller_arg": {"a": 1}, "prompt": "a", "model": "m", "top_k": -1})"},
      {read_tgis, R"({"details": true, "return_full_text": false, "grammar": {"type": "regex",
        "value": "a"}, "watermark": false, "stop": [], "truncate": 4, "max_new_tokens": 3,
        "top_n_tokens": 2, "adapter_id": "a", "decoder_input_details": false, "best_of": 1})"},
  };
  for (const auto& [read_with, body] : cases) {
    const Read read = read_with(Json::parse(body));
    EXPECT_EQ(read.error, "") << body;
    EXPECT_EQ(read.unknown_keys, std::vector<std::string>()) << body;
  }
  for (const TgiMode mode : {TgiMode::kWhole, TgiMode::kEither}) {
    const auto read = read_tgi(R"({"inputs": "a", "stream": false, "options": {}})", mode, {});
    EXPECT_TRUE(std::get<TgiRequest>(read).generation.unknown_keys.empty());
  }
}

TEST(Params, PenaltiesFromCountsOnTheTokensThatItSays) {
  EXPECT_FALSE(read_completion(R"({"prompt": "a"})")->generation.penalizes_prompts);
  EXPECT_TRUE(
      read_completion(R"({"prompt": "a", "penalties_from": 0})")->generation.penalizes_prompts);
}

}  // namespace
}  // namespace lmtp::server
