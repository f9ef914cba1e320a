#include "marked_arguments.h"

#include <cstddef>
#include <utility>

namespace lmtp::server {

std::string_view closing_of(const text::CallLayout& layout) {
  for (const std::string* const end : {&layout.call_end, &layout.section_end}) {
    const std::size_t at = end->find_first_not_of(kBeforeClosing);
    if (at != std::string::npos) return std::string_view(*end).substr(at);
  }
  return {};
}

MarkedArguments::MarkedArguments(const text::CallLayout& layout, const Parameters& parameters,
                                 bool may_be_any)
    : reader_(make_argument_reader(layout, parameters, may_be_any)),
      closing_(closing_of(layout)),
      mark_(closing_.empty() ? layout.opening : closing_) {}

MarkedArguments::MarkedArguments(const MarkedArguments& other)
    : reader_(other.reader_->clone()),
      closing_(other.closing_),
      mark_(other.mark_),
      num_searched_(other.num_searched_),
      withheld_(other.withheld_),
      withheld_json_(other.withheld_json_),
      was_wrong_(other.was_wrong_),
      is_skipping_(other.is_skipping_) {}

// Where the mark begins, or may begin at the end of what is held.
std::size_t MarkedArguments::find_mark(std::string_view held, FinishReason ends) const {
  std::size_t at = mark_.empty() ? held.size() : num_searched_;
  for (; at < held.size(); ++at) {
    const std::string_view rest = held.substr(at);
    if (rest.starts_with(mark_)) break;
    if (ends == FinishReason::kNone && mark_.starts_with(rest)) break;
  }
  return at;
}

MarkedArguments::State MarkedArguments::read(std::string& held, std::string& json,
                                             FinishReason ends) {
  if (is_skipping_) return skip(held, ends);
  if (!withheld_.empty()) {
    withheld_ += std::string_view(held).substr(num_searched_);
    return read_withheld(held, json, ends);
  }
  const std::size_t at = find_mark(held, ends);
  std::string rest = held.substr(at);
  held.resize(at);
  const State state = reader_->read(held, json);
  num_searched_ = held.size();
  held += rest;
  if (state == State::kWrong && !closing_.empty()) {
    is_skipping_ = true;
    num_searched_ = 0;
    return skip(held, ends);
  }
  if (state != State::kMore || mark_.empty() || !rest.starts_with(mark_)) return state;
  withheld_ = std::move(rest);
  was_wrong_ = reader_->is_wrong();
  if (was_wrong_ && !reader_->may_end()) return break_off(held);
  return read_withheld(held, json, ends);
}

MarkedArguments::State MarkedArguments::read_withheld(std::string& held, std::string& json,
                                                      FinishReason ends) {
  const State state = reader_->read(held, withheld_json_);
  num_searched_ = held.size();  // the rest is withheld_'s
  const bool is_wrong =
      state == State::kWrong || (!was_wrong_ && (state == State::kBroken || reader_->is_wrong()));
  if (is_wrong || (state == State::kMore && ends == FinishReason::kStop)) return break_off(held);
  if (state == State::kMore && ends == FinishReason::kNone) return state;
  json += std::exchange(withheld_json_, {});
  withheld_.clear();
  return state;
}

// They are over with the mark.
MarkedArguments::State MarkedArguments::break_off(std::string& held) {
  held = std::exchange(withheld_, {});
  withheld_json_.clear();
  return State::kBroken;
}

// Without a mark until the end it is text.
MarkedArguments::State MarkedArguments::skip(std::string& held, FinishReason ends) {
  num_searched_ = find_mark(held, ends);
  if (!std::string_view(held).substr(num_searched_).starts_with(mark_)) {
    return ends == FinishReason::kNone ? State::kMore : State::kWrong;
  }
  held.erase(0, num_searched_);
  return State::kBroken;
}

}  // namespace lmtp::server
