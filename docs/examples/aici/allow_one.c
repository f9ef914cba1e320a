// Lets one token follow after the other: the argument is their ids, "65 66 67". Then it stops.
#include "aici.h"

static aici_mask mask;
static u32 tokens[1024];
static u32 num_tokens, position;

AICI_EXPORT(aici_init_prompt)(u32 self) {
  (void)self;
  char arg[8192];
  num_tokens = aici_read_numbers(aici_module_arg(arg, sizeof(arg)), tokens, 1024);
  aici_return("{}");
}

AICI_EXPORT(aici_pre_process)(u32 self) {
  (void)self;
  aici_go_on();
}

AICI_EXPORT(aici_mid_process)(u32 self) {
  (void)self;
  if (position == num_tokens) {
    aici_return("\"Stop\"");
    return;
  }
  aici_allow(&mask, tokens[position]);
  aici_host_return_logit_bias(mask.words);
  aici_forbid(&mask, tokens[position]);
  aici_sample();
}

// It is told what was drawn.
AICI_EXPORT(aici_post_process)(u32 self) {
  (void)self;
  char arg[1024];
  u32 drawn = 0;
  aici_find_list(aici_process_arg(arg, sizeof(arg)), "tokens", &drawn, 1);
  ++position;
  aici_post(drawn == aici_host_eos_token());
}
