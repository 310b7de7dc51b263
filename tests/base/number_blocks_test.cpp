// Blocks of quantised numbers against ggml's own functions: bytes of what it made of given numbers,
// and a hash of what it reads from them (llama.cpp as in node-llama-cpp 3.22.1,
// ggml_quantize_chunk and dequantize_row_*).
#include "base/number_blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace danlu {
namespace {

/// The numbers that ggml was given: -1.953125 to 1.953125 in steps of 1/512.
std::vector<float> golden_numbers() {
  std::vector<float> numbers;
  uint32_t state = 12345;
  for (int i = 0; i < 256; ++i) {
    state = (state * 1103515245u + 12345u) & 0x7fffffffu;
    numbers.push_back((static_cast<float>((state >> 8) % 2001) - 1000) / 512);
  }
  return numbers;
}

struct Golden {
  BlockType type;
  const char* blocks;  ///< in hexadecimal digits
  uint64_t read_hash;  ///< FNV-1a of the 256 floats
};

const Golden kGoldens[] = {
    {BlockType::kQ8_0,
     "da230b5813181648306d81268794fd50e69da9c318b385584fd7d4f3444bd3573a3fc823"
     "10834e68b1117d67e12409d97ab061588e3448ba3d3881d53264c9c80ae12895b523c313"
     "cc774dad53c3c17423cfe92592a61c75b6e4da6ae949deae2fd39e5f819a9d23477a968d"
     "2c0bf78515e035a95681fd6ee49fa50c0f79c34aff98baad7d620fcb6323cf128bb26c83"
     "4552c26843e8b559dbb595cb97b6f5bfafed39df71a9bcf081d230236574a6c555f96f7f"
     "087ec4b5f6267803a0befb2cdef3551dac86d8d631f19cf5ce232dfcbdf9706860fef920"
     "91664c21dfc231743914f5ed5981efdec2b7274e7a72b3234230db5a835d554945c30a16"
     "6bc0f86b412d13e6c3ff5dca2326af8140c7ab25",
     0xe08f935a93aa31bdu},
    {BlockType::kQ4_0,
     "ca33394ea93a09eddb5f507ac0d158ddc6c2b83319b0dd4fc3c90f5fb6ea59469f63be1e"
     "a633a4f9356f6df37dd4643fba5527ea01228e336c2f21919bf947d089164b32fde0985f"
     "5433155911337f403c7dc46ffc27437e065322b3e2c18e5ca3983160d7f0bcbd5996e098"
     "be33bbf8c4987f7fee08786a413eaddaf6f4a433ccbb966e408eed5daca43909cf4437af",
     0xd972df1619240dd7u},
    {BlockType::kQ4_K,
     "481ce127fdfcfbfffefefffdb666fbd9980dc9e9399cfaee60aa8051f73cd6d212b4c933"
     "b0bd0c55b5e74c4c856dab1bb4e9151fad837d04845faa25c60a71d26a2f238686ee46bc"
     "76133b25e2de8042e5f92143df70ecfd84ff4c3773aef683113571a35774d3972c065f52"
     "a4671075cbb864e70feedec8c74a819efd4a76f4cbbf9b694787ed40a7a63403ca4d3faf",
     0xad0ecce452e0a782u},
    {BlockType::kQ6_K,
     "03b6e506c662ac0b101a72d56f64d9877ad1e69c71a6a42685cdc15384761f702cff5d36"
     "b33ce1165887deaa6204f8ca739d72decf1e00d50db922520378cae53315222c1c305205"
     "207bf14abd77971dc5c3e65dddb06c1bce881cea9f3ce0c417c4667e0b8265312e012f62"
     "c307e3cf07bf5fac170d76389a90c6150d2cb69df6df22028eb74233b8469428e11f71f0"
     "a0f9ce50583bd33599cde7d709374a83d1a27ce803c8c3e3e553bb8dc85761f4e0b1a468"
     "5595fc4992911704e87530b582847e85748287778d8a769271808982fc8f",
     0x32948c6df7a51597u}};

std::vector<std::byte> golden_bytes(const std::string& digits) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < digits.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return bytes;
}

