#include "reply_formats.h"

#include <algorithm>
#include <utility>

#include "fresh.h"

namespace lmtp::server {
namespace {

class ForcedCallReader final : public ReplyReader {
 public:
  explicit ForcedCallReader(std::shared_ptr<const ForcedCalls> calls) : calls_(std::move(calls)) {}

  void read(std::string text, const TokenEvent& token, bool /*is_special*/,
            ReplyEvents& events) override {
    const bool is_last = token.finish_reason != FinishReason::kNone;
    held_ += text;
    if (!has_begun_ && !begin(events)) {
      if (is_last) events.emplace_back(Content{std::exchange(held_, {})});
      return;
    }
    const std::string& closing = calls_->closing;
    if (token.finish_reason == FinishReason::kStop && held_.ends_with(closing)) {
      held_.resize(held_.size() - closing.size());
    } else if (!is_last) {  // its end may be the closing
      const std::size_t num_certain = held_.size() - std::min(held_.size(), closing.size());
      text = held_.substr(num_certain);
      held_.resize(num_certain);
      held_.swap(text);
      if (!text.empty()) events.emplace_back(CallArguments{std::move(text)});
      return;
    }
    if (!held_.empty()) events.emplace_back(CallArguments{std::exchange(held_, {})});
    events.emplace_back(CallEnds{});
  }

  std::unique_ptr<ReplyReader> clone() const override {
    return std::make_unique<ForcedCallReader>(*this);
  }

 private:
  // Once it can be told which one it is.
  bool begin(ReplyEvents& events) {
    const auto found = std::ranges::find_if(
        calls_->calls, [&](const auto& call) { return held_.starts_with(call.opening); });
    if (found == calls_->calls.end()) return false;
    held_.erase(0, found->opening.size());
    events.emplace_back(CallBegins{fresh_id("call_"), found->function});
    has_begun_ = true;
    return true;
  }

  std::shared_ptr<const ForcedCalls> calls_;
  bool has_begun_ = false;
  std::string held_;
};

}  // namespace

ReplyFormat make_format(ForcedCalls calls) {
  return [calls = std::make_shared<const ForcedCalls>(std::move(calls))] {
    return std::make_unique<ForcedCallReader>(calls);
  };
}

}  // namespace lmtp::server
