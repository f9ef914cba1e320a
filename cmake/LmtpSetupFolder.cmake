# lmtp_setup_folder(OUT NAME LIST): the folder NAME-<hash of LIST> that tools/setup keeps beside the
# environments of .venv; LIST is its list in tools/, a change of which configures anew.
include_guard(GLOBAL)

function(lmtp_setup_folder out name list)
  set(list ${PROJECT_SOURCE_DIR}/tools/${list})
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
  file(SHA256 ${list} hash)
  string(SUBSTRING ${hash} 0 12 hash)
  file(REAL_PATH ${PROJECT_SOURCE_DIR}/.venv beside)
  get_filename_component(beside ${beside} DIRECTORY)
  set(${out} ${beside}/${name}-${hash} PARENT_SCOPE)
endfunction()
