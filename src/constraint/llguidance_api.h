// The part of llguidance's C interface that this program uses, as parser/llguidance.h of version
// kVersion declares it. The wheel on PyPI holds the library and no header.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lmtp::constraint::llg {

inline constexpr const char* kVersion = "1.9.1";

struct Tokenizer;
struct Matcher;

// Writes at most `num_max` tokens and returns how many there are. Any thread.
using TokenizeFn = std::size_t (*)(const void* user_data, const std::uint8_t* bytes,
                                   std::size_t num_bytes, std::uint32_t* tokens,
                                   std::size_t num_max);

inline constexpr std::uint32_t kNoToken = 0xffffffff;

struct TokenizerInit {
  std::size_t struct_size = sizeof(TokenizerInit);
  std::uint32_t vocab_size = 0;
  std::uint32_t tok_eos = kNoToken;
  const std::uint32_t* token_lens = nullptr;
  const std::uint8_t* token_bytes = nullptr;
  const char* tokenizer_json = nullptr;
  bool tokenize_assumes_string = false;  // tokenize_fn takes UTF-8 alone
  TokenizeFn tokenize_fn = nullptr;
  bool use_approximate_greedy_tokenize_fn = false;
  const void* tokenize_user_data = nullptr;
  const char* const* slices = nullptr;
  const std::uint32_t* tok_eos_extra = nullptr;
  std::uint32_t tok_eos_extra_count = 0;
};

// 0: the library's default.
struct ParserLimits {
  std::size_t max_items_in_row = 0;
  std::uint64_t initial_lexer_fuel = 0;
  std::uint64_t step_lexer_fuel = 0;
  std::size_t step_max_items = 0;
  std::size_t max_lexer_states = 0;
  std::size_t max_grammar_size = 0;
  bool precompute_large_lexemes = false;
  bool verbose_errors = false;
};

struct ConstraintInit {
  const Tokenizer* tokenizer = nullptr;
  std::uint32_t log_buffer_level = 0;
  std::uint32_t log_stderr_level = 0;
  bool ff_tokens_ok = false;
  bool backtrack_ok = false;
  ParserLimits limits;
};

// Its functions, by the names that they have there without "llg_". Those that return an int32 give
// -1 for an error, which matcher_get_error() then tells. A matcher is used by one thread at a time.
struct Api {
  const char* (*get_version)();
  Tokenizer* (*new_tokenizer_v2)(const TokenizerInit*, char* error, std::size_t error_size);
  void (*free_tokenizer)(Tokenizer*);
  void (*constraint_init_set_defaults)(ConstraintInit*, const Tokenizer*);
  Matcher* (*new_matcher)(const ConstraintInit*, const char* kind, const char* text);
  Matcher* (*clone_matcher)(const Matcher*);
  void (*free_matcher)(Matcher*);
  const char* (*matcher_get_error)(Matcher*);
  std::int32_t (*matcher_compute_mask_into)(Matcher*, std::uint32_t* words, std::size_t num_bytes);
  std::int32_t (*matcher_compute_ff_tokens)(Matcher*, std::uint32_t* tokens, std::size_t num_max);
  std::int32_t (*matcher_validate_tokens)(Matcher*, const std::uint32_t*, std::size_t num);
  std::int32_t (*matcher_consume_token)(Matcher*, std::uint32_t token);
  std::int32_t (*matcher_rollback)(Matcher*, std::size_t num_tokens);
  bool (*matcher_is_stopped)(const Matcher*);
};

}  // namespace lmtp::constraint::llg
