#include "generation/vendor_tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace lmtp::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(VendorTools, AreLeftOutAndNamedOnce) {
  const OrderedJson function = OrderedJson::parse(
      R"({"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": 2}}})");
  OrderedJson tools = OrderedJson::array();
  for (const char* type : {"web_search", "web_search_preview", "mcp"}) {
    tools.push_back({{"type", type}});
  }
  tools.push_back(function);
  for (const char* type :
       {"computer_use_preview", "file_search", "code_interpreter", "image_generation", "mcp"}) {
    tools.push_back({{"type", type}, {"server_url", "https://x"}});
  }
  const ClientTools offered = without_vendor_tools(tools);
  EXPECT_EQ(offered.kept.dump(), "[" + function.dump() + "]") << "with its keys in their order";
  EXPECT_THAT(offered.left_out,
              ElementsAre("web_search", "web_search_preview", "mcp", "computer_use_preview",
                          "file_search", "code_interpreter", "image_generation"));
}

// What the client runs, and what is no tool at all, is not for this to judge.
TEST(VendorTools, AreNothingElse) {
  const OrderedJson tools = OrderedJson::parse(
      R"([{"type": "function"}, {"type": "custom", "custom": {"name": "c"}}, {"function": {}},
          {"type": "functoin", "function": {"name": "f"}}, {"name": "f"}, {"type": 3}, {}, 1, null,
          "web_search", []])");
  const ClientTools offered = without_vendor_tools(tools);
  EXPECT_EQ(offered.kept, tools);
  EXPECT_THAT(offered.left_out, IsEmpty());
  EXPECT_EQ(without_vendor_tools(OrderedJson::array()).kept, OrderedJson::array());
}

TEST(VendorTools, NamesAreShort) {
  const ClientTools offered = without_vendor_tools({{{"type", std::string(1000, 'x')}}});
  ASSERT_EQ(offered.left_out.size(), 1U);
  EXPECT_LT(offered.left_out.front().size(), 150U);
  EXPECT_EQ(offered.kept, OrderedJson::array());
}

TEST(VendorTools, FewNamesAreKeptOfMany) {
  OrderedJson tools = OrderedJson::array();
  for (int i = 0; i < 10'000; ++i) tools.push_back({{"type", "vendor" + std::to_string(i)}});
  const ClientTools offered = without_vendor_tools(tools);
  EXPECT_THAT(offered.kept, IsEmpty());
  EXPECT_EQ(offered.left_out.size(), 16U);
}

}  // namespace
}  // namespace lmtp::server
