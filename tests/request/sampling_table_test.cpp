#include "lmtp/request/sampling_table.h"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>

namespace lmtp {
namespace {

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
