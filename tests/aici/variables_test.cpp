#include "variables.h"

#include <gtest/gtest.h>

namespace lmtp::aici {
namespace {

class VariablesTest : public ::testing::Test {
 protected:
  std::string run(const std::string& command) {
    const Result<std::string> answer = variables_.run(command, log_);
    return answer ? *answer : "error: " + answer.error().message;
  }
  std::string write(const std::string& name, const std::string& hex, const std::string& op = "Set",
                    const std::string& version = "null") {
    return run(R"({"WriteVar":{"name":")" + name + R"(","value":")" + hex + R"(","op":")" + op +
               R"(","when_version_is":)" + version + "}}");
  }
  std::string read(const std::string& name) {
    return run(R"({"ReadVar":{"name":")" + name + R"("}})");
  }

  Variables variables_{20};
  std::vector<VariableWrite> log_;
};

TEST_F(VariablesTest, AreReadAsWritten) {
  EXPECT_EQ(read("a"), R"({"VariableMissing":{}})");
  EXPECT_EQ(write("a", "00ff"), R"({"WriteVar":{"version":1}})");
  EXPECT_EQ(read("a"), R"({"ReadVar":{"version":1,"value":"00ff"}})");
  EXPECT_EQ(write("a", "0A", "Append"), R"({"WriteVar":{"version":2}})");
  EXPECT_EQ(read("a"), R"({"ReadVar":{"version":2,"value":"00ff0a"}})");
  EXPECT_EQ(write("a", ""), R"({"WriteVar":{"version":3}})");
  EXPECT_EQ(read("a"), R"({"ReadVar":{"version":3,"value":""}})");
  EXPECT_EQ(write("b", "01", "Append"), R"({"WriteVar":{"version":1}})");
  EXPECT_EQ(variables_.num_writes(), 4U);
  ASSERT_EQ(log_.size(), 4U);
  EXPECT_EQ(log_[1].value, "\n");
  EXPECT_EQ(log_[1].op, VariableWrite::Op::kAppend);
}

TEST_F(VariablesTest, AreWrittenOnlyInTheVersionThatIsMeant) {
  EXPECT_EQ(write("a", "01", "Set", "1"), R"({"VariableMissing":{}})");
  write("a", "01");
  EXPECT_EQ(write("a", "02", "Set", "7"), R"({"ReadVar":{"version":1,"value":"01"}})");
  EXPECT_EQ(write("a", "02", "Set", "1"), R"({"WriteVar":{"version":2}})");
  EXPECT_EQ(log_.size(), 2U);
  EXPECT_EQ(log_[1].when_version_is, 1);
}

TEST_F(VariablesTest, HaveALimit) {
  EXPECT_EQ(write("name", "00112233445566778899aabbccddeeff"), R"({"WriteVar":{"version":1}})");
  EXPECT_TRUE(write("name", "00", "Append").starts_with("error: "));
  EXPECT_TRUE(write("x", "").starts_with("error: "));
  // What is replaced does not count.
  EXPECT_EQ(write("name", "ffeeddccbbaa99887766554433221100"), R"({"WriteVar":{"version":2}})");
  EXPECT_EQ(write("name", ""), R"({"WriteVar":{"version":3}})");
  EXPECT_EQ(write("x", "01"), R"({"WriteVar":{"version":1}})");
}

TEST_F(VariablesTest, AreSoManyAtMost) {
  EXPECT_EQ(write("", ""), R"({"WriteVar":{"version":1}})");
  Variables many(std::size_t{1} << 20);
  const auto add = [&](int i) {
    return many
        .run(R"({"WriteVar":{"name":"v)" + std::to_string(i) +
                 R"(","value":"","op":"Set","when_version_is":null}})",
             log_)
        .ok();
  };
  for (int i = 0; i < 4096; ++i) ASSERT_TRUE(add(i)) << i;
  EXPECT_FALSE(add(4096));
  EXPECT_TRUE(add(7)) << "one that is there";
}

TEST_F(VariablesTest, MalformedCommandsAreErrors) {
  for (const char* command :
       {"", "7", "{}", R"({"ReadVar":{}})", R"({"ReadVar":7})", R"({"WriteVar":{"name":"a"}})",
        R"({"WriteVar":{"name":"a","value":"0","op":"Set"}})",
        R"({"WriteVar":{"name":"a","value":"0g","op":"Set"}})",
        R"({"WriteVar":{"name":"a","value":"00","op":"Drop"}})",
        R"({"WriteVar":{"name":"a","value":"00","op":"Set","when_version_is":"x"}})"}) {
    EXPECT_TRUE(run(command).starts_with("error: ")) << command;
  }
  EXPECT_TRUE(log_.empty());
}

}  // namespace
}  // namespace lmtp::aici
