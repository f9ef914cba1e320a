// A controller that misbehaves in its second mid_process, as the argument says.
#include "aici.h"

static u32 num_steps;

AICI_EXPORT(aici_init_prompt)(u32 self) {
  (void)self;
  char arg[64];
  if (aici_module_arg(arg, sizeof(arg))[0] == 'i') {  // init
    aici_log("there is no way on\n");
    __builtin_trap();
  }
  aici_return("{}");
}

AICI_EXPORT(aici_pre_process)(u32 self) {
  (void)self;
  aici_go_on();
}

AICI_EXPORT(aici_post_process)(u32 self) {
  (void)self;
  aici_post(0);
}

AICI_EXPORT(aici_mid_process)(u32 self) {
  (void)self;
  char arg[64];
  aici_module_arg(arg, sizeof(arg));
  if (num_steps++ == 0) {
    aici_sample();
    return;
  }
  switch (arg[0]) {
    case 'l':  // loop
      for (;;) __asm__ volatile("");
    case 't':  // trap
      aici_log("before the trap\n");
      __builtin_trap();
    case 'm':  // memory: takes all that it gets, and fails when there is no more
      while (__builtin_wasm_memory_grow(0, 16) != (unsigned long)-1) {
      }
      aici_log("no more memory\n");
      __builtin_trap();
    case 'f':  // flood
      for (u32 i = 0; i < 20000; ++i) aici_log("a line that is written very often\n");
      aici_log("the last line\n");
      aici_sample();
      return;
    case 'j':  // json
      aici_return("{\"SampleWithBias\":");
      return;
    case 'w':  // words: an address beyond the memory
      aici_host_return_logit_bias((const u32*)0xFFFFFFF0u);
      aici_sample();
      return;
    case 'b':  // blob
      aici_host_read_blob(77, arg, 1);
      return;
    case 'v': {  // vocabulary: a token that is none
      const u32 token = 1u << 30;
      aici_splice(0, &token, 1);
      return;
    }
    case 'o':  // overwrites a variable for ever
      for (;;) aici_set_variable("name", "value");
    case 's':  // storage
      aici_host_storage_cmd("{}", 2);
      return;
    case 'r': {  // recursion
      volatile char frame[65536];
      frame[0] = 1;
      aici_mid_process(frame[0]);
      frame[1] = 1;
      return;
    }
    case 'x':  // stops itself
      aici_host_stop();
      return;
    default:  // returns nothing
      return;
  }
}
