// A controller of dialect C that rejects each token as often as its argument, a digit, says: it
// takes back what was drawn and asks for another, which is drawn from the same tokens.
#define AICI_DIALECT_C
#include "aici.h"

static aici_mask mask;
static u32 num_rejects, num_rejected;

AICI_EXPORT(aici_init_prompt)(u32 self) {
  (void)self;
  char arg[2] = "";
  num_rejects = (u32)(aici_module_arg(arg, sizeof(arg))[0] - '0');
  for (u32 token = 0; token < AICI_VOCABULARY_MAX; ++token) aici_allow(&mask, token);
  aici_return("{}");
}

AICI_EXPORT(aici_mid_process)(u32 self) {
  (void)self;
  const int rejects = num_rejected < num_rejects;
  num_rejected = rejects ? num_rejected + 1 : 0;
  aici_log(rejects ? "no " : "yes ");
  aici_text result = {.size = 0};
  aici_put(&result, "{\"branches\":[{\"sample_mask\":");
  aici_put_number(&result, aici_host_return_logit_bias(mask.words));
  aici_put(&result, ",\"splices\":[");
  if (rejects) aici_put(&result, "{\"when_sampled\":[],\"backtrack\":1,\"ff_tokens\":[]}");
  aici_put(&result, "]}]}");
  aici_return_text(&result);
}
