// Two sequences: the first draws three tokens and writes the variable "text"; the second waits for it
// and puts the bytes that it finds there behind its tokens, as tokens of a byte each. Then it draws
// one more.
#include "aici.h"

static u32 num_steps, is_second, has_forked;

AICI_EXPORT(aici_init_prompt)(u32 self) {
  (void)self;
  aici_return("{}");
}

AICI_EXPORT(aici_pre_process)(u32 self) {
  (void)self;
  if (!has_forked) {
    has_forked = 1;
    aici_pre(2, 0, 0, 0);
    return;
  }
  if (!is_second || num_steps != 1) {
    aici_go_on();
    return;
  }
  char text[256];
  if (!aici_get_variable("text", text, sizeof(text))) {
    aici_pre(1, 1, 0, 0);
    return;
  }
  u32 forced[256];
  const u32 num = aici_length(text);
  for (u32 i = 0; i < num; ++i) forced[i] = (u8)text[i];
  aici_pre(1, 0, forced, num);
}

AICI_EXPORT(aici_mid_process)(u32 self) {
  (void)self;
  char arg[1024];
  u32 group[2];
  const u32 num = aici_find_list(aici_process_arg(arg, sizeof(arg)), "fork_group", group, 2);
  if (num == 2) is_second = group[1] == aici_host_self_seq_id();
  aici_sample();
}

AICI_EXPORT(aici_post_process)(u32 self) {
  (void)self;
  char arg[64];
  ++num_steps;
  const int has_written = !is_second && num_steps == 3;
  if (has_written && aici_module_arg(arg, sizeof(arg))[0] != '-') aici_set_variable("text", "hello");
  aici_post(has_written || (is_second && num_steps == 3));
}
