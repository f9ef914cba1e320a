// StreamCanceller: where the streams of a model are cancelled, be they waiting for it or running.
#pragma once

#include "lmtp/base/ids.h"

namespace lmtp::registry {

// Shared by the model and the connections that have streams there. Any thread; stays valid after
// its model is gone.
class StreamCanceller {
 public:
  virtual ~StreamCanceller() = default;

  // Ends the stream with the error "cancelled", within one step. Nothing happens where it has
  // already ended. REQUIRES: called at most a few times for each submitted stream.
  virtual void cancel(StreamKey key) = 0;
  // The same without waiting for another thread, for a connection that is gone: none of its stream
  // ids will come again.
  virtual void cancel_later(StreamKey key) { cancel(key); }
};

}  // namespace lmtp::registry
