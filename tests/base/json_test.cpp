#include "lmtp/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace lmtp {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string error_of(std::string_view text) {
  const auto parsed = parse_json(text, "a.json");
  return parsed ? "none" : parsed.error().message;
}

TEST(Json, WhatPythonWritesBeyondJsonIsRead) {
  const auto root = parse_json_object(
      R"({"a": NaN, "b": [Infinity, -Infinity,NaN,1], "c": "NaN, \"Infinity\" \\", "d": 2,
          "model_max_length": 1000000000000000019884624838656,
          "h": [1e999, -1E+400, 1e-999, 2e3],
          "s": ["\ud800x", "\uDFFF\ud83d\ude00\ud83d", "\\ud800"]})",
      "a.json");
  ASSERT_TRUE(root) << root.error().message;
  EXPECT_TRUE(root->at("a").is_null());
  EXPECT_EQ(root->at("b"), Json::parse("[null, null, null, 1]"));
  EXPECT_EQ(root->at("c"), "NaN, \"Infinity\" \\");
  EXPECT_EQ(root->at("d"), 2);
  EXPECT_DOUBLE_EQ(root->at("model_max_length").get<double>(), 1e30);
  EXPECT_EQ(root->at("h"), Json::parse("[null, null, 0.0, 2000.0]"));
  EXPECT_EQ(root->at("s"), Json::parse(R"(["\ufffdx", "\ufffd\ud83d\ude00\ufffd", "\\ud800"])"));
}

TEST(Json, WhatIsNoNumberMayBeRefused) {
  const auto refusal = [](const std::string& text) {
    const auto parsed = parse_json(text, "body", NonFinite::kRefused);
    return parsed ? "" : parsed.error().message;
  };
  EXPECT_EQ(refusal(R"({"a": NaN})"), "body: line 1, column 7: NaN; allowed are finite numbers");
  EXPECT_EQ(refusal("[1,\n -Infinity]"),
            "body: line 2, column 2: -Infinity; allowed are finite numbers");
  EXPECT_EQ(refusal("[Infinity]"), "body: line 1, column 2: Infinity; allowed are finite numbers");
  EXPECT_EQ(refusal("[1e999]"),
            "body: line 1, column 2: a number that no double holds; allowed are finite numbers");
  EXPECT_EQ(refusal(R"({"a": ["NaN", "-Infinity", 1e308, 1e-999, null]})"), "");
  EXPECT_EQ(parse_json_object(R"({"a": NaN})", "body", NonFinite::kRefused).error().message,
            refusal(R"({"a": NaN})"));
}

TEST(Json, TheLastOfTwoKeysCountsAsInPython) {
  EXPECT_EQ(parse_json(R"({"a": 1, "a": 2})", "a.json")->at("a"), 2);
}

TEST(Json, ErrorsSayFilePositionAndReason) {
  EXPECT_THAT(error_of("{\"a\": NaN, \"b\": [NaN, x]}"),
              StartsWith("a.json: not JSON: line 1, column 23: "));
  EXPECT_THAT(error_of("{\n  \"a\": 1\n  \"b\": 2}"),
              StartsWith("a.json: not JSON: line 3, column 5: "));
  EXPECT_THAT(error_of(""), StartsWith("a.json: not JSON: line 1, column 1: "));
  EXPECT_THAT(error_of("\""), StartsWith("a.json: not JSON: line 1, column "));
  EXPECT_THAT(error_of("\"\\"), StartsWith("a.json: not JSON: line 1, column "));
  EXPECT_THAT(error_of("[\"\xFF\"]"), HasSubstr("UTF-8"));
  EXPECT_THAT(error_of("NaNs"), StartsWith("a.json: not JSON: line 1, column "));
  EXPECT_THAT(error_of("[1e999 x]"), StartsWith("a.json: not JSON: line 1, column 8: "));
  EXPECT_LT(error_of("\"" + std::string(1 << 20, 'a')).size(), 300);
  EXPECT_EQ(error_of(std::string(1 << 20, '1')), "none");
  EXPECT_EQ(parse_json("0." + std::string(1 << 20, '1'), "a.json")->get<double>(), 1.0 / 9);
  EXPECT_THAT(error_of("\"\\ud8"), StartsWith("a.json: not JSON: line 1, column "));
  EXPECT_EQ(parse_json_object("[]", "a.json").error().message, "a.json: not a JSON object");
}

TEST(Json, HostileNestingAndFloodsOfValuesAreRefusedBeforeTheyAreParsed) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(error_of(nested(kJsonDepthMax)), "none");
  EXPECT_EQ(error_of(nested(kJsonDepthMax + 1)),
            "a.json: line 1, column 65: nested deeper than 64");
  EXPECT_THAT(error_of(std::string(std::size_t{32} << 20, '[')), HasSubstr("nested deeper"));
  std::string flood = "[0";
  for (std::size_t i = 0; i < kJsonValuesMax; ++i) flood += ",0";
  EXPECT_THAT(error_of(flood + "]"), HasSubstr("more than 4194304 values"));
  EXPECT_EQ(error_of(std::string(kJsonBytesMax + 1, ' ')), "a.json: larger than 67108864 bytes");
}

TEST(Json, NeededKeysAreRefusedByName) {
  const Json root = *parse_json(R"({"a": NaN, "b": 1})", "a.json");
  EXPECT_EQ(need_json(root, "a", "a.json").error().message, "a.json: 'a' is null");
  EXPECT_EQ(need_json(root, "c", "a.json").error().message, "a.json: 'c' is missing");
  EXPECT_EQ(need_json(Json(3), "c", "a.json").error().message, "a.json: 'c' is missing");
  EXPECT_EQ(**need_json(root, "b", "a.json"), 1);
}

