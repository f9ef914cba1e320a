// param-rows [--check] ROOT: writes the rows of lmtp/request/sampling_table.h into the files under
// ROOT that list the parameters; with --check it says which of them differ from the table.
// Exit code 1 where one does, or cannot be read.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>

#include "lmtp/base/json.h"
#include "lmtp/base/text.h"
#include "lmtp/request/sampling_table.h"

namespace lmtp {
namespace {

// What docs/lmtp.md says is allowed.
std::string range_text(const SamplingParam& param) {
  const std::string low = number_text(param.range.low);
  const std::string high = number_text(param.range.high);
  const auto text = [&]<typename T>(T SamplingParams::*) -> std::string {
    if constexpr (std::is_same_v<T, float>) {
      return param.range.low_allowed ? low + " to " + high : "> " + low + ", <= " + high;
    } else if constexpr (std::is_same_v<T, int>) {
      const bool is_capped = param.range.high < kMaxCount;
      return "whole number >= " + low +
             (is_capped ? ", more than " + high + " counts as " + high : "");
    } else if constexpr (std::is_same_v<T, std::uint64_t>) {
      return "whole number of 64 bits";
    } else if constexpr (std::is_same_v<T, bool>) {
      return "true or false";
    } else {
      return "`{\"ID\": NUMBER}`, ids of the vocabulary, -1e30 to 1e30";
    }
  };
  return std::visit(text, param.member);
}

std::string page_row(const SamplingParam& param) {
  return "| `" + std::string(param.name) + "` | " + param_text({}, param) + " | " +
         range_text(param) + " | " + std::string(param.help) + " |\n";
}

std::string man_row(const SamplingParam& param) {
  return ".TP\n.BR " + std::string(param.name) + " \" (" + param_text({}, param) + ")\"\n" +
         std::string(param.help) + "\n";
}

// What docs/schema/lmtp.json says is allowed.
OrderedJson schema_of(const SamplingParam& param) {
  const auto schema = [&]<typename T>(T SamplingParams::*) -> OrderedJson {
    if constexpr (std::is_same_v<T, float>) {
      return {{"type", {"number", "null"}},
              {param.range.low_allowed ? "minimum" : "exclusiveMinimum", param.range.low},
              {"maximum", param.range.high}};
    } else if constexpr (std::is_same_v<T, int>) {
      OrderedJson count = {{"$ref", "#/$defs/optional_count"}};  // larger ones are clamped
      if (param.range.low > 0) count["minimum"] = param.range.low;
      return count;
    } else if constexpr (std::is_same_v<T, std::uint64_t>) {
      return {{"type", {"integer", "null"}},
              {"minimum", std::numeric_limits<std::int64_t>::min()},
              {"maximum", std::numeric_limits<std::uint64_t>::max()}};
    } else if constexpr (std::is_same_v<T, bool>) {
      return {{"$ref", "#/$defs/optional_bool"}};
    } else {
      return {{"type", {"object", "null"}},
              {"propertyNames", {{"pattern", "^[0-9]+$"}}},
              {"additionalProperties",
               {{"type", "number"}, {"minimum", param.range.low}, {"maximum", param.range.high}}}};
    }
  };
  return std::visit(schema, param.member);
}

std::string schema_row(const SamplingParam& param) {
  return "        \"" + std::string(param.name) + "\": " + json_text(schema_of(param)) + ",\n";
}

// A row of FORK's `params`, each of which is as GENERATE has it.
std::string change_row(const SamplingParam& param) {
  const std::string name(param.name);
  const bool is_last = &param == &kSamplingTable.back();
  return "        \"" + name + R"(": {"$ref": "#/$defs/GENERATE/properties/)" + name + "\"}" +
         (is_last ? "\n" : ",\n");
}

std::string option_row(const SamplingParam& param) {
  if (param.name == kTopLogprobsName) return "";  // one of SCORE's, too
  const auto type = []<typename T>(T SamplingParams::*) -> std::string {
    if constexpr (std::is_same_v<T, float>) return "float";
    if constexpr (std::is_same_v<T, int> || std::is_same_v<T, std::uint64_t>) return "int";
    if constexpr (std::is_same_v<T, bool>) return "bool";
    return "dict[int, float]";
  };
  return "    " + std::string(param.name) + ": " + std::visit(type, param.member) + "  # " +
         param_text({}, param) + "\n";
}

// The rows are all that is between two texts of the file, each of which it has once.
struct Place {
  const char* path;
  std::string_view before;
  std::string_view after;
  std::string (*row)(const SamplingParam& param);
};
constexpr Place kPlaces[] = {
    {"docs/lmtp.md", "| empty or null is the loaded one |\n", "\n- Penalties count", page_row},
    {"docs/schema/lmtp.json",
     "\"chat_template_kwargs\": {\"type\": [\"object\", \"null\"]},\n"
     "        \"model\": {\"$ref\": \"#/$defs/model_name\"},\n",
     "        \"mask\":", schema_row},
    {"docs/schema/lmtp.json",
     "    \"changes\": {\n      \"type\": \"object\",\n      \"properties\": {\n",
     "      }\n    },\n    \"messages\"", change_row},
    {"docs/examples/lmtp.py",
     "what is not given is the server's default, which is beside a parameter.\"\"\"\n\n",
     "    mask: str", option_row},
    {"packaging/lmtp-client.1", ".SH SETTINGS\n", ".TP\n.BR bos ", man_row},
};

bool update(const std::string& path, const Place& place, bool only_checks) {
  std::string text(std::istreambuf_iterator<char>(std::ifstream(path, std::ios::binary).rdbuf()),
                   {});
  const std::size_t begin = text.find(place.before) + place.before.size();
  const std::size_t end = text.find(place.after, begin);
  if (begin < place.before.size() || end == std::string::npos) {
    std::fprintf(stderr, "%s: has no place for the rows\n", path.c_str());
    return false;
  }
  std::string rows;
  for (const SamplingParam& param : kSamplingTable) rows += place.row(param);
  if (text.compare(begin, end - begin, rows) == 0) return true;
  if (only_checks) {
    std::fprintf(stderr, "%s: differs from sampling_table.h; run param-rows. It needs:\n%s",
                 path.c_str(), rows.c_str());
    return false;
  }
  text.replace(begin, end - begin, rows);
  return static_cast<bool>(std::ofstream(path, std::ios::binary) << text << std::flush);
}

}  // namespace
}  // namespace lmtp

int main(int argc, char** argv) {
  const bool only_checks = argc == 3 && std::string_view(argv[1]) == "--check";
  if (argc != 2 && !only_checks) {
    std::fputs("usage: param-rows [--check] ROOT\n", stderr);
    return 2;
  }
  const std::string root = argv[argc - 1];
  bool all = true;
  for (const lmtp::Place& place : lmtp::kPlaces) {
    all = lmtp::update(root + "/" + place.path, place, only_checks) && all;
  }
  return all ? 0 : 1;
}
