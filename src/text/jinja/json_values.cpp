#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "value.h"

namespace lmtp::jinja {
namespace {

// What nlohmann's parser calls. Each function says whether to go on.
class ValueBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit ValueBuilder(char32_t mark) : mark_(mark) {}

  bool null() override { return add(None{}); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(Int(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(Int(value)); }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") != std::string::npos) return add(value);
    return add(Int(text));  // no 64 bits hold it
  }
  bool string(string_t& value) override { return add(make_text(text_of(value, mark_))); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(std::size_t /*size*/) override { return open(std::make_shared<Dict>()); }
  bool key(string_t& value) override {
    keys_.back() = make_text(text_of(value, mark_));
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t /*size*/) override { return open(make_list({})); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    throw TemplateError(error.what());
  }

  Value root = None{};

 private:
  bool add(Value value) {
    if (open_.empty()) {
      root = std::move(value);
    } else if (const auto* dict = std::get_if<std::shared_ptr<Dict>>(&open_.back())) {
      (*dict)->set(keys_.back(), std::move(value));
    } else {
      std::get<std::shared_ptr<Sequence>>(open_.back())->items.push_back(std::move(value));
    }
    return true;
  }
  bool open(const Value& container) {
    add(container);
    open_.push_back(container);
    keys_.emplace_back(None{});
    return true;
  }
  bool close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  const char32_t mark_;
  std::vector<Value> open_;
  std::vector<Value> keys_;
};

}  // namespace

Value parse_json(std::string_view json, char32_t mark) {
  ValueBuilder builder(mark);
  nlohmann::json::sax_parse(json, &builder);
  return builder.root;
}

}  // namespace lmtp::jinja
