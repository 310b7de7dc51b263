// Rows that a vocabulary gains: how they begin, and that every way of reading them gives the same.
#include "weights/hf/new_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>

#include "support/temporary_directory.h"
#include "support/throws.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/small_tensors.h"

namespace danlu::weights {
namespace new_rows_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int64_t kRows = 40, kWidth = 64;
constexpr const char* kTable = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

/// A value that no other place has, of both signs.
double value_at(int64_t row, int64_t col, double scale) {
  return scale * std::sin(static_cast<double>(row * kWidth + col + 1));
}

class NewRowsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Json json = Json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "num_attention_heads": 2, "intermediate_size": 16, "num_hidden_layers": 1,
        "max_position_embeddings": 32, "tie_word_embeddings": false})");
    json["vocab_size"] = kRows;
    json["hidden_size"] = kWidth;
    config_ = arch::parse_model_config(json, "test");
    test::SmallTensors tensors;
    for (const arch::ParamSpec& spec : arch::parameters_of(config_)) {
      std::vector<double> values;
      const Rect all = matrix_of(spec.shape);
      for (int64_t i = 0; i < all.rows * all.cols; ++i)
        values.push_back(value_at(i / all.cols, i % all.cols, spec.name == kHead ? 0.5 : 2.0));
      // A row that was padding.
      if (spec.name == kTable) std::fill_n(values.begin() + 38 * kWidth, kWidth, 0.0);
      tensors[spec.name] = {spec.shape, values};
    }
    test::save_small(folder_ / "model", tensors);
    std::ofstream(folder_ / "model" / "config.json") << json.dump();
    source_ = open_checkpoint_source(folder_ / "model", {.all_tensors = true}).model;
  }

  std::shared_ptr<const TensorSource> grown(const NewRows& rows) const {
    return with_new_rows(source_, config_, rows);
  }
  static std::vector<double> row_of(const TensorSource& source, const char* name, int64_t row) {
    const std::vector<double> all = test::numbers_of(source, name);
    return {all.begin() + row * kWidth, all.begin() + (row + 1) * kWidth};
  }
  /// By the textbook, over the rows that were there but for `without`.
  std::pair<double, double> mean_and_variance(const char* name, int64_t col,
                                              const std::set<int64_t>& without) const {
    const std::vector<double> all = test::numbers_of(*source_, name);
    double mean = 0, variance = 0, count = 0;
    for (int64_t row = 0; row < kRows; ++row) {
      if (without.count(row)) continue;
      mean += all[static_cast<size_t>(row * kWidth + col)];
      ++count;
    }
    mean /= count;
    for (int64_t row = 0; row < kRows; ++row) {
      if (without.count(row)) continue;
      const double off = all[static_cast<size_t>(row * kWidth + col)] - mean;
      variance += off * off / count;
    }
    return {mean, variance};
  }

  const test::TemporaryDirectory folder_;
  arch::ModelConfig config_;
  std::shared_ptr<const TensorSource> source_;
};

TEST_F(NewRowsTest, OldRowsStayAndTheRestKeepsItsShape) {
  const auto all = grown({.vocab_size = 64, .tokens = {40, 41}, .seed = 7});
  for (const char* name : {kTable, kHead}) {
    EXPECT_EQ(all->find(name)->shape, (std::vector<int64_t>{64, kWidth}));
    for (const int64_t row : {int64_t{0}, int64_t{17}, kRows - 1})
      EXPECT_EQ(row_of(*all, name, row), row_of(*source_, name, row)) << name << row;
  }
  for (const TensorInfo& info : source_->tensors()) {
    if (info.name == kTable || info.name == kHead) continue;
    EXPECT_EQ(test::numbers_of(*all, info.name), test::numbers_of(*source_, info.name));
  }
  EXPECT_EQ(all->files(), source_->files());
}

