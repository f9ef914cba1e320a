#include "blob_hash.h"

#include <array>
#include <utility>

#include "lmtp/base/check.h"

namespace lmtp::hub {
namespace {

constexpr std::size_t kSha1Digits = 40;
constexpr std::size_t kSha256Digits = 64;

}  // namespace

BlobHash::BlobHash(std::string etag, std::int64_t size) : etag_(std::move(etag)) {
  const bool is_git = is_hex(etag_, kSha1Digits);
  if (!is_git && !is_hex(etag_, kSha256Digits)) return;
  context_.reset(EVP_MD_CTX_new());
  LMTP_CHECK(context_ != nullptr);
  LMTP_CHECK(EVP_DigestInit_ex(context_.get(), is_git ? EVP_sha1() : EVP_sha256(), nullptr) == 1);
  if (!is_git) return;
  // Git hashes "blob SIZE\0" in front of the content.
  std::string head = "blob " + std::to_string(size);
  head += '\0';
  update(head);
}

void BlobHash::update(std::string_view content) {
  if (context_ == nullptr) return;
  LMTP_CHECK(EVP_DigestUpdate(context_.get(), content.data(), content.size()) == 1);
}

bool BlobHash::matches() {
  if (context_ == nullptr) return true;
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned num_bytes = 0;
  LMTP_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), &num_bytes) == 1);
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text;
  for (unsigned i = 0; i < num_bytes; ++i) {
    text += kHex[digest[i] >> 4];
    text += kHex[digest[i] & 15];
  }
  return text == etag_;
}

}  // namespace lmtp::hub
