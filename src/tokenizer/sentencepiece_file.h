// tokenizer.model: sentencepiece's file, a protocol buffer, loaded by libsentencepiece. What its
// API does not give (kind of model, user-defined pieces, the unknown piece's name) is parsed here.
//
// Reference: github.com/google/sentencepiece, src/sentencepiece_model.proto.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/result.h"

namespace lmtp::tokenizer {

enum class PieceType : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

enum class SentencePieceKind : std::uint8_t { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };

// The parts of the file that a tokenizer is made of.
struct SentencePieceFile {
  struct Piece {
    std::string text;
    float score = 0.0F;
    PieceType type = PieceType::kNormal;
  };
  std::vector<Piece> pieces;
  SentencePieceKind kind = SentencePieceKind::kUnigram;
  std::string unk_piece = "<unk>";
};

// The error says what is wrong with the bytes.
Result<SentencePieceFile> parse_sentencepiece(std::string_view bytes);

}  // namespace lmtp::tokenizer
