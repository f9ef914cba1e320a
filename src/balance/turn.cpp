#include "turn.h"

#include <algorithm>
#include <utility>

#include "lmtp/base/guarded.h"
#include "lmtp/base/log.h"

namespace lmtp::balance {

Turn::~Turn() {
  for (Delivery& delivery : deliveries_) {
    const Result<void> delivered = guarded([&]() -> Result<void> {
      deliver_now(*delivery.sink, std::span(delivery.events));
      return {};
    });
    if (delivered) continue;
    guarded_twice([&] {
      log::error("events of connection " + std::to_string(delivery.connection) +
                 " are lost: " + delivered.error().message);
    });
  }
}

// The latest connection is the likeliest: a worker sends the tokens of one step together.
void Turn::queue_event(const Request& request, StreamEvent event) {
  const ConnectionId connection = request.key.connection;
  const auto found =
      std::find_if(deliveries_.rbegin(), deliveries_.rend(),
                   [&](const Delivery& delivery) { return delivery.connection == connection; });
  Delivery& delivery = found != deliveries_.rend()
                           ? *found
                           : deliveries_.emplace_back(Delivery{connection, request.sink, {}});
  delivery.events.push_back(std::move(event));
}

}  // namespace lmtp::balance
