// The file of --api-key-file: who may ask, and for what.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/request/account.h"

namespace lmtp::server {

inline constexpr std::size_t kKeysMax = 4096;
inline constexpr std::size_t kKeyFileBytesMax = std::size_t{4} << 20;
inline constexpr std::size_t kKeyBytesMax = 512;

// SHA-256 of a key. Keys are drawn at random and long, so that no salt and no slow hash is needed.
using KeyDigest = std::array<unsigned char, 32>;
KeyDigest digest_of(std::string_view key);
std::string hex_of(const KeyDigest& bytes);

struct KeyEntry {
  std::string name;
  KeyDigest digest{};
  AccountLimits limits;
};

// Whether clients can send it in every way: 1 to kKeyBytesMax visible characters of ASCII.
bool is_sendable(std::string_view key);

// {"keys": [{"name": "alice", "key": "..."}, ...]}. No error has a key in it.
Result<std::vector<KeyEntry>> parse_key_file(std::string_view text, const std::string& origin);

// The file's, after a warning in the log where others than its owner may read it.
Result<std::vector<KeyEntry>> read_key_file(const std::string& path);

}  // namespace lmtp::server
