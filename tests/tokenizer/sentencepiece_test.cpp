// tokenizer.model: its bytes, and what a tokenizer is made of it.
#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmtp/tokenizer/tokenizer.h"
#include "sentencepiece_file.h"
#include "support/temp_folder.h"

namespace lmtp::tokenizer {
namespace {

using testing::TempFolder;
using Tokens = std::vector<TokenId>;

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
  return out;
}
std::string number_field(std::uint64_t number, std::uint64_t value) {
  return varint(number << 3) + varint(value);
}
std::string text_field(std::uint64_t number, std::string_view text) {
  return varint(number << 3 | 2) + varint(text.size()) + std::string(text);
}
std::string float_field(std::uint64_t number, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  std::string out = varint(number << 3 | 5);
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(bits >> 8 * i));
  return out;
}

std::string piece(std::string_view text, float score, int type) {
  std::string out = text_field(1, text) + float_field(2, score);
  if (type != 1) out += number_field(3, static_cast<std::uint64_t>(type));
  return text_field(1, out);
}

// a 3, b 4, the mark 5, ab 6, mark+a 7; `settings` are more of the trainer's.
std::string model(int kind, const std::string& more = "", const std::string& settings = "") {
  std::string out = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) +
                    piece("a", -1, 1) + piece("b", -2, 1) + piece("▁", -3, 1) + piece("ab", -4, 1) +
                    piece("▁a", -5, 1) + more;
  // Fields that are of no interest, of all wire types, stand in between.
  const std::string trainer = text_field(1, "input.txt") +
                              number_field(3, static_cast<unsigned>(kind)) + float_field(10, 0.5F) +
                              text_field(45, "<unk>") + settings;
  return out + text_field(2, trainer) + text_field(3, number_field(3, 1));
}

// Of all bytes, as a model with byte_fallback must have them.
std::string byte_pieces() {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string pieces;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    pieces += piece(std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 0xF] + ">", 0, 6);
  }
  return pieces;
}
const std::string kByteFallback = number_field(35, 1);

std::unique_ptr<Tokenizer> load(const std::string& bytes, const std::string& config) {
  const TempFolder folder;
  folder.write("tokenizer.model", bytes);
  folder.write("tokenizer_config.json", config);
  auto loaded = load_tokenizer(folder.path());
  if (!loaded) {
    ADD_FAILURE() << loaded.error().message;
    return nullptr;
  }
  return std::move(*loaded);
}

TEST(SentencePieceFile, ReadsPiecesAndKind) {
  const auto file = parse_sentencepiece(model(2));
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_EQ(file->pieces.size(), 8U);
  EXPECT_EQ(file->kind, SentencePieceKind::kBpe);
  EXPECT_EQ(file->unk_piece, "<unk>");
  EXPECT_EQ(file->pieces[1].text, "<s>");
  EXPECT_EQ(file->pieces[1].type, PieceType::kControl);
  EXPECT_EQ(file->pieces[6].text, "ab");
  EXPECT_FLOAT_EQ(file->pieces[6].score, -4.0F);
  EXPECT_EQ(file->pieces[6].type, PieceType::kNormal);
}

TEST(SentencePieceFile, EveryCutIsAnErrorOrWhole) {
  const std::string bytes = model(2);
  std::size_t num_whole = 0;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    if (parse_sentencepiece(std::string_view(bytes).substr(0, size)).ok()) ++num_whole;
  }
  EXPECT_EQ(num_whole, 6U);  // where no pieces but words are missing, and before the last field
  EXPECT_FALSE(parse_sentencepiece("IQ== 0\nIg== 1\n").ok());
  EXPECT_FALSE(parse_sentencepiece(text_field(1, text_field(1, "\xFF"))).ok());
}

TEST(SentencePieceFile, WhatSentencepieceRefusesIsRefused) {
  const std::string unknown = piece("<unk>", 0, 2);
  ::testing::internal::CaptureStderr();
  for (const auto& [bytes, said] : std::vector<std::pair<std::string, const char*>>{
           {piece("a", 0, 1), "unk is not defined"},
           {unknown + piece("b", 0, 1) + piece("b", -1, 1), "b is already defined"},
           {unknown + piece("", 0, 1), "piece must not be empty"},
           {model(1, piece("<0x09>", 0, 6)),
            "<0x09> is found although `byte_fallback` is false"}}) {
    const auto file = parse_sentencepiece(bytes);
    ASSERT_FALSE(file.ok()) << said;
    EXPECT_TRUE(file.error().message.starts_with("sentencepiece refuses it: "));
    EXPECT_NE(file.error().message.find(said), std::string::npos) << file.error().message;
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");  // it says nothing by itself
}

// The library is not let near them: it would read what a broken charsmap points to.
TEST(SentencePieceFile, CharsmapAndSamplesAreNoMatter) {
  const std::string charsmap("\x04\0\0\0\xFF\xFF\xFF\x7F!", 9);
  const std::string sample = text_field(1, text_field(1, "a") + text_field(2, "no such pieces"));
  const auto file = parse_sentencepiece(model(1) + text_field(3, text_field(2, charsmap)) +
                                        text_field(4, sample));
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->pieces.size(), 8U);
}

