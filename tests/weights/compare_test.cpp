// Comparing checkpoints, proving copies, and digests: planted differences are found where they are.
#include "weights/compare/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <limits>
#include <thread>

#include "base/rng.h"
#include "support/tiny_model.h"
#include "weights/bytes.h"
#include "weights/compare/compare_text.h"
#include "weights/compare/verify_copy.h"
#include "weights/small_tensors.h"

namespace danlu::weights {
namespace {

using test::make_source;
using test::SmallTensor;
using test::SmallTensors;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

class Compare : public ::testing::Test {
 protected:
  /// The comparison of the only tensor of two checkpoints.
  TensorComparison compare_one(const SmallTensor& a, const SmallTensor& b) {
    return compare({{"w", a}}, {{"w", b}}).tensors.at(0);
  }
  Comparison compare(const SmallTensors& a, const SmallTensors& b) {
    a_ = make_source(folder_ / ("a" + std::to_string(count_)), a);
    b_ = make_source(folder_ / ("b" + std::to_string(count_++)), b);
    return compare_sources(*a_, *b_, {.num_threads = 3});
  }

  test::TemporaryDirectory folder_;
  int count_ = 0;
  std::shared_ptr<const TensorSource> a_, b_;
};

TEST_F(Compare, TheSameBitsAreIdentical) {
  const Comparison comparison = compare(
      {{"w", {{2, 2}, {1, kNan, -0.0, kInf}}}, {"empty", {{0, 3}, {}}}, {"one", {{}, {5}}}},
      {{"w", {{2, 2}, {1, kNan, -0.0, kInf}}}, {"empty", {{0, 3}, {}}}, {"one", {{}, {5}}}});
  EXPECT_TRUE(comparison.identical());
  EXPECT_EQ(comparison.tensors.size(), 3u);
  EXPECT_EQ(describe_comparison(comparison, false), "all 3 tensors are bit-identical\n");
}

TEST_F(Compare, DifferencesAreCountedPlacedAndMeasured) {
  const TensorComparison t =
      compare_one({{2, 3}, {1, 2, 3, 4, 5, 6}}, {{2, 3}, {1, 2.5, 3, 4, 3, 6}});
  EXPECT_EQ(t.verdict, TensorVerdict::kValuesDiffer);
  EXPECT_EQ(t.values.differing, 2);
  EXPECT_EQ(t.values.first, 1);
  EXPECT_EQ(t.values.worst, 4);
  EXPECT_EQ(t.values.max_abs, 2);
  EXPECT_EQ(t.values.max_rel, 0.4);  // 2 of 5
  EXPECT_FALSE(t.within(1.9));
  EXPECT_TRUE(t.within(2));
}

TEST_F(Compare, ANanOnOneSideIsTheWorst) {
  TensorComparison t = compare_one({{3}, {1, kNan, 3}}, {{3}, {100, 2, 3}});
  EXPECT_EQ(t.values.one_sided_nans, 1);
  EXPECT_EQ(t.values.worst, 1);
  EXPECT_EQ(t.values.max_abs, 99);
  EXPECT_FALSE(t.within(kInf));
  t = compare_one({{3}, {1, 2, 3}}, {{3}, {1, kInf, 3}});
  EXPECT_EQ(t.values.max_abs, kInf);
  EXPECT_FALSE(t.within(1e300));
  t = compare_one({{2}, {kInf, 0.0}}, {{2}, {kInf, -0.0}});
  EXPECT_EQ(t.values.differing, 1);  // other bits, equal values
  EXPECT_TRUE(t.within(0));
  EXPECT_FALSE(t.verdict == TensorVerdict::kIdentical);
}

TEST_F(Compare, OtherDtypesAreComparedAsNumbers) {
  const std::vector<double> exact = {1, -0.5, kNan, 256};
  TensorComparison t = compare_one({{4}, exact, DType::kBF16}, {{4}, exact, DType::kF32});
  EXPECT_EQ(t.verdict, TensorVerdict::kSameValues);
  EXPECT_TRUE(t.within(0));
  for (const DType wide : {DType::kF32, DType::kF64}) {
    t = compare_one({{2}, {1, 257}, DType::kBF16}, {{2}, {1, 257}, wide});
    EXPECT_EQ(t.verdict, TensorVerdict::kValuesDiffer);
    EXPECT_EQ(t.values.max_abs, 1);  // bf16 holds 256 and 258
    EXPECT_EQ(t.values.worst, 1);
  }
  t = compare_one({{2}, {1, 3}, DType::kF16}, {{2}, {1, 3}, DType::kI64});
  EXPECT_EQ(t.verdict, TensorVerdict::kSameValues);
}

TEST_F(Compare, IntegersAreComparedExactly) {
  const auto write = [&](const char* name, uint64_t value, const char* dtype) {
    const auto file = folder_ / name;
    std::ofstream(file, std::ios::binary) << test::safetensors_bytes(
        std::string(R"({"w":{"dtype":")") + dtype + R"(","shape":[1],"data_offsets":[0,8]}})",
        test::little_endian(value, 8));
    return open_safetensors(file);
  };
  // f64 does not tell 2^62 from 2^62 + 1.
  Comparison c = compare_sources(*write("a.safetensors", 1ull << 62, "I64"),
                                 *write("b.safetensors", (1ull << 62) + 1, "I64"));
  EXPECT_EQ(c.tensors[0].values.max_abs, 1);
  // -1 against 2^63 - 1.
  c = compare_sources(*write("c.safetensors", ~0ull, "I64"),
                      *write("d.safetensors", ~0ull >> 1, "I64"));
  EXPECT_EQ(c.tensors[0].values.max_abs, 0x1p63);
}

TEST_F(Compare, NamesAndShapes) {
  const Comparison comparison = compare({{"gone", {{1}, {1}}}, {"w", {{2, 1}, {1, 2}}}},
                                        {{"new", {{1}, {1}}}, {"w", {{1, 2}, {1, 2}}}});
  EXPECT_EQ(comparison.tensors[0].verdict, TensorVerdict::kOnlyInA);
  EXPECT_EQ(comparison.tensors[1].verdict, TensorVerdict::kOnlyInB);
  EXPECT_EQ(comparison.tensors[2].verdict, TensorVerdict::kShapeDiffers);
  EXPECT_FALSE(comparison.within(kInf));
  EXPECT_EQ(describe_comparison(comparison, false),
            "1 tensor only in A:\n"
            "  F32  [1]                  gone\n"
            "1 tensor only in B:\n"
            "  F32  [1]                  new\n"
            "1 tensor of another shape (A, B):\n"
            "  [2, 1]               [1, 2]               w\n");
}

TEST_F(Compare, TablesAreWorstFirstAndCut) {
  SmallTensors a, b;
  for (int i = 10; i < 35; ++i) {
    a["w" + std::to_string(i)] = {{4}, {0, 0, 0, 0}};
    b["w" + std::to_string(i)] = {{4}, {0, 0, static_cast<double>(i), 0}};
  }
  a["same"] = b["same"] = {{1}, {1}};
  b["w17"].values[1] = kNan;
  const Comparison comparison = compare(a, b);
  const std::string text = describe_comparison(comparison, false);
  EXPECT_THAT(text, HasSubstr("25 tensors of other values, worst first:\n"
                              "    max abs   max rel   differing elements  worst at       tensor\n"
                              "        NaN       NaN             2 (50 %)  [1]            w17\n"
                              "         34         1             1 (25 %)  [2]            w34\n"
                              "         33         1"));
  EXPECT_THAT(
      text, AllOf(HasSubstr("\n  and 5 more\n1 tensor is bit-identical\n"), Not(HasSubstr("w10"))));
  EXPECT_THAT(
      describe_comparison(comparison, true),
      AllOf(HasSubstr("w10"), HasSubstr("bit-identical:\n  F32  [1]                  same\n"),
            Not(HasSubstr("more"))));
}

TEST_F(Compare, AsJson) {
  Json json = comparison_json(compare({{"v", {{1}, {1}}}, {"w", {{2, 2}, {1, 2, 3, 4}}}},
                                      {{"v", {{1}, {1}}}, {"w", {{2, 2}, {1, 2, kInf, 5}}}}),
                              false);
  EXPECT_EQ(json["identical"], false);
  EXPECT_EQ(json["counts"]["values_differ"], 1);
  EXPECT_EQ(json["counts"]["identical"], 1);
  ASSERT_EQ(json["differences"].size(), 1u);
  const Json expected = {{"name", "w"},
                         {"verdict", "values_differ"},
                         {"a", {{"dtype", "F32"}, {"shape", {2, 2}}}},
                         {"b", {{"dtype", "F32"}, {"shape", {2, 2}}}},
                         {"differing", 2},
                         {"first", {1, 0}},
                         {"worst", {1, 0}},
                         {"max_abs", "inf"},
                         {"max_rel", "inf"},
                         {"one_sided_nans", 0}};
  EXPECT_EQ(json["differences"][0], expected);
}

/// A tensor of several bands of 2 MB, rows long or short, and a copy with one bit flipped.
TEST_F(Compare, OneFlippedBitIsFoundWhereverItIs) {
  for (uint64_t round = 0; round < 6; ++round) {
    const auto draw = [&](uint64_t index, uint64_t below) {
      return mix64(40 + round, index) % below;
    };
    const DType dtype = round % 2 == 0 ? DType::kBF16 : DType::kF32;
    const auto item = static_cast<int64_t>(dtype_size_bytes(dtype));
    const int64_t cols = round == 5 ? 3'000'000 : 1 + static_cast<int64_t>(draw(0, 5000));
    const int64_t rows = std::max<int64_t>(1, 6'000'000 / item / cols);
    const TensorInfo info{"w", dtype, {rows, cols}};
    std::string bytes(info.size_bytes(), '\0');
    for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
      // Exponents stay small, so that no pattern is a NaN or infinite, flipped or not.
      const uint64_t bits = mix64(round, i) & 0x3fff3fff3fff3fffull;
      std::memcpy(bytes.data() + i, &bits, 8);
    }
    const auto save = [&](const char* name) {
      const auto directory = folder_ / (name + std::to_string(round));
      std::filesystem::create_directories(directory);
      save_safetensors(directory, {info}, [&](size_t) { return test::as_bytes(bytes); });
      return open_weights(directory);
    };
    const auto original = save("original");
    const uint64_t bit = draw(1, bytes.size() * 8 - 8);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    const auto flipped = save("flipped");
    const auto at = static_cast<int64_t>(bit / 8) / item;

    EXPECT_TRUE(compare_sources(*original, *original).identical());
    const Comparison comparison = compare_sources(*original, *flipped, {.num_threads = 2});
    ASSERT_EQ(comparison.tensors[0].verdict, TensorVerdict::kValuesDiffer) << round;
    EXPECT_EQ(comparison.tensors[0].values.differing, 1);
    EXPECT_EQ(comparison.tensors[0].values.first, at);
    EXPECT_EQ(comparison.tensors[0].values.worst, at);

    EXPECT_FALSE(verify_copy(*original, *original).first);
    const CopyCheck check = verify_copy(*original, *flipped);
    ASSERT_TRUE(check.first);
    EXPECT_EQ(check.first->kind, CopyMismatch::Kind::kValue);
    EXPECT_EQ(check.first->row, at / cols);
    EXPECT_EQ(check.first->col, at % cols);
    EXPECT_NE(check.digests[0].digest, verify_copy(*original, *original).digests[0].digest);
  }
}

/// A checkpoint whose first elements can be read only after `is_open` says so.
class LateStart final : public TensorSource {
 public:
  LateStart(std::shared_ptr<const TensorSource> under, std::function<bool()> is_open)
      : under_(std::move(under)), is_open_(std::move(is_open)) {}
  const std::vector<TensorInfo>& tensors() const override { return under_->tensors(); }
  void read(const std::string& name, std::span<std::byte> out) const override {
    under_->read(name, out);
  }
  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    while (begin == 0 && !is_open_()) std::this_thread::yield();
    under_->read_range(name, begin, end, out);
  }
  std::span<const std::byte> mapped(const std::string&) const override { return {}; }
  std::filesystem::path file_of(const std::string& name) const override {
    return under_->file_of(name);
  }
  const Json& metadata() const override { return under_->metadata(); }

