// The REPL's /decide.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/json_text.h"
#include "lmtp/base/json.h"
#include "lmtp/base/utf8.h"
#include "repl.h"
#include "repl_text.h"

namespace lmtp::tools {
namespace {

constexpr const char* kQuestion = "question";
constexpr int kBarCells = 32;

bool shows_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == 0) continue;
    const std::string_view locale = value;
    return locale.find("UTF-8") != std::string_view::npos ||
           locale.find("utf8") != std::string_view::npos;
  }
  return false;
}

std::string bar(double probability) {
  std::string out;
  const auto num_cells = static_cast<int>(std::lround(probability * kBarCells));
  for (int i = 0; i < num_cells; ++i) out += shows_utf8() ? "\u2588" : "#";
  return out.append(static_cast<std::size_t>(kBarCells - num_cells), ' ');
}

void print_bars(const std::vector<std::pair<std::string, double>>& probabilities) {
  std::size_t widest = 0;
  for (const auto& [name, probability] : probabilities) {
    widest = std::max(widest, num_characters(name));
  }
  for (const auto& [name, probability] : probabilities) {
    print(name + std::string(widest - num_characters(name), ' ') + "  " + bar(probability));
    std::printf(" %5.1f %%\n", 100 * probability);
  }
  std::fflush(stdout);
}

}  // namespace

Repl::Status Repl::decide_line(std::string_view words) {
  Decision asked;
  asked.options = separated(words);
  const std::string instructions(trimmed(asked.options.front()));
  asked.options.erase(asked.options.begin());
  if (instructions.empty()) return fail("write /decide QUESTION ||| OPTION ||| OPTION");
  OrderedJson question = {{"type", asked.options.empty() ? "noul" : "choice"},
                          {"instructions", instructions}};
  for (std::string& option : asked.options) {
    option = trimmed(option);
    OrderedJson& criteria = question["criteria"];
    if (option.empty() || criteria.contains(option)) {
      return fail("an option is empty or there twice; needed are different ones");
    }
    criteria[option] = nullptr;
  }
  asked.message.questions = OrderedJson{{kQuestion, std::move(question)}}.dump();
  if (options_.chat) asked.message.messages = conversation_.said();
  if (!asked.message.messages.empty()) return decide(std::move(asked));
  asked_ = std::move(asked);
  return Status::kOk;
}

Repl::Status Repl::decide(Decision asked) {
  ServerLink::Handler handler;
  handler.on_loading = [this](const protocol::ServerEntry& entry) { show_loading(entry); };
  handler.on_token = [&](const protocol::ServerEntry& entry) {
    end_loading();
    if (options_.raw) return print(python_repr(entry.raw_json) + "\n");
    const auto answers = parse_json(entry.answers_json, "answers");
    const Json* answer = answers ? find_json(*answers, kQuestion) : nullptr;
    const Json* given = answer == nullptr ? nullptr : find_json(*answer, "probabilities");
    const auto number = [](const Json* json) {
      return json != nullptr && json->is_number() ? json->get<double>() : 0.0;
    };
    std::vector<std::pair<std::string, double>> probabilities;
    for (const std::string& option : asked.options) {
      const Json* one = given == nullptr ? nullptr : find_json(*given, option);
      probabilities.emplace_back(one_line(option), std::clamp(number(one), 0.0, 1.0));
    }
    if (asked.options.empty() && answer != nullptr) {
      const double yes = std::clamp(number(find_json(*answer, "noul")), 0.0, 1.0);
      probabilities = {{"yes", yes}, {"no", 1 - yes}};
    }
    print_bars(probabilities);
  };
  const auto outcome = link_.run(std::move(asked.message), handler);
  end_loading();
  return status_of(outcome);
}

}  // namespace lmtp::tools
