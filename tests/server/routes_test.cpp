// The table of routes, and what is made of it: docs that exist, and schemas of bodies that have the
// fields that are read, and no others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generation/json_fields.h"
#include "http/openapi.h"
#include "http/schemas.h"
#include "http_client.h"
#include "lmtp/base/json.h"
#include "route_table.h"
#include "running_server.h"
#include "source_dir.h"

namespace lmtp::server {
namespace {

using Names = std::set<std::string, std::less<>>;

// --- docs ---

// The anchor of a line that is a heading: "### /v1/run" has "v1run".
std::string anchor_of(std::string_view line) {
  std::string anchor;
  line.remove_prefix(std::min(line.find_first_not_of("# "), line.size()));
  for (const char c : line) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-') {
      anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (c == ' ') {
      anchor += '-';
    }
  }
  return anchor;
}

bool has_heading(std::string_view docs) {
  const std::size_t hash = docs.find('#');
  std::ifstream file(testing::source_dir() + "/docs/" + std::string(docs.substr(0, hash)));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#') && anchor_of(line) == docs.substr(hash + 1)) return true;
  }
  return false;
}

TEST(Routes, EachIsDescribedUnderAHeadingOfTheDocs) {
  for (const Route& route : route_table()) {
    EXPECT_TRUE(has_heading(route.docs)) << route.method << " " << route.path << ": " << route.docs;
  }
  EXPECT_FALSE(has_heading("http.md#nothing"));
}

// --- schemas ---

