#include "unigram.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "lmtp/base/utf8.h"

namespace lmtp::tokenizer {
namespace {

constexpr double kUnkPenalty = 10.0;

}  // namespace

Result<std::unique_ptr<Unigram>> Unigram::make(std::vector<Piece> pieces, TokenId unk_id,
                                               bool byte_fallback) {
  if (unk_id >= static_cast<TokenId>(pieces.size())) {
    return Error{ErrorCode::kInvalid, "unk_id is " + std::to_string(unk_id) +
                                          ", but there are only " + std::to_string(pieces.size()) +
                                          " pieces"};
  }
  std::unique_ptr<Unigram> model(new Unigram);
  model->pieces_ = std::move(pieces);
  double score_min = std::numeric_limits<double>::infinity();
  std::vector<std::pair<std::string_view, std::int32_t>> entries;
  for (std::size_t i = 0; i < model->pieces_.size(); ++i) {
    const Piece& piece = model->pieces_[i];
    score_min = std::min(score_min, piece.score);
    if (!piece.text.empty()) entries.emplace_back(piece.text, static_cast<std::int32_t>(i));
  }
  model->trie_ = ByteTrie(std::move(entries));
  model->unk_id_ = unk_id;
  model->unk_score_ = score_min - kUnkPenalty;
  model->byte_fallback_ = byte_fallback;
  constexpr const char* kHexDigits = "0123456789ABCDEF";
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const char name[] = {'<', '0', 'x', kHexDigits[byte >> 4], kHexDigits[byte & 0xF], '>'};
    model->byte_tokens_[byte] = model->find({name, sizeof name});
  }
  return model;
}

TokenId Unigram::find(std::string_view spelling) const {
  TokenId found = -1;
  trie_.for_each_prefix(spelling, [&](std::size_t length, std::int32_t value) {
    if (length == spelling.size()) found = value;
  });
  return found;
}

std::string_view Unigram::text(TokenId id) const {
  if (id < 0 || id >= num_tokens()) return {};
  return pieces_[static_cast<std::size_t>(id)].text;
}

void Unigram::find_best(std::string_view word, std::vector<Node>& ends_at) const {
  ends_at.assign(word.size() + 1, {});
  for (std::size_t start = 0; start < word.size();) {
    const double score_here = ends_at[start].score;
    const std::size_t char_bytes = code_point_at(word, start).num_bytes;
    bool has_char = false;
    const auto propose = [&](std::size_t length, TokenId id, double score) {
      Node& node = ends_at[start + length];
      if (node.start == kNoStart || score_here + score > node.score) {
        node = {id, score_here + score, start};
      }
    };
    trie_.for_each_prefix(word.substr(start), [&](std::size_t length, std::int32_t id) {
      propose(length, id, pieces_[static_cast<std::size_t>(id)].score);
      has_char = has_char || length == char_bytes;
    });
    if (!has_char) propose(char_bytes, unk_id_, unk_score_);
    start += char_bytes;
  }
}

void Unigram::append_tokens(std::string_view word, std::vector<TokenId>& out) const {
  std::vector<Node> ends_at;
  find_best(word, ends_at);
  // From the end; adjacent unknown pieces are merged.
  std::vector<std::string_view> pieces;
  bool after_unk = false;
  for (std::size_t end = word.size(); end > 0;) {
    const Node& node = ends_at[end];
    const bool unknown = node.id == unk_id_;
    if (unknown && after_unk) {
      const std::string_view later = pieces.back();
      pieces.back() = word.substr(node.start, end - node.start + later.size());
    } else {
      pieces.push_back(word.substr(node.start, end - node.start));
    }
    after_unk = unknown;
    end = node.start;
  }
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) append_piece(*piece, out);
}

void Unigram::append_piece(std::string_view text, std::vector<TokenId>& out) const {
  if (const TokenId token = find(text); token >= 0) {
    out.push_back(token);
    return;
  }
  const bool falls_back =
      byte_fallback_ && std::all_of(text.begin(), text.end(), [this](char letter) {
        return byte_tokens_[static_cast<unsigned char>(letter)] >= 0;
      });
  if (falls_back) {
    for (const char letter : text) out.push_back(byte_tokens_[static_cast<unsigned char>(letter)]);
  } else if (unk_id_ >= 0) {
    out.push_back(unk_id_);
  }
}

}  // namespace lmtp::tokenizer
