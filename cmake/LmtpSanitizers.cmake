# LMTP_SANITIZE: compile and link everything with the sanitizers named, and give each test their
# options.
include_guard(GLOBAL)

# Environment that lmtp_test() gives to every test of this build.
set(LMTP_TEST_ENVIRONMENT "")

if(LMTP_SANITIZE)
  # vptr checks need type information that libtorch does not export. Null pointers and what lies
  # beside an object AddressSanitizer finds where they are used; the checks of each expression for
  # them would double the time to compile.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${LMTP_SANITIZE}>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  if(LMTP_SANITIZE MATCHES "undefined")
    set(unchecked vptr,null,object-size,pointer-overflow)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=${unchecked}>)
  endif()
  if(LMTP_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Asio has fences, which gcc's ThreadSanitizer does not follow; its locks order the same memory.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
  endif()
  add_link_options(-fsanitize=${LMTP_SANITIZE})
endif()

if(LMTP_SANITIZE MATCHES "address")
  list(APPEND LMTP_TEST_ENVIRONMENT
    # No detect_stack_use_after_return: with it gcc 12 aligns variables of 64 bytes to 32 only.
    "ASAN_OPTIONS=strict_string_checks=1"
    "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/lsan.supp:print_suppressions=0"
    "UBSAN_OPTIONS=print_stacktrace=1")
elseif(LMTP_SANITIZE MATCHES "thread")
  list(APPEND LMTP_TEST_ENVIRONMENT "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1")
endif()
