// For AICI controllers in C without a C library: the host's functions, and what little of JSON and
// of text a controller needs. docs/aici.md shows how to write and compile one.
//
// A controller exports aici_init, aici_create and aici_panic, which are here, aici_init_prompt and
// aici_mid_process, and in dialect A aici_pre_process and aici_post_process. Its state is its
// global variables: a fork has a copy of them.
#pragma once

typedef unsigned char u8;
typedef unsigned int u32;

#define AICI_IMPORT(module, name) __attribute__((import_module(module), import_name(#name)))
#define AICI_EXPORT(name) __attribute__((export_name(#name))) void name

// ---- the host ----

AICI_IMPORT("env", aici_host_read_blob) u32 aici_host_read_blob(u32 blob, void* to, u32 size);
AICI_IMPORT("env", aici_host_module_arg) u32 aici_host_module_arg(void);
AICI_IMPORT("env", aici_host_process_arg) u32 aici_host_process_arg(void);
AICI_IMPORT("env", aici_host_token_trie) u32 aici_host_token_trie(void);
AICI_IMPORT("env", aici_host_tokenize) u32 aici_host_tokenize(const char* text, u32 size);
AICI_IMPORT("env", aici_host_self_seq_id) u32 aici_host_self_seq_id(void);
AICI_IMPORT("env", aici_host_eos_token) u32 aici_host_eos_token(void);
AICI_IMPORT("env", aici_host_return_process_result)
void aici_host_return_process_result(const char* text, u32 size);
AICI_IMPORT("env", aici_host_storage_cmd) u32 aici_host_storage_cmd(const char* text, u32 size);
AICI_IMPORT("env", aici_host_stop) void aici_host_stop(void);
AICI_IMPORT("wasi_snapshot_preview1", fd_write)
u32 aici_wasi_fd_write(u32 file, const void* vectors, u32 num_vectors, u32* num_written);
#ifdef AICI_DIALECT_C  // the one difference in the host's functions
AICI_IMPORT("env", aici_host_return_logit_bias) u32 aici_host_return_logit_bias(const u32* words);
#else
AICI_IMPORT("env", aici_host_return_logit_bias) void aici_host_return_logit_bias(const u32* words);
#endif

// ---- what every controller exports ----

AICI_EXPORT(aici_init)(void) {}
AICI_EXPORT(aici_panic)(void) { __builtin_trap(); }
__attribute__((export_name("aici_create"))) u32 aici_create(void) { return 1; }

// The compiler calls these two.
void* memset(void* to, int value, unsigned long size) {
  for (unsigned long i = 0; i < size; ++i) ((volatile u8*)to)[i] = (u8)value;
  return to;
}
void* memcpy(void* to, const void* from, unsigned long size) {
  for (unsigned long i = 0; i < size; ++i) ((volatile u8*)to)[i] = ((const u8*)from)[i];
  return to;
}

// ---- text ----

static inline u32 aici_length(const char* text) {
  u32 size = 0;
  while (text[size] != 0) ++size;
  return size;
}

// A text that is put together.
typedef struct {
  char bytes[4096];
  u32 size;
} aici_text;

static inline void aici_put(aici_text* to, const char* text) {
  while (*text != 0 && to->size < sizeof(to->bytes)) to->bytes[to->size++] = *text++;
}

static inline void aici_put_number(aici_text* to, u32 number) {
  char digits[12];
  u32 at = sizeof(digits) - 1;
  digits[at] = 0;
  do {
    digits[--at] = (char)('0' + number % 10);
    number /= 10;
  } while (number > 0);
  aici_put(to, digits + at);
}

static inline void aici_put_list(aici_text* to, const u32* numbers, u32 num) {
  aici_put(to, "[");
  for (u32 i = 0; i < num; ++i) {
    if (i > 0) aici_put(to, ",");
    aici_put_number(to, numbers[i]);
  }
  aici_put(to, "]");
}

// Reads the numbers of a text up to its end or to a ']'.
static inline u32 aici_read_numbers(const char* text, u32* to, u32 num_max) {
  u32 num = 0;
  while (*text != 0 && *text != ']') {
    if (*text < '0' || *text > '9') {
      ++text;
      continue;
    }
    u32 number = 0;
    while (*text >= '0' && *text <= '9') number = number * 10 + (u32)(*text++ - '0');
    if (num < num_max) to[num++] = number;
  }
  return num;
}

// ---- arguments and results ----

// The request's argument, as it was sent; ends with a zero.
static inline char* aici_module_arg(char* to, u32 size) {
  const u32 length = aici_host_read_blob(aici_host_module_arg(), to, size - 1);
  to[length < size - 1 ? length : size - 1] = 0;
  return to;
}

