// What the tests of the module wasm call.
#define EXPORT(name) __attribute__((export_name(#name)))
typedef unsigned int u32;

__attribute__((import_module("env"), import_name("host"))) u32 host(u32 a, u32 b);

static u32 state = 1;

EXPORT(add) u32 add(u32 a, u32 b) { return a + b; }
EXPORT(ask) u32 ask(u32 a, u32 b) { return host(a, b) + 1; }
EXPORT(next) u32 next(void) { return state++; }
EXPORT(spin) void spin(void) {
  for (;;) __asm__ volatile("");
}
EXPORT(trap) void trap(void) { __builtin_trap(); }
EXPORT(grow) u32 grow(u32 num_pages) { return (u32)__builtin_wasm_memory_grow(0, num_pages); }
EXPORT(peek) u32 peek(u32 address) { return *(volatile unsigned char*)address; }
EXPORT(deep) u32 deep(u32 n) { return n == 0 ? 0 : deep(n - 1) + host(n, 0); }
EXPORT(wide) long long wide(void) { return 1; }
EXPORT(poke) void poke(u32 address, u32 value) { *(volatile unsigned char*)address = (unsigned char)value; }
