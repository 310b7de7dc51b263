// The order of pre-training windows, from raw tokens to the end of the second epoch.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "data/megatron/indexed_writer.h"
#include "support/temporary_directory.h"
#include "train/prepare_data.h"

namespace danlu::train {
namespace pretrain_order_test {

class PretrainOrder : public testing::Test {
 protected:
  void SetUp() override {
    data::IndexedWriter writer(folder_ / "text_document", data::TokenType::kI32);
    for (int32_t d = 0; d < 40; ++d) {
      std::vector<int32_t> tokens(static_cast<size_t>(20 + d % 7));
      for (size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = static_cast<int32_t>(d * 100 + static_cast<int32_t>(i));
      writer.add_document(tokens);
    }
    writer.commit();
  }

  PreparedData prepared(int64_t max_steps, bool ends_epochs = false) const {
    TrainConfig config;
    config.data.texts_end_epochs = ends_epochs;
    config.task = Task::kPretrain;
    config.data.train = {(folder_ / "text_document").string()};
    config.data.cache_dir = folder_ / "cache";
    config.data.max_length = 16;
    config.data.seed = 5;
    config.batch.max_steps = max_steps;
    return prepare_data(config, {}, 4);
  }
  static std::vector<std::vector<int32_t>> windows(const PreparedData& data, int64_t begin,
                                                   int64_t end) {
    std::vector<std::vector<int32_t>> out;
    for (int64_t i = begin; i < end; ++i) out.push_back(data.train->get(data.order(i)).ids);
    return out;
  }

  const danlu::test::TemporaryDirectory folder_;
};

// As LLaMA-Factory counts: the last step of an epoch is of what is left, however many are asked
// for.
TEST_F(PretrainOrder, AnEpochEndsWhereTheLineIsLlamaFactorys) {
  EXPECT_EQ(prepared(-1).last_batch, data::LastBatch::kWrap);
  const PreparedData counted = prepared(100, /*ends_epochs=*/true);
  EXPECT_EQ(counted.last_batch, data::LastBatch::kPartial);
  EXPECT_EQ(counted.train->size(), prepared(-1).train->size()) << "one epoch";
}

TEST_F(PretrainOrder, LaterEpochsAreTheSameWindowsInAnotherOrder) {
  const PreparedData data = prepared(-1);
  const int64_t size = data.train->size();
  ASSERT_GT(size, 20);
  auto first = windows(data, 0, size), second = windows(data, size, 2 * size),
       third = windows(data, 2 * size, 3 * size);
  EXPECT_NE(first, second);
  EXPECT_NE(second, third);
  EXPECT_EQ(second, windows(data, size, 2 * size));
  for (auto* epoch : {&first, &second, &third}) std::sort(epoch->begin(), epoch->end());
  EXPECT_EQ(first, second);
  EXPECT_EQ(first, third);
}

TEST_F(PretrainOrder, CountedStepsTakeMegatronsIndexThroughAllEpochs) {
  const PreparedData data = prepared(50);
  ASSERT_GE(data.train->size(), 200);
  for (int64_t i = 0; i < 200; ++i) ASSERT_EQ(data.order(i), i);
}

}  // namespace pretrain_order_test
}  // namespace danlu::train
