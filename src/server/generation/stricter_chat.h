// A chat for a template that is stricter than others.
#pragma once

#include <string>

namespace lmtp::server {

// What Mistral's templates and their kind refuse is written as they take it: ids of calls are of 9
// letters and digits, each id always the same, and what a user says right after a call's result
// stands at the end of that result. `messages`: JSON, as Chat::messages. Empty: there is nothing of
// that.
std::string stricter_messages(const std::string& messages);

}  // namespace lmtp::server
