#include "json_io.h"

#include <functional>
#include <limits>
#include <string>
#include <utility>

namespace lmtp::aicirt {
namespace {

[[noreturn]] void bad_field(const char* name, const char* what) {
  throw CommandError(std::string(name) + ": must be " + what, false);
}

std::uint32_t number_of(const Json& value, const char* name) {
  const bool fits = value.is_number_unsigned() &&
                    value.get<std::uint64_t>() < std::numeric_limits<std::uint32_t>::max();
  if (!fits) bad_field(name, "a whole number below 2^32 - 1");
  return value.get<std::uint32_t>();
}

std::string hex_of(const std::string& bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    hex += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return hex;
}

Json with_id(const Json& command, Json answer) {
  const std::string* const id = find_json_text(command, "$rid");
  if (id != nullptr) answer["$rid"] = *id;
  return answer;
}

}  // namespace

const Json& field(const Json& object, const char* name) {
  const Json* const value = find_json(object, name);
  if (value == nullptr) throw CommandError(std::string("missing field ") + name, false);
  return *value;
}

std::string text_field(const Json& object, const char* name) {
  const Json& value = field(object, name);
  if (!value.is_string()) bad_field(name, "a text");
  return value.get<std::string>();
}

std::uint32_t number_field(const Json& object, const char* name) {
  return number_of(field(object, name), name);
}

std::optional<std::uint32_t> find_number(const Json& object, const char* name) {
  const Json* const value = find_json(object, name);
  if (value == nullptr) return std::nullopt;
  return number_of(*value, name);
}

std::vector<std::uint32_t> numbers_field(const Json& object, const char* name) {
  const Json& value = field(object, name);
  if (!value.is_array()) bad_field(name, "a list of numbers");
  std::vector<std::uint32_t> numbers;
  for (const Json& item : value) numbers.push_back(number_of(item, name));
  return numbers;
}

std::vector<TokenId> tokens_field(const Json& object, const char* name) {
  std::vector<TokenId> tokens;
  for (const std::uint32_t number : numbers_field(object, name)) {
    if (number > static_cast<std::uint32_t>(std::numeric_limits<TokenId>::max())) {
      bad_field(name, "a list of token ids");
    }
    tokens.push_back(static_cast<TokenId>(number));
  }
  return tokens;
}

aici::Auth auth_of(const Json& command) {
  const Json* const auth = find_json(command, "$auth");
  if (auth == nullptr || !auth->is_object()) return {.user = "local"};
  std::string user = text_field(*auth, "user");
  const ConnectionId share = std::hash<std::string>()(user) | 1;  // turns are by user; none is 0
  return {.user = std::move(user),
          .is_admin = find_json_bool(*auth, "is_admin").value_or(false),
          .share = share};
}

Json answer_to(const std::string& message, const std::function<Json(const Json& command)>& act) {
  const Result<Json> command = parse_json(message, "command");
  if (!command) return {{"type", "json-error"}, {"error", command.error().message}};
  try {
    return ok_answer(*command, act(*command));
  } catch (const CommandError& error) {
    return error_answer(*command, error.what(), error.is_user_error);
  }
}

Json ok_answer(const Json& command, Json data) {
  return with_id(command, {{"type", "ok"}, {"data", std::move(data)}});
}

Json error_answer(const Json& command, const std::string& text, bool is_user_error) {
  return with_id(command, {{"type", "error"}, {"error", text}, {"is_user_error", is_user_error}});
}

Json sequence_result(const std::string& error, Json result, const aici::CallLog& log) {
  Json storage = Json::array();
  for (const aici::VariableWrite& write : log.storage) {
    Json version;
    if (write.when_version_is) version = *write.when_version_is;
    const bool sets = write.op == aici::VariableWrite::Op::kSet;
    storage.push_back({{"WriteVar",
                        {{"name", write.name},
                         {"value", hex_of(write.value)},
                         {"op", sets ? "Set" : "Append"},
                         {"when_version_is", version}}}});
  }
  return {{"error", error},
          {"result", std::move(result)},
          {"storage", std::move(storage)},
          {"logs", log.logs},
          {"micros", log.micros}};
}

void add_log(aici::CallLog& log, aici::CallLog more) {
  log.logs += more.logs;
  log.micros += more.micros;
  for (aici::VariableWrite& write : more.storage) log.storage.push_back(std::move(write));
}

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lmtp::aicirt
