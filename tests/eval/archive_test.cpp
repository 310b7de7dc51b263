#include "eval/data/archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "eval/make_archive.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

namespace danlu::eval {
namespace {

namespace fs = std::filesystem;
using test::ArchiveMember;
using test::make_archive;
using test::TemporaryDirectory;
using ::testing::HasSubstr;

std::vector<std::string> files_below(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_directory()) names.push_back(fs::relative(entry.path(), directory).string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Text that hardly shrinks, so that an archive is cut within its data.
std::string archive_noise(size_t size) {
  std::string text;
  for (uint32_t x = 12345; text.size() < size; x = x * 1664525 + 1013904223)
    text += static_cast<char>('!' + (x >> 24) % 90);
  return text;
}

class Archives : public ::testing::TestWithParam<const char*> {
 protected:
  TemporaryDirectory dir_;
  fs::path archive_ = dir_ / ("a" + std::string(GetParam()));
};

TEST_P(Archives, GiveTheirDataFilesByteForByte) {
  const std::string text = "q,\xE4\xB8\xAD\r\n" + archive_noise(100'000);
  make_archive(archive_, {{"data/test/x_test.csv", text},
                          {"./data/dev/\xE4\xB8\xAD_dev.csv", "1"},
                          {"data/README.md", "not rows"},
                          {"/data/absolute.jsonl", "{}"},
                          {"run.sh", "not rows"},
                          {"data/possibly_contaminated_urls.txt", "u"},
                          {"__MACOSX/data/test/._x_test.csv", "finder's"},
                          {"data/test/._x_test.csv", "finder's"}});
  ASSERT_TRUE(is_archive(archive_));
  const fs::path out = dir_ / "out";
  fs::create_directory(out);
  unpack_archive(archive_, out);
  const std::vector<std::string> wanted = {"data/absolute.jsonl", "data/dev/\xE4\xB8\xAD_dev.csv",
                                           "data/possibly_contaminated_urls.txt",
                                           "data/test/x_test.csv"};
  EXPECT_EQ(files_below(out), wanted);
  EXPECT_EQ(test::file_text(out / "data/test/x_test.csv"), text);
  std::vector<std::string> names = archive_names(archive_);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, wanted);
}

TEST_P(Archives, CutAnywhereAreAnError) {
  make_archive(archive_,
               {{"dev/a_dev.csv", archive_noise(3000)}, {"test/a_test.csv", archive_noise(3000)}});
  const std::string whole = test::file_text(archive_);
  // A .tar ends in blocks of zeros up to 10,240 bytes: without the last of them it is whole.
  const bool is_tar = std::string(GetParam()) == ".tar";
  const size_t end = is_tar ? whole.find_last_not_of('\0') + 1 : whole.size();
  for (size_t size = 0; size < end; ++size) {
    // A tar's blocks have 512 bytes: between two of them it looks whole.
    if (size > 600 && size % 97 != 0 && size % 512 != 0) continue;
    test::put_file(archive_, whole.substr(0, size));
    const TemporaryDirectory out;
    const std::string error =
        test::error_of<DataError>([&] { unpack_archive(archive_, out.path()); });
    ASSERT_THAT(error, HasSubstr(archive_.string())) << size << " of " << whole.size();
  }
}

TEST_P(Archives, NeverWriteOutside) {
  for (const char* name : {"../evil.csv", "data/../../evil.csv", "/../evil.csv"}) {
    make_archive(archive_, {{"data/fine.csv", "1"}, {name, "evil"}});
    const fs::path out = dir_ / "in/out";
    fs::create_directories(out);
    EXPECT_THAT(test::error_of<DataError>([&] { unpack_archive(archive_, out); }),
                HasSubstr("outside"));
    EXPECT_THAT(files_below(dir_.path()), ::testing::Each(::testing::Not(HasSubstr("evil"))));
  }
}

TEST_P(Archives, LeaveLinksOut) {
  const fs::path victim = dir_ / "victim";
  fs::create_directory(victim);
  std::vector<ArchiveMember> members = {{"link", "", victim.string()},
                                        {"secret.csv", "", "/etc/passwd"},
                                        {"link/x.csv", "through the link"}};
  if (std::string(GetParam()) != ".zip")
    members.push_back({"hard.csv", "", "", (dir_ / "victim").string()});
  make_archive(archive_, members);
  const fs::path out = dir_ / "out";
  fs::create_directory(out);
  unpack_archive(archive_, out);
  EXPECT_EQ(files_below(out), std::vector<std::string>{"link/x.csv"});
  EXPECT_TRUE(fs::is_empty(victim));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Archives,
                         ::testing::Values(".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2",
                                           ".tar.zst"));

TEST(Archive, BombsAreRefused) {
  const TemporaryDirectory dir;
  const std::string zeros(4 << 20, '0');
  make_archive(dir / "bomb.zip", {{"a.csv", zeros}});
  make_archive(dir / "skipped.tar.gz", {{"a.bin", zeros}});
  make_archive(dir / "many.tar", {{"a.csv", "1"}, {"b.csv", "1"}, {"c.csv", "1"}});
  ArchiveLimits limits;
  limits.always_bytes = 1 << 20;
  const fs::path out = dir / "out";
  for (const char* name : {"bomb.zip", "skipped.tar.gz"}) {
    EXPECT_THAT(test::error_of<DataError>([&] { unpack_archive(dir / name, out, limits); }),
                HasSubstr("unpacks to more than"));
  }
  limits.num_files = 2;
  EXPECT_THAT(test::error_of<DataError>([&] { unpack_archive(dir / "many.tar", out, limits); }),
              HasSubstr("more than 2 files"));
  limits.always_bytes = 4 << 20;
  unpack_archive(dir / "bomb.zip", out, limits);
  EXPECT_EQ(test::file_text(out / "a.csv"), zeros);
}

TEST(Archive, AChangedByteOfAZipIsAnError) {
  const TemporaryDirectory dir;
  make_archive(dir / "a.zip", {{"a.csv", archive_noise(3000)}});
  std::string bytes = test::file_text(dir / "a.zip");
  bytes[bytes.size() / 2] ^= 1;
  test::put_file(dir / "a.zip", bytes);
  EXPECT_THAT(test::error_of<DataError>([&] { unpack_archive(dir / "a.zip", dir / "out"); }),
              HasSubstr("damaged or cut off"));
}

TEST(Archive, MembersInEachOthersWayAreAnError) {
  const TemporaryDirectory dir;
  make_archive(dir / "a.tar", {{"a.csv", "1"}, {"a.csv/b.csv", "1"}});
  EXPECT_THAT(test::error_of<DataError>([&] { unpack_archive(dir / "a.tar", dir / "out"); }),
              HasSubstr("beside each other"));
}

TEST(Archive, AWebPageIsNone) {
  const TemporaryDirectory dir;
  test::put_file(dir / "a.zip", "<!doctype html><html>404</html>");
  EXPECT_THAT(test::error_of<DataError>([&] { unpack_archive(dir / "a.zip", dir / "out"); }),
              HasSubstr("a.zip"));
  EXPECT_FALSE(is_archive("a.csv.gz"));
  EXPECT_TRUE(is_archive("DATA.TAR.GZ"));
}

}  // namespace
}  // namespace danlu::eval
