#include "buffers.h"

namespace lmtp::server {
namespace {

// The same again fails again where it is the connection's own limit.
Error full(ErrorCode code, const std::string& what) { return {code, "buffer: full: " + what}; }

}  // namespace

std::shared_ptr<const Buffers::Tokens> Buffers::find(const std::string& name) const {
  const auto found = buffers_.find(name);
  return found != buffers_.end() ? found->second : nullptr;
}

Result<std::size_t> Buffers::set(const std::string& name, Tokens tokens) {
  const auto found = buffers_.find(name);
  const std::size_t num_before = found != buffers_.end() ? found->second->size() : 0;
  if (Result<void> ok = reserve(name, num_before, tokens.size()); !ok) return ok.error();
  tokens.shrink_to_fit();
  const std::size_t length = tokens.size();
  buffers_[name] = std::make_shared<Tokens>(std::move(tokens));
  return length;
}

// In place, unless a request holds it: many small appends to a long buffer are cheap.
Result<std::size_t> Buffers::append(const std::string& name, const Tokens& tokens) {
  const auto found = buffers_.find(name);
  if (found == buffers_.end()) return set(name, tokens);
  if (Result<void> ok = reserve(name, 0, tokens.size()); !ok) return ok.error();
  std::shared_ptr<Tokens>& buffer = found->second;
  if (buffer.use_count() > 1) {
    buffer = std::make_shared<Tokens>(*buffer);
  } else {  // letting go of it orders what follows behind what the last other holder has read
    std::shared_ptr<Tokens>(buffer).reset();
  }
  buffer->insert(buffer->end(), tokens.begin(), tokens.end());
  return buffer->size();
}

bool Buffers::erase(const std::string& name) {
  const auto found = buffers_.find(name);
  if (found == buffers_.end()) return false;
  part_.replace(found->second->size() * sizeof(TokenId), 0);
  buffers_.erase(found);
  return true;
}

Result<void> Buffers::reserve(const std::string& name, std::size_t num_removed,
                              std::size_t num_added) {
  if (buffers_.size() >= kMaxBuffers && !buffers_.contains(name)) {
    return full(ErrorCode::kInvalid,
                std::to_string(kMaxBuffers) +
                    " buffers are the most of a connection; FREE one that is not needed");
  }
  const std::size_t removed = num_removed * sizeof(TokenId);
  const std::size_t added = num_added * sizeof(TokenId);
  const std::size_t after = part_.bytes() - removed + added;
  if (after > max_bytes_ && added > removed) {
    return full(ErrorCode::kInvalid,
                "the buffers of this connection would have " + std::to_string(after) +
                    " bytes, allowed are " + std::to_string(max_bytes_) +
                    " (--max-buffer-bytes, 4 a token); FREE what is not needed");
  }
  if (part_.replace(removed, added)) return {};
  return full(ErrorCode::kOverloaded,
              "the buffers of all connections take too much memory; retry later");
}

}  // namespace lmtp::server
