// Tensors in files: gone through in blocks, and seen through their mapping.
#include "device/file_memory.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

namespace danlu::device {
namespace {

class FileTensors : public testing::TestWithParam<const char*> {};
// A disk, which goes past the cache, and memory, which cannot before Linux 6.6.
INSTANTIATE_TEST_SUITE_P(On, FileTensors, testing::Values("", "/dev/shm"));

std::filesystem::path folder_in(const char* where, const test::TemporaryDirectory& directory) {
  return *where ? std::filesystem::path(where) : directory.path();
}

TEST_P(FileTensors, BlocksAndTheMappingAreOneTensor) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path folder = folder_in(GetParam(), directory);
  // Less than a block, whole ones, and some elements more than these.
  for (const int64_t elements : {1, 1000, 1 << 20, (1 << 20) * 4, (1 << 20) * 5 + 777}) {
    SCOPED_TRACE(elements);
    const FileTensor first(folder, elements), second(folder, elements);
    EXPECT_EQ(first.tensor().abs().max().item<float>(), 0);
    const at::Tensor numbers = at::arange(elements, at::kFloat);
    at::Tensor(first.tensor()).copy_(numbers);
    first.sync_mapping();
    first.release_pages();
    for (int round = 0; round < 2; ++round) {
      int64_t next = 0;
      update_blocks({&first, &second}, [&](const Block& block) {
        EXPECT_EQ(block.begin, next);
        next = block.end;
        for (int64_t i = 0; i < block.end - block.begin; ++i) {
          block.values[1][i] += 2 * block.values[0][i];
          block.values[0][i] += 1;
        }
      });
      EXPECT_EQ(next, elements);
    }
    EXPECT_TRUE(at::equal(first.tensor(), numbers + 2));
    EXPECT_TRUE(at::equal(second.tensor(), numbers * 4 + 2));
  }
}

TEST(FileTensor, OfNothingIsEmpty) {
  const test::TemporaryDirectory directory;
  EXPECT_EQ(FileTensor(directory.path(), 0).tensor().numel(), 0);
}

TEST(FileTensor, AnErrorOfTheUpdateComesOut) {
  const test::TemporaryDirectory directory;
  const FileTensor tensor(directory.path(), 3 << 20);
  int blocks = 0;
  test::error_of<DataError>([&] {
    update_blocks({&tensor}, [&](const Block&) {
      if (++blocks == 2) throw DataError("no");
    });
  });
  EXPECT_EQ(blocks, 2);
}

TEST(FileTensor, WhereNoFileCanBeIsAnError) {
  const test::TemporaryDirectory directory;
  EXPECT_THAT(test::error_of<IoError>([&] { FileTensor(directory / "nothing", 5); }),
              testing::HasSubstr("nothing: no file can be made there"));
}

}  // namespace
}  // namespace danlu::device
