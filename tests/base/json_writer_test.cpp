#include "lmtp/base/json_writer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lmtp {
namespace {

using Style = JsonWriter::Style;

// Commas follow from what stands there, whichever writer wrote it.
void write_all(JsonWriter& json) {
  json.begin_object().field("text", "a\"b: {").field("none", nullptr).key("list").begin_array();
  json.value(1).value(std::uint64_t{1} << 63).value(-0.5).value(true).begin_object().end_object();
  json.raw("[] ").value(2).end_array().field("ids", std::vector<int>{7, 8});
  json.field("texts", std::vector<std::string>{"", "{"}).field("no", std::optional<int>());
  json.given_field("left_out", std::optional<int>()).given_field("given", std::optional<int>(3));
  json.text_key("\"").value(0).raw_field("raw", "{}  ").end_object();
}

TEST(JsonWriter, WritesEitherStyle) {
  std::string out = "data: ";
  JsonWriter spaced(out);
  write_all(spaced);
  EXPECT_EQ(out,
            R"(data: {"text": "a\"b: {", "none": null, "list": [1, 9223372036854775808, -0.5, )"
            R"(true, {}, [], 2], "ids": [7, 8], "texts": ["", "{"], "no": null, "given": 3, )"
            R"("\"": 0, "raw": {}})");
  std::string compact_out = "data:";
  JsonWriter compact(compact_out, Style::kCompact);
  write_all(compact);
  EXPECT_EQ(
      compact_out,
      R"(data:{"text":"a\"b: {","none":null,"list":[1,9223372036854775808,-0.5,true,{},[],2],)"
      R"("ids":[7,8],"texts":["","{"],"no":null,"given":3,"\"":0,"raw":{}})");
}

TEST(JsonWriter, SeveralWritersTakeTurns) {
  std::string list;
  for (int i = 0; i < 3; ++i) JsonWriter(list, Style::kCompact).value(i);
  EXPECT_EQ(list, "0,1,2");
  std::string out;
  JsonWriter(out).begin_object().key("list").begin_array();
  out += "1, 2";
  JsonWriter(out).end_array().field("last", "").end_object();
  EXPECT_EQ(out, R"({"list": [1, 2], "last": ""})");
}

}  // namespace
}  // namespace lmtp
