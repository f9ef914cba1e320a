// parse-bench: what parsing a client's message takes, in microseconds: of 20 rounds of 100 messages
// the fastest round's and the median.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "lmtp/protocol/codec.h"

namespace lmtp::protocol {
namespace {

constexpr int kVocabSize = 50257;
constexpr int kNumRounds = 20;
constexpr int kTimesARound = 100;

std::string ids(int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(static_cast<long long>(i) * 7919 % kVocabSize);
  }
  return text + "]";
}

std::string generate(const std::string& prompt, const std::string& field) {
  return "GENERATE {\"temperature\": 0.8, \"max_tokens\": 16, \"model\": \"gpt2\", " + field +
         "\"prompt\": " + prompt + ", \"stream_id\": 12}";
}

// Every other token, as LMQL's masks are at most.
std::string mask() {
  auto every_other = std::make_shared<TokenMask>();
  every_other->num_bytes = (kVocabSize + 7) / 8;
  every_other->words.assign((kVocabSize + 63) / 64, 0x5555555555555555);
  GenerateMessage message;
  message.prompt = {1};
  message.params.mask = every_other;
  const std::string text = serialize_client_message(message);
  const std::size_t begin = text.find("\"mask\"");
  return text.substr(begin, text.find('"', begin + 9) + 1 - begin) + ", ";
}

std::string bias() {
  LogitBias every_other;
  for (int id = 0; id < kVocabSize; id += 2) every_other.ids.push_back(id);
  every_other.values.assign(every_other.ids.size(), -100.0F);
  return "\"logit_bias\": " + serialize_bias(every_other) + ", ";
}

void measure(const char* name, const std::string& text, bool is_cached) {
  std::vector<double> rounds_us;
  BiasCache kept;
  for (int round = 0; round < kNumRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kTimesARound; ++i) {
      BiasCache fresh;
      const auto parsed = parse_client_message(text, is_cached ? kept : fresh);
      if (!std::holds_alternative<ClientMessage>(parsed)) std::abort();
    }
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    rounds_us.push_back(time.count() / kTimesARound);
  }
  std::ranges::sort(rounds_us);
  std::printf("%-40s %9zu %9.2f %9.2f\n", name, text.size(), rounds_us.front(),
              rounds_us[rounds_us.size() / 2]);
}

int run() {
  std::printf("%-40s %9s %9s %9s\n", "message", "bytes", "least us", "median us");
  const auto row = [](const char* name, const std::string& text, bool is_cached = true) {
    measure(name, text, is_cached);
  };
  row("16 ids", generate(ids(16), ""));
  row("16 ids and a mask of 50,257 bits", generate(ids(16), mask()));
  row("16 ids and a logit_bias of 25,129, known", generate(ids(16), bias()));
  row("16 ids and a logit_bias of 25,129, new", generate(ids(16), bias()), false);
  row("25,000 ids", generate(ids(25000), ""));
  row("100 KB of text", generate("\"" + std::string(100000, 'a') + "\"", ""));
  return 0;
}

}  // namespace
}  // namespace lmtp::protocol

int main() { return lmtp::protocol::run(); }
