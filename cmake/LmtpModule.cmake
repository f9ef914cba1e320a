# The shapes of target in this tree.
#
#   lmtp_module(NAME SOURCES a.cpp ... [DEPS module ...] [PUBLIC_LIBS target ...]
#               [PRIVATE_LIBS target ...] [COMPUTES])
#     The static library lmtp_NAME of src/NAME. Includes: include/ for all, its own folder for
#     itself. DEPS are what its files include, and all of it: tools/dev/tidy.py compares.
#     Without SOURCES it is a header-only (INTERFACE) library. COMPUTES: it is optimized under a
#     sanitizer as well, where others aren't, which takes half of the time to compile.
#
#   lmtp_plugin(NAME SOURCES a.cpp ... [DEPS module ...] [PRIVATE_LIBS target ...])
#     The shared library liblmtp_NAME.so in the build's lib/lmtp/, which a program loads when it
#     needs what it links.
#
#   lmtp_test(MODULE UNIT [SOURCES extra.cpp ...] [DEPS module-or-target ...] [LABELS label ...]
#             [TIMEOUT seconds] [TEST_DATA name])
#     The program MODULE_UNIT_test from UNIT_test.cpp in the calling folder, and one ctest entry of
#     that name, labelled MODULE. Links lmtp_MODULE where there is one, GoogleTest and GoogleMock
#     with their main. Includes: tests/ and tests/support/ (source_dir.h says where the repository
#     lies). A unit test's home is preset asan (LMTP_ALL_TESTS=ON: release as well), but for what
#     only optimized code shows: its bits, counts and allocations. Labels say so: `optimized` is in
#     release as well, `release_only` there alone. Under ThreadSanitizer there are only those
#     labelled tsan, in which threads meet. Those labelled long `tools/test --long` runs; those
#     labelled slow_sanitized are long under a sanitizer, and optimized.
#     TEST_DATA: the cases of its suite TestData (tests/support/test_data.h) are a ctest entry of
#     this name, labelled test_data, which ctest lists as skipped where LMTP_TEST_DATA is not set.
#
#   lmtp_tests(MODULE UNITS unit ... [SOURCES extra.cpp ...] [DEPS module-or-target ...]
#              [LABELS label ...] [PROGRAM name] [OBJECTS library ...])
#     As lmtp_test for each unit, but all in one program, MODULE_tests (MODULE_tsan_tests of those
#     labelled tsan, MODULE_name_tests): for units that need nothing of their own. What can be
#     compiled together is. OBJECTS: the units' files are in these object libraries already.
#
#   lmtp_program(NAME SOURCES main.cpp ... [DEPS module-or-target ...])
#     The program NAME in the build's bin/.
#
#   lmtp_script_test(NAME SCRIPT [ARGS ...] [LABELS label ...] [TIMEOUT seconds])
#     A ctest entry that runs a Python script with the interpreter of .venv (else python3); exit
#     code 77 means skipped. The environment holds LMTP_BIN_DIR and LMTP_SOURCE_DIR.
#
#   lmtp_pytest(NAME SCRIPT [LABELS label ...] [TIMEOUT seconds] [TEST_DATA name] [NEWEST])
#     The same for a file of pytest tests. Skipped ones are named with their reason; where all are,
#     ctest lists the entry as skipped. TEST_DATA: as above, for tests with the fixture test_data.
#     NEWEST: once more as NAME_newest, with the interpreter of .venv-newest, for what depends on
#     the releases of transformers or huggingface_hub. Not under sanitizers.
#
# DEPS take module names ("base"); a name that is a target already ("lmtp_base", "CLI11::CLI11")
# stands as is.
include_guard(GLOBAL)

# Headers take longer to read than most files to compile. So that this can be, no two files of a
# module or program have something of the same name in their unnamed namespaces; tools/dev/lint.py
# reads a file alone where it is given its name.
option(LMTP_UNITY "Compile many files of a module at a time: a third of the time for a build" ON)

set(LMTP_UNITY_BATCH 32 CACHE STRING "With LMTP_UNITY: at most so many files at a time")

option(LMTP_LONG_TESTS "Build tests that only `tools/test --long` runs" ON)
option(LMTP_ALL_TESTS "Build unit tests without sanitizers as well, besides the optimized ones" ON)

