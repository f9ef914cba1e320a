// Schemas that llguidance refuses, in equal forms that it takes: what is written. Whether values
// stay the same: tests/e2e/test_schema_streams.py.
#include "lmtp/constraint/schema_forms.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace lmtp::constraint {
namespace {

std::string form_of(const std::string& schema) { return to_known_form(schema); }

TEST(SchemaForms, UnknownFormatsAreAnnotations) {
  const std::string known = R"("properties":{"format":{"format":"date"}}})";
  EXPECT_EQ(form_of(R"({"items":{"type":"string","format":"byte"},)" + known),
            R"({"items":{"type":"string"},)" + known);
}

TEST(SchemaForms, ExcludingBranchesAreAnyOfThem) {
  for (const char* branches : {
           R"([{"type":"string"},{"type":["integer","null"]}])",
           R"([{"const":1},{"enum":[2,"1"]},{"const":1.5}])",
           R"([{"type":"object","required":["k"],"properties":{"k":{"const":"a"}}},)"
           R"({"type":"object","required":["k"],"properties":{"k":{"const":"b"}}}])",
           R"([{"type":"object","required":["a"],"properties":{"b":false}},)"
           R"({"type":"object","required":["b"]}])",
           R"([{"type":"object","required":["a"]},)"
           R"({"type":"object","properties":{"b":true},"additionalProperties":false}])",
           R"([{"$ref":"#/$defs/text"},{"type":"number"}])",
       }) {
    const std::string defs = R"("$defs":{"text":{"type":"string"}}})";
    const std::string schema = R"({"title":"x","oneOf":)" + std::string(branches) + "," + defs;
    EXPECT_EQ(form_of(schema), R"({"title":"x","anyOf":)" + std::string(branches) + "," + defs);
  }
  EXPECT_EQ(form_of(R"({"anyOf":[true],"oneOf":[{"type":"null"},{"type":"array"}]})"),
            R"({"anyOf":[true],"allOf":[{"anyOf":[{"type":"null"},{"type":"array"}]}]})");
}

TEST(SchemaForms, BranchesThatMayAgreeStayAsTheyAre) {
  for (const char* branches : {
           R"([{"type":"integer"},{"type":"number"}])",
           R"([{"const":1},{"const":1.0}])",
           R"([{"const":[1]},{"const":[2]}])",
           R"([{"required":["k"],"properties":{"k":{"const":1}}},)"  // of what is no object, too
           R"({"required":["k"],"properties":{"k":{"const":2}}}])",
           R"([{"type":"object","properties":{"k":{"const":1}}},)"
           R"({"type":"object","required":["k"],"properties":{"k":{"const":2}}}])",
           R"([{"type":"object","required":["xa"]},{"type":"object",)"
           R"("patternProperties":{"^x":true},"additionalProperties":false}])",
           R"([{"$ref":"#/$defs/none"},{"type":"number"}])",
           R"([{},{"type":"foo"}])",
       }) {
    const std::string schema = R"({"oneOf":)" + std::string(branches) + "}";
    EXPECT_EQ(form_of(schema), schema);
  }
  for (
      const std::string schema : {
          // A reference would lead nowhere.
          R"({"oneOf":[{"type":"null"},{"type":"array"}],"properties":{"a":{"$ref":"#/oneOf/0"}}})",
          // References within a schema of its own.
          R"({"$defs":{"x":{"type":"string"}},"properties":{"p":{"$id":"http://e/p","oneOf":)"
          R"([{"$ref":"#/$defs/x"},{"type":"number"}]}}})",
          R"({"$defs":{"a%41":{"type":"string"},"aA":{}},"oneOf":[{"$ref":"#/$defs/a%41"},)"
          R"({"type":"number"}]})",
          R"({"$schema":"http://json-schema.org/draft-04/schema#","oneOf":[{"const":1},)"
          R"({"const":2}]})",
      }) {
    EXPECT_EQ(form_of(schema), schema);
  }
}

TEST(SchemaForms, DependenciesAreAlternatives) {
  EXPECT_EQ(form_of(R"({"allOf":[{"type":"object"}],"dependentRequired":{"a":["b"]},)"
                    R"("dependencies":{"c":{"minProperties":2}}})"),
            R"({"allOf":[{"type":"object"},)"
            R"({"anyOf":[{"properties":{"a":false}},{"required":["b"]}]},)"
            R"({"anyOf":[{"properties":{"c":false}},{"minProperties":2}]}]})");
  for (const std::string wrong :
       {R"({"dependentRequired":{"a":"b"}})", R"({"allOf":{},"dependentRequired":{"a":["b"]}})"}) {
    EXPECT_EQ(form_of(wrong), wrong);
  }
}

TEST(SchemaForms, WhatNotLeaves) {
  for (const auto& [schema, form] : std::vector<std::pair<std::string, std::string>>{
           {R"({"not":{"type":["number","null"]}})",
            R"({"type":["object","string","boolean","array"]})"},
           {R"({"title":"x","not":{"required":["a"]}})",
            R"({"title":"x","allOf":[{"type":"object","properties":{"a":false}}]})"},
           {R"({"type":"string","not":{"const":"a]é"}})",
            R"({"type":"string","allOf":[{"anyOf":[{"type":["number","object","boolean","null",)"
            R"("array"]},{"type":"string","pattern":"^(|[^a](?s:.)*|[a](|[^\\]](?s:.)*|[\\]](|)"
            R"([^é](?s:.)*|[é]((?s:.)+))))$"}]}]})"},
           {R"({"not":{"not":{"pattern":"a"}}})", R"({"pattern":"a"})"},
           {R"({"type":"boolean","not":{"const":true}})",
            R"({"type":"boolean","allOf":[{"anyOf":[{"type":["number","object","string","null",)"
            R"("array"]},{"enum":[false]}]}]})"},
           {R"({"not":{"required":["a\u0000b"]}})",
            R"({"type":"object","properties":{"a\u0000b":false}})"},
           {R"({"not":true})", R"({"allOf":[false]})"},
           {R"({"not":{"minLength":2}})", R"({"type":"string","maxLength":1})"},
       }) {
    EXPECT_EQ(form_of(schema), form);
  }
  for (const char* schema : {R"({"not":{"type":"integer"}})", R"({"not":{"const":{"a":1}}})",
                             R"({"not":{"pattern":"a"}})", R"({"not":{"enum":[0,0.5]}})",
                             R"({"not":{"const":9007199254740993}})", R"({"not":{"type":"foo"}})",
                             R"({"not":{"multipleOf":2}})", R"({"not":[]})",
                             R"({"not":{"properties":{"a":{"type":"null"}},"required":["a"]}})"}) {
    EXPECT_EQ(form_of(schema), schema);
  }
}

// All pairs of these are to be told apart, and each refers to many.
TEST(SchemaForms, ManyBranchesTakeABoundedTime) {
  std::string schema = R"({"oneOf":[)";
  for (int i = 0; i < 4000; ++i) {
    schema += (i == 0 ? "" : ",") + (R"({"const":)" + std::to_string(i)) + "}";
  }
  schema += R"(],"allOf":[)";
  for (int i = 0; i < 8000; ++i) schema += i == 0 ? "{}" : ",{}";
  schema += "]}";
  EXPECT_EQ(form_of(schema), schema);
}

TEST(SchemaForms, WhatIsNoSchemaStays) {
  for (const char* text : {"", "[]", "true", "{", R"({"format":3})", R"({"oneOf":{}})",
                           R"({"const":{"format":"byte"},"enum":[{"not":true}]})"}) {
    EXPECT_EQ(form_of(text), text);
  }
}

}  // namespace
}  // namespace lmtp::constraint
