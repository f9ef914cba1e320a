#include "key_file.h"

#include <openssl/evp.h>
#include <openssl/rand.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "lmtp/base/check.h"
#include "lmtp/base/json.h"
#include "lmtp/base/log.h"
#include "lmtp/server/fresh_key.h"

namespace lmtp::server {
namespace {

constexpr std::size_t kNameLengthMax = 64;
constexpr std::size_t kPatternsMax = 256;
constexpr std::size_t kPatternBytesMax = 512;
constexpr std::int64_t kCountMax = 1'000'000'000;
constexpr std::string_view kNameRule = "1 to 64 letters, digits and . _ - @ + are needed";
constexpr std::string_view kKeyFields[] = {
    "name", "key", "key_sha256", "admin", "max_streams", "tokens_per_minute", "models"};

bool is_name(std::string_view name) {
  constexpr std::string_view kMarks = "._-@+";
  return !name.empty() && name.size() <= kNameLengthMax && std::ranges::all_of(name, [&](char c) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return is_letter || (c >= '0' && c <= '9') || kMarks.find(c) != std::string_view::npos;
  });
}

// Reads one element of "keys"; the first mistake is kept, and names the element.
class EntryReader {
 public:
  EntryReader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  Result<KeyEntry> read() {
    if (!object_.is_object()) return Error{ErrorCode::kInvalid, where_ + ": is no object"};
    check_fields();
    KeyEntry entry;
    const std::string* const name = find_json_text(object_, "name");
    if (name == nullptr || !is_name(*name)) {
      wrong("name", kNameRule);
    } else {
      entry.name = *name;
    }
    read_key(entry);
    read_limits(entry.limits);
    if (!mistake_.empty()) return Error{ErrorCode::kInvalid, mistake_};
    return entry;
  }

 private:
  void wrong(std::string_view field, std::string_view why) {
    if (!mistake_.empty()) return;
    mistake_.append(where_).append(".").append(field).append(": ").append(why);
  }

  // An unknown field may be a limit that is spelled wrongly. Its name may be a key that is
  // misplaced. A generator that writes null for "none" must not open everything.
  void check_fields() {
    for (const auto& [field, value] : object_.items()) {
      if (std::ranges::find(kKeyFields, field) != std::end(kKeyFields)) {
        if (value.is_null()) wrong(field, "is null; allowed is a value, or to leave the field out");
        continue;
      }
      std::string allowed;
      for (const std::string_view known : kKeyFields) {
        allowed.append(allowed.empty() ? "" : ", ").append(known);
      }
      mistake_ = where_ + ": has a field that is not known, allowed are " + allowed;
    }
  }

  void read_key(KeyEntry& entry) {
    const std::string* const key = find_json_text(object_, "key");
    const std::string* const hash = find_json_text(object_, "key_sha256");
    if ((key == nullptr) == (hash == nullptr)) {
      wrong("key", "a text is needed, or instead of it key_sha256");
    } else if (key != nullptr) {
      if (!is_sendable(*key)) wrong("key", "1 to 512 visible characters of ASCII are needed");
      entry.digest = digest_of(*key);
    } else if (!read_hex(*hash, entry.digest)) {
      wrong("key_sha256", "the 64 hexadecimal digits of the key's SHA-256 are needed");
    }
  }

  static bool read_hex(std::string_view text, KeyDigest& digest) {
    if (text.size() != 2 * digest.size()) return false;
    for (std::size_t i = 0; i < digest.size(); ++i) {
      const char* const begin = text.data() + 2 * i;
      if (std::from_chars(begin, begin + 2, digest[i], 16).ptr != begin + 2) return false;
    }
    return true;
  }

  void read_limits(AccountLimits& limits) {
    if (const Json* const admin = find_json(object_, "admin")) {
      if (!admin->is_boolean()) wrong("admin", "true or false is needed");
      limits.is_admin = find_json_bool(object_, "admin").value_or(false);
    }
    limits.max_streams = static_cast<int>(read_count("max_streams"));
    limits.tokens_per_minute = read_count("tokens_per_minute");
    const Json* const models = find_json(object_, "models");
    if (models == nullptr) return;
    const bool are_texts = models->is_array() && models->size() <= kPatternsMax &&
                           std::ranges::all_of(*models, [](const Json& pattern) {
                             const auto* const text = pattern.get_ptr<const std::string*>();
                             return text != nullptr && !text->empty() &&
                                    text->size() <= kPatternBytesMax &&
                                    text->find('\0') == std::string::npos;
                           });
    if (!are_texts) return wrong("models", "a list of names or patterns of names is needed");
    limits.models.emplace();
    for (const Json& pattern : *models) limits.models->push_back(pattern.get<std::string>());
  }

