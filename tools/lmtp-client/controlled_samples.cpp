#include "controlled_samples.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "lmtp/base/json.h"
#include "lmtp/wasm/wasm.h"
#include "repl_text.h"

namespace lmtp::tools {
namespace {

using protocol::ServerEntry;

std::string text_of(const Json& object, std::string_view key) {
  const std::string* const text = find_json_text(object, key);
  return text != nullptr ? one_line(*text) : "";
}

}  // namespace

void ControlledSamples::take(const ServerEntry& entry) {
  std::vector<ServerEntry>& sample = samples_[entry.index];
  if (entry.fork_of_index && *entry.fork_of_index != entry.index) {
    const std::vector<ServerEntry>& parent = samples_[*entry.fork_of_index];
    const auto num_shared = std::min(static_cast<std::size_t>(entry.fork_at), parent.size());
    sample.assign(parent.begin(), parent.begin() + static_cast<std::ptrdiff_t>(num_shared));
  }
  const auto num_gone = static_cast<std::size_t>(entry.num_backtracked);
  sample.resize(sample.size() - std::min(sample.size(), num_gone));
  if (!entry.token && !entry.text) return;
  ServerEntry& kept = sample.emplace_back();
  kept.token = entry.token;
  kept.text = entry.text;
}

std::string describe_logs(const ServerEntry& entry) {
  const auto fields = parse_json_object(entry.controller_json, "controller");
  const std::string* const logs = fields ? find_json_text(*fields, "logs") : nullptr;
  std::string lines;
  std::string_view rest = logs != nullptr ? std::string_view(*logs) : std::string_view();
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    lines += "[controller";
    if (entry.index > 0) lines += " " + std::to_string(entry.index);
    lines += "] " + one_line(std::string(rest.substr(0, end))) + "\n";
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return lines;
}

std::string describe_tags(const std::string& json) {
  const auto answer = parse_json_object(json, "controller");
  const Json* const tags = answer ? find_json(*answer, "tags") : nullptr;
  std::string lines;
  if (tags == nullptr || !tags->is_array()) return lines;
  for (const Json& tag : *tags) {
    const Json* const size = find_json(tag, "wasm_size");
    const std::int64_t bytes = size != nullptr ? json_integer(*size).value_or(0) : 0;
    lines += text_of(tag, "tag") + "  " + text_of(tag, "module_id") + "  " + std::to_string(bytes) +
             " bytes, by " + text_of(tag, "updated_by") + "\n";
  }
  return lines;
}

Result<std::string> read_module(const std::string& path) {
  std::error_code code;
  const std::uintmax_t size = std::filesystem::file_size(path, code);
  if (code) return Error{ErrorCode::kInvalid, path + ": " + code.message()};
  if (size == 0 || size > wasm::kModuleBytesMax) {
    return Error{ErrorCode::kInvalid, path + ": has " + std::to_string(size) +
                                          " bytes; allowed are 1 to " +
                                          std::to_string(wasm::kModuleBytesMax)};
  }
  std::string bytes(static_cast<std::size_t>(size), '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(bytes.data(), static_cast<std::streamsize>(size))) {
    return Error{ErrorCode::kInvalid, path + ": cannot be read"};
  }
  return bytes;
}

}  // namespace lmtp::tools