TEST(SentencePieceFile, BrokenBytesAreRefusedOrRead) {
  const std::string whole = model(1, byte_pieces(), kByteFallback);
  std::mt19937 random(6);
  std::size_t num_read = 0;
  std::size_t num_refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = whole;
    for (std::uint_fast32_t change = random() % 3 + 1; change > 0; --change) {
      // As often at the front, where all kinds of fields are.
      const std::size_t at = random() % (random() % 2 == 0 ? bytes.size() : 200);
      bytes.replace(at, random() % 3, random() % 3, static_cast<char>(random()));
    }
    ++(parse_sentencepiece(bytes).ok() ? num_read : num_refused);
  }
  EXPECT_GT(num_read, 50U);
  EXPECT_GT(num_refused, 500U);
}

TEST(SentencePieceModel, MergesByScore) {
  const auto tokenizer = load(model(2), R"({"tokenizer_class":"LlamaTokenizer"})");
  ASSERT_NE(tokenizer, nullptr);
  // ab (-4) merges before mark+a (-5).
  EXPECT_EQ(*tokenizer->encode("ab a"), (Tokens{5, 6, 7}));
  EXPECT_EQ(*tokenizer->encode("a<s>a"), (Tokens{7, 1, 7}));
  EXPECT_EQ(*tokenizer->encode("ax"), (Tokens{7, 0}));
  EXPECT_EQ(tokenizer->decode(Tokens{7, 6}), "aab");
  EXPECT_EQ(tokenizer->token_bytes(7), " a");
  EXPECT_EQ(tokenizer->first_token_bytes(7), "a");
  EXPECT_EQ(tokenizer->first_token_bytes(6), "ab");
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_TRUE(tokenizer->is_special(0));  // named by the class alone
}

TEST(SentencePieceModel, ATextThatGoesOnHasNoSpaceInFront) {
  const std::string more = piece("@", -9, 1) + piece("▁@", -9, 1) + piece("@a", -1, 1);
  const auto tokenizer = load(model(2, more), R"({"tokenizer_class":"LlamaTokenizer"})");
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(*tokenizer->encode("b"), (Tokens{5, 4}));
  EXPECT_EQ(*tokenizer->encode_continuation("b"), (Tokens{4}));
  EXPECT_EQ(*tokenizer->encode_continuation(" ab"), (Tokens{5, 6}));
  EXPECT_EQ(*tokenizer->encode_continuation(""), Tokens{});
  // "@" would become one token with it.
  EXPECT_EQ(*tokenizer->encode_continuation("a"), (Tokens{3}));
}

TEST(SentencePieceModel, TheSpaceInFrontIsAsTheConfigSays) {
  const std::string start = R"({"tokenizer_class":"LlamaTokenizer","legacy":)";
  const auto fresh = load(model(2), start + "false}");
  const auto bare =
      load(model(2), start + R"(true,"add_prefix_space":false,"add_bos_token":false})");
  const auto null = load(model(2), start + R"(false,"add_prefix_space":null})");
  ASSERT_TRUE(fresh && bare && null);
  EXPECT_EQ(*fresh->encode("a<s>a"), (Tokens{7, 1, 3}));
  EXPECT_EQ(*bare->encode("a<s>a"), (Tokens{3, 1, 3}));
  EXPECT_EQ(*null->encode("a<s>a"), (Tokens{3, 1, 3}));
  EXPECT_EQ(fresh->decode(Tokens{7}), "a");
  EXPECT_EQ(bare->decode(Tokens{7}), " a");
  EXPECT_FALSE(bare->adds_bos());
}

TEST(SentencePieceModel, UnigramAndUserDefinedPieces) {
  const std::string more = piece("a b", 0, 4) + piece("▁aa", -1, 1);
  const auto tokenizer = load(model(1, more), R"({"tokenizer_class":"LlamaTokenizer"})");
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(*tokenizer->encode("aab"), (Tokens{9, 4}));
  EXPECT_EQ(*tokenizer->encode("aa b"), (Tokens{5, 3, 8}));
  EXPECT_FALSE(tokenizer->is_special(8));
}

TEST(SentencePieceModel, GemmaHasATabInThePlaceOfItsByte) {
  const std::string more = byte_pieces() + piece("<start_of_turn>", 0, 4);
  const auto tokenizer = load(model(2, more, kByteFallback), R"({"tokenizer_class":"GemmaTokenizer",
      "pad_token":"<unk>","eos_token":"<s>","bos_token":"</s>"})");
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(*tokenizer->encode("a\ta"), (Tokens{3, 8 + 9, 3}));
  EXPECT_EQ(*tokenizer->encode(" a"), (Tokens{7}));
  EXPECT_TRUE(tokenizer->is_special(8 + 256));
  EXPECT_EQ(tokenizer->bos_id(), 2);
  EXPECT_EQ(tokenizer->decode(Tokens{7}), " a");
}

}  // namespace
}  // namespace lmtp::tokenizer
