#include "worker_info.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lmtp/base/json.h"
#include "lmtp/engine/metric_table.h"

namespace lmtp::balance {
namespace {

Json ready() {
  return {{"model", "demo"},          {"state", "ready"},     {"vocab_size", 1000},
          {"context_length", 1024},   {"eos_token_ids", {0}}, {"numerics", "0123456789abcdef"},
          {"server", "lmtp-serve/1"}, {"adapters", {"a"}}};
}

TEST(WorkerInfo, ReadsWhatStreamsDependOn) {
  const Result<WorkerInfo> info = parse_worker_info(ready().dump());
  ASSERT_TRUE(info);
  EXPECT_TRUE(info->is_ready());
  EXPECT_EQ(info->status.limits.vocab_size, 1000);
  EXPECT_EQ(info->status.limits.eos_ids, std::vector<TokenId>{0});
  EXPECT_EQ(info->status.stats.agent.numerics, "0123456789abcdef");
  EXPECT_EQ(info->status.adapters.size(), 1U);
}

// Each of them: a field of MODEL_INFO that the balancer forgot would be missing in its metrics.
TEST(WorkerInfo, ReadsAllStats) {
  Json json = ready();
  std::int64_t next = 10;
  for (const engine::MetricRow& row : engine::metric_table()) {
    if (!row.field.empty()) json["stats"][std::string(row.field)] = ++next;
  }
  const Result<WorkerInfo> info = parse_worker_info(json.dump());
  ASSERT_TRUE(info);
  engine::EngineStats sum;
  for (int i = 0; i < 2; ++i) {
    add_counters(info->status.stats, sum);
    add_gauges(info->status.stats, sum);
  }
  next = 10;
  for (const engine::MetricRow& row : engine::metric_table()) {
    if (row.field.empty()) continue;
    ++next;
    if (row.field == "tokens_per_block") continue;           // the same for all
    const int times = row.field == "num_kv_groups" ? 1 : 2;  // of one model
    EXPECT_EQ(row.value(sum), static_cast<double>(times * next)) << row.field;
  }
}

TEST(WorkerInfo, LimitsOfTheOperatorAreThoseBelowTheContext) {
  Json json = ready();
  json["max_total_tokens"] = 1024;
  json["max_input_tokens"] = 1023;
  EXPECT_EQ(parse_worker_info(json.dump())->status.limits.max_total_tokens, 0);
  EXPECT_EQ(parse_worker_info(json.dump())->status.limits.max_input_tokens, 0);
  json["max_input_tokens"] = 500;
  EXPECT_EQ(parse_worker_info(json.dump())->status.limits.max_input_tokens, 500);
}

TEST(WorkerInfo, RefusesNonsense) {
  EXPECT_FALSE(parse_worker_info("[]"));
  EXPECT_FALSE(parse_worker_info("{"));
  const std::pair<const char*, Json> lies[] = {
      {"vocab_size", -1},      {"vocab_size", "1000"},      {"vocab_size", 1e300},
      {"context_length", 0},   {"context_length", nullptr}, {"eos_token_ids", {5000}},
      {"eos_token_ids", {"x"}}};
  for (const auto& [field, value] : lies) {
    Json json = ready();
    json[field] = value;
    EXPECT_FALSE(parse_worker_info(json.dump())) << field << " " << value.dump();
  }
}

// They are printed where a balancer starts.
TEST(WorkerInfo, ItsWordsAreOfLimitedLengthAndMoveNoCursor) {
  Json json = ready();
  json["model"] = "a\x1b[2J\nlmtp-serve: \x7f" + std::string(5000, 'b');
  json["adapters"] = {"c\rd"};
  const Result<WorkerInfo> info = parse_worker_info(json.dump());
  ASSERT_TRUE(info);
  EXPECT_EQ(info->status.description.name.substr(0, 22), "a?[2J?lmtp-serve: ?bbb");
  EXPECT_EQ(info->status.description.name.size(), 1003U);
  EXPECT_EQ(info->status.adapters[0].name, "c?d");
}

TEST(WorkerInfo, AWorkerThatLoadsHasNoLimitsYet) {
  const Result<WorkerInfo> info = parse_worker_info(R"({"state": "loading", "progress": 30})");
  ASSERT_TRUE(info);
  EXPECT_FALSE(info->is_ready());
  EXPECT_EQ(info->status.state, registry::ModelState::kLoading);
}

TEST(WorkerInfo, WorkersThatDifferAreNamedWithWhatDiffers) {
  engine::ModelLimits one;
  one.vocab_size = 1000;
  one.context_length = 1024;
  EXPECT_TRUE(check_same(one, "a:1", one, "b:2"));
  engine::ModelLimits other = one;
  other.context_length = 512;
  const Result<void> same = check_same(one, "a:1", other, "b:2");
  ASSERT_FALSE(same);
  EXPECT_EQ(same.error().message,
            "the workers a:1 and b:2 differ in context_length, 1024 and 512; all workers serve one "
            "model, with one context");
}

}  // namespace
}  // namespace lmtp::balance
