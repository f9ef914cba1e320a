// Puts tokens behind the prompt without drawing them, lets two follow that the model chooses, and
// then puts the same tokens there again. The argument is their ids.
#include "aici.h"

static u32 tokens[256];
static u32 num_tokens, num_seen;
static int has_begun;

AICI_EXPORT(aici_init_prompt)(u32 self) {
  (void)self;
  char arg[4096];
  num_tokens = aici_read_numbers(aici_module_arg(arg, sizeof(arg)), tokens, 256);
  aici_return("{}");
}

// Before a step: here tokens cost no step at all.
AICI_EXPORT(aici_pre_process)(u32 self) {
  (void)self;
  aici_pre(1, 0, tokens, has_begun ? 0 : num_tokens);
  has_begun = 1;
}

// In place of a draw: a splice that drops nothing.
AICI_EXPORT(aici_mid_process)(u32 self) {
  (void)self;
  if (num_seen == num_tokens + 2) {
    aici_splice(0, tokens, num_tokens);
  } else {
    aici_sample();  // without a mask: any token
  }
}

AICI_EXPORT(aici_post_process)(u32 self) {
  (void)self;
  char arg[4096];
  u32 appended[256];
  num_seen += aici_find_list(aici_process_arg(arg, sizeof(arg)), "tokens", appended, 256);
  aici_post(num_seen >= 2 * num_tokens + 2);
}