 private:
  std::shared_ptr<const TensorSource> under_;
  std::function<bool()> is_open_;
};

TEST_F(Compare, BandsThatEndInAnyOrderGiveOneResult) {
  SmallTensor a{{2'000'000}, std::vector<double>(2'000'000, 1)}, b = a;  // four bands
  b.values[7] = 1.5;
  b.values[1'300'000] = -1;
  b.values[1'900'000] = 4;
  compare({{"w", a}}, {{"w", b}});
  std::atomic<uint64_t> done{0};
  const LateStart late(a_, [&] { return done > 0; });
  const Comparison comparison = compare_sources(
      late, *b_, {.num_threads = 2, .progress = [&](uint64_t bytes) { done = bytes; }});
  const ValueDifference& values = comparison.tensors[0].values;
  EXPECT_EQ(values.differing, 3);
  EXPECT_EQ(values.first, 7);
  EXPECT_EQ(values.worst, 1'900'000);
  EXPECT_EQ(values.max_abs, 3);
  EXPECT_EQ(values.max_rel, 2);  // 1 and -1
}

TEST_F(Compare, ProgressReachesTheTotal) {
  compare({{"w", {{3}, {1, 2, 3}}}, {"x", {{1}, {1}}}}, {{"w", {{3}, {1, 2, 3}, DType::kF64}}});
  uint64_t last = 0;
  compare_sources(*a_, *b_, {.num_threads = 1, .progress = [&](uint64_t done) { last = done; }});
  EXPECT_EQ(last, 36u);
  EXPECT_EQ(bytes_to_compare(*a_, *b_), 36u);
}

TEST_F(Compare, ACopyIsItsSourceCastOnce) {
  const SmallTensors numbers = {{"i", {{2}, {1, -3}, DType::kI64}},
                                {"w", {{2, 2}, {1.00390625, 2, -3, 1e-3}, DType::kF32}}};
  SmallTensors rounded = numbers;
  rounded["w"].dtype = DType::kBF16;
  compare(numbers, rounded);
  const DTypeRule to_bf16 = [](const TensorInfo&) { return DType::kBF16; };
  const CopyCheck good = verify_copy(*a_, *b_, to_bf16);
  EXPECT_FALSE(good.first);
  ASSERT_EQ(good.digests.size(), 2u);
  EXPECT_EQ(good.digests[1].name, "w");
  EXPECT_EQ(good.digests[1].dtype, DType::kBF16);

  EXPECT_EQ(verify_copy(*a_, *b_).first->text(),
            (folder_ / "b0/model.safetensors").string() + ": w is BF16, it should be F32");
  // 1 + 2^-8 is halfway between two bf16 numbers: to even is 1, the other is 1 + 2^-7.
  rounded["w"].values[0] = 1.0078125;
  compare(numbers, rounded);
  EXPECT_EQ(verify_copy(*a_, *b_, to_bf16).first->text(),
            (folder_ / "b1/model.safetensors").string() + ": w is 1.0078125 at row 0, column 0; " +
                (folder_ / "a1/model.safetensors").string() + " has 1");
  rounded = numbers;
  rounded["i"].values[1] = -4;
  compare(numbers, rounded);
  EXPECT_THAT(verify_copy(*a_, *b_).first->text(),
              AllOf(HasSubstr(": i is -4 at row 1, column 0"), HasSubstr(" has -3")));
}

TEST_F(Compare, ACopyHasEveryTensorAndNoOther) {
  compare({{"v", {{2}, {1, 2}}}, {"w", {{2}, {1, 2}}}}, {{"w", {{2}, {1, 2}}}});
  EXPECT_THAT(verify_copy(*a_, *b_).first->text(),
              AllOf(HasSubstr("v [2] of "), HasSubstr("is missing in the result")));
  EXPECT_THAT(verify_copy(*b_, *a_).first->text(), HasSubstr(": v [2] is not in the source"));
  compare({{"w", {{2, 1}, {1, 2}}}}, {{"w", {{1, 2}, {1, 2}}}});
  EXPECT_THAT(verify_copy(*a_, *b_).first->text(),
              AllOf(HasSubstr(": w is [1, 2]; "), HasSubstr(" has [2, 1]")));
}

// Published test values of XXH3-64 with seed 0.
TEST(TensorDigest, IsXxh3OfTheBytes) {
  EXPECT_EQ(digest_text(DigestStream().digest()), "2d06800538d394c2");
  DigestStream pieces;
  pieces.add(test::as_bytes("a"));
  pieces.add(test::as_bytes("bc"));
  EXPECT_EQ(digest_text(pieces.digest()), "78af5f94892f3950");
}

TEST(TensorDigest, TheTotalDependsOnContentNotOnOrder) {
  const TensorDigest v{"v", DType::kF32, {2, 3}, 5}, w{"w", DType::kF32, {2, 3}, 6};
  const uint64_t total = digest_total({v, w});
  EXPECT_EQ(digest_total({w, v}), total);
  std::vector<TensorDigest> others(4, w);
  others[0].digest = 7;
  others[1].dtype = DType::kI32;
  others[2].shape = {3, 2};
  others[3].name = "x";
  for (const TensorDigest& other : others) EXPECT_NE(digest_total({v, other}), total);
  EXPECT_NE(digest_total({v}), total);
}

}  // namespace
}  // namespace danlu::weights
