// The one table of what an engine counts, and what is printed from it by hand: the docs.
#include "lmtp/engine/metric_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ((row.value != nullptr) + (row.histogram != nullptr) + (row.by_label != nullptr), 1)
        << row.name;
    EXPECT_EQ(row.type == MetricType::kHistogram, row.histogram != nullptr) << row.name;
    EXPECT_EQ(row.by_label != nullptr, !row.label_values.empty()) << row.name;
    EXPECT_TRUE(row.field.empty() || row.value != nullptr) << row.name;
  }
}

// Programs read these, in no other order.
TEST(MetricTable, ModelInfosFieldsStay) {
  std::vector<std::string_view> fields;
  for (const MetricRow& row : metric_table()) {
    if (!row.field.empty()) fields.push_back(row.field);
  }
  EXPECT_THAT(fields, ::testing::ElementsAre(
                          "num_steps", "num_steps_ahead", "num_failed_steps", "busy_us",
                          "device_wait_us", "num_tokens_computed", "num_prompt_tokens",
                          "num_cached_tokens", "num_partial_hits", "num_generated_tokens",
                          "num_scored_tokens", "num_preemptions", "num_waiting", "num_running",
                          "num_blocks", "num_blocks_free", "num_blocks_evictable",
                          "num_blocks_pinned", "tokens_per_block", "kv_cache_bytes"));
}

std::string docs_row(const MetricRow& row) {
  std::string name = "`" + std::string(kMetricPrefix) + std::string(row.name);
  if (!row.label.empty()) {
    std::string values;
    for (const std::string_view value : row.label_values) {
      if (!value.empty()) values += (values.empty() ? "" : ", ") + std::string(value);
    }
    name += "{" + std::string(row.label) + "=" + values + "}";
  }
  const std::string field = row.field.empty() ? "" : "`" + std::string(row.field) + "`";
  return "| " + name + "` | " + std::string(type_name(row.type)) + " | " + field + " | " +
         std::string(row.help) + " |";
}

// Prints what must stand there, so that a new row is copied from the failure.
TEST(MetricTable, TheDocsHaveItRowByRow) {
  std::string wanted;
  for (const MetricRow& row : metric_table()) wanted += docs_row(row) + "\n";
  std::string found;
  std::istringstream page(docs_page("metrics.md"));
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| `" + std::string(kMetricPrefix))) found += line + "\n";
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
