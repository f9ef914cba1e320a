#include "truncation.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "generation/ordered_members.h"
#include "items.h"

namespace lmtp::server {
namespace {

bool has_role(const OrderedJson& item, std::string_view role) {
  const std::string* const own = find_ordered_text(item, "role");
  return own != nullptr && *own == role;
}

bool is_output(const OrderedJson& item) {
  const std::string* const type = find_ordered_text(item, "type");
  return type != nullptr && type->ends_with("_output");
}

// Where a unit begins: one flag for each item.
std::vector<bool> unit_begins(const OrderedJson& items, std::size_t last_user) {
  std::vector<bool> begins(items.size());
  std::unordered_map<std::string, std::size_t> calls;
  for (std::size_t i = 0; i < items.size(); ++i) {
    begins[i] = i == 0 || has_role(items[i], "user") || i == last_user + 1 ||
                (i > last_user && !is_output(items[i]) && is_output(items[i - 1]));
    const std::string* const id = find_ordered_text(items[i], "call_id");
    if (id == nullptr) continue;
    if (!is_output(items[i])) {
      calls[*id] = i;
    } else if (const auto call = calls.find(*id); call != calls.end()) {
      std::fill(begins.begin() + static_cast<std::ptrdiff_t>(call->second) + 1,
                begins.begin() + static_cast<std::ptrdiff_t>(i) + 1, false);
      call->second = i;  // what is joined once need not be again
    }
  }
  return begins;
}

OrderedJson without(const OrderedJson& items, const std::vector<std::vector<std::size_t>>& units,
                    std::size_t num_units) {
  std::vector<bool> is_left_out(items.size());
  for (std::size_t i = 0; i < num_units; ++i) {
    for (const std::size_t at : units[i]) is_left_out[at] = true;
  }
  OrderedJson kept = OrderedJson::array();
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!is_left_out[i]) kept.push_back(items[i]);
  }
  return kept;
}

class Truncation {
 public:
  Truncation(const ChatPrompt& prompt, const TruncatedInput& input,
             const registry::ReadyModel& model)
      : prompt_(prompt), input_(input), model_(model) {
    constexpr int kUsualAnswer = 4096;  // tokens
    const int context = model.limits.total_tokens_max();
    const int wanted = input.num_new > 0 ? input.num_new : std::min(context / 8, kUsualAnswer);
    const int num_new = std::clamp(wanted, 1, std::max(1, context / 2));
    num_max_ = static_cast<std::size_t>(
        std::max(1, std::min(context - num_new, model.limits.input_tokens_max())));
  }

  Result<Prompts> run() {
    auto whole = render(prompt_.chat.messages);
    // A template refuses to write very long texts.
    constexpr std::size_t kLongBytes = std::size_t{512} << 10;
    const bool is_long = prompt_.chat.messages.size() > kLongBytes;
    if (whole ? fits(*whole) : !is_long) return whole;
    auto items = parse_ordered_json(input_.items, "input");
    if (!items) return items.error();
    const auto units = droppable_items(*items);
    std::size_t low = 1;  // the fewest that may be enough
    std::size_t high = units.size();
    // Each one holds up others' chats: so a few more than need be may be left out.
    for (int left = kRendersMax; low < high && left > 0; --left) {
      const std::size_t middle = left == kRendersMax && whole
                                     ? guess(*items, units, whole->front().size())
                                     : (low + high) / 2;
      const auto some = render_without(*items, units, middle);
      if (!some && !is_long) return some;
      some&& fits(*some) ? high = middle : low = middle + 1;
    }
    return units.empty() ? std::move(whole) : render_without(*items, units, high);
  }

 private:
  static constexpr int kRendersMax = 6;

  // How many units have as large a part of the text as the tokens that are too many have of
  // `num_tokens`; below units.size().
  std::size_t guess(const OrderedJson& items, const std::vector<std::vector<std::size_t>>& units,
                    std::size_t num_tokens) const {
    const double part = 1 - static_cast<double>(num_max_) / static_cast<double>(num_tokens);
    const double wanted = part * static_cast<double>(input_.items.size());
    double num_bytes = 0;
    for (std::size_t i = 0; i + 1 < units.size(); ++i) {
      for (const std::size_t at : units[i]) {
        num_bytes += static_cast<double>(items[at].dump().size());
      }
      if (num_bytes >= wanted) return i + 1;
    }
    return std::max<std::size_t>(1, units.size() - 1);
  }

  bool fits(const Prompts& prompts) const { return prompts.front().size() <= num_max_; }

  Result<Prompts> render_without(const OrderedJson& items,
                                 const std::vector<std::vector<std::size_t>>& units,
                                 std::size_t num_units) const {
    auto messages = messages_of_items(input_.instructions, without(items, units, num_units));
    if (!messages) return messages.error();
    keep_reasoning(*messages);
    return render(messages->dump());
  }

  // The last one decides on the plan of the reply.
  Result<Prompts> render(const std::string& messages) const {
    ChatPrompt prompt = prompt_;
    prompt.chat.messages = messages;
    GenerationRequest generation;
    set_prompt(std::move(prompt), generation);
    return generation.make_prompts(model_);
  }

  const ChatPrompt& prompt_;
  const TruncatedInput& input_;
  const registry::ReadyModel& model_;
  std::size_t num_max_ = 0;  // tokens of the prompt
};

}  // namespace

std::vector<std::vector<std::size_t>> droppable_items(const OrderedJson& items) {
  std::size_t last_user = items.size();
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (has_role(items[i], "user")) last_user = i;
  }
  if (last_user == items.size()) return {};
  const std::vector<bool> begins = unit_begins(items, last_user);
  std::vector<std::vector<std::size_t>> units;
  for (std::size_t begin = 0; begin < items.size();) {
    std::size_t end = begin + 1;
    while (end < items.size() && !begins[end]) ++end;
    const bool is_needed = (begin <= last_user && last_user < end) || end == items.size();
    std::vector<std::size_t> unit;
    for (std::size_t i = begin; i < end && !is_needed; ++i) {
      if (!has_role(items[i], "system") && !has_role(items[i], "developer")) unit.push_back(i);
    }
    if (!unit.empty()) units.push_back(std::move(unit));
    begin = end;
  }
  return units;
}

void set_truncated_prompt(ChatPrompt prompt, TruncatedInput input, GenerationRequest& generation) {
  const std::size_t num_bytes = input.items.size();
  set_prompt(prompt, generation);
  generation.num_bytes += num_bytes;
  generation.make_prompts = [prompt = std::move(prompt),
                             input = std::move(input)](const registry::ReadyModel& model) {
    return Truncation(prompt, input, model).run();
  };
}

}  // namespace lmtp::server
