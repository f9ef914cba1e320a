#include "variables.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "hex.h"
#include "lmtp/base/json.h"

namespace lmtp::aici {

namespace {

constexpr std::size_t kVariablesMax = 4096;
constexpr const char* kMissing = R"({"VariableMissing":{}})";

Error malformed() {
  return {
      ErrorCode::kInvalid,
      R"(aici_host_storage_cmd: the command is malformed; allowed are {"ReadVar":{"name"}} )"
      R"(and {"WriteVar":{"name","value": hex digits,"op":"Set" or "Append","when_version_is"}})"};
}

std::string read_answer(std::int64_t version, std::string_view value) {
  return R"({"ReadVar":{"version":)" + std::to_string(version) + R"(,"value":")" + to_hex(value) +
         R"("}})";
}

std::string write_answer(std::int64_t version) {
  return R"({"WriteVar":{"version":)" + std::to_string(version) + "}}";
}

std::optional<VariableWrite> write_of(const Json& command) {
  const std::string* const name = find_json_text(command, "name");
  const std::string* const value = find_json_text(command, "value");
  const std::string* const op = find_json_text(command, "op");
  if (name == nullptr || value == nullptr || op == nullptr) return {};
  if (*op != "Set" && *op != "Append") return {};
  const std::optional<std::string> bytes = from_hex(*value);
  if (!bytes) return {};
  VariableWrite write{*name, *bytes};
  write.op = *op == "Set" ? VariableWrite::Op::kSet : VariableWrite::Op::kAppend;
  if (const Json* const version = find_json(command, "when_version_is"); version != nullptr) {
    write.when_version_is = json_integer(*version);
    if (!write.when_version_is) return {};
  }
  return write;
}

}  // namespace

Result<std::string> Variables::run(std::string_view command, std::vector<VariableWrite>& log) {
  const Result<Json> parsed = parse_json_object(command, "aici_host_storage_cmd");
  if (!parsed) return parsed.error();
  if (const Json* const read = find_json(*parsed, "ReadVar"); read != nullptr) {
    const std::string* const name = find_json_text(*read, "name");
    if (name == nullptr) return malformed();
    const auto found = variables_.find(*name);
    if (found == variables_.end()) return std::string(kMissing);
    return read_answer(found->second.version, found->second.value);
  }
  const Json* const write_command = find_json(*parsed, "WriteVar");
  if (write_command == nullptr) return malformed();
  std::optional<VariableWrite> the_write = write_of(*write_command);
  if (!the_write) return malformed();
  return write(std::move(*the_write), log);
}

Result<std::string> Variables::write(VariableWrite write, std::vector<VariableWrite>& log) {
  const auto found = variables_.find(write.name);
  const bool is_there = found != variables_.end();
  if (write.when_version_is) {
    if (!is_there) return std::string(kMissing);
    const Variable& there = found->second;
    if (*write.when_version_is != there.version) return read_answer(there.version, there.value);
  }
  if (!is_there && variables_.size() == kVariablesMax) {
    return Error{ErrorCode::kInvalid, "aici_host_storage_cmd: the request has more than " +
                                          std::to_string(kVariablesMax) + " variables"};
  }
  const bool appends = is_there && write.op == VariableWrite::Op::kAppend;
  const std::size_t num_freed = is_there && !appends ? found->second.value.size() : 0;
  const std::size_t num_added = write.value.size() + (is_there ? 0 : write.name.size());
  if (num_bytes_ - num_freed + num_added > bytes_max_) {
    return Error{ErrorCode::kInvalid,
                 "aici_host_storage_cmd: the request's variables take more than " +
                     std::to_string(bytes_max_) + " bytes"};
  }
  num_bytes_ += num_added;
  num_bytes_ -= num_freed;
  Variable& variable = is_there ? found->second : variables_[write.name];
  if (!appends) variable.value.clear();
  variable.value += write.value;
  ++num_writes_;
  log.push_back(std::move(write));
  return write_answer(++variable.version);
}

}  // namespace lmtp::aici
