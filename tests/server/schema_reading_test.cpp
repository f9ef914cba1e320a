// JSON Schemas as the clients of OpenAI's and TGI's APIs mean them.
#include "generation/schema_reading.h"

#include <gtest/gtest.h>

#include <list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "generation/read_grammar.h"
#include "openai/request.h"

namespace lmtp::server {
namespace {

std::string meant(const std::string& schema) {
  auto parsed = parse_ordered_json(schema, "schema");
  EXPECT_TRUE(parsed.ok()) << schema;
  read_schema_as_meant(*parsed);
  return parsed->dump();
}

std::string compact(const std::string& schema) { return OrderedJson::parse(schema).dump(); }

TEST(SchemaReading, ObjectKeywordsAloneMeanAnObject) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"required":["a"]})", R"({"required":["a"],"type":"object"})"},
      {R"({"additionalProperties":false})", R"({"additionalProperties":false,"type":"object"})"},
      {R"({"properties":{"a":{"properties":{}}}})",
       R"({"properties":{"a":{"properties":{},"type":"object","additionalProperties":false}},
           "type":"object","additionalProperties":false})"},
      {R"({"anyOf":[{"required":["a"]},{"type":"null"}]})",
       R"({"anyOf":[{"required":["a"],"type":"object"},{"type":"null"}]})"},
      {R"({"allOf":[{"required":["a"]},{"$ref":"#/$defs/b"}],"$defs":{"b":{"required":["b"]}}})",
       R"({"allOf":[{"required":["a"],"type":"object"},{"$ref":"#/$defs/b"}],
           "$defs":{"b":{"required":["b"],"type":"object"}}})"},
  };
  for (const auto& [schema, expected] : cases) EXPECT_EQ(meant(schema), compact(expected));
}

TEST(SchemaReading, WhatSaysItsTypeKeepsIt) {
  for (const char* schema : {
           R"({"type":"string","required":["a"]})",
           R"({"enum":[1],"properties":{}})",
           R"({"const":1,"required":[]})",
           R"({"type":["object","null"],"allOf":[{"required":["a"]}]})",
           R"({"allOf":[{"type":["object","null"]},{"required":["a"]}]})",
           R"({"not":{"required":["a"]}})",
           R"({"type":"object","properties":{"properties":{},"required":{}},
               "additionalProperties":true})",
           R"({"default":{"properties":{}}})",
           R"({"$defs":{"unused":{"properties":{}}}})",
           R"([{"properties":{}}])",
           R"(true)",
       }) {
    EXPECT_EQ(meant(schema), compact(schema));
  }
}

TEST(SchemaReading, ObjectsThatNameTheirMembersHaveNoOthers) {
  const std::string open = R"({"type":"object","properties":{"a":{}}})";
  const std::string closed =
      R"({"type":"object","properties":{"a":{}},"additionalProperties":false})";
  for (const std::string schema : {
           R"(X)",
           R"({"type":"array","items":X,"minItems":1})",
           R"({"type":"array","prefixItems":[X,X]})",
           R"({"type":"object","additionalProperties":X})",
           R"({"type":"object","patternProperties":{"^x":X},"additionalProperties":X})",
           R"({"type":"object","properties":{"b":X},"additionalProperties":true})",
           R"({"type":"object","properties":{"b":X},"anyOf":[{"required":["b"],"type":"object"}]})",
           R"({"anyOf":[X,{"type":"null"}],"title":"t"})",
           R"({"oneOf":[X,{"type":"null"}]})",
           R"({"$ref":"#/$defs/x","description":"d","$defs":{"x":X}})",
           R"({"$ref":"#/definitions/a~1b","definitions":{"a/b":X}})",
           R"({"type":"array","items":{"$ref":"#/$defs/x"},"$defs":{"x":{"anyOf":[X,X]}}})",
       }) {
    std::string before = schema;
    std::string after = schema;
    for (std::size_t at = 0; (at = before.find('X')) != std::string::npos;) {
      before.replace(at, 1, open);
    }
    for (std::size_t at = 0; (at = after.find('X')) != std::string::npos;) {
      after.replace(at, 1, closed);
    }
    EXPECT_EQ(meant(before), compact(after));
  }
  EXPECT_EQ(meant(R"({"type":["object","null"],"properties":{},"minProperties":0})"),
            compact(R"({"type":["object","null"],"properties":{},"minProperties":0,
                        "additionalProperties":false})"));
}

