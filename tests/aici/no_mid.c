// No controller: it has no aici_mid_process.
#include "aici.h"

AICI_EXPORT(aici_init_prompt)(u32 self) {
  (void)self;
  aici_return("{}");
}
AICI_EXPORT(aici_pre_process)(u32 self) {
  (void)self;
  aici_go_on();
}
