// What a model's tokens say to a client: content and calls, in the order in which they become
// certain. A door writes replies in its protocol; a reader makes them of a sample's text.
#pragma once

#include <boost/container/small_vector.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "lmtp/request/event.h"

namespace lmtp::server {

struct Content {
  std::string text;
};
struct Reasoning {
  std::string text;
};
// A call of a function; CallArguments and CallEnds are of the last one that has begun.
struct CallBegins {
  std::string id;
  std::string function;
};
struct CallArguments {
  std::string json;  // some of it
};
struct CallEnds {};

using ReplyEvent = std::variant<Content, Reasoning, CallBegins, CallArguments, CallEnds>;
using ReplyEvents = boost::container::small_vector<ReplyEvent, 1>;  // mostly one

// One token of one sample, and what has become certain with it.
struct Reply {
  int prompt = 0;  // of the request's
  TokenEvent token;
  bool is_special = false;    // the token; its text is in `events` where the client wants it
  bool is_reasoning = false;  // the token
  int num_prompt_tokens = 0;
  int num_tokens = 0;        // of the sample up to here
  int num_calls_before = 0;  // calls that have begun before this token
  ReplyEvents events = {};
  std::optional<std::string> stop_text = {};  // the stop string that ended the sample

  // All of its content. May be called once.
  std::string take_content();
};

// Reads one sample. Owner: the sample's text, on the connection's strand.
class ReplyReader {
 public:
  virtual ~ReplyReader() = default;

  // `text`: what the token makes certain; empty where it is special and those are left out. The
  // token's finish reason says whether any follows.
  virtual void read(std::string text, const TokenEvent& token, bool is_special,
                    ReplyEvents& events) = 0;
  virtual bool in_reasoning() const { return false; }
  // Whether the text so far ends in a call that the model has begun by itself, where no stop string
  // counts.
  virtual bool in_call() const { return false; }
  // As it is, for a fork of the sample.
  virtual std::unique_ptr<ReplyReader> clone() const = 0;
};

// How the texts of a request are to be read: makes a reader for each. Empty: all of it is content.
using ReplyFormat = std::function<std::unique_ptr<ReplyReader>()>;

}  // namespace lmtp::server