TEST(Json, TypedLookUpsTakeNothingElse) {
  const Json root = *parse_json(R"({"t": "x", "b": true, "n": null, "i": 3})", "a.json");
  EXPECT_EQ(*find_json_text(root, "t"), "x");
  EXPECT_EQ(find_json_text(root, "b"), nullptr);
  EXPECT_EQ(find_json_text(root, "n"), nullptr);
  EXPECT_EQ(find_json_bool(root, "b"), true);
  EXPECT_EQ(find_json_bool(root, "i"), std::nullopt);
  EXPECT_EQ(find_json(Json("t"), "t"), nullptr);
}

TEST(Json, NumbersWithoutAFractionAreIntegers) {
  const auto integer = [](std::string_view text) { return json_integer(*parse_json(text, "")); };
  EXPECT_EQ(integer("-1"), -1);
  EXPECT_EQ(integer("4096.0"), 4096);
  EXPECT_EQ(integer("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(integer("9223372036854775808"), std::nullopt);
  EXPECT_EQ(integer("-1e30"), std::nullopt);
  EXPECT_EQ(integer("0.5"), std::nullopt);
  EXPECT_EQ(integer("\"1\""), std::nullopt);
}

TEST(Json, FilesAreReadOrRefusedByName) {
  const std::string path = testing::TempDir() + "/lmtp_json_test.json";
  std::ofstream(path) << "{\"a\": Infinity}";
  EXPECT_TRUE(read_json_object(path)->at("a").is_null());
  std::ofstream(path) << "{";
  EXPECT_THAT(read_json_file(path).error().message, StartsWith(path + ": not JSON: line 1"));
  std::filesystem::remove(path);
  EXPECT_THAT(read_json_file(path).error().message, StartsWith(path + ": "));
}

TEST(JsonText, SeparatesAsPythonDoesAndKeepsTheOrder) {
  const OrderedJson value = {{"b", {1, -2.5, nullptr, true}},
                             {"a", OrderedJson::object()},
                             {"c", OrderedJson::array()},
                             {"d", {{{"x", 1}}, {{"x", 2}}}},
                             {"e", 18446744073709551615U}};
  EXPECT_EQ(json_text(value),
            "{\"b\": [1, -2.5, null, true], \"a\": {}, \"c\": [], \"d\": "
            "[{\"x\": 1}, {\"x\": 2}], \"e\": 18446744073709551615}");
  EXPECT_EQ(json_text({1.0, 1e-5, 0.1, 1e300, INFINITY}), "[1, 1e-05, 0.1, 1e+300, null]");
}

TEST(JsonText, WritesStringsThatAnyParserReads) {
  const std::string all = "\"\\/\n\r\t\b\x01\x1f\x7f gr\xc3\xbc\xc3\x9f\x65";
  EXPECT_EQ(json_text(all),
            "\"\\\"\\\\/\\n\\r\\t\\u0008\\u0001\\u001f\x7f gr\xc3\xbc\xc3\x9f\x65\"");
  EXPECT_EQ(parse_ordered_json(json_text(all), "")->get<std::string>(), all);
  EXPECT_EQ(json_text({{"a\xff\"", "\xc3"}}), "{\"a\xEF\xBF\xBD\\\"\": \"\xEF\xBF\xBD\"}");
}

TEST(OrderedJson, KeepsTheOrderAndHasFewKeysToAnObject) {
  EXPECT_EQ(json_text(*parse_ordered_json(R"({"b":1,"a":[NaN],"b":2})", "")),
            R"({"b": 2, "a": [null]})");
  const auto object = [](std::size_t num_keys) {
    std::string text;
    for (std::size_t i = 0; i < num_keys; ++i) {
      text += (i == 0 ? "{\"" : ",\"") + std::to_string(i) + "\":0";
    }
    return text + "}";
  };
  const std::string many = object(kOrderedJsonKeysMax + 1);
  EXPECT_THAT(parse_ordered_json(many, "body").error().message,
              ::testing::HasSubstr("objects with too many keys; one may have 16384"));
  EXPECT_TRUE(parse_json(many, ""));
  std::string large = "[" + object(1000);
  for (int i = 0; i < 50'000; ++i) large += ", {\"role\": \"user\", \"content\": [0]}";
  EXPECT_TRUE(parse_ordered_json(large + "]", ""));
}

TEST(Json, AMemberIsAsItWasWritten) {
  const std::string text = R"( {"a": [1.0, {"b,}": "]\""}] , "m\u0061x" : 18446744073709551616,
    "n": NaN, "a": {"z": 1e5, "y": "\ud800"}})";
  EXPECT_EQ(json_member(text, "a"), R"({"z": 1e5, "y": "\ufffd"})");
  EXPECT_EQ(json_member(text, "max"), "18446744073709551616");
  EXPECT_EQ(json_member(text, "n").substr(0, 4), "null");
  EXPECT_EQ(json_member(text, "b"), "");
  EXPECT_EQ(json_member(R"({"a": [1.0, {"b,}": "]\""}] })", "a"), R"([1.0, {"b,}": "]\""}] )");
  EXPECT_EQ(json_member("{}", "a"), "");
}

TEST(Json, AFileThatIsMissingIsNotOneThatIsWrong) {
  EXPECT_EQ(read_json_file("/nowhere/config.json").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(parse_json("{", "").error().code, ErrorCode::kInvalid);
}

}  // namespace
}  // namespace lmtp
