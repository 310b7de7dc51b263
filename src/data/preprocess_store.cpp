#include "data/preprocess_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace danlu::data {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
constexpr const char* kJournal = "journal.json";

std::span<const int32_t> as_int32(const MappedFile& file) {
  return {reinterpret_cast<const int32_t*>(file.bytes().data()), file.size() / sizeof(int32_t)};
}

}  // namespace

/// One append-only file.
struct TokenStore::File {
  fs::path path;
  int fd = -1;
  uint64_t size_bytes = 0;  ///< with what is still in the buffer
  std::vector<char> buffer;

  [[noreturn]] void fail(const char* doing) const {
    const int code = errno;
    Hint hint;
    if (code == ENOSPC || code == EDQUOT) {
      hint = {"free disk space and run the same command again: finished work is kept",
              "请清理磁盘空间后重新运行同一命令：已完成的部分会保留"};
    }
    throw IoError(fmt::format("{}: cannot {}: {}", path.string(), doing, std::strerror(code)),
                  hint);
  }

  void open(const fs::path& file, uint64_t keep_bytes) {
    path = file;
    fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) fail("create");
    if (::ftruncate(fd, static_cast<off_t>(keep_bytes)) != 0) fail("cut");
    if (::lseek(fd, 0, SEEK_END) < 0) fail("seek in");
    size_bytes = keep_bytes;
  }

  void write(const void* data, size_t count) {
    const char* from = static_cast<const char*>(data);
    buffer.insert(buffer.end(), from, from + count);
    size_bytes += count;
    if (buffer.size() >= kBufferBytes) flush();
  }

  void flush() {
    for (size_t done = 0; done < buffer.size();) {
      const ssize_t put = ::write(fd, buffer.data() + done, buffer.size() - done);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) fail("write");
      done += static_cast<size_t>(put);
    }
    buffer.clear();
  }

  ~File() {
    if (fd >= 0) ::close(fd);
  }
};

TokenStore::TokenStore(fs::path directory, std::string key, size_t num_streams)
    : directory_(std::move(directory)), key_(std::move(key)) {
  require_writable_directory(directory_);
  Json journal;
  if (fs::exists(directory_ / kJournal)) {
    try {
      journal = read_json_file(directory_ / kJournal);
      if (journal.value("key", "") != key_ || journal.at("sizes").size() != 2 * num_streams) {
        journal = nullptr;
      }
    } catch (const std::exception&) {
      journal = nullptr;
    }
  }
  const auto open_all = [&] {
    files_.clear();
    for (size_t i = 0; i < 2 * num_streams; ++i) {
      const auto keep = journal.is_null() ? 0 : journal["sizes"][i].get<uint64_t>();
      files_.push_back(std::make_unique<File>());
      const fs::path path =
          directory_ / fmt::format("{}.{}", i / 2, i % 2 == 0 ? "tokens" : "lengths");
      std::error_code missing;
      // A file shorter than the journal says cannot be trusted (the disk lost it): start anew.
      if (keep > 0 && (fs::file_size(path, missing) < keep || missing)) return false;
      files_.back()->open(path, keep);
    }
    return true;
  };
  if (!open_all()) {
    journal = nullptr;
    open_all();
  }
  if (!journal.is_null()) cursor_ = journal["cursor"];
}

TokenStore::~TokenStore() = default;

void TokenStore::append(size_t stream, std::span<const int32_t> tokens,
                        std::span<const int32_t> lengths) {
  files_.at(2 * stream)->write(tokens.data(), tokens.size_bytes());
  files_.at(2 * stream + 1)->write(lengths.data(), lengths.size_bytes());
}

void TokenStore::flush() {
  for (const auto& file : files_) file->flush();
}

void TokenStore::commit(Json cursor) {
  Json sizes = Json::array();
  for (const auto& file : files_) {
    file->flush();
    if (::fdatasync(file->fd) != 0) file->fail("sync");
    sizes.push_back(file->size_bytes);
  }
  cursor_ = std::move(cursor);
  write_file_atomic(directory_ / kJournal,
                    Json{{"key", key_}, {"sizes", sizes}, {"cursor", cursor_}}.dump(
                        -1, ' ', false, Json::error_handler_t::replace));
}

TokenStore::Stream TokenStore::stream(size_t index) const {
  Stream result;
  result.tokens_ = MappedFile(files_.at(2 * index)->path);
  result.lengths_ = MappedFile(files_.at(2 * index + 1)->path);
  return result;
}

std::span<const int32_t> TokenStore::Stream::lengths() const { return as_int32(lengths_); }
std::span<const int32_t> TokenStore::Stream::tokens() const { return as_int32(tokens_); }

}  // namespace danlu::data
