// Ids and texts as Hugging Face `tokenizers` gives them, for the demo model and, where
// LMTP_TEST_DATA names the folder of larger test data, for GPT-2's own vocabulary.
#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::tokenizer {
namespace {

using Tokens = std::vector<TokenId>;

std::unique_ptr<Tokenizer> load(const std::string& folder) {
  auto loaded = load_tokenizer(folder);
  if (!loaded) {
    ADD_FAILURE() << loaded.error().message;
    return nullptr;
  }
  return std::move(*loaded);
}

// Checks every {"text", "ids", "decoded"} of a golden; a null text stands for ids that no text
// gives.
void check_golden(const Tokenizer& tokenizer, const std::string& path) {
  simdjson::dom::parser parser;
  simdjson::dom::array rows;
  ASSERT_EQ(parser.load(path).get(rows), simdjson::SUCCESS) << path;
  ASSERT_GT(rows.size(), 20U);
  for (const simdjson::dom::element row : rows) {
    Tokens ids;
    for (const simdjson::dom::element id : row["ids"].get_array()) {
      ids.push_back(static_cast<TokenId>(id.get_int64().value()));
    }
    EXPECT_EQ(tokenizer.decode(ids), std::string_view(row["decoded"])) << row;
    std::string streamed;
    StreamDecoder decoder;
    for (const TokenId id : ids) streamed += decoder.push(tokenizer.token_bytes(id));
    streamed += decoder.finish();
    EXPECT_EQ(streamed, std::string_view(row["decoded"])) << row;
    if (row["text"].is_null()) continue;
    EXPECT_EQ(tokenizer.encode(row["text"].get_string().value()), ids) << row;
  }
}

std::string test_data() {
  const char* folder = std::getenv("LMTP_TEST_DATA");
  return folder == nullptr ? "" : std::string(folder) + "/data";
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(Golden, Demo) {
  const std::string source = LMTP_SOURCE_DIR;
  const auto tokenizer = load(source + "/models/demo");
  ASSERT_NE(tokenizer, nullptr);
  check_golden(*tokenizer, source + "/tests/goldens/tokenizer-demo.json");
  EXPECT_EQ(tokenizer->token_bytes(tokenizer->bos_id()), "<|endoftext|>");
  EXPECT_EQ(tokenizer->eos_id(), tokenizer->bos_id());
}

TEST(Golden, Gpt2) {
  if (test_data().empty()) GTEST_SKIP() << "LMTP_TEST_DATA is not set";
  const auto tokenizer = load(test_data() + "/tokenizers/gpt2");
  ASSERT_NE(tokenizer, nullptr);
  check_golden(*tokenizer, test_data() + "/goldens/tokenizer-gpt2.json");
  EXPECT_EQ(tokenizer->vocab_size(), 50257);
  EXPECT_EQ(tokenizer->bos_id(), 50256);
  EXPECT_EQ(tokenizer->eos_id(), 50256);
}

TEST(Golden, BothFormsOfGpt2GiveTheSame) {
  if (test_data().empty()) GTEST_SKIP() << "LMTP_TEST_DATA is not set";
  const auto one_file = load(test_data() + "/tokenizers/gpt2");
  const auto two_files = load(test_data() + "/models/tiny-gpt2");
  ASSERT_TRUE(one_file && two_files);
  for (const char* name : {"alice-in-wonderland", "grimms-fairy-tales", "tinyshakespeare"}) {
    const std::string text = read_file(test_data() + "/corpus/" + name + ".txt");
    ASSERT_GT(text.size(), 100'000U);
    const Tokens ids = one_file->encode(text);
    EXPECT_EQ(two_files->encode(text), ids) << name;
    EXPECT_EQ(one_file->decode(ids), text) << name;
  }
}

// Nothing quadratic: with it, a word of a million letters would take hours.
TEST(Golden, AWordOfAMillionLetters) {
  const auto tokenizer = load(std::string(LMTP_SOURCE_DIR) + "/models/demo");
  ASSERT_NE(tokenizer, nullptr);
  std::mt19937 random(1);
  std::string text(1'000'000, ' ');
  for (char& letter : text) letter = static_cast<char>('a' + random() % 7);
  const Tokens ids = tokenizer->encode(text);
  EXPECT_EQ(tokenizer->decode(ids), text);
  EXPECT_LT(ids.size(), text.size());
}

}  // namespace
}  // namespace lmtp::tokenizer
