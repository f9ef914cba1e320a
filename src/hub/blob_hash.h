// The name of a blob is what its content hashes to: git's object id (sha1) for small files, sha256
// for those that the hub keeps in LFS.
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
  // Which hash it is follows from the ETag's form; of another form nothing is checked. `size` is
  // what the whole content will have.
  BlobHash(std::string etag, std::int64_t size);

  void update(std::string_view content);
  // Whether what was fed is what the ETag says; ends the use.
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
