// A controller of dialect C: mid_process alone, which is told what became of the last step. It goes
// on in two ways: one draws 'a' or 'b', and after a 'b' it puts "!" behind; the other takes the last
// token of the prompt back and puts "?" in its place. Then both stop.
#define AICI_DIALECT_C
#include "aici.h"

static aici_mask mask;
static u32 num_steps;

AICI_EXPORT(aici_init_prompt)(u32 self) {
  (void)self;
  char arg[8192];
  aici_return(aici_process_arg(arg, sizeof(arg)));  // {"prompt":[..]}: as it is
}

AICI_EXPORT(aici_mid_process)(u32 self) {
  (void)self;
  char arg[4096];
  aici_log(aici_process_arg(arg, sizeof(arg)));
  aici_log("\n");
  if (num_steps++ > 0) {
    aici_return("{\"branches\":[]}");
    return;
  }
  aici_allow(&mask, 'a');
  aici_allow(&mask, 'b');
  aici_text result = {.size = 0};
  aici_put(&result, "{\"branches\":[{\"sample_mask\":");
  aici_put_number(&result, aici_host_return_logit_bias(mask.words));
  aici_put(&result,
           ",\"temperature\":0.5,"
           "\"splices\":[{\"when_sampled\":[98],\"backtrack\":0,\"ff_tokens\":[33]}]},"
           "{\"sample_mask\":null,\"temperature\":null,"
           "\"splices\":[{\"when_sampled\":[],\"backtrack\":1,\"ff_tokens\":[63]}]}]}");
  aici_return_text(&result);
}
