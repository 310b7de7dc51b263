// Files beyond 4 GiB: the plan is checked without writing them, and one is made sparse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <libdeflate.h>

#include <fstream>

#include "base/file.h"
#include "support/tiny_model.h"
#include "weights/bytes.h"
#include "weights/python_torch.h"
#include "weights/torch/torch_document.h"
#include "weights/torch/torch_writer.h"

namespace danlu::weights::torch_file {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

/// A file of this plan whose tensors are holes, but for the last one's bytes.
void write_sparse(const std::filesystem::path& path, const PlannedFile& plan,
                  const std::string& last, std::vector<uint32_t> checksums) {
  std::ofstream(path).close();
  std::filesystem::resize_file(path, plan.size_bytes);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto put = [&](uint64_t offset, const std::string& bytes) {
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  };
  for (const PlacedBytes& known : plan.known) put(known.offset, known.bytes);
  put(plan.tensor_offsets.back(), last);
  checksums.back() = libdeflate_crc32(0, last.data(), last.size());
  for (const PlacedBytes& sealed : plan.seal(checksums)) put(sealed.offset, sealed.bytes);
  ASSERT_TRUE(file.good());
}

TEST(TorchZip64, AFileBeyondFourGiBIsReadByUsAndByPyTorch) {
  DANLU_REQUIRES_PYTHON_TORCH();
  const test::TemporaryDirectory directory;
  // Below, just at and beyond the 32-bit limit; the last lies beyond 4 GiB itself.
  const std::vector<TensorInfo> tensors = {{"a", DType::kU8, {4 * kGiB - 2}},
                                           {"b", DType::kU8, {4 * kGiB - 1}},
                                           {"c", DType::kBF16, {5, kGiB}},
                                           {"d", DType::kF32, {2}}};
  PyValue root = PyValue::dict();
  for (size_t i = 0; i < tensors.size(); ++i) root.put(tensors[i].name, PyValue::tensor(i));
  const PlannedFile plan = plan_torch_file(root, tensors, "big");
  const auto path = directory / "big.pt";
  write_sparse(path, plan, "12345678", std::vector<uint32_t>(4));
  const auto source = open_torch_file(path);
  ASSERT_EQ(source->tensors().size(), 4u);
  for (const TensorInfo& info : tensors) {
    EXPECT_EQ(source->find(info.name)->shape, info.shape);
    EXPECT_EQ(source->find(info.name)->dtype, info.dtype);
  }
  EXPECT_EQ(test::read_tensor(*source, "d"), "12345678");
  EXPECT_EQ(test::run_python(python, "check_torch_zip64.py", path.string()), 0);
}

TEST(TorchZip64, OffsetsOfAPlanBeyondAnyDisk) {
  std::vector<TensorInfo> tensors;
  PyValue root = PyValue::list();
  for (size_t i = 0; i < 40; ++i) {
    tensors.push_back({"t", DType::kF32, {static_cast<int64_t>(i) * kGiB, 100}});
    root.append(PyValue::tensor(i));
  }
  const PlannedFile plan = plan_torch_file(root, tensors, "a");
  uint64_t end = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(plan.tensor_offsets[i] % 64, 0u);
    EXPECT_GE(plan.tensor_offsets[i], end);
    if (i > 0) {
      EXPECT_LT(plan.tensor_offsets[i], end + 256);
    }
    end = plan.tensor_offsets[i] + tensors[i].size_bytes();
  }
  EXPECT_GT(plan.size_bytes, end);
}

}  // namespace
}  // namespace danlu::weights::torch_file
