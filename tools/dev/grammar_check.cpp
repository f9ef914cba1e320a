// grammar-check: what grammar_check.py and the tests ask about grammars.
//
//   grammar-check lark                 GBNF on standard input, Lark on standard output
//   grammar-check schemas FOLDER       with the tokenizer of FOLDER: on each line of standard input
//                                      {"schema": TEXT, "texts": [TEXT, ...]}, on each of standard
//                                      output {"error": TEXT} or {"taken": [whether a text is one
//                                      of the schema's, ...], "ms": of compiling}; for "begun":
//                                      [[TOKEN, ...], ...] also "begun": [whether a text of the
//                                      schema's may begin so, ...]
//   grammar-check masks FOLDER             what a mask takes, in microseconds
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmtp/base/json.h"
#include "lmtp/constraint/gbnf.h"
#include "lmtp/constraint/grammar_compiler.h"
#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::constraint {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

class Checker {
 public:
  explicit Checker(std::shared_ptr<const tokenizer::Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)),
        // Models that have no end token of their own still end.
        eos_(std::max(0, tokenizer_->eos_id())),
        compiler_(tokenizer_, tokenizer_->vocab_size(), {eos_}) {}

  GrammarCompiler::Compiled compile(const Grammar& grammar) {
    std::promise<GrammarCompiler::Compiled> answer;
    compiler_.compile(grammar, [&](GrammarCompiler::Compiled compiled) {
      answer.set_value(std::move(compiled));
    });
    return answer.get_future().get();
  }

  // Token by token, and complete at its end.
  bool takes(const std::shared_ptr<const CompiledGrammar>& grammar, const std::string& text) {
    const auto ids = tokenizer_->encode_continuation(text);
    if (!ids || ids->empty()) return false;
    const auto before_last = std::span<const TokenId>(*ids).first(ids->size() - 1);
    const auto stream = constrain(grammar, before_last, nullptr);
    if (!stream || !constrain(grammar, *ids, nullptr)) return false;
    if (stream->stops->push(ids->back(), true)) return true;
    std::vector<std::uint32_t> words(num_words());
    NextTokens next{words};
    return stream->mask_source->compute({}, *ids, next).ok() && allows(words, eos_);
  }

  // Draws `num` streams at random; the microseconds of each mask.
  std::vector<double> time_masks(const std::shared_ptr<const CompiledGrammar>& grammar, int num,
                                 std::size_t num_max) {
    std::vector<double> times;
    std::uint64_t state = 1;
    for (int i = 0; i < num; ++i) {
      const auto stream = constrain(grammar, {}, nullptr);
      std::vector<TokenId> tokens;
      while (tokens.size() < num_max) {
        std::vector<std::uint32_t> words(num_words());
        NextTokens next{words};
        const auto start = Clock::now();
        if (!stream->mask_source->compute({}, tokens, next)) break;
        times.push_back(ms_since(start) * 1000);
        std::vector<TokenId> allowed;
        for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id) {
          if (allows(words, id) && id != eos_) allowed.push_back(id);
        }
        if (allowed.empty()) break;
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        tokens.push_back(allowed[(state >> 33U) % allowed.size()]);
        if (stream->stops->push(tokens.back(), true)) break;
        tokens.insert(tokens.end(), next.forced.begin(), next.forced.end());
        for (const TokenId id : next.forced) stream->stops->push(id, false);
      }
    }
    return times;
  }

 private:
  std::size_t num_words() const {
    return (static_cast<std::size_t>(tokenizer_->vocab_size()) + 31) / 32;
  }
  static bool allows(const std::vector<std::uint32_t>& words, TokenId id) {
    return (words[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1U) != 0;
  }

  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  TokenId eos_;
  GrammarCompiler compiler_;
};

