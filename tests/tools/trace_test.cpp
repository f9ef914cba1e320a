#include "lmtp-bench/trace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "support/temp_folder.h"
#include "support/test_data.h"

namespace lmtp::tools {
namespace {

class TraceTest : public ::testing::Test {
 protected:
  Result<std::vector<TraceRow>> read(const std::string& text) {
    std::ofstream(path(), std::ios::trunc) << text;
    return read_trace(path());
  }
  std::string error_of(const std::string& text) {
    const auto rows = read(text);
    return rows ? "read" : rows.error().message;
  }
  std::string path() const { return folder_.path() + "/trace.csv"; }

 private:
  lmtp::testing::TempFolder folder_;
};

TEST_F(TraceTest, ReadsRowsAndBlocks) {
  const auto rows = read(
      "arrival_s,prompt_tokens,output_tokens,prefix_blocks\n"
      "0.000,374,44,0 1 2\r\n"
      "4.315,5,109,\n");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  ASSERT_EQ(rows->size(), 2U);
  EXPECT_EQ((*rows)[0].prefix_blocks, (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ((*rows)[1].arrival_s, 4.315);
  EXPECT_EQ((*rows)[1].prompt_tokens, 5);
  EXPECT_EQ((*rows)[1].output_tokens, 109);
  EXPECT_TRUE((*rows)[1].prefix_blocks.empty());
}

TEST_F(TraceTest, ColumnsMayStandInAnyOrderAndBlocksMayBeMissing) {
  const auto rows = read("output_tokens,model,arrival_s,prompt_tokens\n3,x,1.5,2\n");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  ASSERT_EQ(rows->size(), 1U);
  EXPECT_EQ((*rows)[0].output_tokens, 3);
  EXPECT_EQ((*rows)[0].prompt_tokens, 2);
  EXPECT_EQ((*rows)[0].arrival_s, 1.5);
}

TEST_F(TraceTest, NamesWhatIsWrongAndWhere) {
  const std::string head = "arrival_s,prompt_tokens,output_tokens,prefix_blocks\n";
  EXPECT_NE(error_of("").find("is empty"), std::string::npos);
  EXPECT_NE(error_of("arrival_s,prompt_tokens\n").find("no column output_tokens"),
            std::string::npos);
  EXPECT_NE(error_of(head).find("no rows"), std::string::npos);
  struct Case {
    const char* row;
    const char* says;
  };
  for (const auto& [row, says] :
       {Case{"1,2,3", "3 fields, the first line 4"}, Case{"x,2,3,", "arrival_s"},
        Case{"-1,2,3,", "arrival_s"}, Case{"0.5,2,3,", "earlier"}, Case{"nan,2,3,", "arrival_s"},
        Case{"1,0,3,", "prompt_tokens"}, Case{"1,2.5,3,", "prompt_tokens"},
        Case{"1,2,99999999,", "output_tokens"}, Case{"1,2,3,0 -1", "'-1'"},
        Case{"1,2,3,0  1", "''"}}) {
    const std::string error = error_of(head + "1,2,3,0\n" + row + "\n");
    EXPECT_NE(error.find("trace.csv:3: "), std::string::npos) << error;
    EXPECT_NE(error.find(says), std::string::npos) << error;
  }
  EXPECT_NE(read_trace("/no/such/file").error().message.find("cannot read"), std::string::npos);
}

using TestData = lmtp::testing::TestData;

TEST_F(TestData, PublicTraces) {
  const auto azure = read_trace(data("traces/azure-2023-conversation.csv"));
  ASSERT_TRUE(azure.ok()) << azure.error().message;
  EXPECT_EQ(azure->size(), 5000U);
  EXPECT_EQ((*azure)[1].prompt_tokens, 396);
  const auto mooncake = read_trace(data("traces/mooncake-2025-synthetic.csv"));
  ASSERT_TRUE(mooncake.ok()) << mooncake.error().message;
  EXPECT_EQ(mooncake->size(), 1500U);
  EXPECT_EQ((*mooncake)[0].prefix_blocks.size(), 79U);
}

}  // namespace
}  // namespace lmtp::tools
