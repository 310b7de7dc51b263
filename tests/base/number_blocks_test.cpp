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
     0x32948c6df7a51597u},
    {BlockType::kQ4_1,
     "b733cabf394ea93a09eddb5f507ac0d158edc6c21634b8bf18b0cc3eb3b90f5eb6da4845"
     "8f63ad1de733a6bf94f9356f5ce36dc4643fba5526ea012201348ebf6c2f21818af847c0"
     "79163b32fdd0874e5f3354bf155911337f403c7dc46efc26437e06537233d4be2d3e72a4"
     "5c77ce9f280f5453a76a1f770d34bebfbaf7b4977e7edd08776a413eaccaf6e48233a4bf"
     "ccbb966e408eee5dadb4390acf4438bf",
     0x67077cc30de9dd47u},
    {BlockType::kQ5_0,
     "ca2fff3264ec518b326313b9a6bea0e59192a0ba7d83b82fedd6365322709a7d86720fbd"
     "6cd5919b1fc65c3ba62f5a26a32448f27adfbad5da98c86f64aa4dc502358e2f33d5b871"
     "c94f532226f18f91033c7765fbc0209e542fd22600053a923176fe8069ea78cde85d77eb"
     "0ba722af2c9c37efc3811ba7452152c0bff05859a12bd110be2ff13a4ff066ff783ffeed"
     "bc00efc4827d5aa4fce8a42feb9d679388662bdb800ccb99495861038d985f5d",
     0x546a784ad33efafcu},
    {BlockType::kQ5_1,
     "782fcabfff3264ec529c437414cab7bfb0f6a1a3b0cb8d94e92fb8bfedd636532260897c"
     "76720fac6cc4919b1fc65c2aa62fa6bf5a26a32448f27adfbad5da98c86f64aa4dc50235"
     "c02f8ebf3395b870c84f431215e18e91f23c7655fac01f9d222f54bfd22600053aa33176"
     "fe8069eb88cef95d87ec0ca7352fd4bed363c8103c7ef458badead3f500fa8a65ed43eef"
     "d72fbebff13a4ff065ef782feeddbc00efc4827d59a4fce8442fa4bfebdd67939a773cdd"
     "901ddcab5a6962049f98606f",
     0x2b4ef5ee4c60c8bu},
    {BlockType::kQ2_K,
     "ddedffdbcdbcce9cddde7babddefedec9ae31e3eb68b7e1f947aa814de274dcc613d0e55"
     "5cff13b55d0e2717c9f74f03edae50e13bf4ffefe56f83b1f56b9dd5e0f5a4a95595fd49"
     "d2d15714e97570f53b2d6c30",
     0x53db787216c01637u},
    {BlockType::kQ3_K,
     "8fdb65e11bad99d5ee11faa6ad13ccecccceeb685ae7e924da8b1d09e2754be9a0ff6945"
     "593e112764cdb065d03a37f551fae939383bb3af3aec9afb127f0696a641ecca07c0d283"
     "82b33a4fd2bf13e2957a51d68c02ee9746736f2d9aa0747386696a9778056689cc00330c"
     "e1a4",
     0x68586d318a281e69u},
    {BlockType::kQ5_K,
     "03180428fcfffffffffefdfda979eedaebbd03877dcbf7f3a8779ec0cb75a2aac4c6c368"
     "0a8fe12c92821501ea4d4bc1220c93d4642af7dfc04611b3f06bcdb425699477717c0bbc"
     "6bcf9a9b1bcc583988e2392e5915ea1828ce645aad04f2d4c34e571c1bec8d88fb36755a"
     "f4bb1093cae34186aef0d9fb08fe896de74cec073279f357bfe8a63e580cafa567ee30ea"
     "a67fc8df0eddccb0af94224dfa840cf8967f37d39f1edba05e6c6807959a6f6e",
     0x632f125c8c73abbbu}};

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

/// Blocks whose scales and codes are known are put together by hand, bit by bit as ggml-common.h
/// lists them.
struct HandMade {
  explicit HandMade(BlockType type) : type_(type), bytes(block_traits(type).bytes) {}
  void half(size_t at, uint16_t bits) {
    bytes[at] = static_cast<std::byte>(bits & 255u);
    bytes[at + 1] = static_cast<std::byte>(bits >> 8);
  }
  void set(size_t at, unsigned bits) { bytes[at] |= static_cast<std::byte>(bits); }
  std::vector<float> read() const {
    std::vector<float> numbers(block_traits(type_).numbers);
    dequantize(type_, bytes.data(), numbers.size(), numbers.data());
    return numbers;
  }
  BlockType type_;
  std::vector<std::byte> bytes;
};
constexpr uint16_t kHalf = 0x3800, kTwo = 0x4000, kMinusThree = 0xC200;

