#include "driver.h"

#include <algorithm>

namespace lmtp::aicirt {

void Driver::advance(Sequence id, aici::Report report) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->slots[id].is_under_way = true;
  }
  runtime_.advance(id, std::move(report), [id, state = state_](Advance answer) {
    const std::lock_guard lock(state->mutex);
    if (const auto found = state->slots.find(id); found != state->slots.end()) {
      found->second = {.advance = std::move(answer)};
    }
    state->changed.notify_all();
  });
}

void Driver::choose(Sequence id, std::vector<Sequence> group) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->slots[id].is_under_way = true;
  }
  runtime_.choose(id, std::move(group), [id, state = state_](Choice answer) {
    const std::lock_guard lock(state->mutex);
    if (const auto found = state->slots.find(id); found != state->slots.end()) {
      found->second = {.choice = std::move(answer)};
    }
    state->changed.notify_all();
  });
}

void Driver::free(Sequence id) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->slots.erase(id);
  }
  runtime_.free(id);
}

void Driver::wait(const std::vector<Sequence>& ids, std::chrono::milliseconds time) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, time, [&] {
    return std::ranges::none_of(ids, [&](Sequence id) { return state_->slots[id].is_under_way; });
  });
}

bool Driver::is_under_way(Sequence id) const {
  const std::lock_guard lock(state_->mutex);
  return state_->slots[id].is_under_way;
}

std::optional<Advance> Driver::take_advance(Sequence id) {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->slots[id].advance, {});
}

std::optional<Choice> Driver::take_choice(Sequence id) {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->slots[id].choice, {});
}

}  // namespace lmtp::aicirt
