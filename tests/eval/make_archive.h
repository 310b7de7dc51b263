// tests/eval/make_archive.h: archives made by libarchive's writer, hostile ones included.
#pragma once
#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace danlu::test {

struct ArchiveMember {
  std::string name, text;
  std::string link_to = {};       ///< a symbolic link
  std::string hard_link_to = {};  ///< a hard link
};

/// By the name's ending: .zip, .tar, .tar.gz, .tgz, .tar.xz, .tar.bz2, .tar.zst.
inline void make_archive(const std::filesystem::path& path,
                         const std::vector<ArchiveMember>& members) {
  ::archive* writer = ::archive_write_new();
  const std::string name = path.filename().string();
  const auto ends = [&](const char* ending) { return name.ends_with(ending); };
  ends(".zip") ? ::archive_write_set_format_zip(writer) : ::archive_write_set_format_pax(writer);
  if (ends("gz")) ::archive_write_add_filter_gzip(writer);
  if (ends(".xz")) ::archive_write_add_filter_xz(writer);
  if (ends(".bz2")) ::archive_write_add_filter_bzip2(writer);
  if (ends(".zst")) ::archive_write_add_filter_zstd(writer);
  ASSERT_EQ(::archive_write_open_filename(writer, path.c_str()), ARCHIVE_OK);
  for (const ArchiveMember& member : members) {
    ::archive_entry* entry = ::archive_entry_new();
    ::archive_entry_set_pathname(entry, member.name.c_str());
    ::archive_entry_set_perm(entry, 0644);
    ::archive_entry_set_filetype(entry, member.link_to.empty() ? AE_IFREG : AE_IFLNK);
    if (!member.link_to.empty()) ::archive_entry_set_symlink(entry, member.link_to.c_str());
    if (!member.hard_link_to.empty())
      ::archive_entry_set_hardlink(entry, member.hard_link_to.c_str());
    ::archive_entry_set_size(entry, static_cast<la_int64_t>(member.text.size()));
    EXPECT_GE(::archive_write_header(writer, entry), ARCHIVE_WARN) << member.name;
    ::archive_write_data(writer, member.text.data(), member.text.size());
    ::archive_entry_free(entry);
  }
  ::archive_write_close(writer);
  ::archive_write_free(writer);
}

inline void put_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace danlu::test
