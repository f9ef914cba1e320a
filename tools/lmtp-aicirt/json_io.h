// What is said on both channels, as the runtime reads and writes it. This shares nothing with the
// engine's end in src/aici, so that each is a check of the other.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "lmtp/aici/runtime.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/json.h"

namespace lmtp::aicirt {

// Ends a command: its answer is of type "error".
class CommandError : public std::runtime_error {
 public:
  CommandError(const std::string& text, bool is_user)
      : std::runtime_error(text), is_user_error(is_user) {}
  const bool is_user_error;
};

// Fields of commands; throw CommandError where one is missing or of another type.
const Json& field(const Json& object, const char* name);
std::string text_field(const Json& object, const char* name);
std::uint32_t number_field(const Json& object, const char* name);
std::vector<std::uint32_t> numbers_field(const Json& object, const char* name);
std::vector<TokenId> tokens_field(const Json& object, const char* name);
// Nothing where it is null or missing.
std::optional<std::uint32_t> find_number(const Json& object, const char* name);
aici::Auth auth_of(const Json& command);

// The answer to a message: act(command) gives its data. "$rid" is echoed.
Json answer_to(const std::string& message, const std::function<Json(const Json& command)>& act);
Json ok_answer(const Json& command, Json data);
Json error_answer(const Json& command, const std::string& text, bool is_user_error);

// {"error", "result", "storage", "logs", "micros"}.
Json sequence_result(const std::string& error, Json result, const aici::CallLog& log);

void add_log(aici::CallLog& log, aici::CallLog more);

std::string text_of(const Json& json);

}  // namespace lmtp::aicirt
