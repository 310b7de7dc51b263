// tests/train/drawn_pixels.h: pixels of pictures that have no file, a function of the row's name.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "data/media_loader.h"
#include "support/tiny_model.h"

namespace danlu::test {

/// As many values as a patch of tiny_config's tower has.
inline constexpr int64_t kTinyPatch = 3 * 2 * 4 * 4;

class DrawnPixels : public data::PendingPixels {
 public:
  /// is_for_once: a second take(), for which a loader would decode them anew, fails.
  explicit DrawnPixels(std::vector<data::MediaSpan> spans, bool is_for_once = false)
      : spans_(std::move(spans)), is_for_once_(is_for_once) {}
  data::MediaPixels take(double* wait_s = nullptr, bool again = false) override {
    if (wait_s) *wait_s = 0;
    EXPECT_FALSE(is_taken_ && is_for_once_) << "pixels are taken twice";
    is_taken_ = !again;
    data::MediaPixels made;
    made.patch_values = kTinyPatch;
    for (const data::MediaSpan& span : spans_) made.patches += span.grid.patches();
    made.values = std::make_unique<float[]>(static_cast<size_t>(made.patches * kTinyPatch));
    float* next = made.values.get();
    for (const data::MediaSpan& span : spans_) {
      const uint64_t seed = hash_bytes(span.row);
      for (int64_t i = 0; i < span.grid.patches() * kTinyPatch; ++i)
        *next++ = tiny_normal(seed, static_cast<uint64_t>(i));
    }
    return made;
  }

 private:
  std::vector<data::MediaSpan> spans_;
  bool is_for_once_, is_taken_ = false;
};

}  // namespace danlu::test
