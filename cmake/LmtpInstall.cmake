# cmake --install: the two programs, the demo model, a man page each and a systemd unit.
include_guard(GLOBAL)
include(GNUInstallDirs)

# Where an installed program looks for libtorch: beside itself first, then where this build found
# it.
set(install_rpath "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}/lmtp" "$ORIGIN/../lib/lmtp" ${LIBTORCH_RPATH})
list(REMOVE_DUPLICATES install_rpath)

foreach(program lmtp-serve lmtp-client)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    install(FILES ${PROJECT_SOURCE_DIR}/packaging/${program}.1
            DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  endif()
endforeach()
if(TARGET lmtp-serve)
  set_target_properties(lmtp-serve PROPERTIES INSTALL_RPATH "${install_rpath}")
  configure_file(${PROJECT_SOURCE_DIR}/packaging/lmtp-serve.service.in
                 ${PROJECT_BINARY_DIR}/packaging/lmtp-serve.service @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/packaging/lmtp-serve.service
          DESTINATION lib/systemd/system)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/demo
        DESTINATION ${CMAKE_INSTALL_DATADIR}/lmtp/models)
