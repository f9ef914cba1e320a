// The certificate and key that TCP connections are served with.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "lmtp/base/result.h"
#include "lmtp/tls/context.h"

namespace lmtp::server {

// Owner: the server's context.
class TlsFiles {
 public:
  // `certfile` empty: no TLS. `keyfile` empty: the key is in certfile.
  TlsFiles(std::string certfile, std::string keyfile)
      : certfile_(std::move(certfile)), keyfile_(std::move(keyfile)) {}

  bool enabled() const { return !certfile_.empty(); }

  // Reads the files, for connections from then on. After an error those have what was read before.
  // REQUIRES: enabled(). Blocks on the disk; one thread at a time.
  Result<void> load() {
    auto read = tls::server_context(certfile_, keyfile_);
    if (!read) return read.error();
    const std::lock_guard lock(mutex_);
    context_ = *std::move(read);
    return {};
  }

  // Null: no TLS. Any thread.
  std::shared_ptr<tls::Context> context() const {
    const std::lock_guard lock(mutex_);
    return context_;
  }

 private:
  const std::string certfile_;
  const std::string keyfile_;
  mutable std::mutex mutex_;
  std::shared_ptr<tls::Context> context_;
};

}  // namespace lmtp::server
