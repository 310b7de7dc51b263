#include "base/file_hash.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "support/temporary_directory.h"

namespace danlu {
namespace {

using testing::HasSubstr;

std::string error_of_hashing(const fs::path& path) {
  try {
    hash_file(path);
  } catch (const IoError& error) {
    return error.what();
  }
  return "";
}

TEST(HashFile, ChangesWithEveryByteAndWithTheSize) {
  const test::TemporaryDirectory directory;
  const fs::path path = directory / "file";
  std::string content((2 << 20) + 5, 'a');  // more than one piece, no multiple of a lane
  std::set<uint64_t> hashes;
  const auto add = [&] {
    write_file_atomic(path, content);
    const uint64_t hash = hash_file(path);
    EXPECT_EQ(hash, hash_file(path));
    hashes.insert(hash);
  };
  add();
  for (const size_t at : {size_t{0}, size_t{1} << 20, (size_t{2} << 20) + 4}) {
    content[at] = 'b';
    add();
  }
  for (const size_t size : {size_t{1} << 20, size_t{33}, size_t{32}, size_t{1}, size_t{0}}) {
    content.resize(size);
    add();
  }
  content = std::string("b\0", 2);  // the padding of the last lane is no content
  add();
  EXPECT_EQ(hashes.size(), 10u);
}

TEST(HashFile, AFileThatCannotBeReadToItsEndHasNoHash) {
  EXPECT_THAT(error_of_hashing("/no/such/file"), HasSubstr("/no/such/file: cannot open"));
  // These two can be opened, and fail at the first byte.
  EXPECT_THAT(error_of_hashing("/proc/self/mem"), HasSubstr("/proc/self/mem: cannot read"));
  EXPECT_THAT(error_of_hashing(test::TemporaryDirectory()), HasSubstr("cannot read"));
}

}  // namespace
}  // namespace danlu
