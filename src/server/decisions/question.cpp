#include "question.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include "lmtp/base/text.h"

namespace lmtp::server {
namespace {

constexpr std::size_t kMistakesBytesMax = std::size_t{64} << 10;

// repr() of a float.
std::string python_number(double number) {
  if (!std::isfinite(number)) return "null";  // which the parser makes of them
  char digits[32];
  const auto size = std::abs(number);
  const bool is_scientific = size != 0 && (size < 1e-4 || size >= 1e16);
  const auto [end, error] =
      std::to_chars(digits, digits + sizeof(digits), number,
                    is_scientific ? std::chars_format::scientific : std::chars_format::fixed);
  std::string text(digits, end);
  if (!is_scientific && text.find('.') == std::string::npos) text += ".0";
  return text;
}

void append_python(const OrderedJson& value, std::string& out) {
  if (value.is_number_float()) {
    out += python_number(value.get<double>());
  } else if (!value.is_structured()) {
    out += value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  } else {
    const bool is_object = value.is_object();
    out.push_back(is_object ? '{' : '[');
    const std::size_t first = out.size();
    for (const auto& [key, item] : value.items()) {
      if (out.size() > first) out.append(", ");
      if (is_object) out += OrderedJson(key).dump() + ": ";
      append_python(item, out);
    }
    out.push_back(is_object ? '}' : ']');
  }
}

}  // namespace

std::optional<Scoring> scoring_by_name(std::string_view name) {
  if (name == "auto") return Scoring::kAuto;
  if (name == "label") return Scoring::kLabel;
  if (name == "option") return Scoring::kOption;
  if (name == "option_mean") return Scoring::kOptionMean;
  return std::nullopt;
}

void QuestionMistakes::add(const std::string& question, const std::string& what) {
  if (text_.size() > kMistakesBytesMax) {
    ++num_more_;
    return;
  }
  if (!text_.empty()) text_.push_back('\n');
  text_ += question + ": " + what;
}

void QuestionMistakes::check(const std::vector<Question>& questions) {
  if (questions.empty()) return add("questions", "has none; needed is at least one");
  if (questions.size() > kQuestionsMax) {
    return add("questions", "has " + std::to_string(questions.size()) + "; allowed are at most " +
                                std::to_string(kQuestionsMax));
  }
  std::size_t num_options = 0;
  for (const Question& question : questions) num_options += question.options.size();
  if (num_options > kOptionsOfAllMax) {
    add("questions", "have " + std::to_string(num_options) + " options; allowed are at most " +
                         std::to_string(kOptionsOfAllMax));
  }
}

Error QuestionMistakes::error() const {
  const std::string more = num_more_ > 0 ? "\nand " + std::to_string(num_more_) + " more" : "";
  return {ErrorCode::kInvalid, text_ + more};
}

std::string content_text(const OrderedJson& content) {
  if (content.is_null()) return "";
  if (const auto* text = content.get_ptr<const std::string*>()) return *text;
  std::string out;
  append_python(content, out);
  return out;
}

}  // namespace lmtp::server
