// Ids and texts as Hugging Face gives them, for the demo model, for a small tokenizer of each kind
// (tests/goldens/make_tiny_tokenizers.py) and, from outside the repository, for real vocabularies.
#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmtp/tokenizer/tokenizer.h"
#include "source_dir.h"
#include "test_data.h"

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

// The text as a REPL shows it that begins with nothing.
std::string streamed(const Tokenizer& tokenizer, const Tokens& ids) {
  std::string text;
  StreamDecoder decoder;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    text +=
        decoder.push(i == 0 ? tokenizer.first_token_bytes(ids[i]) : tokenizer.token_bytes(ids[i]));
  }
  return text + decoder.finish();
}

// Checks every {"text", "ids", "decoded"} of a golden; a null text stands for ids that no text
// gives. Texts with `left_out` in them are left out, unless it is empty.
void check_rows(const Tokenizer& tokenizer, const simdjson::dom::array& rows,
                std::string_view left_out = "") {
  ASSERT_GT(rows.size(), 20U);
  for (const simdjson::dom::element row : rows) {
    Tokens ids;
    for (const simdjson::dom::element id : row["ids"].get_array()) {
      ids.push_back(static_cast<TokenId>(id.get_int64().value()));
    }
    const std::string_view decoded = row["decoded"];
    EXPECT_EQ(tokenizer.decode(ids), decoded) << row;
    // A run of byte tokens that is no text decodes to more U+FFFD than a stream shows, which cannot
    // take back what it has shown.
    const bool is_text = decoded.find("\uFFFD") == std::string_view::npos;
    if (is_text) {
      EXPECT_EQ(streamed(tokenizer, ids), decoded) << row;
    }
    if (row["text"].is_null()) continue;
    const std::string_view text = row["text"].get_string().value();
    if (!left_out.empty() && text.find(left_out) != std::string_view::npos) continue;
    EXPECT_EQ(*tokenizer.encode(text), ids) << row;
  }
}

void check_golden(const Tokenizer& tokenizer, const std::string& path) {
  simdjson::dom::parser parser;
  simdjson::dom::array rows;
  ASSERT_EQ(parser.load(path).get(rows), simdjson::SUCCESS) << path;
  check_rows(tokenizer, rows);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(Golden, Demo) {
  const std::string source = testing::source_dir();
  const auto tokenizer = load(source + "/models/demo");
  ASSERT_NE(tokenizer, nullptr);
  check_golden(*tokenizer, source + "/tests/goldens/tokenizer-demo.json");
  EXPECT_EQ(tokenizer->token_bytes(tokenizer->bos_id()), "<|endoftext|>");
  EXPECT_EQ(tokenizer->eos_id(), tokenizer->bos_id());
}

// A tokenizer, and the folder with its cases.json.
void check_cases(const std::filesystem::path& path, const std::filesystem::path& folder,
                 std::string_view left_out = "") {
  SCOPED_TRACE(path);
  const auto tokenizer = load(path);
  ASSERT_NE(tokenizer, nullptr);
  simdjson::dom::parser parser;
  simdjson::dom::object golden;
  ASSERT_EQ(parser.load(folder / "cases.json").get(golden), simdjson::SUCCESS);
  check_rows(*tokenizer, golden["cases"].get_array().value(), left_out);
  EXPECT_EQ(tokenizer->vocab_size(), golden["vocab_size"].get_int64().value());
  EXPECT_EQ(tokenizer->bos_id(), golden["bos_id"].get_int64().value());
  EXPECT_EQ(tokenizer->adds_bos(), golden["adds_bos"].get_bool().value());
  std::vector<std::int64_t> special;
  for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
    if (tokenizer->is_special(id)) special.push_back(id);
  }
  std::vector<std::int64_t> expected;
  for (const auto id : golden["special"].get_array()) expected.push_back(id.get_int64().value());
  EXPECT_EQ(special, expected);
}

void check_folder(const std::filesystem::path& folder) { check_cases(folder, folder); }

// How many there were.
int check_folders_in(const std::string& root) {
  int num_folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    check_folder(entry.path());
    ++num_folders;
  }
  return num_folders;
}

TEST(Golden, ASmallOneOfEachKind) {
  EXPECT_GT(check_folders_in(testing::source_dir() + "/tests/goldens/tokenizers"), 15);
}

// By transformers 4.57, and by 5, whose rules differ (docs/tokenizers.md).
TEST(Golden, AsReleasesOfTransformersSaveThem) {
  const std::string root = testing::source_dir() + "/tests/goldens/saved_tokenizers/";
  EXPECT_EQ(check_folders_in(root + "4.57"), 7);
  EXPECT_EQ(check_folders_in(root + "5.23"), 7);
}

// The same ids where llama.cpp's converter has made one file of a folder. It makes ordinary pieces
// of those that a tokenizer.model calls user-defined.
TEST(Golden, VocabulariesInGgufFiles) {
  const std::string root = testing::source_dir() + "/tests/goldens/";
  for (const std::string name : {"llama2", "llama3", "qwen2"}) {
    check_cases(root + "gguf/tokenizers/" + name + ".gguf", root + "tokenizers/" + name, "<mine>");
  }
}

using testing::TestData;

TEST_F(TestData, Gpt2) {
  const auto tokenizer = load(data("tokenizers/gpt2"));
  ASSERT_NE(tokenizer, nullptr);
  check_golden(*tokenizer, data("goldens/tokenizer-gpt2.json"));
  EXPECT_EQ(tokenizer->vocab_size(), 50257);
  EXPECT_EQ(tokenizer->bos_id(), 50256);
  EXPECT_EQ(tokenizer->eos_id(), 50256);
}

TEST_F(TestData, BothFormsOfGpt2GiveTheSame) {
  const auto one_file = load(data("tokenizers/gpt2"));
  const auto two_files = load(data("models/tiny-gpt2"));
  ASSERT_TRUE(one_file && two_files);
  for (const char* name : {"alice-in-wonderland", "grimms-fairy-tales", "tinyshakespeare"}) {
    const std::string text = read_file(data(std::string("corpus/") + name + ".txt"));
    ASSERT_GT(text.size(), 100'000U);
    const Tokens ids = *one_file->encode(text);
    EXPECT_EQ(*two_files->encode(text), ids) << name;
    EXPECT_EQ(one_file->decode(ids), text) << name;
  }
}

TEST_F(TestData, Llama) {
  for (const std::string name : {"llama-32k", "tok512"}) {
    const auto tokenizer = load(data("tokenizers/" + name));
    ASSERT_NE(tokenizer, nullptr);
    check_golden(*tokenizer, data("goldens/tokenizer-" + name + ".json"));
    EXPECT_EQ(tokenizer->bos_id(), 1);
    EXPECT_TRUE(tokenizer->adds_bos());
  }
}

// Nothing quadratic: with it, a word of a million letters would take hours.
TEST(Golden, AWordOfAMillionLetters) {
  const auto tokenizer = load(testing::source_dir() + "/models/demo");
  ASSERT_NE(tokenizer, nullptr);
  std::mt19937 random(1);
  std::string text(1'000'000, ' ');
  for (char& letter : text) letter = static_cast<char>('a' + random() % 7);
  const Tokens ids = *tokenizer->encode(text);
  EXPECT_EQ(tokenizer->decode(ids), text);
  EXPECT_LT(ids.size(), text.size());
}

}  // namespace
}  // namespace lmtp::tokenizer