TEST(Schemas, OfTypesAndObjects) {
  EXPECT_EQ(schema_of("0..").dump(), R"({"type":"integer","minimum":0})");
  EXPECT_EQ(schema_of("-1..5[]").dump(),
            R"({"type":"array","items":{"type":"integer","minimum":-1,"maximum":5}})");
  EXPECT_EQ(schema_of("(0,1.5]").dump(),
            R"({"type":"number","exclusiveMinimum":0.0,"maximum":1.5})");
  EXPECT_EQ(schema_of("[-2,2)").dump(),
            R"({"type":"number","minimum":-2.0,"exclusiveMaximum":2.0})");
  EXPECT_EQ(schema_of("string|'a'|Name|null|'b'").dump(),
            R"({"anyOf":[{"$ref":"#/components/schemas/Name"},{"enum":["a","b"]},)"
            R"({"type":"string"},{"type":"null"}]})");
  EXPECT_EQ(schema_of("string|null").dump(), R"({"type":["string","null"]})");
  OrderedJson schemas = OrderedJson::object();
  add_schemas("Base\n  a! any\n\nId = 0..\nMore: Base\n  b!, c 1..\n", schemas);
  EXPECT_EQ(schemas["Base"].dump(), R"({"type":"object","properties":{"a":{}},"required":["a"]})");
  EXPECT_EQ(schemas["Id"].dump(), R"({"type":"integer","minimum":0})");
  EXPECT_EQ(schemas["More"]["allOf"].dump(), R"([{"$ref":"#/components/schemas/Base"}])");
  EXPECT_EQ(schemas["More"]["required"].dump(), R"(["b"])");
  EXPECT_EQ(schemas["More"]["properties"]["c"].dump(), R"({"type":"integer","minimum":1})");
  add_schemas("All\n  * -seed\n  top_k -1..\n", schemas);
  const OrderedJson& all = schemas["All"]["properties"];
  EXPECT_EQ(all.size(), kSamplingTable.size() - 1);
  EXPECT_EQ(all["top_k"].dump(), R"({"type":"integer","minimum":-1})");
  EXPECT_EQ(all["ignore_eos"]["type"], "boolean");
  EXPECT_EQ(all["temperature"]["maximum"], 100.0);
  EXPECT_EQ(all["logit_bias"]["additionalProperties"]["maximum"], kMaxBias);
}

// --- what is read of a body ---

// Objects whose fields are not read one by one, or by other means than JsonFields.
const Names kReadAsAWhole = {"Message",           "Tool",    "ResponseFormat",
                             "StructuredOutputs", "Grammar", "GenerateGrammar"};

std::mutex read_mutex;
Names read_names;  // since take_read()

void note_read(std::string_view field) {
  const std::lock_guard lock(read_mutex);
  read_names.emplace(field);
}

Names take_read() {
  const std::lock_guard lock(read_mutex);
  return std::exchange(read_names, {});
}

// The schemas of a document, as far as tables of fields make them.
class Document {
 public:
  explicit Document(const Json& document) : schemas_(document["components"]["schemas"]) {}

  static std::string name_of(const Json& schema) {
    const auto& reference = schema["$ref"].get_ref<const std::string&>();
    return reference.substr(reference.rfind('/') + 1);
  }

  // The objects that the schema of a body allows.
  std::vector<Json> objects(const Json& schema) const {
    if (schema.contains("$ref")) return {merged(schemas_[name_of(schema)])};
    std::vector<Json> all;
    for (const Json& each : schema["anyOf"]) all.push_back(merged(schemas_[name_of(each)]));
    return all;
  }

  // The names in an object that was merged, and in those in it that are read by their fields.
  void add_names(const Json& object, Names& names) const {
    for (const auto& [name, schema] : object["properties"].items()) {
      names.insert(name);
      if (!schema.contains("$ref") || kReadAsAWhole.contains(name_of(schema))) continue;
      const Json inner = merged(schemas_[name_of(schema)]);
      if (inner.contains("properties")) add_names(inner, names);
    }
  }

  // A value that the schema allows; of an object with `all` its fields, or with those that are
  // always there.
  Json sample(const Json& schema, bool all) const {
    if (schema.contains("$ref")) return sample(merged(schemas_[name_of(schema)]), all);
    if (schema.contains("const")) return schema["const"];
    if (schema.contains("enum")) return schema["enum"].front();
    if (schema.contains("anyOf")) return sample(schema["anyOf"].front(), all);
    if (!schema.contains("type")) return "x";
    const Json& type = schema["type"].is_array() ? schema["type"].front() : schema["type"];
    if (type == "array") return Json::array({sample(schema["items"], all)});
    if (type == "boolean") return true;
    if (type == "integer") return schema.value("minimum", 1);
    if (type == "number") return schema.value("maximum", 1.0) / 2;
    if (type == "string") return "x";
    Json object = Json::object();
    const auto required = schema.value("required", std::vector<std::string>());
    const Json fields = schema.value("properties", Json::object());
    for (const auto& [name, field] : fields.items()) {
      const bool is_required = std::ranges::find(required, name) != required.end();
      if (all || is_required) object[name] = sample(field, all);
    }
    return object;
  }

 private:
  // With the fields of those in its allOf.
  Json merged(Json object) const {
    for (const Json& base : object.value("allOf", Json::array())) {
      const Json fields = merged(schemas_[name_of(base)]);
      object["properties"].update(fields["properties"]);
      for (const Json& name : fields.value("required", Json::array())) {
        object["required"].push_back(name);
      }
    }
    return object;
  }

  const Json schemas_;
};

class ReadFields : public ::testing::Test {
 protected:
  // Set before the server's threads start, and until they have ended.
  struct Hook {
    Hook() { JsonFields::on_find = note_read; }
    ~Hook() { JsonFields::on_find = nullptr; }
    Hook(const Hook&) = delete;
    Hook& operator=(const Hook&) = delete;
  };

  static ServerOptions options() {
    ServerOptions options = testing::with_aici();
    options.allow_runtime_lora = true;
    return options;
  }

  int post(const std::string& path, const Json& body) const {
    testing::HttpClient client(running_.server.port());
    client.send(testing::http_request("POST " + path, body.dump(),
                                      "Content-Type: application/json\r\nConnection: close\r\n"));
    const std::string answer = client.read_all();
    return answer.size() < 12 ? 0 : std::stoi(answer.substr(9, 3));
  }

  // Sends bodies of the object: with the fields that it must have, with all, and with each one.
  Names read_of(const std::string& path, const Document& document, const Json& object) const {
    const Json least = document.sample(object, false);
    std::vector<Json> bodies = {least, document.sample(object, true)};
    for (const auto& [name, schema] : object["properties"].items()) {
      bodies.push_back(least);
      bodies.back()[name] = document.sample(schema, true);
    }
    take_read();
    for (const Json& body : bodies) {
      const int status = post(path, body);
      EXPECT_TRUE(status >= 200 && status < 500) << path << " " << status << ": " << body.dump();
    }
    return take_read();
  }

  Hook hook_;
  testing::Running running_{{}, options()};
};

TEST_F(ReadFields, AreThoseOfTheSchemas) {
  const Json openapi = Json::parse(openapi_text(options(), false));
  const Document document(openapi);
  int num_bodies = 0;
  for (const auto& [path, operations] : openapi["paths"].items()) {
    if (!operations.contains("post") || !operations["post"].contains("requestBody")) continue;
    const Json& content = operations["post"]["requestBody"]["content"];
    if (!content.contains("application/json")) continue;
    Names read;
    Names described;
    for (const Json& object : document.objects(content["application/json"]["schema"])) {
      read.merge(read_of(path, document, object));
      document.add_names(object, described);
      ++num_bodies;
    }
    for (const std::string& name : read) {
      EXPECT_TRUE(described.contains(name))
          << "POST " << path << " reads " << name << ", which the types of its body do not have";
    }
    for (const std::string& name : described) {
      EXPECT_TRUE(read.contains(name))
          << "POST " << path << " does not read " << name << ", which its type has";
    }
  }
  EXPECT_GE(num_bodies, 16);
}

}  // namespace
}  // namespace lmtp::server
