#include "sentencepiece_file.h"

#include <simdjson.h>

#include <bit>
#include <optional>

namespace lmtp::tokenizer {
namespace {

// Field numbers of sentencepiece_model.proto.
constexpr std::uint64_t kPieces = 1, kTrainerSpec = 2;
constexpr std::uint64_t kPieceText = 1, kPieceScore = 2, kPieceType = 3;
constexpr std::uint64_t kModelType = 3, kUnkPiece = 45;

// Walks over the fields of one message.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}

  // False at the end, and where the bytes are broken.
  bool next() {
    if (bytes_.empty()) return false;
    const auto key = take_varint();
    if (!key) return fail();
    number = *key >> 3;
    switch (*key & 7) {
      case 0: {
        const auto value = take_varint();
        if (!value) return fail();
        varint = *value;
        return true;
      }
      case 1:
        return take(8) || fail();
      case 2: {
        const auto size = take_varint();
        return (size && take(*size)) || fail();
      }
      case 5:
        return take(4) || fail();
      default:
        return fail();
    }
  }
  bool broken() const { return broken_; }

  // Of the field that next() came to; each is meant where its type fits.
  std::uint64_t number = 0;
  std::uint64_t varint = 0;
  std::string_view text;  // the bytes of any other type

  float as_float() const {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 4 && i < text.size(); ++i) {
      bits |= std::uint32_t{static_cast<unsigned char>(text[i])} << (8 * i);
    }
    return std::bit_cast<float>(bits);
  }

 private:
  bool fail() {
    broken_ = true;
    return false;
  }
  bool take(std::uint64_t size) {
    if (size > bytes_.size()) return false;
    text = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return true;
  }
  std::optional<std::uint64_t> take_varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::string_view bytes_;
  bool broken_ = false;
};

bool read_piece(std::string_view bytes, SentencePieceFile::Piece& piece) {
  Fields fields(bytes);
  while (fields.next()) {
    if (fields.number == kPieceText) piece.text = fields.text;
    if (fields.number == kPieceScore) piece.score = fields.as_float();
    if (fields.number == kPieceType) piece.type = static_cast<PieceType>(fields.varint);
  }
  return !fields.broken() && simdjson::validate_utf8(piece.text.data(), piece.text.size());
}

bool read_trainer_spec(std::string_view bytes, SentencePieceFile& file) {
  Fields fields(bytes);
  while (fields.next()) {
    if (fields.number == kModelType) file.kind = static_cast<SentencePieceKind>(fields.varint);
    if (fields.number == kUnkPiece) file.unk_piece = fields.text;
  }
  return !fields.broken();
}

}  // namespace

Result<SentencePieceFile> parse_sentencepiece(std::string_view bytes) {
  const Error broken{
      ErrorCode::kInvalid,
      "not a sentencepiece model, or cut off (Llama 3's is of another kind: its tokenizer.json is "
      "needed)"};
  SentencePieceFile file;
  Fields fields(bytes);
  while (fields.next()) {
    if (fields.number == kPieces) {
      file.pieces.emplace_back();
      if (!read_piece(fields.text, file.pieces.back())) return broken;
    }
    if (fields.number == kTrainerSpec && !read_trainer_spec(fields.text, file)) return broken;
  }
  if (fields.broken() || file.pieces.empty()) return broken;
  return file;
}

}  // namespace lmtp::tokenizer
