// Reading what an endpoint was sent, and writing what it answers at once, off the io threads where
// it is long.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "context.h"
#include "encoder.h"
#include "lmtp/base/result.h"
#include "lmtp/server/http.h"

namespace lmtp::server {

// Calls read(request), and then what it returns. Where the body is longer than kEncodedAtOnceMax,
// whose parsing would hold up the other connections of an io thread, read() is called on the
// encoder's thread: then it must not touch what the connection's strand does. What it returns is
// always called on the strand of `responder`. The error of too much that waits, or of an exception,
// has the form of the path's API. `context` outlives the connection. Thread: that strand.
void read_body(ServerContext& context, HttpRequest request,
               const std::shared_ptr<HttpResponder>& responder,
               std::function<std::function<void()>(HttpRequest)> read);

// The same of any work that returns what is to be done on the strand: `num_bytes` long ones, of a
// request to `path`.
void work_on_bytes(ServerContext& context, std::size_t num_bytes, const std::string& path,
                   const std::shared_ptr<HttpResponder>& responder,
                   std::function<std::function<void()>()> work);

// Calls make(), of what has `num_bytes`, and then send() with what it returns or threw, on the
// strand of `responder`. Where they are more than kEncodedAtOnceMax make() is called on the
// encoder's thread, unless too much waits there: then it must not touch what the connection's
// strand does. `encoder` outlives the connection. Thread: that strand.
void make_answer(Encoder& encoder, std::size_t num_bytes,
                 const std::shared_ptr<HttpResponder>& responder,
                 std::function<Result<std::string>()> make,
                 const std::function<void(Result<std::string>)>& send);

}  // namespace lmtp::server
