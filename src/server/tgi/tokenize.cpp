#include "tokenize.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "answer.h"
#include "error.h"
#include "lmtp/base/json.h"
#include "request.h"

namespace lmtp::server {
namespace {

struct Place {
  std::size_t start = 0;
  std::size_t stop = 0;
};

bool continues(char c) { return (c & 0xC0) == 0x80; }

Place widened(std::string_view text, Place place) {
  while (place.start > 0 && continues(text[place.start])) --place.start;
  while (place.stop < text.size() && continues(text[place.stop])) ++place.stop;
  return place;
}

// Nothing where the tokens' bytes, one behind the other, are not the text.
std::optional<std::vector<Place>> places_of(const tokenizer::Tokenizer& tokenizer,
                                            std::string_view text, std::span<const TokenId> ids,
                                            bool has_bos) {
  std::vector<Place> places;
  std::size_t at = 0;
  for (const TokenId id : ids) {
    const std::string_view rest = text.substr(at);
    std::string_view bytes = tokenizer.token_bytes(id);
    const bool is_added = places.empty() && has_bos && id == tokenizer.bos_id();
    if (is_added) bytes = {};
    if (at == 0 && !rest.starts_with(bytes)) bytes = tokenizer.first_token_bytes(id);
    if (!rest.starts_with(bytes)) return std::nullopt;
    places.push_back(is_added ? Place() : widened(text, {at, at + bytes.size()}));
    at += bytes.size();
  }
  return at == text.size() ? std::optional(std::move(places)) : std::nullopt;
}

// Owned by the generation, which computes nothing.
class Tokens : public GenerationListener {
 public:
  Tokens(std::shared_ptr<const std::string> inputs, bool is_chat,
         std::shared_ptr<HttpResponder> responder)
      : inputs_(std::move(inputs)), is_chat_(is_chat), responder_(std::move(responder)) {}

  Result<void> on_prompts(const registry::ReadyModel& model, Prompts& prompts,
                          SamplingParams& /*params*/) override {
    const tokenizer::Tokenizer& tokenizer = **model.tokenizer;
    // A chat's BOS is the template's, and so a part of the text.
    const bool has_bos = !is_chat_ && tokenizer.adds_bos();
    json_ = tgi_tokens_json(tokenizer, *inputs_, prompts.front(), has_bos);
    if (!is_chat_) return {};
    json_ = R"({"tokenize_response":)" + json_ + R"(,"templated_text":)";
    append_json_string(*inputs_, json_);
    json_ += '}';
    return {};
  }
  void on_prompt_token(int /*prompt*/, TokenEvent /*event*/) override {}
  void on_token(GeneratedToken /*token*/) override {}
  void on_end() override { responder_->send({200, "application/json", std::move(json_)}); }
  void on_error(const Error& error, bool no_model) override {
    responder_->send(tgi_response((is_chat_ ? tgi_chat_error : tgi_error)(error, no_model)));
  }

 private:
  const std::shared_ptr<const std::string> inputs_;  // of a chat: its prompt, with the ids
  const bool is_chat_;
  const std::shared_ptr<HttpResponder> responder_;
  std::string json_;
};

}  // namespace

std::string tgi_tokens_json(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                            std::span<const TokenId> ids, bool has_bos) {
  const auto places = places_of(tokenizer, text, ids, has_bos);
  std::string out = "[";
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    const Place place = places ? (*places)[i] : Place();
    const std::string own = places ? std::string() : tokenizer.decode(ids.subspan(i, 1));
    append_tgi_token(ids[i], places ? text.substr(place.start, place.stop - place.start) : own,
                     out);
    out += R"(,"start":)" + std::to_string(place.start) + R"(,"stop":)" +
           std::to_string(place.stop) + '}';
  }
  return out + ']';
}

void answer_tgi_tokenize(ServerContext& context, const HttpRequest& http,
                         const std::shared_ptr<HttpResponder>& responder) {
  std::shared_ptr<const std::string> inputs;
  auto read = read_tgi_inputs(http.body, inputs);
  if (const auto* error = std::get_if<TgiError>(&read)) {
    return responder->send(tgi_response(*error));
  }
  generate(context.generation, std::move(std::get<GenerationRequest>(read)), responder,
           std::make_shared<Tokens>(inputs, false, responder));
}

void answer_tgi_chat_tokenize(ServerContext& context, const HttpRequest& http,
                              const std::shared_ptr<HttpResponder>& responder) {
  const auto rendered = std::make_shared<std::string>();
  auto read = read_tgi_chat(http.body, rendered);
  if (const auto* error = std::get_if<TgiError>(&read)) {
    return responder->send(tgi_response(*error));
  }
  generate(context.generation, std::move(std::get<GenerationRequest>(read)), responder,
           std::make_shared<Tokens>(rendered, true, responder));
}

}  // namespace lmtp::server
