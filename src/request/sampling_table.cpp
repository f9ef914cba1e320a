#include "lmtp/request/sampling_table.h"

#include <type_traits>

#include "lmtp/base/text.h"
#include "lmtp/request/sampling_changes.h"

namespace lmtp {
namespace {

std::string bias_text(const LogitBias& bias) {
  std::string text = "{";
  for (std::size_t i = 0; i < bias.ids.size(); ++i) {
    if (i > 0) text += ',';
    text += number_text(bias.ids[i]) + ":" + number_text(bias.values[i]);
  }
  return text + "}";
}

}  // namespace

std::string param_text(const SamplingParams& params, const SamplingParam& param) {
  const auto text = [&]<typename T>(T SamplingParams::*member) -> std::string {
    if constexpr (std::is_same_v<T, std::shared_ptr<const LogitBias>>) {
      return params.*member ? bias_text(*(params.*member)) : "none";
    } else if constexpr (std::is_same_v<T, std::uint64_t>) {
      return params.has_seed ? number_text(params.*member) : "none";
    } else if constexpr (std::is_same_v<T, bool>) {
      return params.*member ? "true" : "false";
    } else {
      return number_text(params.*member);
    }
  };
  return std::visit(text, param.member);
}

void SamplingChanges::apply(SamplingParams& params) const {
  for (std::size_t i = 0; i < kSamplingTable.size(); ++i) {
    if (!given[i]) continue;
    std::visit([&](auto member) { params.*member = values.*member; }, kSamplingTable[i].member);
  }
}

}  // namespace lmtp
