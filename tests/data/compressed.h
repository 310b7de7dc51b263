// tests/data/compressed.h: text as compressed files hold it.
#pragma once
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <string>

namespace danlu::data {

inline std::string gzip(const std::string& text) {
  z_stream zlib{};
  deflateInit2(&zlib, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&zlib, text.size()), '\0');
  zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  zlib.avail_in = static_cast<uInt>(text.size());
  zlib.next_out = reinterpret_cast<Bytef*>(packed.data());
  zlib.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&zlib, Z_FINISH), Z_STREAM_END);
  packed.resize(zlib.total_out);
  deflateEnd(&zlib);
  return packed;
}

inline std::string zstd(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 1));
  return packed;
}

}  // namespace danlu::data
