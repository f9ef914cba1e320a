// A controller of dialect C that does in each step what a letter of its argument says.
#define AICI_DIALECT_C
#include "aici.h"

static aici_mask mask;
static char script[256];
static u32 position;
static int is_second;

AICI_EXPORT(aici_init_prompt)(u32 self) {
  (void)self;
  aici_module_arg(script, sizeof(script));
  aici_return(script[0] == 'P' ? "{\"prompt\":[80,81]}" : "{}");
  if (script[0] == 'P') ++position;
}

static void sample(u32 token, const char* splices) {
  aici_text result = {.size = 0};
  aici_allow(&mask, token);
  aici_put(&result, "{\"branches\":[{\"sample_mask\":");
  aici_put_number(&result, aici_host_return_logit_bias(mask.words));
  aici_forbid(&mask, token);
  aici_put(&result, ",\"temperature\":null,\"splices\":[");
  aici_put(&result, splices);
  aici_put(&result, "]}]}");
  aici_return_text(&result);
}

// Asks to be asked again.
static void wait(void) {
  --position;
  aici_return(
      "{\"branches\":[{\"sample_mask\":null,\"splices\":"
      "[{\"when_sampled\":[],\"backtrack\":0,\"ff_tokens\":[]}]}]}");
}

AICI_EXPORT(aici_mid_process)(u32 self) {
  (void)self;
  char arg[4096];
  aici_log(aici_process_arg(arg, sizeof(arg)));
  aici_log("\n");
  char value[16];
  switch (script[position++]) {
    case 'm':  // draws an m
      sample('m', "");
      return;
    case 'k':  // draws a k, keeps it, and puts xy behind it
      sample('k', "{\"when_sampled\":[107],\"backtrack\":0,\"ff_tokens\":[120,121]}");
      return;
    case 'd':  // draws a d, and drops it and the token before it
      sample('d', "{\"when_sampled\":[],\"backtrack\":2,\"ff_tokens\":[122]}");
      return;
    case 'u':  // draws a u, which the splice does not mean
      sample('u', "{\"when_sampled\":[1,2],\"backtrack\":5,\"ff_tokens\":[122]}");
      return;
    case 's':  // does not draw: drops a token, and puts two there
      aici_return(
          "{\"branches\":[{\"sample_mask\":null,\"temperature\":null,\"splices\":"
          "[{\"when_sampled\":[],\"backtrack\":1,\"ff_tokens\":[115,116]}]}]}");
      return;
    case 'f':  // two ways on
      aici_return(
          "{\"branches\":["
          "{\"sample_mask\":null,\"splices\":[{\"when_sampled\":[],\"backtrack\":0,\"ff_tokens\":[49]}]},"
          "{\"sample_mask\":null,\"splices\":[{\"when_sampled\":[],\"backtrack\":0,\"ff_tokens\":[50]}]}"
          "]}");
      return;
    case 'w':  // the second waits for the first
      if (aici_find(arg, "tokens")[1] == '5') is_second = 1;
      if (is_second && !aici_get_variable("go", value, sizeof(value))) {
        wait();
      } else {
        sample('w', "");
      }
      return;
    case 'W':  // a wait for what never comes
      wait();
      return;
    case 'g':  // the first lets it go
      aici_set_variable("go", "1");
      sample('g', "");
      return;
    case 'e': {  // a mask that allows nothing
      aici_text result = {.size = 0};
      aici_put(&result, "{\"branches\":[{\"sample_mask\":");
      aici_put_number(&result, aici_host_return_logit_bias(mask.words));
      aici_put(&result, ",\"splices\":[]}]}");
      aici_return_text(&result);
      return;
    }
    default:
      aici_return("{\"branches\":[]}");
  }
}
