// A chat as a client of any protocol sends it.
#pragma once

#include <cstddef>
#include <string>

namespace lmtp {

// Its parts as texts of JSON. REQUIRES: they are valid JSON.
struct Chat {
  std::string messages;              // a list of objects with "role" and "content"
  std::string tools = {};            // a list; empty: none
  std::string template_kwargs = {};  // an object of what the template may read besides; empty: none
  // Whether the prompt ends with the beginning of the model's answer.
  bool add_generation_prompt = true;

  std::size_t num_bytes() const { return messages.size() + tools.size() + template_kwargs.size(); }
};

}  // namespace lmtp
