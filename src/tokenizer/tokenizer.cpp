#include "lmtp/tokenizer/tokenizer.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "byte_bpe.h"
#include "json_file.h"
#include "tokenizer_files.h"
#include "utf8.h"

namespace lmtp::tokenizer {
namespace {

Result<ByteBpeModel> read_model_files(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) return Error{folder + ": not a folder"};
  if (file_exists(folder + "/tokenizer.json")) return read_tokenizer_json(folder);
  if (file_exists(folder + "/vocab.json") && file_exists(folder + "/merges.txt")) {
    return read_vocab_and_merges(folder);
  }
  const char* found = "neither tokenizer.json nor vocab.json with merges.txt is there";
  if (file_exists(folder + "/tokenizer.model")) {
    found = "tokenizer.model (sentencepiece) is not supported yet";
  }
  return Error{folder + ": " + found + "; " + kSupportedKinds};
}

}  // namespace

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string bytes;
  for (const TokenId id : ids) bytes.append(token_bytes(id));
  std::string text;
  text.reserve(bytes.size());
  append_valid_utf8(bytes, text);
  return text;
}

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& folder) {
  auto model = read_model_files(folder);
  if (!model) return model.error();
  if (auto read = read_special_ids(folder, *model); !read) return read.error();
  return std::unique_ptr<Tokenizer>(std::make_unique<ByteBpe>(std::move(*model)));
}

}  // namespace lmtp::tokenizer