TEST(SchemaReading, WhereOthersMayNameMembersObjectsStayOpen) {
  for (const char* schema : {
           R"({"type":"object","properties":{"a":{}},"additionalProperties":true})",
           R"({"type":"object","properties":{"a":{}},"unevaluatedProperties":false})",
           R"({"type":"object","properties":{"a":{}},"patternProperties":{"^x":{}}})",
           R"({"type":"object","properties":{"a":{}},"minProperties":2})",
           R"({"type":"object","properties":{"a":{}},"required":["b"]})",
           R"({"type":"object","properties":{"a":{}},"anyOf":[{"type":"object"}]})",
           R"({"type":"object","properties":{"a":{}},"oneOf":[{"type":"object"}]})",
           R"({"type":"object","properties":{"a":{}},"if":{},"then":{}})",
           R"({"type":"object","properties":{"a":{}},"$ref":"#/$defs/b","$defs":{"b":{}}})",
           // branches
           R"({"allOf":[{"type":"object","properties":{"a":{}}},{"type":"object"}]})",
           R"({"allOf":[{"type":"object",
                         "properties":{"a":{"type":"object","properties":{"b":{}}}}}]})",
           R"({"type":"object","properties":{"a":{}},
               "anyOf":[{"type":"object","properties":{"b":{}}}]})",
           R"({"type":"object","required":["c"],
               "oneOf":[{"type":"object","properties":{"b":{}}}]})",
           R"({"type":"object","properties":{"a":{"type":"object","properties":{"b":{}}}},
               "patternProperties":{"^a":{"type":"object"}}})",
           // behind references
           R"({"allOf":[{"$ref":"#/$defs/x"}],"$defs":{"x":{"$ref":"#/$defs/y"},
               "y":{"type":"object","properties":{"a":{}}}}})",
           R"({"type":"array","prefixItems":[{"$ref":"#/$defs/x"}],
               "items":{"$ref":"#/$defs/x","required":["b"]},
               "$defs":{"x":{"type":"object","properties":{"a":{}}}}})",
           R"({"allOf":[{"$ref":"#x"}],
               "$defs":{"x":{"$anchor":"x","type":"object","properties":{"a":{}}}}})",
       }) {
    EXPECT_EQ(meant(schema), compact(schema));
  }
}

TEST(SchemaReading, CirclesOfReferencesEnd) {
  EXPECT_EQ(meant(R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},
                      "b":{"$ref":"#/$defs/a"}}})"),
            R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})");
  EXPECT_EQ(meant(R"({"type":"object","properties":{"next":{"$ref":"#"}}})"),
            R"({"type":"object","properties":{"next":{"$ref":"#"}},"additionalProperties":false})");
  // Open from inside, closed from outside.
  const std::string open = R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"object","properties":)"
                           R"({"next":{"allOf":[{"$ref":"#/$defs/a"}]}}}}})";
  EXPECT_EQ(meant(open), open);
}

TEST(SchemaReading, ReferencesLeadToPartsUpToSoManySteps) {
  const auto schema = OrderedJson::parse(R"({"a/b": [1, {"~": 2}]})");
  std::list<OrderedJson> references;
  SchemaParts parts(schema);
  const auto value = [&](const std::string& reference) {
    const OrderedJson* const found = parts.target(references.emplace_back(reference));
    return found == nullptr ? "none" : found->dump();
  };
  EXPECT_EQ(value("#"), schema.dump());
  EXPECT_EQ(value("#/a~1b/1/~0"), "2");
  for (const char* wrong : {"", "a", "#a", "#/a", "#/a~1b/01", "#/a~1b/2", "#/a~1b/1/~2", "#/a~"}) {
    EXPECT_EQ(value(wrong), "none") << wrong;
  }
  OrderedJson deep(3);
  std::string steps = "#";
  for (int i = 0; i < 65; ++i) deep = OrderedJson{{"a", deep}};
  SchemaParts of_deep(deep);
  for (int i = 0; i < 64; ++i) steps += "/a";
  const OrderedJson last(steps);
  const OrderedJson beyond(steps + "/a");
  EXPECT_NE(of_deep.target(last), nullptr);
  EXPECT_EQ(of_deep.target(beyond), nullptr);
}

TEST(SchemaReading, RequiredMembersCountWherePropertiesHasThem) {
  const auto most = [](const char* schema) {
    return most_optional_members(OrderedJson::parse(schema));
  };
  EXPECT_EQ(most(R"({"properties": {"a": {}, "b": {}}, "required": ["a", "a", "c"]})"), 1U);
  EXPECT_EQ(most(R"({"required": ["a"]})"), 0U);
}

const std::string kOpen = R"({"properties":{"a":{}}})";
const std::string kMeant =
    R"({"properties":{"a":{}},"type":"object","additionalProperties":false})";

std::string kept_to(const std::string& fields, const ApiLimits& limits = {}) {
  const auto request = read_completion(R"({"prompt": "a", )" + fields + "}", limits);
  return request ? request->generation.grammar->text : request.error().message;
}

TEST(SchemaReading, EachFieldOfASchemaIsReadSo) {
  const std::string format = R"("response_format": {"type": )";
  const ApiLimits open{.open_objects = true};
  for (const std::string& fields : {
           R"("guided_json": )" + kOpen,
           std::string(R"("guided_json": "{\"properties\":{\"a\":{}}}")"),
           R"("json_schema": )" + kOpen,
           R"("structured_outputs": {"json": )" + kOpen + "}",
           format + R"("json_object", "schema": )" + kOpen + "}",
           format + R"("json", "value": )" + kOpen + "}",
           format + R"("json_schema", "value": {"schema": )" + kOpen + "}}",
           format + R"("json_schema", "json_schema": {"strict": true, "schema": )" + kOpen + "}}",
       }) {
    EXPECT_EQ(kept_to(fields), kMeant) << fields;
    EXPECT_EQ(kept_to(fields, open), kOpen) << fields;
  }
  EXPECT_EQ(kept_to(format + R"("json_schema", "json_schema": {"strict": false, "schema": )" +
                    kOpen + "}}"),
            kOpen);
  EXPECT_EQ(kept_to(R"("guided_json": "{")").substr(0, 12), "guided_json:");
  const auto typed = OrderedJson::parse(R"({"type": "json", "value": )" + kOpen + "}");
  EXPECT_EQ(read_typed_grammar(typed, SchemaReading::kAsMeant)->text, kMeant);
  EXPECT_EQ(read_typed_grammar(typed, SchemaReading::kAsWritten)->text, kOpen);
}

}  // namespace
}  // namespace lmtp::server
