# lmtp_setup_folder(OUT NAME LIST): the folder NAME-<hash of LIST> that tools/setup keeps in
# ${XDG_CACHE_HOME:-~/.cache}/lmtp; LIST is its list in tools/, a change of which configures anew.
include_guard(GLOBAL)

function(lmtp_setup_folder out name list)
  set(list ${PROJECT_SOURCE_DIR}/tools/${list})
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
  file(SHA256 ${list} hash)
  string(SUBSTRING ${hash} 0 12 hash)
  set(cache "$ENV{XDG_CACHE_HOME}")
  if(NOT cache)
    set(cache "$ENV{HOME}/.cache")
  endif()
  set(${out} ${cache}/lmtp/${name}-${hash} PARENT_SCOPE)
endfunction()
