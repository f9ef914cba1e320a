#include "common/server_info.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/json_text.h"
#include "lmtp/base/json.h"

namespace lmtp::tools {
namespace {

int positive_field(const Json& info, std::string_view key) {
  const Json* field = find_json(info, key);
  const std::int64_t value = field != nullptr ? json_integer(*field).value_or(0) : 0;
  return value < 1 || value > std::numeric_limits<int>::max() ? 0 : static_cast<int>(value);
}

}  // namespace

ServerInfo read_server_info(const std::string& json) {
  ServerInfo info;
  info.json = json;
  const auto said = parse_json_object(json, "model_info");
  if (!said) return info;
  if (const std::string* model = find_json_text(*said, "model")) info.model = *model;
  info.vocab_size = positive_field(*said, "vocab_size");
  info.context_length = positive_field(*said, "context_length");
  if (const Json* ids = find_json(*said, "eos_token_ids"); ids != nullptr && ids->is_array()) {
    if (auto read = json_ids(*ids)) info.eos_token_ids = std::move(*read);
  }
  std::sort(info.eos_token_ids.begin(), info.eos_token_ids.end());
  const Json* extensions = find_json(*said, "extensions");
  const auto has = [extensions](const char* name) {
    return extensions != nullptr && extensions->is_array() &&
           std::find(extensions->begin(), extensions->end(), name) != extensions->end();
  };
  info.can_cancel = has("CANCEL");
  info.knows_text = has("TEXT");
  return info;
}

bool has_random_weights(const ServerInfo& info) { return info.model.starts_with("random:"); }

}  // namespace lmtp::tools
