# lmtp_wasm_modules(TARGET SOURCES a.c ...): compiles each to a WebAssembly module TARGET/a.wasm in
# the build's tests/, by clang and lld (Debian packages clang and lld), without a C library.
# <TARGET>_FOLDER is that folder; where the compiler is missing it is empty, and tests skip.
include_guard(GLOBAL)

find_program(LMTP_WASM_CC NAMES clang clang-19 clang-16 clang-14)
find_program(LMTP_WASM_LD NAMES wasm-ld wasm-ld-19 wasm-ld-16 wasm-ld-14)
mark_as_advanced(LMTP_WASM_CC LMTP_WASM_LD)
set(LMTP_WASM_HEADERS ${PROJECT_SOURCE_DIR}/docs/examples/aici)
if(NOT LMTP_WASM_CC OR NOT LMTP_WASM_LD)
  message(STATUS "tests of WebAssembly: SKIPPED (clang or wasm-ld was not found: run tools/setup "
                 "--tests)")
endif()

function(lmtp_wasm_modules target)
  cmake_parse_arguments(arg "" "" "SOURCES" ${ARGN})
  set(${target}_FOLDER "" PARENT_SCOPE)
  add_custom_target(${target})
  if(NOT LMTP_WASM_CC OR NOT LMTP_WASM_LD)
    return()
  endif()
  set(folder ${PROJECT_BINARY_DIR}/tests/${target})
  file(MAKE_DIRECTORY ${folder})
  set(modules "")
  foreach(source IN LISTS arg_SOURCES)
    get_filename_component(source ${source} ABSOLUTE)
    get_filename_component(name ${source} NAME_WE)
    add_custom_command(OUTPUT ${folder}/${name}.wasm
      COMMAND ${LMTP_WASM_CC} --target=wasm32 -O2 -nostdlib -ffreestanding -mbulk-memory
              -Wall -Wextra -Werror -I${LMTP_WASM_HEADERS} -fuse-ld=${LMTP_WASM_LD} -Wl,--no-entry
              -o ${folder}/${name}.wasm ${source}
      DEPENDS ${source} ${LMTP_WASM_HEADERS}/aici.h VERBATIM)
    list(APPEND modules ${folder}/${name}.wasm)
  endforeach()
  add_custom_target(${target}_files DEPENDS ${modules})
  add_dependencies(${target} ${target}_files)
  set(${target}_FOLDER ${folder} PARENT_SCOPE)
endfunction()
