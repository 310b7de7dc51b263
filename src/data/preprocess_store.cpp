#include "data/preprocess_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace danlu::data {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
constexpr const char* kJournal = "journal.json";

struct Journal {
  std::vector<uint64_t> sizes_bytes;
  Json cursor;
};

/// Nullopt if there is none, or one of other work. Errors: DataError if it is damaged.
std::optional<Journal> read_journal(const fs::path& path, const std::string& key,
                                    size_t num_files) {
  if (!fs::exists(path)) return std::nullopt;
  const Json json = read_json_file(path);
  if (!json.is_object()) throw DataError(tr("{}: not an object", path.string()));
  if (json_get<std::string>(json, "key").value_or("") != key) return std::nullopt;
  const Json sizes = json_get<Json>(json, "sizes").value_or(nullptr);
  Journal journal;
  journal.cursor = json_get<Json>(json, "cursor").value_or(nullptr);
  bool good = sizes.is_array() && sizes.size() == num_files && !journal.cursor.is_null();
  for (size_t i = 0; good && i < num_files; ++i) {
    good = sizes[i].is_number_unsigned() && sizes[i].get<uint64_t>() % sizeof(int32_t) == 0;
    if (good) journal.sizes_bytes.push_back(sizes[i].get<uint64_t>());
  }
  if (!good) throw DataError(tr("{}: no sizes of the files, or no cursor", path.string()));
  return journal;
}

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
    throw IoError(
        tr("{}: cannot {}: {}", path.string(), doing, std::strerror(code)),
        hint_of_full(code,
                     tr("free disk space and run the same command again: finished work is kept")));
  }

  void open(uint64_t keep_bytes) {
    buffer.clear();
    if (fd < 0) fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
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
    if (!write_all(fd, buffer.data(), buffer.size())) fail("write");
    buffer.clear();
  }

  ~File() {
    if (fd >= 0) ::close(fd);
  }
};

TokenStore::TokenStore(fs::path directory, std::string key, size_t num_streams)
    : directory_(std::move(directory)), key_(std::move(key)) {
  require_writable_directory(directory_);
  for (size_t i = 0; i < num_streams; ++i) {
    for (const char* kind : {"tokens", "lengths"}) {
      files_.push_back(std::make_unique<File>());
      files_.back()->path = directory_ / fmt::format("{}.{}", i, kind);
    }
  }
  try {
    const auto journal = read_journal(directory_ / kJournal, key_, files_.size());
    if (journal && !open_files(journal->sizes_bytes)) {
      throw DataError(tr("{}: does not fit the files beside it", (directory_ / kJournal).string()));
    }
    if (journal) {
      cursor_ = journal->cursor;
      return;
    }
  } catch (const DataError& error) {
    log::warning("unfinished work is damaged and is done again: {}", error.what());
  }
  clear();
}

bool TokenStore::open_files(std::span<const uint64_t> sizes_bytes) {
  for (size_t i = 0; i < files_.size(); ++i) {
    std::error_code missing;
    const uint64_t size = fs::file_size(files_[i]->path, missing);
    // A file shorter than the journal says cannot be trusted: the disk lost it.
    if (sizes_bytes[i] > 0 && (missing || size < sizes_bytes[i])) return false;
  }
  for (size_t i = 0; i < files_.size(); ++i) files_[i]->open(sizes_bytes[i]);
  return lengths_fit_tokens();
}

bool TokenStore::lengths_fit_tokens() const {
  for (size_t i = 0; i < num_streams(); ++i) {
    const Stream one = stream(i);
    int64_t tokens = 0;
    for (const int32_t length : one.lengths()) {
      if (length < 0) return false;
      tokens += length;
    }
    if (tokens != std::ssize(one.tokens())) return false;
  }
  return true;
}

void TokenStore::clear() {
  cursor_ = nullptr;
  // Before the files change: they must never lie beside a journal that is not theirs.
  std::error_code missing;
  fs::remove(directory_ / kJournal, missing);
  for (const auto& file : files_) file->open(0);
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
