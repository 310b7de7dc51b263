#include "base/keyed_hash.h"

#include <gtest/gtest.h>

#include <string>

namespace danlu {
namespace {

constexpr KeyedHash::Key kKey = {0x0706050403020100, 0x0f0e0d0c0b0a0908};

uint64_t hash_of(std::string_view bytes, const KeyedHash::Key& key = kKey) {
  KeyedHash hash(key);
  hash.add(bytes);
  return hash.value();
}

std::string counted(size_t size) {
  std::string bytes;
  for (size_t i = 0; i < size; ++i) bytes += static_cast<char>(i);
  return bytes;
}

/// Values of the reference implementation, whose paper gives that of 15 bytes.
TEST(KeyedHash, IsSipHash) {
  EXPECT_EQ(hash_of(counted(0)), 0x726fdb47dd0e0e31u);
  EXPECT_EQ(hash_of(counted(1)), 0x74f839c593dc67fdu);
  EXPECT_EQ(hash_of(counted(15)), 0xa129ca6149be45e5u);
}

TEST(KeyedHash, PiecesOfAnySizesGiveThatOfTheWhole) {
  const std::string bytes = counted(100);
  for (size_t piece = 1; piece < 20; ++piece) {
    KeyedHash hash(kKey);
    for (size_t at = 0; at < bytes.size(); at += piece)
      hash.add(std::string_view(bytes).substr(at, piece));
    EXPECT_EQ(hash.value(), hash_of(bytes)) << piece;
    EXPECT_EQ(hash.value(), hash_of(bytes)) << "asking changes nothing";
  }
}

TEST(KeyedHash, ChangesWithTheKeyWhichEachProcessDraws) {
  EXPECT_NE(hash_of("picture"), hash_of("picture", {kKey[1], kKey[0]}));
  EXPECT_EQ(key_of_process(), key_of_process());
  EXPECT_NE(key_of_process(), kKey);
}

}  // namespace
}  // namespace danlu