// The same of a call, which is JSON.
static inline char* aici_process_arg(char* to, u32 size) {
  const u32 length = aici_host_read_blob(aici_host_process_arg(), to, size - 1);
  to[length < size - 1 ? length : size - 1] = 0;
  return to;
}

// What follows "key": in the JSON that a host sends, which has no spaces; 0 if it is not there.
static inline const char* aici_find(const char* json, const char* key) {
  const u32 length = aici_length(key);
  for (; *json != 0; ++json) {
    u32 i = 0;
    while (i < length && json[i + 1] == key[i]) ++i;
    if (json[0] == '"' && i == length && json[length + 1] == '"' && json[length + 2] == ':') {
      return json + length + 3;
    }
  }
  return 0;
}

// A list of numbers in it.
static inline u32 aici_find_list(const char* json, const char* key, u32* to, u32 num_max) {
  const char* const list = aici_find(json, key);
  return list == 0 ? 0 : aici_read_numbers(list, to, num_max);
}

static inline void aici_return(const char* json) {
  aici_host_return_process_result(json, aici_length(json));
}
static inline void aici_return_text(const aici_text* text) {
  aici_host_return_process_result(text->bytes, text->size);
}

// Results of dialect A.
static inline void aici_pre(u32 num_forks, int suspends, const u32* forced, u32 num_forced) {
  aici_text result = {.size = 0};
  aici_put(&result, "{\"num_forks\":");
  aici_put_number(&result, num_forks);
  aici_put(&result, suspends ? ",\"suspend\":true,\"ff_tokens\":" : ",\"suspend\":false,\"ff_tokens\":");
  aici_put_list(&result, forced, num_forced);
  aici_put(&result, "}");
  aici_return_text(&result);
}
static inline void aici_go_on(void) { aici_pre(1, 0, 0, 0); }
static inline void aici_splice(u32 backtrack, const u32* tokens, u32 num) {
  aici_text result = {.size = 0};
  aici_put(&result, "{\"Splice\":{\"backtrack\":");
  aici_put_number(&result, backtrack);
  aici_put(&result, ",\"ff_tokens\":");
  aici_put_list(&result, tokens, num);
  aici_put(&result, "}}");
  aici_return_text(&result);
}
static inline void aici_sample(void) { aici_return("{\"SampleWithBias\":{}}"); }
static inline void aici_post(int stops) {
  aici_return(stops ? "{\"stop\":true}" : "{\"stop\":false}");
}

// ---- masks: token i is bit i % 32 of word i / 32 ----

#define AICI_VOCABULARY_MAX 300000
typedef struct {
  u32 words[AICI_VOCABULARY_MAX / 32];
} aici_mask;

static inline void aici_allow(aici_mask* mask, u32 token) {
  mask->words[token / 32] |= 1u << (token % 32);
}
static inline void aici_forbid(aici_mask* mask, u32 token) {
  mask->words[token / 32] &= ~(1u << (token % 32));
}

// ---- variables and the log ----

static inline void aici_set_variable(const char* name, const char* value) {
  static const char digits[] = "0123456789abcdef";
  aici_text command = {.size = 0};
  aici_put(&command, "{\"WriteVar\":{\"name\":\"");
  aici_put(&command, name);
  aici_put(&command, "\",\"value\":\"");
  for (; *value != 0; ++value) {
    const char hex[3] = {digits[(u8)*value >> 4], digits[*value & 15], 0};
    aici_put(&command, hex);
  }
  aici_put(&command, "\",\"op\":\"Set\",\"when_version_is\":null}}");
  aici_host_storage_cmd(command.bytes, command.size);
}

// Whether there is such a variable, whose value ends with a zero then.
static inline int aici_get_variable(const char* name, char* to, u32 size) {
  static char answer[4096];
  aici_text command = {.size = 0};
  aici_put(&command, "{\"ReadVar\":{\"name\":\"");
  aici_put(&command, name);
  aici_put(&command, "\"}}");
  const u32 blob = aici_host_storage_cmd(command.bytes, command.size);
  const u32 length = aici_host_read_blob(blob, answer, sizeof(answer) - 1);
  answer[length < sizeof(answer) ? length : sizeof(answer) - 1] = 0;
  const char* value = aici_find(answer, "value");
  if (value == 0) return 0;
  u32 num = 0;
  for (++value; *value != '"' && *value != 0 && num + 1 < size; value += 2) {
    u8 byte = 0;
    for (int i = 0; i < 2; ++i) {
      byte = (u8)(byte * 16 + (value[i] <= '9' ? value[i] - '0' : value[i] - 'a' + 10));
    }
    to[num++] = (char)byte;
  }
  to[num] = 0;
  return 1;
}

static inline void aici_log(const char* text) {
  const struct {
    const char* text;
    u32 size;
  } vector = {text, aici_length(text)};
  u32 num_written = 0;
  aici_wasi_fd_write(1, &vector, 1, &num_written);
}
