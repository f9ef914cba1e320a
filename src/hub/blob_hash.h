// The name of a blob is the hash of its content: git's object id (sha1) for small files, sha256 for
// those that the hub stores in LFS.
#pragma once

#include <openssl/evp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace lmtp::hub {

// Owner: one thread. Fed with the content in order.
class BlobHash {
 public:
  // The ETag's form selects the hash; for another form nothing is checked. `size`: of the whole
  // content.
  BlobHash(std::string etag, std::int64_t size);

  void update(std::string_view content);
  // Whether the content matches the ETag. The last call on this object.
  bool matches();

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };

  std::string etag_;
  std::unique_ptr<EVP_MD_CTX, Free> context_;  // null: nothing to check
};

// Whether `text` is `num_digits` digits of [0-9a-f].
inline bool is_hex(std::string_view text, std::size_t num_digits) {
  return text.size() == num_digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace lmtp::hub
