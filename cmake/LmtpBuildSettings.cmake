# The language, the linker, the compiler cache and where programs go: the same for every target.
include_guard(GLOBAL)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(THREADS_PREFER_PTHREAD_FLAG ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug or Release" FORCE)
endif()
# Debug keeps the checks of the standard library and -O1, so that tests on real models stay
# bearable; under sanitizers only what computes has it (LmtpModule).
set(CMAKE_CXX_FLAGS_DEBUG "-g1 -fno-omit-frame-pointer -D_GLIBCXX_ASSERTIONS")
if(LMTP_SANITIZE)
  string(PREPEND CMAKE_CXX_FLAGS_DEBUG "-O0 ")
else()
  string(PREPEND CMAKE_CXX_FLAGS_DEBUG "-O1 ")
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")  # the kernels have -O3

# Paths below the repository count as relative ones, so that a second clone hits what the first one
# compiled; the sloppiness is what ccache asks for where precompiled headers are included.
find_program(LMTP_CCACHE ccache)
if(LMTP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
      CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros ${LMTP_CCACHE})
endif()

# __FILE__ and debug information name files below the repository.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>)

# Programs are linked by binutils' linker, the compilers' own. lld 14, as Debian 12 has it, keeps
# one entry of .eh_frame_hdr for each address: where gcc has left nothing of a function's cold part,
# the next function's entry is lost, and an exception that passes through that one ends the process.
# mold 1.10 lays some programs out for ever.

set(LMTP_DEBUG_CHECKS false)
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(LMTP_DEBUG_CHECKS true)
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/version.h.in
               ${PROJECT_BINARY_DIR}/include/lmtp/base/version.h @ONLY)
