// torch.save files: what PyTorch itself writes is read back byte for byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/shared_data.h"
#include "support/throws.h"
#include "support/tiny_model.h"
#include "weights/bytes.h"
#include "weights/python_torch.h"
#include "weights/torch/torch_contents.h"

namespace danlu::weights {
namespace {

using ::testing::HasSubstr;

TEST(TorchFile, ReadsWhatPyTorchWrites) {
  DANLU_REQUIRES_PYTHON_TORCH();
  const test::TemporaryDirectory directory;
  ASSERT_EQ(test::run_python(python, "write_torch_files.py", directory.path().string()), 0);
  size_t num_tensors = 0;
  const Json manifest = read_json_file(directory / "manifest.json");
  for (const auto& [file, tensors] : manifest.items()) {
    SCOPED_TRACE(file);
    const auto source = open_torch_file(directory / file);
    EXPECT_EQ(source->tensors().size(), tensors.size());
    for (const auto& [name, entry] : tensors.items()) {
      SCOPED_TRACE(name);
      const TensorInfo* info = source->find(name);
      ASSERT_NE(info, nullptr);
      EXPECT_EQ(dtype_name(info->dtype), entry[0].get<std::string>());
      ASSERT_EQ(info->shape, entry[1].get<std::vector<int64_t>>());
      const std::string expected = read_file(directory / entry[2].get<std::string>());
      EXPECT_EQ(test::read_tensor(*source, name), expected);
      if (const auto mapped = source->mapped(name); !mapped.empty()) {
        EXPECT_EQ(std::string(reinterpret_cast<const char*>(mapped.data()), mapped.size()),
                  expected);
      }
      const int64_t count = info->num_elements();
      for (const auto& [begin, end] :
           {std::pair{count / 3, count}, std::pair{int64_t{0}, count / 2}}) {
        const size_t width = dtype_size_bytes(info->dtype);
        EXPECT_EQ(test::read_tensor_range(*source, name, begin, end),
                  expected.substr(static_cast<size_t>(begin) * width,
                                  static_cast<size_t>(end - begin) * width));
      }
      ++num_tensors;
    }
  }
  EXPECT_GT(num_tensors, 3000u);
}

TEST(TorchFile, ATrainingCheckpointFromElsewhereIsRead) {
  DANLU_REQUIRES_SHARED();
  const auto source = open_weights(test::shared_dir() / "data" / "models" / "llama2xs" / "ckpt.pt");
  EXPECT_EQ(source->tensors().size(), 190u);
  const TensorInfo* embedding = source->find("model.tok_embeddings.weight");
  ASSERT_NE(embedding, nullptr);
  // Adam's first moment has the parameter's shape.
  EXPECT_EQ(source->find("optimizer.state.0.exp_avg")->shape, embedding->shape);
  // model.bin beside it is llama2.c's export of the same weights: a header of seven int32, then the
  // embedding.
  const std::string exported =
      read_file(test::shared_dir() / "data" / "models" / "llama2xs" / "model.bin");
  const std::string weights = test::read_tensor(*source, "model.tok_embeddings.weight");
  EXPECT_EQ(exported.substr(28, weights.size()), weights);
}

TEST(TorchFile, EveryTruncationOfARealFileIsAnError) {
  DANLU_REQUIRES_SHARED();
  const std::string whole =
      read_file(test::shared_dir() / "golden" / "baichuan2_7b" / "pytorch_model.bin");
  for (size_t length = 0; length < whole.size(); length += 1 + whole.size() / 150) {
    EXPECT_THROW(torch_file::read_torch_contents(test::as_bytes(whole).first(length), "f"),
                 ModelError)
        << length;
  }
}

}  // namespace
}  // namespace danlu::weights
