# Every library Danlu links, found once. `make deps` installs them; a missing one is named here.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PNG REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(DEFLATE REQUIRED IMPORTED_TARGET libdeflate)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl)
pkg_check_modules(CRYPTO REQUIRED IMPORTED_TARGET libcrypto)
pkg_check_modules(SSL REQUIRED IMPORTED_TARGET libssl libcrypto)
find_path(BOOST_INCLUDE boost/beast/version.hpp REQUIRED)  # headers alone are used
pkg_check_modules(JPEG REQUIRED IMPORTED_TARGET libjpeg)
pkg_check_modules(WEBP REQUIRED IMPORTED_TARGET libwebp libwebpdemux)
find_package(GIF REQUIRED)
pkg_check_modules(AV REQUIRED IMPORTED_TARGET libavformat libavcodec libswscale libavutil)
pkg_check_modules(ARCHIVE REQUIRED IMPORTED_TARGET libarchive)
pkg_check_modules(PANGOCAIRO REQUIRED IMPORTED_TARGET pangocairo cairo-svg fontconfig)

# DuckDB is opened at run time (src/data/readers): only its header is needed here, from the system or
# from .deps (tools/deps.sh). The library lies where Danlu's own do (base/own_library.h).
find_path(DUCKDB_INCLUDE duckdb.h PATHS ${CMAKE_SOURCE_DIR}/.deps/duckdb/include REQUIRED)
find_library(DUCKDB_LIBRARY duckdb PATHS ${CMAKE_SOURCE_DIR}/.deps/duckdb/lib)
add_library(danlu_duckdb INTERFACE)
target_include_directories(danlu_duckdb SYSTEM INTERFACE ${DUCKDB_INCLUDE})
if(DUCKDB_LIBRARY)
  file(CREATE_LINK ${DUCKDB_LIBRARY} ${CMAKE_BINARY_DIR}/libduckdb.so SYMBOLIC)
endif()

if(DANLU_ENGINE)
  find_package(Torch REQUIRED)
  find_package(OpenMP REQUIRED COMPONENTS CXX)  # what libtorch computes with
  # A libtorch for CUDA has NCCL inside; what it says of it needs NCCL's own header.
  find_path(NCCL_INCLUDE nccl.h)
  find_library(OPENBLAS_LIBRARY NAMES openblas REQUIRED)
  # Which kernels this CPU build can carry; `ops` asks the CPU again at run time.
  add_library(danlu_kernels INTERFACE)
  target_link_libraries(danlu_kernels INTERFACE ${OPENBLAS_LIBRARY})
  find_package(HWY QUIET)
  if(TARGET hwy::hwy)
    target_link_libraries(danlu_kernels INTERFACE hwy::hwy)
  endif()
endif()
