// Whether pieces cover a matrix exactly once, against counting every element.
#include "weights/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "support/throws.h"

namespace danlu::weights {
namespace {

using testing::HasSubstr;

/// Rectangles that tile [row, row + rows) x [col, col + cols), cut at random.
void cut(std::mt19937_64& random, const Rect& rect, std::vector<Rect>& out) {
  const auto between = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  if (rect.rows * rect.cols <= 1 || between(0, 3) == 0) return out.push_back(rect);
  Rect first = rect, second = rect;
  if (rect.cols == 1 || (rect.rows > 1 && between(0, 1) == 0)) {
    first.rows = between(1, rect.rows - 1);
    second.row += first.rows;
    second.rows -= first.rows;
  } else {
    first.cols = between(1, rect.cols - 1);
    second.col += first.cols;
    second.cols -= first.cols;
  }
  cut(random, first, out);
  cut(random, second, out);
}

Layout layout_of(const std::vector<Rect>& rects, int64_t rows, int64_t cols) {
  Layout layout;
  layout.globals.push_back({"matrix", DType::kF32, {rows, cols}});
  layout.files = {"file"};
  StoredTensor stored{.info = layout.globals[0]};
  stored.sections.push_back({.rows = rows, .cols = cols});
  for (const Rect& rect : rects)
    stored.sections[0].pieces.push_back({.of = rect, .row = rect.row, .col = rect.col});
  layout.tensors.push_back(std::move(stored));
  return layout;
}

bool covers_once(const std::vector<Rect>& rects, int64_t rows, int64_t cols) {
  std::vector<int> count(static_cast<size_t>(rows * cols));
  for (const Rect& rect : rects) {
    if (rect.row < 0 || rect.col < 0 || rect.row + rect.rows > rows || rect.col + rect.cols > cols)
      return false;
    for (int64_t r = rect.row; r < rect.row + rect.rows; ++r) {
      for (int64_t c = rect.col; c < rect.col + rect.cols; ++c)
        ++count[static_cast<size_t>(r * cols + c)];
    }
  }
  return std::all_of(count.begin(), count.end(), [](int n) { return n == 1; });
}

TEST(Layout, PiecesMustCoverEveryElementOnce) {
  int broken = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    std::mt19937_64 random(seed);
    const auto between = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    const int64_t rows = between(1, 9), cols = between(1, 9);
    std::vector<Rect> rects;
    cut(random, {0, rows, 0, cols}, rects);
    std::shuffle(rects.begin(), rects.end(), random);
    if (seed % 2 == 1) {
      // Moved, so that the areas still sum up.
      Rect& moved = rects[static_cast<size_t>(between(0, static_cast<int64_t>(rects.size()) - 1))];
      moved.row = between(0, rows - moved.rows);
      moved.col = between(0, cols - moved.cols);
    }
    const bool good = covers_once(rects, rows, cols);
    broken += !good;
    if (good) {
      EXPECT_NO_THROW(check_layout(layout_of(rects, rows, cols))) << seed;
    } else {
      EXPECT_THROW(check_layout(layout_of(rects, rows, cols)), InternalError) << seed;
    }
  }
  EXPECT_GT(broken, 500);
}

TEST(Layout, AreasBeyondAllNumbersAreErrors) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  const auto error = [](const std::vector<Rect>& rects, int64_t rows, int64_t cols) {
    return test::error_of<InternalError>([&] { check_layout(layout_of(rects, rows, cols)); });
  };
  EXPECT_THAT(error({{0, kHuge, 0, kHuge}}, kHuge, kHuge), HasSubstr("impossible"));
  const Rect most{0, int64_t{1} << 31, 0, int64_t{1} << 31};
  EXPECT_THAT(error({most, most, most}, most.rows, most.cols), HasSubstr("overlap"));
  EXPECT_THAT(error({{5, -5, 0, 1}}, 10, 1), HasSubstr("outside"));
}

TEST(Layout, AShapeWithAZeroHasNoElementsWhateverItsOtherSizes) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{0, kHuge, kHuge}, {kHuge, kHuge, 0}, {kHuge, 0, kHuge, kHuge}})
    EXPECT_EQ((TensorInfo{"x", DType::kF32, shape}.num_elements()), 0);
  EXPECT_EQ(matrix_of({0, kHuge, kHuge}).rows, 0);
  EXPECT_EQ(matrix_of({7, kHuge, kHuge, 0}).cols, 0);
  EXPECT_EQ(matrix_of({2, 3, 4}).cols, 12);
}

}  // namespace
}  // namespace danlu::weights
