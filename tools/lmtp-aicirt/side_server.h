// SideServer: uploads, tags and instances, on the side channel.
#pragma once

#include <functional>
#include <string>

#include "lmtp/aici/runtime.h"
#include "lmtp/base/json.h"

namespace lmtp::aicirt {

struct SideOptions {
  bool is_c = false;
  bool is_a2 = false;          // of A: what instantiate() appends is in its answer
  bool is_restricted = false;  // no uploads, no tags
  // Of a prompt that is a text.
  std::function<std::vector<TokenId>(const std::string& text)> tokenize = {};
};

// Owner: main(). One thread asks; answers come on threads of the runtime.
class SideServer {
 public:
  using Reply = std::function<void(Json answer)>;
  // With what dialect A1 has no place for in its answer: tokens behind the prompt, by request.
  using Appended = std::function<void(const std::string& request_id, aici::Instantiated made)>;

  SideServer(aici::Runtime& runtime, SideOptions options, Appended appended);

  // `reply` is called once, perhaps before this returns.
  void take(const std::string& message, const Reply& reply);

 private:
  void act(const Json& command, const Reply& reply);
  void instantiate(const Json& command, const Reply& reply);

  aici::Runtime& runtime_;
  const SideOptions options_;
  const Appended appended_;
};

}  // namespace lmtp::aicirt