// LLaMA-Factory's: mean + N(0, 1) / sqrt(width).
TEST_F(NewRowsTest, NoiseOfTheWidthHasItsDeviation) {
  const auto all =
      grown({.vocab_size = 1064, .tokens = {38, 40}, .noise = RowNoise::kOfWidth, .seed = 7});
  const std::vector<double> numbers = test::numbers_of(*all, kTable);
  double sum = 0, squares = 0, count = 0;
  for (int64_t col = 0; col < kWidth; ++col) {
    const double mean = mean_and_variance(kTable, col, {38}).first;
    for (int64_t row = kRows; row < 1064; ++row) {
      const double noise = (numbers[static_cast<size_t>(row * kWidth + col)] - mean) *
                           std::sqrt(static_cast<double>(kWidth));
      sum += noise;
      squares += noise * noise;
      ++count;
    }
  }
  // 65536 draws: six standard errors.
  EXPECT_NEAR(sum / count, 0.0, 6.0 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1.0, 6.0 * std::sqrt(2.0 / count));
  // A token among rows that were padding is drawn too.
  EXPECT_NE(row_of(*all, kTable, 38), row_of(*source_, kTable, 38));
  EXPECT_NE(row_of(*all, kTable, 40), row_of(*all, kTable, 41));
}

// transformers': nearly the mean.
TEST_F(NewRowsTest, SlightNoiseIsOfTheColumnsVariance) {
  const auto all = grown({.vocab_size = 128, .tokens = {}, .seed = 7});
  const std::vector<double> numbers = test::numbers_of(*all, kHead);
  double squares = 0, count = 0;
  for (int64_t col = 0; col < kWidth; ++col) {
    const auto [mean, variance] = mean_and_variance(kHead, col, {});
    for (int64_t row = kRows; row < 128; ++row) {
      const double off = numbers[static_cast<size_t>(row * kWidth + col)] - mean;
      EXPECT_LT(std::abs(off), 1e-3);
      squares += off * off / (1e-9 * variance);
      ++count;
    }
  }
  // Rounding to f32 adds little to it.
  EXPECT_NEAR(squares / count, 1.0, 0.15);
}

TEST_F(NewRowsTest, APaddingRowOfZerosBeginsAndAnotherStays) {
  const auto all = grown({.vocab_size = 0, .tokens = {38, 39}, .seed = 7});
  EXPECT_EQ(all->find(kTable)->shape.front(), kRows);
  EXPECT_NE(row_of(*all, kTable, 38), row_of(*source_, kTable, 38));
  EXPECT_EQ(row_of(*all, kTable, 39), row_of(*source_, kTable, 39));
  EXPECT_EQ(row_of(*all, kHead, 38), row_of(*source_, kHead, 38));
}

// Ranks read rectangles, converters ranges.
TEST_F(NewRowsTest, EveryWayOfReadingGivesTheSame) {
  const NewRows rows{.vocab_size = 64, .tokens = {5, 40}, .noise = RowNoise::kOfWidth, .seed = 7};
  const auto all = grown(rows);
  std::vector<float> whole(64 * kWidth);
  all->read(kTable, std::as_writable_bytes(std::span(whole)));
  const auto again = grown(rows);  // whose means are read anew
  for (const Rect& rect : {Rect{3, 5, 0, kWidth}, Rect{30, 34, 16, 8}, Rect{63, 1, 63, 1}}) {
    std::vector<float> part(static_cast<size_t>(rect.rows * rect.cols));
    again->read_rect(kTable, rect, reinterpret_cast<std::byte*>(part.data()), rect.cols);
    for (int64_t row = 0; row < rect.rows; ++row) {
      for (int64_t col = 0; col < rect.cols; ++col) {
        EXPECT_EQ(part[static_cast<size_t>(row * rect.cols + col)],
                  whole[static_cast<size_t>((rect.row + row) * kWidth + rect.col + col)]);
      }
    }
  }
  std::vector<float> range(3 * kWidth + 5);
  all->read_range(kTable, 39 * kWidth + 7, 42 * kWidth + 12,
                  std::as_writable_bytes(std::span(range)));
  for (size_t i = 0; i < range.size(); ++i) EXPECT_EQ(range[i], whole[39 * kWidth + 7 + i]);
  NewRows other = rows;
  other.seed = 8;
  EXPECT_NE(row_of(*grown(other), kTable, 41), row_of(*all, kTable, 41));
  EXPECT_NE(row_of(*all, kHead, 41), row_of(*all, kTable, 41));
}

TEST_F(NewRowsTest, AVocabularyDoesNotShrink) {
  EXPECT_THAT(test::error_of<ModelError>([&] { grown({.vocab_size = 32}); }),
              HasSubstr("a vocabulary of 40 does not shrink to 32"));
  EXPECT_EQ(grown({}), source_);
}

}  // namespace new_rows_test
}  // namespace danlu::weights
