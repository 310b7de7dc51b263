# What an installation holds and how Debian's package of it is described. `make package` (tools/package.sh)
# makes that package and an archive that needs none.

# Manual pages (English and Chinese) and completion come from the option tables, so the program writes them.
set(pages ${CMAKE_BINARY_DIR}/pages)
set(run_danlu ASAN_OPTIONS=detect_leaks=0 ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:danlu>)
add_custom_command(
  OUTPUT ${pages}/danlu.bash
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${pages}
  COMMAND ${CMAKE_COMMAND} -E env DANLU_LANG=en ${run_danlu} help --man ${pages}/man/man1
  COMMAND ${CMAKE_COMMAND} -E env DANLU_LANG=zh ${run_danlu} help --man ${pages}/man/zh_CN/man1
  COMMAND find ${pages}/man -type f -exec gzip -9n {} +
  COMMAND ${CMAKE_COMMAND} -E env ${run_danlu} completion bash > ${pages}/danlu.bash
  DEPENDS danlu VERBATIM)
add_custom_target(danlu_pages ALL DEPENDS ${pages}/danlu.bash)
add_dependencies(program danlu_pages)

install(TARGETS danlu RUNTIME DESTINATION bin)
install(TARGETS danlu_core danlu_web danlu_curl danlu_stills danlu_video LIBRARY DESTINATION lib/danlu)
if(TARGET danlu_engine)
  install(TARGETS danlu_engine danlu_npu LIBRARY DESTINATION lib/danlu)
  install(TARGETS danlu-sandbox RUNTIME DESTINATION lib/danlu)
  # libtorch is content with any BLAS and gets the slow reference one where none is named.
  set(CPACK_DEBIAN_PACKAGE_DEPENDS libopenblas0-pthread)
endif()
if(DUCKDB_LIBRARY)
  file(REAL_PATH ${DUCKDB_LIBRARY} duckdb)
  install(PROGRAMS ${duckdb} DESTINATION lib/danlu RENAME libduckdb.so)
endif()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/recipes DESTINATION share/danlu)
install(DIRECTORY ${pages}/man DESTINATION share)
install(FILES ${pages}/danlu.bash DESTINATION share/bash-completion/completions RENAME danlu)
install(FILES README.md README.zh-CN.md CHANGELOG.md cmake/copyright DESTINATION share/doc/danlu)

# One version for each Debian, the newer one's greater: an upgraded system gets the package of its own.
cmake_host_system_information(RESULT debian QUERY DISTRIB_VERSION_ID)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/package)
set(CPACK_PACKAGE_CONTACT "Danlu <danlu@localhost>")
# What `danlu eval` executes model-written code with; nothing else asks for it.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS python3)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1~deb${debian})
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "prepare data for, train, convert and talk to language models
One program, without Python: tokenizers, data preparation, pre-training and
fine-tuning, conversion of checkpoints between Hugging Face, Megatron and
GGUF, answers and chat.")
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR})
if(CMAKE_CROSSCOMPILING)
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64) # what there is a toolchain for: cmake/toolchains/aarch64.cmake
  list(APPEND CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_SYSROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE})
endif()
include(CPack)
