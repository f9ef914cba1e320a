// Included into llama.cpp's AMX code by cpu-peers. gcc 12's tile intrinsics do not tell the
// compiler which memory they read, so it drops the stores before them, the tile configuration's
// among them, and llama.cpp's int8 ends by SIGSEGV. These say that all of it is read.
#pragma once

#undef _tile_loadd
#define _tile_loadd(tile, base, stride)                           \
  do {                                                            \
    __asm__ volatile("" : : "r"((const void*)(base)) : "memory"); \
    _tile_loadd_internal(tile, base, stride);                     \
  } while (0)

#define _tile_loadconfig(config)                     \
  do {                                               \
    __asm__ volatile("" : : "r"(config) : "memory"); \
    (_tile_loadconfig)(config);                      \
  } while (0)
