// The one table of what an engine counts, and what is printed from it by hand: the docs.
#include "lmtp/engine/metric_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "source_dir.h"

namespace lmtp::engine {
namespace {

std::string docs_page(const std::string& name) {
  std::ifstream file(testing::source_dir() + "/docs/" + name);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << name;
  return text.str();
}

TEST(MetricTable, EachRowHasOneSource) {
  std::set<std::string_view> names;
  for (const MetricRow& row : metric_table()) {
    for (const std::string_view name : {row.name, row.vllm, row.tgi}) {
      EXPECT_TRUE(name.empty() || names.insert(name).second) << name;
    }
    EXPECT_TRUE(row.vllm.empty() || row.vllm.starts_with("vllm:")) << row.vllm;
    EXPECT_TRUE(row.tgi.empty() || row.tgi.starts_with("tgi_")) << row.tgi;
    EXPECT_EQ((row.value != nullptr) + (row.histogram != nullptr) + (row.by_label != nullptr), 1)
        << row.name;
    EXPECT_EQ(row.type == MetricType::kHistogram, row.histogram != nullptr) << row.name;
    EXPECT_EQ(row.by_label != nullptr, !row.label_values.empty()) << row.name;
    EXPECT_TRUE(row.field.empty() || row.value != nullptr) << row.name;
  }
}

// Stubs are in none of these, nor is their group.
TEST(MetricTable, GroupsAreThoseWithLayers) {
  const auto row = std::ranges::find(metric_table(), "num_kv_groups", &MetricRow::field);
  ASSERT_NE(row, metric_table().end());
  EngineStats stats;
  EXPECT_EQ(row->value(stats), 1);
  stats.agent.kv_layout = {.num_groups = 3, .windows = {0, 8, 4}};
  EXPECT_EQ(row->value(stats), 3);
  stats.agent.kv_layout.has_stubs = true;
  EXPECT_EQ(row->value(stats), 2);
}

// Programs read these, in no other order.
TEST(MetricTable, ModelInfosFieldsStay) {
  std::vector<std::string_view> fields;
  for (const MetricRow& row : metric_table()) {
    if (!row.field.empty()) fields.push_back(row.field);
  }
  EXPECT_THAT(
      fields,
      ::testing::ElementsAre(
          "num_steps", "num_steps_ahead", "num_failed_steps", "busy_us", "device_wait_us",
          "num_tokens_computed", "num_prompt_tokens", "num_cached_tokens", "num_partial_hits",
          "num_generated_tokens", "num_accepted_drafts", "num_refused_drafts", "num_scored_tokens",
          "num_cached_scores", "num_preemptions", "num_adapter_loads", "num_forced_tokens",
          "num_masks", "num_late_masks", "mask_wait_us", "num_waiting", "num_running", "num_blocks",
          "num_blocks_free", "num_blocks_evictable", "num_blocks_pinned", "num_blocks_adapter",
          "num_kv_groups", "tokens_per_block", "kv_cache_bytes", "num_host_blocks",
          "num_host_blocks_used", "num_swapped_out", "num_swapped_in", "num_host_hits",
          "score_cache_bytes", "score_cache_bytes_used"));
}

std::string docs_row(const MetricRow& row) {
  std::string labels;
  for (const std::string_view value : row.label_values) {
    if (!value.empty()) labels += (labels.empty() ? "" : ", ") + std::string(value);
  }
  if (!labels.empty()) labels = "{" + std::string(row.label) + "=" + labels + "}";
  const auto cell = [](const std::string& text) {
    return text.empty() ? std::string(" |") : " `" + text + "` |";
  };
  const auto name = [&](std::string_view prefix, std::string_view of) {
    return of.empty() ? std::string() : std::string(prefix).append(of) + labels;
  };
  return "|" + cell(name(kMetricPrefix, row.name)) + " " + std::string(type_name(row.type)) + " |" +
         cell(std::string(row.field)) + cell(name("", row.vllm)) + cell(name("", row.tgi)) + " " +
         std::string(row.help) + " |";
}

// Prints what must stand there, so that a new row is copied from the failure.
TEST(MetricTable, TheDocsHaveItRowByRow) {
  std::string wanted;
  for (const MetricRow& row : metric_table()) wanted += docs_row(row) + "\n";
  std::string found;
  std::istringstream page(docs_page("metrics.md"));
  for (std::string line; std::getline(page, line);) {
    const bool is_row = line.starts_with("| `" + std::string(kMetricPrefix)) ||
                        line.starts_with("| | counter") || line.starts_with("| | gauge");
    if (is_row) found += line + "\n";
  }
  EXPECT_EQ(found, wanted);
}

TEST(MetricTable, TheProtocolsPageNamesEachFieldOfModelInfo) {
  const std::string page = docs_page("lmtp.md");
  for (const MetricRow& row : metric_table()) {
    if (row.field.empty()) continue;
    EXPECT_NE(page.find("`" + std::string(row.field) + "`"), std::string::npos) << row.field;
  }
}

}  // namespace
}  // namespace lmtp::engine
