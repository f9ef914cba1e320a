// Dialect A of the main channel: post_pre_process and mid_process. Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "process/wire.h"

namespace lmtp::aici::wire_a {

// What became of a sequence. backtrack counts the token that was not drawn, as mid_process said it.
struct PostOp {
  Sequence id = 0;
  std::vector<TokenId> tokens;
  int backtrack = 0;
};
struct PreOp {
  Sequence id = 0;
  std::string request_id;
};
struct PostPreProcess {
  std::vector<PostOp> post_ops;
  std::vector<PreOp> pre_ops;
  std::vector<Sequence> freed;
};
Json command_of(const PostPreProcess& command);

struct Post {
  bool stop = false;
};
struct Pre {
  bool suspend = false;
  int num_forks = 1;
  std::vector<TokenId> ff_tokens;
};
struct PostPreAnswer {
  Results<Post> post;
  Results<Pre> pre;
};
Result<PostPreAnswer> read_post_pre(const Json& data, int vocab_size);

struct MidOp {
  Sequence id = 0;
  std::optional<Sequence> clone_id;
};
Json command_of(const std::vector<MidOp>& ops);

// In place of a draw.
struct MidSplice {
  std::vector<TokenId> ff_tokens;
  int backtrack = 0;
};
// The error where the answer is of another number of ops.
Result<Results<MidSplice>> read_mid(const Json& data, std::size_t num_ops, int vocab_size);

}  // namespace lmtp::aici::wire_a