TEST(NumberBlocks, Q4_1AndQ5_1AddTheirMinimum) {
  HandMade q4(BlockType::kQ4_1), q5(BlockType::kQ5_1);
  q4.half(0, kHalf);
  q4.half(2, kMinusThree);
  q4.set(4 + 3, 0x9 | 0xF << 4);  // numbers 3 and 19
  EXPECT_EQ(q4.read()[3], 0.5f * 9 - 3);
  EXPECT_EQ(q4.read()[19], 0.5f * 15 - 3);
  EXPECT_EQ(q4.read()[0], -3);
  q5.half(0, kTwo);
  q5.half(2, kMinusThree);
  q5.set(4 + 2, 0x8);       // the fifth bit of number 19
  q5.set(8 + 3, 0x1 << 4);  // its lower four
  EXPECT_EQ(q5.read()[19], 2.0f * 17 - 3);
  EXPECT_EQ(q5.read()[3], -3);
}

TEST(NumberBlocks, Q5_0TakesSixteenFromFiveBits) {
  HandMade block(BlockType::kQ5_0);
  block.half(0, kHalf);
  block.set(2 + 0, 0x20);  // the fifth bit of number 5
  block.set(6 + 5, 0x3);
  EXPECT_EQ(block.read()[5], 0.5f * (19 - 16));
  EXPECT_EQ(block.read()[21], 0.5f * -16);
}

TEST(NumberBlocks, Q2_KHasAScaleAndAnOffsetForSixteenNumbers) {
  HandMade block(BlockType::kQ2_K);
  block.half(80, kHalf);
  block.half(82, kTwo);
  // Number 128 + 32 * 2 + 16 + 5: half 1, group 6, its second part, which is the 14th of all.
  block.set(13, 7 | 3 << 4);
  block.set(16 + 32 + 21, 2 << 4);
  EXPECT_EQ(block.read()[213], 0.5f * 7 * 2 - 2.0f * 3);
  EXPECT_EQ(block.read()[212], -6);
  EXPECT_EQ(block.read()[207], 0);  // the part before has neither
}

TEST(NumberBlocks, Q3_KTakesFourFromThreeBitsAndThirtyTwoFromScales) {
  HandMade block(BlockType::kQ3_K);
  block.half(108, kTwo);
  // The same number: scale 13 is the upper half of byte 5 and bits 6 and 7 of byte 8 + 1.
  block.set(96 + 5, 0xA << 4);
  block.set(96 + 9, 0x2 << 6);
  block.set(21, 1 << 6);  // third bit of group 6
  block.set(32 + 32 + 21, 1 << 4);
  const float scale = 2.0f * (0x2A - 32);
  EXPECT_EQ(block.read()[213], scale * (5 - 4));
  EXPECT_EQ(block.read()[212], scale * -4);
  EXPECT_EQ(block.read()[0], 2.0f * -32 * -4);
}

TEST(NumberBlocks, KBlocksOfFourAndFiveBitsShareTheirPackedScales) {
  for (const BlockType type : {BlockType::kQ4_K, BlockType::kQ5_K}) {
    HandMade block(type);
    block.half(0, kHalf);
    block.half(2, kTwo);
    // Group 6: lower bits in byte 10, upper ones of the scale in byte 2, of the offset in byte 6.
    block.set(4 + 10, 0x5 | 0x9 << 4);
    block.set(4 + 2, 0x3 << 6);
    block.set(4 + 6, 0x1 << 6);
    const bool has_fifth = type == BlockType::kQ5_K;
    if (has_fifth) block.set(16 + 7, 1 << 6);
    block.set((has_fifth ? 48 : 16) + 32 * 3 + 7, 0xB);
    const float code = has_fifth ? 27 : 11;
    EXPECT_EQ(block.read()[6 * 32 + 7], 0.5f * 0x35 * code - 2.0f * 0x19);
    EXPECT_EQ(block.read()[6 * 32 + 8], -2.0f * 0x19);
    EXPECT_EQ(block.read()[0], 0);
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
