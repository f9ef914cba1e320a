// The JSON between host and controller.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/aici/runtime.h"
#include "lmtp/base/result.h"

namespace lmtp::aici {

// Arguments. Pure functions; any thread.
std::string prompt_arg(const std::vector<TokenId>& prompt);
std::string post_arg(int num_dropped, const std::vector<TokenId>& tokens);
std::string mid_arg_a(const std::vector<Sequence>& fork_group);
std::string mid_arg_c(const Report& report, const std::vector<Sequence>& fork_group);

struct PreResult {
  int num_forks = 1;
  bool suspends = false;
  std::vector<TokenId> ff_tokens = {};
};

// A splice as the guest counts: in dialect C with the token that would be drawn.
struct GuestSplice {
  std::vector<TokenId> when_sampled = {};
  int backtrack = 0;
  std::vector<TokenId> ff_tokens = {};
};

struct MidResultA {
  enum class Kind { kStop, kSample, kSplice };
  Kind kind = Kind::kSample;
  GuestSplice splice = {};
};

struct GuestBranch {
  std::optional<std::int64_t> mask = {};  // what aici_host_return_logit_bias gave
  std::optional<float> temperature = {};
  std::vector<GuestSplice> splices = {};
};

// Reads what a controller returned. Errors, kInvalid, say which part is missing or of another type.
// Owner: a controller; one thread at a time. It keeps its memory from one result to the next.
class ResultReader {
 public:
  // The prompt that init_prompt gives, if any.
  Result<std::optional<std::vector<TokenId>>> prompt(std::string_view text);
  Result<PreResult> pre(std::string_view text);
  Result<MidResultA> mid_a(std::string_view text);
  Result<std::vector<GuestBranch>> mid_c(std::string_view text);
  // Whether the controller stops.
  Result<bool> post(std::string_view text);

 private:
  Result<simdjson::dom::element> parse(std::string_view text);

  simdjson::dom::parser parser_;
};

}  // namespace lmtp::aici
