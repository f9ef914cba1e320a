// The token buffers of one connection.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/memory_limit.h"
#include "lmtp/base/result.h"

namespace lmtp::server {

inline constexpr std::size_t kMaxBuffers = 256;

// Owner: the session, on its strand.
class Buffers {
 public:
  using Tokens = std::vector<TokenId>;

  // max_bytes: of this connection's; `all`: of all connections, which outlives it. Four bytes a
  // token.
  Buffers(std::size_t max_bytes, MemoryLimit& all) : max_bytes_(max_bytes), part_(all) {}

  // Null where there is none. What it holds does not change while the pointer is kept.
  std::shared_ptr<const Tokens> find(const std::string& name) const;

  // The buffer has these tokens from now on, or these as well; how many it then has. The error says
  // that there are too many buffers or tokens; nothing has changed then.
  Result<std::size_t> set(const std::string& name, Tokens tokens);
  Result<std::size_t> append(const std::string& name, const Tokens& tokens);

  // False where there is none.
  bool erase(const std::string& name);

 private:
  // Where `added` more tokens and a buffer of that name fit, they are counted.
  Result<void> reserve(const std::string& name, std::size_t num_removed, std::size_t num_added);

  const std::size_t max_bytes_;
  MemoryLimit::Part part_;
  std::unordered_map<std::string, std::shared_ptr<Tokens>> buffers_;
};

}  // namespace lmtp::server