# lmtp_unity(TARGET BATCH): so many of its files at a time.
function(lmtp_unity target batch)
  if(batch GREATER LMTP_UNITY_BATCH)
    set(batch ${LMTP_UNITY_BATCH})
  endif()
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ${LMTP_UNITY} UNITY_BUILD_BATCH_SIZE ${batch})
  if(LMTP_UNITY)
    # For gcc a .cpp file that is included is a header.
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# Of tests, and what runs beside them: they run once, and what optimizing wins for them is less than
# it takes.
function(lmtp_optimize_as_tests target)
  target_compile_options(${target} PRIVATE $<IF:$<CONFIG:Release>,-O1,-O0>)
endfunction()

# What a compiler cache needs of clang: no times of headers, which differ in each clone.
set(LMTP_PCH_OPTIONS "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")

# lmtp_include_test_headers(TARGET): the standard library and GoogleTest as read once for all tests
# (tests/support/test_headers.h), which is most of what compiling one takes. What it includes its
# files include still: without LMTP_UNITY, and for lint, each is read by itself.
function(lmtp_include_test_headers target)
  if(LMTP_UNITY)
    target_precompile_headers(${target} REUSE_FROM lmtp_test_headers)
    target_compile_options(${target} PRIVATE ${LMTP_PCH_OPTIONS})
  endif()
endfunction()

# For tests that hang: ten times what they cost, since busy and slow machines take as much, and at
# least this; where that is not known, a quarter of an hour.
set(LMTP_TEST_TIMEOUT_S 300)

# lmtp_computes(TARGET): it is optimized under a sanitizer as well.
function(lmtp_computes target)
  if(LMTP_SANITIZE)
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()

function(lmtp_resolve_deps out)
  set(result "")
  foreach(dep IN LISTS ARGN)
    if(dep MATCHES "^lmtp_|::")
      list(APPEND result ${dep})
    else()
      list(APPEND result lmtp_${dep})
    endif()
  endforeach()
  set(${out} ${result} PARENT_SCOPE)
endfunction()

