# Everything from outside, found once, each under one target name:
#   Threads::Threads  Boost::headers (1.81: Beast, Asio)  simdjson::simdjson  spdlog::spdlog
#   nlohmann_json::nlohmann_json  fmt::fmt  CLI11::CLI11  Pcre2::pcre2_8  Libedit::libedit
#   Xxhash::xxhash  Sentencepiece::sentencepiece  CURL::libcurl  OpenSSL::Crypto (hub, server)
#   OpenSSL::SSL (tls)
#   PrometheusCpp::core (server)  Tomlplusplus::headers (lmtp-serve)
#   GTest::gtest GTest::gmock GTest::gtest_main (tests)  benchmark::benchmark (where installed)
#   Libtorch::cpu (libtorch's plugin only, where it is; see FindLibtorch.cmake)
#   the library of wasmtime (wasm only; see FindWasmtime.cmake)
#   libllguidance.so, which constraint loads (see FindLlguidance.cmake)
# The packages' names are in tools/packages.txt and, for tests, tools/packages-tests.txt, for
# libtorch tools/packages-torch.txt; `tools/setup` installs them.
include_guard(GLOBAL)

find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED CONFIG)
find_package(simdjson REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(CURL 7.87 REQUIRED)
find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto SSL)
find_package(benchmark QUIET)
set(LMTP_TESTS_ENABLED OFF)
if(LMTP_BUILD_TESTS)  # ON or AUTO
  find_package(GTest QUIET)
  set(LMTP_TESTS_ENABLED ${GTest_FOUND})
  if(NOT GTest_FOUND AND LMTP_BUILD_TESTS STREQUAL "AUTO")
    message(STATUS "tests: off (GoogleTest was not found: run tools/setup --tests)")
  elseif(NOT GTest_FOUND)
    message(FATAL_ERROR
      "LMTP_BUILD_TESTS=ON, but GoogleTest was not found: run tools/setup --tests")
  endif()
endif()

# lmtp_system_library(TARGET HEADER LIBRARY PACKAGE): for Debian libraries without CMake files of
# their own.
function(lmtp_system_library target header library package)
  string(MAKE_C_IDENTIFIER "LMTP_${library}" prefix)
  find_path(${prefix}_INCLUDE_DIR ${header})
  find_library(${prefix}_LIBRARY ${library})
  mark_as_advanced(${prefix}_INCLUDE_DIR ${prefix}_LIBRARY)
  if(NOT ${prefix}_INCLUDE_DIR OR NOT ${prefix}_LIBRARY)
    message(FATAL_ERROR "${header} is missing (Debian package ${package}): run tools/setup")
  endif()
  add_library(${target} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES
    IMPORTED_LOCATION ${${prefix}_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${${prefix}_INCLUDE_DIR})
endfunction()

lmtp_system_library(Pcre2::pcre2_8 pcre2.h pcre2-8 libpcre2-dev)
lmtp_system_library(Libedit::libedit histedit.h edit libedit-dev)
lmtp_system_library(Xxhash::xxhash xxhash.h xxhash libxxhash-dev)
lmtp_system_library(Sentencepiece::sentencepiece sentencepiece_processor.h sentencepiece
  libsentencepiece-dev)
# Header-only: its own CMake files would link a shared library.
find_path(LMTP_TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h REQUIRED)
mark_as_advanced(LMTP_TOMLPLUSPLUS_INCLUDE_DIR)
add_library(Tomlplusplus::headers INTERFACE IMPORTED GLOBAL)
target_include_directories(Tomlplusplus::headers SYSTEM INTERFACE ${LMTP_TOMLPLUSPLUS_INCLUDE_DIR})

# The text format alone. Its own CMake files would find its HTTP server, civetweb and zlib as well.
lmtp_system_library(PrometheusCpp::core prometheus/text_serializer.h prometheus-cpp-core
                    prometheus-cpp-dev)

set(LMTP_TORCH_ENABLED OFF)
if(LMTP_TORCH)  # ON or AUTO
  find_package(Libtorch)
  set(LMTP_TORCH_ENABLED ${Libtorch_FOUND})
  if(Libtorch_FOUND)
    message(STATUS "gloo: on (libtorch ${Libtorch_VERSION}, ${LIBTORCH_SITE_PACKAGES})")
  elseif(LMTP_TORCH STREQUAL "AUTO")
    message(STATUS "gloo: off (${LIBTORCH_MISSING}: run tools/setup --torch)")
  else()
    message(FATAL_ERROR "LMTP_TORCH=${LMTP_TORCH}, but ${LIBTORCH_MISSING}: "
                        "run tools/setup --torch, or give -DLMTP_TORCH=AUTO")
  endif()
endif()
if(LMTP_GRAMMAR)
  find_package(Llguidance REQUIRED)
endif()
if(LMTP_WASM)
  find_package(Wasmtime REQUIRED)
endif()
include(LmtpStatic)
