// A connection whose entries a test reads as they are on the wire.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/base/ids.h"
#include "ws_client.h"

namespace lmtp::testing {

struct WireStream {
  std::vector<TokenId> tokens;
  std::vector<std::string> pieces;  // of text
  std::string text;                 // all of them
  std::string stop_text;
  std::string finish;
  std::string error;
  std::vector<nlohmann::json> notices;
};

class Wire {
 public:
  explicit Wire(std::uint16_t port) : client_(port) {}

  void send(const std::string& text) { client_.send(text); }
  void settle() { client_.settle(); }

  // The next entry, with "is_msg"; null where the connection has closed.
  nlohmann::json next() {
    const auto entry = client_.next();
    if (!entry) return {};
    nlohmann::json json = nlohmann::json::parse(entry->raw_json);
    json["is_msg"] = entry->is_msg;
    return json;
  }
  // The next one of that stream, notices of its loading left out.
  nlohmann::json next_of(StreamId id) {
    while (true) {
      nlohmann::json entry = next();
      if (entry.is_null()) return entry;
      if (entry["stream_id"] == id && entry.value("status", "") != "loading") return entry;
    }
  }
  nlohmann::json ask(StreamId id, const std::string& text) {
    send(text);
    return next_of(id);
  }
  // Up to the end of all samples.
  std::map<int, WireStream> collect_all(StreamId id, int num_samples) {
    std::map<int, WireStream> samples;
    int num_ended = 0;
    while (num_ended < num_samples) {
      const nlohmann::json entry = next_of(id);
      if (entry.is_null()) {
        ADD_FAILURE() << "the connection has closed";
        return samples;
      }
      WireStream& stream = samples[entry.value("index", 0)];
      if (entry.contains("status")) {
        stream.notices.push_back(entry);
        continue;
      }
      num_ended += take(entry, stream) ? 1 : 0;
    }
    return samples;
  }
  WireStream collect(StreamId id) { return collect_all(id, 1)[0]; }
  WireStream run(StreamId id, const std::string& text) {
    send(text);
    return collect(id);
  }

  WsClient& client() { return client_; }

 private:
  // Whether it was the last one.
  static bool take(const nlohmann::json& entry, WireStream& stream) {
    if (entry.contains("error")) {
      stream.error = entry["error"];
      return true;
    }
    stream.tokens.push_back(entry["token"]);
    if (entry.contains("text")) {
      stream.pieces.push_back(entry["text"]);
      stream.text += stream.pieces.back();
    }
    stream.stop_text = entry.value("stop_text", "");
    if (entry["finish_reason"].is_null()) return false;
    stream.finish = entry["finish_reason"];
    return true;
  }

  WsClient client_;
};

}  // namespace lmtp::testing
