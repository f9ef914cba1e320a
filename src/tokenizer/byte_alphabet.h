// GPT-2's spelling of bytes: vocabularies are JSON text, so each byte is written as a printable
// character. Printable Latin-1 stands for itself, the other 68 bytes are U+0100 and on.
//
// Reference: OpenAI gpt-2, src/encoder.py, bytes_to_unicode.
#pragma once

#include <string>
#include <string_view>

namespace lmtp::tokenizer {

// Appends the bytes that `spelling` stands for. False, with `out` unchanged, if a character is not
// in the alphabet (a plain space in an added token, for example).
// REQUIRES: `spelling` is valid UTF-8.
bool append_spelt_bytes(std::string_view spelling, std::string& out);

// Appends the spelling of `bytes`.
void append_spelling(std::string_view bytes, std::string& out);

}  // namespace lmtp::tokenizer
