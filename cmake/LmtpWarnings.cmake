# lmtp_warnings: the warning set of our own code (never applied to other people's headers).
include_guard(GLOBAL)

# Errors with gcc 12 (Debian 12), where all of them are known; what another compiler finds besides
# is no reason not to build.
set(LMTP_WERROR "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(LMTP_WERROR -Werror)
endif()

add_library(lmtp_warnings INTERFACE)
target_compile_options(lmtp_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic ${LMTP_WERROR} -Wshadow -Wnon-virtual-dtor
    -Woverloaded-virtual -Wcast-align -Wformat=2 -Wimplicit-fallthrough -Wextra-semi
    -Wmissing-declarations>)

# gcc 12 at -O3 reports these on correct standard library code (its bugs 105329, 105651, 105562):
# they stay visible, but do not break a build.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(lmtp_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict -Wno-error=maybe-uninitialized
      -Wno-error=array-bounds -Wno-error=stringop-overflow -Wno-error=stringop-overread>)
endif()