  // 0 where there is none.
  std::int64_t read_count(std::string_view field) {
    const Json* const value = find_json(object_, field);
    if (value == nullptr) return 0;
    const auto count = json_integer(*value);
    if (count && *count >= 1 && *count <= kCountMax) return *count;
    wrong(field,
          "a whole number from 1 to 1000000000 is needed; without the field there is no limit");
    return 0;
  }

  const Json& object_;
  const std::string where_;
  std::string mistake_;
};

}  // namespace

std::string hex_of(const KeyDigest& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 0xF];
  }
  return text;
}

KeyDigest digest_of(std::string_view key) {
  KeyDigest digest;
  unsigned num_bytes = 0;
  const int done =
      EVP_Digest(key.data(), key.size(), digest.data(), &num_bytes, EVP_sha256(), nullptr);
  LMTP_CHECK(done == 1 && num_bytes == digest.size(), num_bytes);
  return digest;
}

bool is_sendable(std::string_view key) {
  return !key.empty() && key.size() <= kKeyBytesMax &&
         std::ranges::all_of(key, [](char c) { return c > 0x20 && c < 0x7F; });
}

Result<std::vector<KeyEntry>> parse_key_file(std::string_view text, const std::string& origin) {
  const Result<Json> root = parse_json_object(text, origin);
  if (!root) return root.error();
  const Json* const keys = find_json(*root, "keys");
  if (keys == nullptr || !keys->is_array() || keys->empty() || root->size() != 1) {
    return Error{ErrorCode::kInvalid,
                 origin + R"(: {"keys": [{"name": "...", "key": "..."}, ...]} is needed, with at )"
                          "least one key and nothing else"};
  }
  if (keys->size() > kKeysMax) {
    return Error{ErrorCode::kInvalid,
                 origin + ": has more than " + std::to_string(kKeysMax) + " keys"};
  }
  std::vector<KeyEntry> entries;
  entries.reserve(keys->size());
  for (const Json& key : *keys) {
    const std::string where = origin + ": keys[" + std::to_string(entries.size()) + "]";
    Result<KeyEntry> entry = EntryReader(key, where).read();
    if (!entry) return entry.error();
    for (const KeyEntry& other : entries) {
      if (other.name != entry->name && other.digest != entry->digest) continue;
      return Error{ErrorCode::kInvalid,
                   where + ": has the name or the key of '" + other.name + "', too"};
    }
    entries.push_back(std::move(*entry));
  }
  return entries;
}

Result<FreshKey> make_fresh_key(const std::string& name) {
  if (!is_name(name)) return Error{ErrorCode::kInvalid, "the name: " + std::string(kNameRule)};
  std::array<unsigned char, 32> bits{};
  if (RAND_bytes(bits.data(), static_cast<int>(bits.size())) != 1) {
    return Error{ErrorCode::kUnavailable, "the system has no random bits"};
  }
  FreshKey fresh;
  fresh.key = "sk-" + hex_of(bits);
  OrderedJson entry = {{"name", name}, {"key_sha256", hex_of(digest_of(fresh.key))}};
  fresh.entry = json_text(entry);
  return fresh;
}

Result<std::vector<KeyEntry>> read_key_file(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    return Error{errno_code(errno), path + ": " + std::strerror(errno)};
  }
  if (!S_ISREG(status.st_mode) || status.st_size > static_cast<off_t>(kKeyFileBytesMax)) {
    return Error{ErrorCode::kInvalid, path + ": is no file of at most " +
                                          std::to_string(kKeyFileBytesMax >> 20) + " MiB"};
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    log::warning(path +
                 ": holds API keys, and others than its owner may read or write it; chmod 600");
  }
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) return Error{ErrorCode::kUnavailable, path + ": cannot be read"};
  return parse_key_file(text, path);
}

}  // namespace lmtp::server
