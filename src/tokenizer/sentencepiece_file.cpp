#include "sentencepiece_file.h"

#include <sentencepiece_processor.h>
#include <simdjson.h>

#include <optional>
#include <string>
#include <utility>

namespace lmtp::tokenizer {
namespace {

// Field numbers of sentencepiece_model.proto.
constexpr std::uint64_t kPieces = 1, kTrainerSpec = 2;
constexpr std::uint64_t kPieceType = 3;
constexpr std::uint64_t kModelType = 3, kUnkPiece = 45;

// Iterates over the fields of one message.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}

  // False at the end, and at invalid bytes.
  bool next() {
    if (bytes_.empty()) return false;
    begin_ = bytes_;
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

  // The field that next() found; which member is valid depends on its type.
  std::uint64_t number = 0;
  std::uint64_t varint = 0;
  std::string_view text;  // the bytes of any other type

  // All its bytes, the number included.
  std::string_view whole() const { return begin_.substr(0, begin_.size() - bytes_.size()); }

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
  std::string_view begin_;  // from the field that next() found to the end
  bool broken_ = false;
};

bool read_type(std::string_view piece, PieceType& type) {
  Fields fields(piece);
  while (fields.next()) {
    if (fields.number == kPieceType) type = static_cast<PieceType>(fields.varint);
  }
  return !fields.broken();
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
  // Without the other fields: the library would run the file's self-test samples through its
  // charsmap, and reads beyond the end of corrupt ones.
  std::string vocabulary;
  Fields fields(bytes);
  while (fields.next()) {
    if (fields.number != kPieces && fields.number != kTrainerSpec) continue;
    const bool read = fields.number == kPieces
                          ? read_type(fields.text, file.pieces.emplace_back().type)
                          : read_trainer_spec(fields.text, file);
    if (!read) return broken;
    vocabulary.append(fields.whole());
  }
  if (fields.broken() || file.pieces.empty()) return broken;
  sentencepiece::SentencePieceProcessor library;
  if (const auto status = library.LoadFromSerializedProto(vocabulary); !status.ok()) {
    return Error{ErrorCode::kInvalid, "sentencepiece refuses it: " + status.ToString()};
  }
  if (static_cast<std::size_t>(library.GetPieceSize()) != file.pieces.size()) return broken;
  for (int id = 0; id < library.GetPieceSize(); ++id) {
    SentencePieceFile::Piece& piece = file.pieces[static_cast<std::size_t>(id)];
    piece.text = library.IdToPiece(id);
    piece.score = library.GetScore(id);
    if (!simdjson::validate_utf8(piece.text.data(), piece.text.size())) return broken;
  }
  return file;
}

}  // namespace lmtp::tokenizer
