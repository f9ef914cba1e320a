#include "lmtp/request/sampling_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <type_traits>

#include "lmtp/base/text.h"

namespace lmtp {
namespace {

std::string file_text(const std::string& path) {
  std::ifstream file(LMTP_SOURCE_DIR "/" + path);
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
