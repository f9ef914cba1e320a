// Cannot be forked: a second mutable global is state beside the memory.
#include "aici.h"

__asm__(
    ".globaltype counter, i32\n"
    "counter:\n");

static u32 num_steps;

AICI_EXPORT(aici_init_prompt)(u32 self) {
  (void)self;
  aici_return("{}");
}
AICI_EXPORT(aici_pre_process)(u32 self) {
  (void)self;
  aici_pre(num_steps++ == 0 ? 2 : 1, 0, 0, 0);
}
AICI_EXPORT(aici_mid_process)(u32 self) {
  (void)self;
  __asm__ volatile("i32.const 1\nglobal.set counter\n");
  aici_sample();
}
AICI_EXPORT(aici_post_process)(u32 self) {
  (void)self;
  aici_post(1);
}