int check_schemas(Checker& checker) {
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto request = parse_json_object(line, "standard input");
    const std::string* const schema = request ? find_json_text(*request, "schema") : nullptr;
    const Json* const texts = request ? find_json(*request, "texts") : nullptr;
    if (schema == nullptr || texts == nullptr) return EXIT_FAILURE;
    OrderedJson answer;
    const auto start = Clock::now();
    const auto grammar = checker.compile({Grammar::Kind::kJsonSchema, *schema});
    answer["ms"] = ms_since(start);
    if (grammar) {
      answer["taken"] = OrderedJson::array();
      for (const Json& text : *texts) {
        answer["taken"].push_back(checker.takes(*grammar, text.get<std::string>()));
      }
      for (const Json& ids : request->value("begun", Json::array())) {
        const auto tokens = ids.get<std::vector<TokenId>>();
        answer["begun"].push_back(constrain(*grammar, tokens, nullptr).ok());
      }
    } else {
      answer["error"] = grammar.error().message;
    }
    std::cout << answer.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << '\n'
              << std::flush;
  }
  return EXIT_SUCCESS;
}

void print_times(const char* name, std::vector<double> times) {
  std::ranges::sort(times);
  const auto at = [&](double part) {
    return times[static_cast<std::size_t>(part * static_cast<double>(times.size() - 1))];
  };
  std::printf("%-12s %5zu masks, median %7.1f us, p90 %7.1f, p99 %7.1f", name, times.size(),
              at(0.5), at(0.9), at(0.99));
}

int time_masks(Checker& checker) {
  const std::vector<std::pair<const char*, Grammar>> grammars = {
      {"JSON object", {Grammar::Kind::kJson, ""}},
      {"JSON schema",
       {Grammar::Kind::kJsonSchema,
        R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},
            "mail":{"type":"string","format":"email"},
            "tags":{"type":"array","items":{"type":"string","maxLength":12}}},
            "required":["name","age","mail","tags"],"additionalProperties":false})"}},
      {"regex", {Grammar::Kind::kRegex, "[A-Z][a-z]{2,12}( [a-z]{1,12}){3,30}\\."}},
      {"choice", {Grammar::Kind::kChoice, R"(["positive","negative","neutral"])"}},
      {"Lark",
       {Grammar::Kind::kLark,
        "start: expr\nexpr: term ((\"+\"|\"-\") term)*\nterm: factor ((\"*\"|\"/\") factor)*\n"
        "factor: NUMBER | \"(\" expr \")\"\nNUMBER: /[0-9]{1,9}/"}},
  };
  std::vector<double> all;
  for (const auto& [name, grammar] : grammars) {
    const auto start = Clock::now();
    const auto compiled = checker.compile(grammar);
    if (!compiled) {
      std::fprintf(stderr, "%s: %s\n", name, compiled.error().message.c_str());
      return EXIT_FAILURE;
    }
    const double compile_ms = ms_since(start);
    std::vector<double> times = checker.time_masks(*compiled, 20, 60);
    all.insert(all.end(), times.begin(), times.end());
    print_times(name, std::move(times));
    std::printf("; compiled in %.1f ms\n", compile_ms);
  }
  print_times("all", std::move(all));
  std::printf("\n");
  return EXIT_SUCCESS;
}

int run(std::span<const std::string_view> args) {
  if (args.size() == 1 && args[0] == "lark") {
    const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
    const Result<std::string> lark = gbnf_to_lark(text);
    if (!lark) std::cerr << lark.error().message << '\n';
    if (lark) std::cout << *lark;
    return lark ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  if (args.size() != 2 || (args[0] != "schemas" && args[0] != "masks")) {
    std::cerr << "grammar-check lark | schemas FOLDER | masks FOLDER\n";
    return EXIT_FAILURE;
  }
  auto tokenizer = tokenizer::load_tokenizer(std::string(args[1]));
  if (!tokenizer) {
    std::cerr << tokenizer.error().message << '\n';
    return EXIT_FAILURE;
  }
  Checker checker(std::move(*tokenizer));
  return args[0] == "masks" ? time_masks(checker) : check_schemas(checker);
}

}  // namespace
}  // namespace lmtp::constraint

int main(int argc, char** argv) {
  const std::vector<std::string_view> args(argv + 1, argv + argc);
  return lmtp::constraint::run(args);
}
