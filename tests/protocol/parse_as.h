// A client's message, parsed as the one that a test expects, and what makes long ones.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>

#include "lmtp/protocol/codec.h"

namespace lmtp::protocol {

// `count` times the text, with commas between.
inline std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += (i > 0 ? "," : "") + text;
  return all;
}

template <typename Message>
Message parse_as(const std::string& text, BiasCache& cache) {
  auto parsed = parse_client_message(text, cache);
  if (const auto* error = std::get_if<ParseError>(&parsed)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  auto& message = std::get<ClientMessage>(parsed);
  if (!std::holds_alternative<Message>(message)) {
    ADD_FAILURE() << "another verb";
    return {};
  }
  return std::get<Message>(std::move(message));
}

template <typename Message>
Message parse_as(const std::string& text) {
  BiasCache cache;
  return parse_as<Message>(text, cache);
}

}  // namespace lmtp::protocol
