#include "lmtp/request/logit_bias.h"

#include <cstddef>
#include <limits>

namespace lmtp {

std::shared_ptr<const LogitBias> forbid(const LogitBias* bias, std::span<const TokenId> ids) {
  auto merged = std::make_shared<LogitBias>();
  const std::size_t num_biases = bias == nullptr ? 0 : bias->ids.size();
  merged->ids.reserve(num_biases + ids.size());
  merged->values.reserve(num_biases + ids.size());
  const auto add = [&](TokenId id, float value) {
    merged->ids.push_back(id);
    merged->values.push_back(value);
  };
  std::size_t next = 0;  // of the bias
  const auto add_biases_below = [&](TokenId end) {
    for (; next < num_biases && bias->ids[next] < end; ++next) {
      add(bias->ids[next], bias->values[next]);
    }
  };
  for (const TokenId id : ids) {
    add_biases_below(id);
    add(id, -std::numeric_limits<float>::infinity());
    if (next < num_biases && bias->ids[next] == id) ++next;
  }
  add_biases_below(std::numeric_limits<TokenId>::max());
  return merged;
}

}  // namespace lmtp
