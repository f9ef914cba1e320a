# lmtp_standalone(TARGET): once more the program TARGET, in the build's standalone/, for machines
# that have glibc, libstdc++ and a driver, but not our libraries: those are linked statically where
# Debian has them so (not simdjson), and HTTP is left out. Its objects are TARGET's own.
#
# lmtp_gpu_check_bundle(): the target gpu_check_bundle, which packs what tools/gpu-check needs of
# this build on another machine into the build's gpu-check/. Called when all programs are known.
include_guard(GLOBAL)

# Before the archives of lmtp_base and lmtp_hub, whose own objects of that are then not taken.
add_library(lmtp_standalone_objects OBJECT EXCLUDE_FROM_ALL
  ${PROJECT_SOURCE_DIR}/src/base/log.cpp ${PROJECT_SOURCE_DIR}/src/hub/no_network/fetch.cpp)
target_include_directories(lmtp_standalone_objects PRIVATE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include ${PROJECT_SOURCE_DIR}/src/hub)
# spdlog and fmt from their headers alone.
target_compile_definitions(lmtp_standalone_objects PRIVATE SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY)
target_link_libraries(lmtp_standalone_objects PRIVATE lmtp_warnings)

function(lmtp_standalone target)
  get_target_property(libraries ${target} LINK_LIBRARIES)
  add_executable(${target}-standalone EXCLUDE_FROM_ALL
    $<TARGET_OBJECTS:${target}> $<TARGET_OBJECTS:lmtp_standalone_objects>)
  target_link_options(${target}-standalone PRIVATE LINKER:--as-needed)
  target_link_libraries(${target}-standalone PRIVATE ${libraries} libxxhash.a)
  set_target_properties(${target}-standalone PROPERTIES
    LINKER_LANGUAGE CXX OUTPUT_NAME ${target}
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/standalone)
endfunction()

function(lmtp_gpu_check_bundle)
  if(NOT TARGET agent_gpu_test)
    return()
  endif()
  set(folder ${PROJECT_BINARY_DIR}/gpu-check)
  add_custom_target(gpu_check_bundle
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${folder} ${folder}.tar.gz
    COMMAND ${PROJECT_SOURCE_DIR}/tools/gpu-check ${PROJECT_BINARY_DIR} --pack ${folder}
    USES_TERMINAL)
  add_dependencies(gpu_check_bundle lmtp-serve-standalone numerics_grid-standalone lmtp-bench
    step_anatomy gpu-bench make-checkpoint kernels_gpu_test agent_gpu_test)
endfunction()
