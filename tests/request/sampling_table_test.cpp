#include "lmtp/request/sampling_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

#include "lmtp/base/json.h"
#include "lmtp/base/text.h"
#include "source_dir.h"

namespace lmtp {
namespace {

std::string file_text(const std::string& path) {
  std::ifstream file(testing::source_dir() + "/" + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What docs/lmtp.md says is allowed.
std::string range_text(const SamplingParam& param) {
  const std::string low = number_text(param.range.low);
  const std::string high = number_text(param.range.high);
  const auto text = [&]<typename T>(T SamplingParams::*) -> std::string {
    if constexpr (std::is_same_v<T, float>) {
      return param.range.low_allowed ? low + " to " + high : "> " + low + ", <= " + high;
    } else if constexpr (std::is_same_v<T, int>) {
      const bool is_capped = param.range.high < kMaxCount;
      return "whole number >= " + low +
             (is_capped ? ", more than " + high + " counts as " + high : "");
    } else if constexpr (std::is_same_v<T, std::uint64_t>) {
      return "whole number of 64 bits";
    } else if constexpr (std::is_same_v<T, bool>) {
      return "true or false";
    } else {
      return "`{\"ID\": NUMBER}`, ids of the vocabulary, -1e30 to 1e30";
    }
  };
  return std::visit(text, param.member);
}

TEST(SamplingTable, IsWhatTheProtocolsPageSays) {
  std::string rows;
  for (const SamplingParam& param : kSamplingTable) {
    rows += "| `" + std::string(param.name) + "` | " + param_text({}, param) + " | " +
            range_text(param) + " | " + std::string(param.help) + " |\n";
  }
  EXPECT_NE(file_text("docs/lmtp.md").find(rows), std::string::npos)
      << "docs/lmtp.md lacks these rows:\n"
      << rows;
}

TEST(SamplingTable, IsWhatTheManPageSays) {
  std::string settings;
  for (const SamplingParam& param : kSamplingTable) {
    settings += ".TP\n.BR " + std::string(param.name) + " \" (" + param_text({}, param) + ")\"\n" +
                std::string(param.help) + "\n";
  }
  EXPECT_NE(file_text("packaging/lmtp-client.1").find(".SH SETTINGS\n" + settings),
            std::string::npos)
      << "packaging/lmtp-client.1 lacks these settings:\n"
      << settings;
}

// What docs/schema/lmtp.json says is allowed.
Json schema_of(const SamplingParam& param) {
  const auto schema = [&]<typename T>(T SamplingParams::*) -> Json {
    if constexpr (std::is_same_v<T, float>) {
      return {{"type", {"number", "null"}},
              {param.range.low_allowed ? "minimum" : "exclusiveMinimum", param.range.low},
              {"maximum", param.range.high}};
    } else if constexpr (std::is_same_v<T, int>) {
      Json count = {{"$ref", "#/$defs/optional_count"}};  // larger ones are clamped
      if (param.range.low > 0) count["minimum"] = param.range.low;
      return count;
    } else if constexpr (std::is_same_v<T, std::uint64_t>) {
      return {{"type", {"integer", "null"}},
              {"minimum", std::numeric_limits<std::int64_t>::min()},
              {"maximum", std::numeric_limits<std::uint64_t>::max()}};
    } else if constexpr (std::is_same_v<T, bool>) {
      return {{"$ref", "#/$defs/optional_bool"}};
    } else {
      return {{"type", {"object", "null"}},
              {"propertyNames", {{"pattern", "^[0-9]+$"}}},
              {"additionalProperties",
               {{"type", "number"}, {"minimum", param.range.low}, {"maximum", param.range.high}}}};
    }
  };
  return std::visit(schema, param.member);
}

TEST(SamplingTable, IsWhatTheSchemaSays) {
  const auto schema = read_json_object(testing::source_dir() + "/docs/schema/lmtp.json");
  ASSERT_TRUE(schema.ok()) << schema.error().message;
  const Json& fields = (*schema)["$defs"]["GENERATE"]["properties"];
  for (const SamplingParam& param : kSamplingTable) {
    const Json* field = find_json(fields, param.name);
    ASSERT_NE(field, nullptr) << param.name;
    EXPECT_EQ(*field, schema_of(param)) << param.name;
  }
}

TEST(SamplingTable, IsInTheExamplesOptions) {
  const std::string example = file_text("docs/examples/lmtp.py");
  for (const SamplingParam& param : kSamplingTable) {
    EXPECT_NE(example.find("\n    " + std::string(param.name) + ": "), std::string::npos)
        << param.name;
  }
}

TEST(SamplingTable, DefaultsAreAllowed) {
  const SamplingParams params;
  for (const SamplingParam& param : kSamplingTable) {
    const auto check = [&]<typename T>(T SamplingParams::*member) {
      if constexpr (std::is_same_v<T, float> || std::is_same_v<T, int>) {
        const auto value = static_cast<double>(params.*member);
        EXPECT_GE(value, param.range.low) << param.name;
        EXPECT_LE(value, param.range.high) << param.name;
      }
    };
    std::visit(check, param.member);
  }
}

TEST(ParamText, IsAsAPersonWritesIt) {
  SamplingParams params;
  params.temperature = 0.8F;
  params.logit_bias = std::make_shared<LogitBias>(LogitBias{{11, 50256}, {2.5F, -100.0F}});
  params.seed = 7;
  const auto text = [&](std::string_view name) {
    for (const SamplingParam& param : kSamplingTable) {
      if (param.name == name) return param_text(params, param);
    }
    return std::string("unknown");
  };
  EXPECT_EQ(text("temperature"), "0.8");
  EXPECT_EQ(text("max_tokens"), "32");
  EXPECT_EQ(text("logit_bias"), "{11:2.5,50256:-100}");
  EXPECT_EQ(text("ignore_eos"), "false");
  EXPECT_EQ(text("seed"), "none");
  params.has_seed = true;
  EXPECT_EQ(text("seed"), "7");
}

}  // namespace
}  // namespace lmtp