function(lmtp_module name)
  cmake_parse_arguments(arg "COMPUTES" "" "SOURCES;DEPS;PUBLIC_LIBS;PRIVATE_LIBS" ${ARGN})
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "lmtp_module(${name}): unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  lmtp_resolve_deps(deps ${arg_DEPS})
  if(NOT arg_SOURCES)
    add_library(lmtp_${name} INTERFACE)
    target_include_directories(lmtp_${name} INTERFACE
      ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)
    target_link_libraries(lmtp_${name} INTERFACE ${deps} ${arg_PUBLIC_LIBS} ${arg_PRIVATE_LIBS})
    return()
  endif()
  add_library(lmtp_${name} STATIC ${arg_SOURCES})
  lmtp_unity(lmtp_${name} 32)
  if(arg_COMPUTES)
    lmtp_computes(lmtp_${name})
  endif()
  target_include_directories(lmtp_${name}
    PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include
    PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(lmtp_${name}
    PUBLIC ${deps} ${arg_PUBLIC_LIBS} Threads::Threads
    PRIVATE ${arg_PRIVATE_LIBS} $<BUILD_INTERFACE:lmtp_warnings>)
endfunction()

function(lmtp_plugin name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS;PRIVATE_LIBS" ${ARGN})
  lmtp_resolve_deps(deps ${arg_DEPS})
  add_library(lmtp_${name} MODULE ${arg_SOURCES})
  target_link_libraries(lmtp_${name} PRIVATE ${deps} ${arg_PRIVATE_LIBS} lmtp_warnings)
  set_target_properties(lmtp_${name} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/lmtp)
endfunction()

function(lmtp_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  lmtp_resolve_deps(deps ${arg_DEPS})
  add_executable(${name} ${arg_SOURCES})
  lmtp_unity(${name} 32)
  target_link_libraries(${name} PRIVATE ${deps} lmtp_warnings)
endfunction()

# Whether this build has unit tests with these labels.
function(lmtp_has_tests out)
  set(has ON)
  if(LMTP_SANITIZE)
    if("release_only" IN_LIST ARGN OR
       ("slow_sanitized" IN_LIST ARGN AND NOT LMTP_LONG_TESTS) OR
       (LMTP_SANITIZE STREQUAL "thread" AND NOT "tsan" IN_LIST ARGN))
      set(has OFF)
    endif()
  elseif(NOT LMTP_ALL_TESTS)
    set(optimized ${ARGN})
    list(FILTER optimized INCLUDE REGEX "^(optimized|release_only|slow_sanitized)$")
    if(NOT optimized)
      set(has OFF)
    endif()
  endif()
  set(${out} ${has} PARENT_SCOPE)
endfunction()

# lmtp_compile_as_tests(TARGET MODULE DEPS ...): its files are a module's tests.
function(lmtp_compile_as_tests target module)
  lmtp_resolve_deps(deps ${ARGN})
  lmtp_optimize_as_tests(${target})
  lmtp_include_test_headers(${target})
  lmtp_unity(${target} 12)
  target_include_directories(${target} PRIVATE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include
    ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/tests/support ${CMAKE_CURRENT_SOURCE_DIR})
  if(TARGET lmtp_${module})
    target_link_libraries(${target} PRIVATE lmtp_${module})
    # A test may look at its own module's private headers.
    if(EXISTS ${PROJECT_SOURCE_DIR}/src/${module})
      target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src/${module})
    endif()
  endif()
  target_link_libraries(${target} PRIVATE ${deps} GTest::gtest GTest::gmock Threads::Threads
                                          lmtp_warnings)
endfunction()

# lmtp_test_program(NAME MODULE MAIN SOURCES file ... [DEPS module-or-target ...])
function(lmtp_test_program name module main)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  lmtp_compile_as_tests(${name} ${module} ${arg_DEPS} ${main})
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
endfunction()

# lmtp_test_objects(NAME MODULE SOURCES file ... [DEPS module-or-target ...]): for programs with
# different mains, or that link different things of the same names.
function(lmtp_test_objects name module)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${arg_SOURCES})
  lmtp_compile_as_tests(${name} ${module} ${arg_DEPS})
  # As a program's, with which it shares precompiled headers.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIE)
endfunction()

# lmtp_add_test(NAME COMMAND argument ...): an entry of ctest whose processor time is kept
# (tools/dev/run_tests.py).
find_program(LMTP_TIME time)
mark_as_advanced(LMTP_TIME)
set(LMTP_TEST_TIMES ${PROJECT_BINARY_DIR}/tests/times)
file(MAKE_DIRECTORY ${LMTP_TEST_TIMES})
function(lmtp_add_test name)
  set(timed "")
  if(LMTP_TIME)
    set(timed ${LMTP_TIME} -o ${LMTP_TEST_TIMES}/${name} -f "%U %S %e")
  endif()
  add_test(NAME ${name} COMMAND ${timed} ${ARGN})
endfunction()

function(lmtp_test module unit)
  cmake_parse_arguments(arg "" "TIMEOUT;TEST_DATA" "SOURCES;DEPS;LABELS" ${ARGN})
  lmtp_has_tests(has ${arg_LABELS})
  if(NOT has)
    return()
  endif()
  set(name ${module}_${unit}_test)
  lmtp_test_program(${name} ${module} GTest::gtest_main
    SOURCES ${unit}_test.cpp ${arg_SOURCES} DEPS ${arg_DEPS})
  set(labels ${arg_LABELS} ${module})
  set(filter "")
  if(arg_TEST_DATA)
    set(filter --gtest_filter=-TestData.*)
    lmtp_add_test(${arg_TEST_DATA} $<TARGET_FILE:${name}> --gtest_filter=TestData.*)
    lmtp_test_properties(${arg_TEST_DATA} "${arg_TIMEOUT}" ${labels} test_data)
    set_property(TEST ${arg_TEST_DATA} PROPERTY SKIP_REGULAR_EXPRESSION "LMTP_TEST_DATA is not set")
  endif()
  lmtp_add_test(${name} $<TARGET_FILE:${name}> --gtest_brief=1 ${filter})
  lmtp_test_properties(${name} "${arg_TIMEOUT}" ${labels})
endfunction()

function(lmtp_tests module)
  cmake_parse_arguments(arg "" "PROGRAM" "UNITS;SOURCES;OBJECTS;DEPS;LABELS" ${ARGN})
  lmtp_has_tests(has ${arg_LABELS})
  if(NOT has)
    return()
  endif()
  set(program ${module} ${arg_PROGRAM})
  if("tsan" IN_LIST arg_LABELS)
    list(APPEND program tsan)
  endif()
  list(JOIN program _ program)
  string(APPEND program _tests)
  set(sources ${arg_UNITS})
  list(TRANSFORM sources APPEND _test.cpp)
  if(arg_OBJECTS)
    list(TRANSFORM arg_OBJECTS REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE sources)
  endif()
  lmtp_test_program(${program} ${module} lmtp_unit_main
    SOURCES ${sources} ${arg_SOURCES} DEPS ${arg_DEPS})
  foreach(unit IN LISTS arg_UNITS)
    lmtp_add_test(${module}_${unit}_test $<TARGET_FILE:${program}> --gtest_brief=1 --unit=${unit})
    lmtp_test_properties(${module}_${unit}_test "" ${arg_LABELS} ${module})
  endforeach()
endfunction()

function(lmtp_script_test name script)
  cmake_parse_arguments(arg "" "TIMEOUT" "ARGS;LABELS" ${ARGN})
  get_filename_component(script ${script} ABSOLUTE)
  lmtp_add_python_test(${name} ${script} ${arg_ARGS})
  lmtp_test_properties(${name} "${arg_TIMEOUT}" ${arg_LABELS})
  set_property(TEST ${name} PROPERTY SKIP_RETURN_CODE 77)
endfunction()

function(lmtp_pytest name script)
  cmake_parse_arguments(arg "NEWEST" "TIMEOUT;TEST_DATA" "LABELS" ${ARGN})
  if(LMTP_SANITIZE STREQUAL "thread" AND NOT "tsan" IN_LIST arg_LABELS)
    return()
  endif()
  get_filename_component(script ${script} ABSOLUTE)
  set(pytest -m pytest -q -rs -p no:cacheprovider -p no:anyio ${script})
  set(filter "")
  if(arg_TEST_DATA)
    set(filter -m "not test_data")
    lmtp_add_python_test(${arg_TEST_DATA} ${pytest} -m test_data)
    lmtp_test_properties(${arg_TEST_DATA} "${arg_TIMEOUT}" ${arg_LABELS} test_data)
  endif()
  lmtp_add_python_test(${name} ${pytest} ${filter})
  lmtp_test_properties(${name} "${arg_TIMEOUT}" ${arg_LABELS})
  set(newest "")
  if(arg_NEWEST AND NOT LMTP_SANITIZE)
    set(newest ${name}_newest)
    lmtp_add_test(${newest} ${PROJECT_SOURCE_DIR}/.venv-newest/bin/python ${pytest} ${filter})
    lmtp_test_properties(${newest} "${arg_TIMEOUT}" ${arg_LABELS})
  endif()
  # pytest's last line, where nothing passed or failed.
  set_property(TEST ${name} ${newest} ${arg_TEST_DATA} PROPERTY
    SKIP_REGULAR_EXPRESSION "\n[0-9]+ skipped(, [0-9]+ deselected)? in ")
endfunction()

# lmtp_add_python_test(NAME ARG ...): the interpreter of .venv, else python3, with these arguments.
function(lmtp_add_python_test name)
  set(python ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  if(NOT EXISTS ${python})
    set(python python3)
  endif()
  lmtp_add_test(${name} ${python} ${ARGN})
endfunction()

# What entries cost on a quiet machine, as tests/costs.txt has it: PRESET ENTRY, seconds of the
# processor, and the quarters of a core that they kept busy. `tools/test --record-costs` writes it.
set(lmtp_costs_file ${PROJECT_SOURCE_DIR}/tests/costs.txt)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${lmtp_costs_file})
cmake_path(GET PROJECT_BINARY_DIR FILENAME lmtp_preset)
file(STRINGS ${lmtp_costs_file} lmtp_costs REGEX "^${lmtp_preset} ")
foreach(line IN LISTS lmtp_costs)
  string(REGEX MATCH "^[^ ]+ ([^ ]+) ([0-9.]+) ([0-9]+)$" line "${line}")
  set(lmtp_cost_${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
  set(lmtp_slots_${CMAKE_MATCH_1} ${CMAKE_MATCH_3})
endforeach()

# lmtp_test_properties(NAME TIMEOUT LABEL ...). tools/test gives ctest four slots a core.
function(lmtp_test_properties name timeout)
  set(labels ${ARGN})
  if(LMTP_SANITIZE AND "slow_sanitized" IN_LIST labels)
    list(APPEND labels long)
  endif()
  set(cost 10)
  set(slots 2)
  set(limit 900)
  if(DEFINED lmtp_cost_${name})
    set(cost ${lmtp_cost_${name}})
    set(slots ${lmtp_slots_${name}})
    string(REGEX REPLACE "[.].*" "0" limit ${cost}.)  # the seconds, ten times
  endif()
  if(limit LESS LMTP_TEST_TIMEOUT_S)
    set(limit ${LMTP_TEST_TIMEOUT_S})
  endif()
  if(NOT timeout)
    set(timeout ${limit})
  endif()
  set(environment ${LMTP_TEST_ENVIRONMENT}
    LMTP_BIN_DIR=${PROJECT_BINARY_DIR}/bin LMTP_SOURCE_DIR=${PROJECT_SOURCE_DIR})
  # COST: those that take longest start first, so that all cores are busy to the end.
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout} COST ${cost}
    PROCESSORS ${slots} ENVIRONMENT "${environment}")
endfunction()
