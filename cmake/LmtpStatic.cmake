# LMTP_STATIC, a folder that tools/dev/static_libraries made: its archives are linked in the place
# of the libraries that LmtpDependencies found, whose headers are of the same releases. The programs
# need glibc and libgcc alone then, and run where these libraries are not, or are of other releases.
include_guard(GLOBAL)

set(LMTP_STATIC "" CACHE PATH "Link libraries statically: the folder of tools/dev/static_libraries")
if(NOT LMTP_STATIC)
  return()
endif()
if(NOT EXISTS ${LMTP_STATIC}/sources.txt)
  message(FATAL_ERROR "LMTP_STATIC=${LMTP_STATIC} has no static libraries: run "
                      "tools/dev/static_libraries ${LMTP_STATIC}")
endif()

set(targets fmt::fmt spdlog::spdlog simdjson::simdjson Pcre2::pcre2_8 Libedit::libedit
    Xxhash::xxhash Sentencepiece::sentencepiece PrometheusCpp::core CURL::libcurl OpenSSL::SSL
    OpenSSL::Crypto)
set(libraries fmt spdlog simdjson pcre2-8 edit xxhash sentencepiece prometheus-cpp-core curl ssl
    crypto)
foreach(target library IN ZIP_LISTS targets libraries)
  foreach(property IMPORTED_LOCATION IMPORTED_LOCATION_NONE IMPORTED_LOCATION_RELEASE)
    set_target_properties(${target} PROPERTIES ${property} ${LMTP_STATIC}/lib/lib${library}.a)
  endforeach()
endforeach()
set_property(TARGET CURL::libcurl APPEND PROPERTY
  INTERFACE_LINK_LIBRARIES OpenSSL::SSL OpenSSL::Crypto)
# libstdc++ is linked last, and asks for it when the archive that has it was passed already.
add_library(lmtp_older_glibc STATIC ${PROJECT_SOURCE_DIR}/src/base/older_glibc/arc4random.cpp)
link_libraries(lmtp_older_glibc)
add_link_options(-static-libstdc++
  $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:LINKER:--undefined=arc4random>)
