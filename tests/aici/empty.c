// The least work that a controller can do, for the benchmark: any token follows, for ever. With an
// argument it forks first.
#include "aici.h"

static aici_mask mask;

AICI_EXPORT(aici_init_prompt)(u32 self) {
  (void)self;
  for (u32 i = 0; i < sizeof(mask.words) / sizeof(u32); ++i) mask.words[i] = 0xFFFFFFFFu;
  aici_return("{}");
}
AICI_EXPORT(aici_pre_process)(u32 self) {
  (void)self;
  aici_return("{\"num_forks\":1,\"suspend\":false,\"ff_tokens\":[]}");
}
AICI_EXPORT(aici_mid_process)(u32 self) {
  (void)self;
  aici_host_return_logit_bias(mask.words);
  aici_sample();
}
AICI_EXPORT(aici_post_process)(u32 self) {
  (void)self;
  aici_post(0);
}
