# cmake --install: the four programs, the demo model, man pages and completions, systemd units, the
# program that renders chat templates, llguidance's and wasmtime's libraries with their licences, so
# that the result needs nothing of this build's place. Where gloo is built, libtorch as well: a
# service's user cannot read an administrator's home, where tools/setup puts it. That is 0.5 GB;
# -DLMTP_BUNDLE_LIBTORCH=OFF leaves it where it is, and LMTP_TORCH=OFF leaves gloo away.
include_guard(GLOBAL)
include(GNUInstallDirs)

option(LMTP_BUNDLE_LIBTORCH "Install libtorch into lib/lmtp as well" ON)

foreach(program lmtp-serve lmtp-client lmtp-bench lmtp-aicirt)
  install(TARGETS ${program} RUNTIME DESTINATION bin)
  install(FILES ${PROJECT_SOURCE_DIR}/packaging/${program}.1
          DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endforeach()

# What shells complete the options by, as the programs print it.
foreach(program lmtp-serve lmtp-client lmtp-bench)
  install(CODE "
    set(zsh site-functions)
    if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
      set(zsh vendor-completions)  # of Debian's packages
    endif()
    foreach(part IN ITEMS bash|bash-completion/completions/${program} zsh|zsh/\${zsh}/_${program}
                          fish|fish/vendor_completions.d/${program}.fish)
      string(REPLACE \"|\" \";\" part \${part})
      list(POP_FRONT part shell file)
      execute_process(COMMAND \"$<TARGET_FILE:${program}>\" --completion \${shell}
        OUTPUT_VARIABLE script COMMAND_ERROR_IS_FATAL ANY)
      file(WRITE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share/\${file}\" \"\${script}\")
    endforeach()")
endforeach()

# Made at installation, because only then --prefix is known.
install(CODE "
  set(LMTP_SERVE \"\${CMAKE_INSTALL_PREFIX}/bin/lmtp-serve\")
  configure_file(\"${PROJECT_SOURCE_DIR}/packaging/lmtp-serve.service.in\"
                 \"${PROJECT_BINARY_DIR}/lmtp-serve.service\" @ONLY)")
install(FILES ${PROJECT_BINARY_DIR}/lmtp-serve.service
              ${PROJECT_SOURCE_DIR}/packaging/lmtp-serve.socket
        DESTINATION lib/systemd/system)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/demo DESTINATION share/lmtp/models)

if(TARGET lmtp-jinja)
  install(TARGETS lmtp-jinja RUNTIME DESTINATION lib/lmtp)
endif()
if(LMTP_GRAMMAR)
  install(FILES ${LLGUIDANCE_FILES} DESTINATION lib/lmtp)
  install(FILES ${LLGUIDANCE_LICENSE} DESTINATION share/doc/lmtp RENAME LICENSE.llguidance)
endif()
if(LMTP_WASM)
  install(FILES ${WASMTIME_LIBRARY} DESTINATION lib/lmtp)
  install(TARGETS lmtp-wasm RUNTIME DESTINATION lib/lmtp)
  install(FILES ${WASMTIME_LICENSE} DESTINATION share/doc/lmtp RENAME LICENSE.wasmtime)
endif()
if(TARGET lmtp_torch)
  install(TARGETS lmtp_torch LIBRARY DESTINATION lib/lmtp)
endif()
if(TARGET lmtp_torch AND LMTP_BUNDLE_LIBTORCH)
  install(FILES ${LIBTORCH_FILES} DESTINATION lib/lmtp/torch/lib)
  # libtorch finds these by ../../nvidia/..., so the folders keep their places.
  foreach(file IN LISTS LIBTORCH_NVIDIA_FILES)
    file(RELATIVE_PATH folder ${LIBTORCH_SITE_PACKAGES} ${file})
    get_filename_component(folder ${folder} DIRECTORY)
    install(FILES ${file} DESTINATION lib/lmtp/${folder})
  endforeach()
endif()
