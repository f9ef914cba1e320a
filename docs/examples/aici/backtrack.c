// Lets three tokens follow, takes the last two back and puts others in their place, whose ids are
// the argument. Then it stops. It logs what it is told of each step.
#include "aici.h"

static u32 tokens[256];
static u32 num_tokens, num_steps;

AICI_EXPORT(aici_init_prompt)(u32 self) {
  (void)self;
  char arg[4096];
  num_tokens = aici_read_numbers(aici_module_arg(arg, sizeof(arg)), tokens, 256);
  aici_return("{}");
}

AICI_EXPORT(aici_pre_process)(u32 self) {
  (void)self;
  aici_go_on();
}

AICI_EXPORT(aici_mid_process)(u32 self) {
  (void)self;
  if (num_steps == 3) {
    aici_splice(2, tokens, num_tokens);
  } else {
    aici_sample();
  }
}

AICI_EXPORT(aici_post_process)(u32 self) {
  (void)self;
  char arg[4096];
  aici_log(aici_process_arg(arg, sizeof(arg)));
  aici_log("\n");
  aici_post(++num_steps == 4);
}
