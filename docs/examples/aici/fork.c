// Goes on in four ways: A, B, C and D first, then two tokens of the model's choice.
#include "aici.h"

enum { kNumForks = 4 };

static aici_mask mask;
static u32 num_steps;

AICI_EXPORT(aici_init_prompt)(u32 self) {
  (void)self;
  aici_return("{}");
}

AICI_EXPORT(aici_pre_process)(u32 self) {
  (void)self;
  aici_pre(num_steps == 0 ? kNumForks : 1, 0, 0, 0);
}

AICI_EXPORT(aici_mid_process)(u32 self) {
  (void)self;
  char arg[1024];
  u32 group[kNumForks];
  const u32 num = aici_find_list(aici_process_arg(arg, sizeof(arg)), "fork_group", group, kNumForks);
  for (u32 i = 0; num == kNumForks && i < num; ++i) {
    if (group[i] == aici_host_self_seq_id()) aici_allow(&mask, 'A' + i);
  }
  aici_host_return_logit_bias(mask.words);  // allows nothing in later steps: then anything may follow
  for (u32 i = 0; i < kNumForks; ++i) aici_forbid(&mask, 'A' + i);
  aici_sample();
}

AICI_EXPORT(aici_post_process)(u32 self) {
  (void)self;
  aici_post(++num_steps == 3);
}
