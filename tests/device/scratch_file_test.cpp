// A file for tensors that come back: places are given again, and no name is left.
#include "device/scratch_file.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "base/error.h"
#include "support/file_size_limit.h"
#include "support/temporary_directory.h"

namespace danlu::device {
namespace scratch_file_test {

namespace fs = std::filesystem;

class ScratchFiles : public testing::TestWithParam<const char*> {};
// A disk, which goes past the cache, and memory, which cannot before Linux 6.6.
INSTANTIATE_TEST_SUITE_P(On, ScratchFiles, testing::Values("", "/dev/shm"));

TEST_P(ScratchFiles, GiveBackWhatWasWrittenWhereverItLies) {
  const test::TemporaryDirectory directory;
  const fs::path folder = *GetParam() ? fs::path(GetParam()) : directory.path();
  ScratchFile file(folder);
  struct Held {
    at::Tensor values;
    ScratchFile::Place place;
  };
  std::vector<Held> held;
  std::mt19937 random(3);
  int64_t end = 0, bytes = 0, most = 0, number = 0;
  for (int i = 0; i < 200; ++i) {
    if (held.size() > 6 || (!held.empty() && random() % 3 == 0)) {
      const size_t which = random() % held.size();
      const Held& one = held[which];
      const at::Tensor read = at::zeros(one.values.sizes(), one.values.options());
      file.read(read, one.place);
      ASSERT_TRUE(at::equal(read, one.values)) << i;
      file.give_back(one.place);
      bytes -= one.place.bytes;
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
      continue;
    }
    // The size is several blocks of 4 MiB now and then, and no whole number of the disk's.
    const int64_t elements = 1 + static_cast<int64_t>(random() % (i % 20 == 0 ? 3'000'000 : 9000));
    const at::ScalarType type = i % 2 == 0 ? at::kFloat : at::kShort;
    const at::Tensor values = at::arange(number, number + elements, at::kLong).to(type);
    number += elements;
    const auto place = file.take(static_cast<int64_t>(values.nbytes()));
    for (const Held& other : held) {
      EXPECT_TRUE(place.begin + place.bytes <= other.place.begin ||
                  other.place.begin + other.place.bytes <= place.begin);
    }
    file.write(values, place);
    held.push_back({values, place});
    bytes += place.bytes;
    most = std::max(most, bytes);
    end = std::max(end, place.begin + place.bytes);
  }
  EXPECT_LE(end, 3 * most) << "places are given again";
  if (!*GetParam()) {
    EXPECT_TRUE(fs::is_empty(folder));
  }
}

TEST(ScratchFile, JoinsPlacesThatWereGivenBack) {
  const test::TemporaryDirectory directory;
  ScratchFile file(directory.path());
  const auto first = file.take(4096), second = file.take(1), third = file.take(8192);
  EXPECT_EQ(second.begin, 4096);
  EXPECT_EQ(third.begin, 8192);
  file.give_back(first);
  file.give_back(third);
  file.give_back(second);
  EXPECT_EQ(file.take(16384).begin, 0);
  EXPECT_EQ(file.take(1).begin, 16384);
}

TEST(ScratchFile, SaysThatThereIsNoRoom) {
  const test::TemporaryDirectory directory;
  const int code = test::with_file_size_limit(1 << 20, [&] {
    ScratchFile file(directory.path());
    file.give_back(file.take(1 << 20));
    try {
      file.take((1 << 20) + 1);
    } catch (const IoError& error) {
      return std::string(error.what()).find(directory.path().string()) == 0 ? 42 : 1;
    }
    return 0;
  });
  EXPECT_EQ(code, 42);
}

TEST(ScratchFile, NamesADirectoryThatIsNone) {
  EXPECT_THROW(ScratchFile("/no/such/place"), IoError);
}

}  // namespace scratch_file_test
}  // namespace danlu::device
