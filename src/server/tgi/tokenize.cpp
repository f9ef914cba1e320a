#include "tokenize.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "answer.h"
#include "context.h"
#include "error.h"
#include "generation/prompts_answer.h"
#include "lmtp/base/json_writer.h"
#include "lmtp/text/chat_template.h"
#include "openai/request.h"
#include "request.h"
#include "routes.h"

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

// Nothing where the tokens' bytes, one after the other, are not the text.
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

}  // namespace

std::string tgi_tokens_json(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                            std::span<const TokenId> ids, bool has_bos) {
  const auto places = places_of(tokenizer, text, ids, has_bos);
  std::string out;
  JsonWriter json(out, JsonWriter::Style::kCompact);
  json.begin_array();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Place place = places ? (*places)[i] : Place();
    const std::string own = places ? std::string() : tokenizer.decode(ids.subspan(i, 1));
    write_tgi_token(ids[i], places ? text.substr(place.start, place.stop - place.start) : own,
                    json);
    json.field("start", place.start).field("stop", place.stop).end_object();
  }
  json.end_array();
  return out;
}

Then tgi_tokenize(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  std::shared_ptr<const std::string> inputs;
  auto request = read_tgi_inputs(http.body, inputs);
  return [&context, responder, inputs, request = std::move(request)]() mutable {
    if (const auto* error = std::get_if<TgiError>(&request)) {
      return responder->send(tgi_response(*error));
    }
    auto make_body = [inputs](const registry::ReadyModel& model, const Prompts& prompts) {
      const tokenizer::Tokenizer& tokenizer = **model.tokenizer;
      return tgi_tokens_json(tokenizer, *inputs, prompts.front(), tokenizer.adds_bos());
    };
    answer_prompts(context.generation, std::move(std::get<GenerationRequest>(request)), responder,
                   std::move(make_body), [](const Error& error, bool no_model) {
                     return tgi_response(tgi_error(error, no_model));
                   });
  };
}

// A chat's BOS is the template's, and so a part of the text.
Then tgi_chat_tokenize(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  if (!text::renders_chat_templates()) {
    return [responder] {
      responder->send(tgi_response({501, "template_error", std::string(kRendersNoTemplates)}));
    };
  }
  const auto rendered = std::make_shared<std::string>();
  auto request = read_tgi_chat(http.body, rendered);
  return [&context, responder, rendered, request = std::move(request)]() mutable {
    if (const auto* error = std::get_if<TgiError>(&request)) {
      return responder->send(tgi_response(*error));
    }
    auto make_body = [rendered](const registry::ReadyModel& model, const Prompts& prompts) {
      std::string out;
      JsonWriter(out, JsonWriter::Style::kCompact)
          .begin_object()
          .raw_field("tokenize_response",
                     tgi_tokens_json(**model.tokenizer, *rendered, prompts.front(), false))
          .field("templated_text", *rendered);
      return out + '}';
    };
    answer_prompts(context.generation, std::move(std::get<GenerationRequest>(request)), responder,
                   std::move(make_body), [](const Error& error, bool no_model) {
                     return tgi_response(tgi_chat_error(error, no_model));
                   });
  };
}

}  // namespace lmtp::server