uint64_t fnv_of(const std::vector<float>& numbers) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto* bytes = reinterpret_cast<const unsigned char*>(numbers.data());
  for (size_t i = 0; i < numbers.size() * sizeof(float); ++i)
    hash = (hash ^ bytes[i]) * 0x100000001b3u;
  return hash;
}

TEST(NumberBlocks, AreReadAsGgmlReadsThem) {
  for (const Golden& golden : kGoldens) {
    const std::vector<std::byte> blocks = golden_bytes(golden.blocks);
    ASSERT_EQ(blocks.size(), block_bytes(golden.type, 256)) << block_traits(golden.type).name;
    std::vector<float> read(256);
    dequantize(golden.type, blocks.data(), 256, read.data());
    EXPECT_EQ(fnv_of(read), golden.read_hash) << block_traits(golden.type).name;
  }
}

TEST(NumberBlocks, AreMadeAsGgmlMakesThem) {
  const std::vector<float> numbers = golden_numbers();
  for (const Golden& golden : kGoldens) {
    if (golden.type != BlockType::kQ8_0 && golden.type != BlockType::kQ4_0) continue;
    std::vector<std::byte> made(block_bytes(golden.type, 256));
    quantize(golden.type, numbers.data(), 256, made.data());
    EXPECT_EQ(made, golden_bytes(golden.blocks)) << block_traits(golden.type).name;
  }
}

TEST(NumberBlocks, Q8_0RoundsHalvesAwayFromZero) {
  // The largest magnitude is 254, so the scale is 2 and every number is halved, halves away from 0.
  std::vector<float> numbers(32, 0.0f);
  numbers[0] = -254;
  numbers[1] = 5;   // 2.5 -> 3
  numbers[2] = -5;  // -2.5 -> -3
  numbers[3] = 4.9f;
  numbers[31] = 254;
  std::vector<std::byte> block(block_bytes(BlockType::kQ8_0, 32));
  ASSERT_EQ(block.size(), 34u);
  quantize(BlockType::kQ8_0, numbers.data(), 32, block.data());
  EXPECT_EQ(static_cast<int>(block[0]) | static_cast<int>(block[1]) << 8, 0x4000);  // 2.0 in F16
  const auto at = [&](size_t i) { return static_cast<int>(static_cast<int8_t>(block[2 + i])); };
  EXPECT_EQ(at(0), -127);
  EXPECT_EQ(at(1), 3);
  EXPECT_EQ(at(2), -3);
  EXPECT_EQ(at(3), 2);
  EXPECT_EQ(at(31), 127);
  std::vector<float> back(32);
  dequantize(BlockType::kQ8_0, block.data(), 32, back.data());
  EXPECT_EQ(back[0], -254);
  EXPECT_EQ(back[1], 6);
  EXPECT_EQ(back[4], 0);
}

TEST(NumberBlocks, TheLargestAndTheSmallestNumbersStayNumbers) {
  std::vector<float> numbers(32, 1e-42f), back(32);
  std::vector<std::byte> block(block_bytes(BlockType::kQ8_0, 32));
  quantize(BlockType::kQ8_0, numbers.data(), 32, block.data());
  dequantize(BlockType::kQ8_0, block.data(), 32, back.data());
  EXPECT_EQ(back, std::vector<float>(32, 0.0f));
  numbers[5] = -largest_quantizable(BlockType::kQ8_0);
  quantize(BlockType::kQ8_0, numbers.data(), 32, block.data());
  dequantize(BlockType::kQ8_0, block.data(), 32, back.data());
  EXPECT_EQ(back[5], -largest_quantizable(BlockType::kQ8_0));
}

TEST(NumberBlocks, QuotientsUseTheScaleBeforeItIsRounded) {
  // 1/127 is not exact in F16 (0x2008 = 0.0078735); numbers are divided by 1/127 itself.
  std::vector<float> numbers(32, 1.0f);
  numbers[1] = 0.5f;  // 63.5 -> 64
  std::vector<std::byte> block(34);
  quantize(BlockType::kQ8_0, numbers.data(), 32, block.data());
  EXPECT_EQ(static_cast<int>(block[0]) | static_cast<int>(block[1]) << 8, 0x2008);
  EXPECT_EQ(static_cast<int8_t>(block[2]), 127);
  EXPECT_EQ(static_cast<int8_t>(block[3]), 64);
}

}  // namespace
}  // namespace danlu
