// A model whose files stack a layer's experts is saved as it was read, bit for bit, and in shards.
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "models/tensor_io.h"
#include "models/weight_files.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

namespace danlu::models {
namespace {

std::filesystem::path stacked_model() { return test::shared_dir() / "golden/moe/llama4_text"; }

TEST(StackedSave, FilesAreTheOnesThatWereRead) {
  DANLU_REQUIRES_SHARED();
  const auto model = load_model(stacked_model(), parallel::Mesh::single(), at::kFloat, at::kCPU);
  const test::TemporaryDirectory directory;
  save(*model, directory.path(), DType::kF32, stacked_model());
  const auto saved = weights::open_weights(directory.path()),
             golden = weights::open_weights(stacked_model());
  ASSERT_EQ(saved->tensors().size(), golden->tensors().size());
  for (const weights::TensorInfo& info : golden->tensors()) {
    ASSERT_TRUE(saved->find(info.name)) << info.name;
    EXPECT_EQ(saved->find(info.name)->shape, info.shape) << info.name;
    EXPECT_TRUE(at::equal(read_tensor(*saved, info.name), read_tensor(*golden, info.name)))
        << info.name;
  }
  // In half the bytes it is the rounded model.
  const test::TemporaryDirectory half;
  save(*model, half.path(), DType::kBF16, stacked_model());
  const std::string name = "model.layers.2.feed_forward.experts.down_proj";
  EXPECT_TRUE(at::equal(read_tensor(*weights::open_weights(half.path()), name),
                        read_tensor(*golden, name).to(at::kBFloat16)));
}

TEST(StackedSave, AValueThatIsNotFiniteIsNamedByItsExpert) {
  DANLU_REQUIRES_SHARED();
  const auto model = load_model(stacked_model(), parallel::Mesh::single(), at::kFloat, at::kCPU);
  for (const Parameter& parameter : model->parameters()) {
    if (parameter.name() == "model.layers.1.feed_forward.experts.2.up_proj.weight")
      parameter.tensor.detach()[3][5] = std::numeric_limits<float>::infinity();
  }
  const test::TemporaryDirectory directory;
  EXPECT_NE(test::error_of<ModelError>([&] {
              save(*model, directory.path(), DType::kF32, {});
            }).find("experts.2.up_proj.weight holds inf at element 149"),
            std::string::npos);
}

}  // namespace
}  // namespace danlu::models
