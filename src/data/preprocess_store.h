// data/preprocess_store.h: tokens on their way to their final files, safe against a kill at any
// moment.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace danlu::data {

/// Append-only streams of int32 sequences in a directory, with a journal of what is certain.
/// Whatever was appended after the last commit is gone when the directory is opened again.
/// Files: <stream>.tokens and <stream>.lengths (int32, little endian), journal.json.
/// Not thread-safe; one process at a time (see FileLock).
class TokenStore {
 public:
  /// Continues what `directory` holds if its journal carries `key`, else starts anew; with a
  /// warning if the journal is damaged or does not fit the files. Errors: IoError.
  TokenStore(std::filesystem::path directory, std::string key, size_t num_streams);
  ~TokenStore();
  TokenStore(const TokenStore&) = delete;
  TokenStore& operator=(const TokenStore&) = delete;

  /// What the last commit said; null in a new store.
  const Json& cursor() const { return cursor_; }
  /// Starts anew: nothing is in the store. Errors: IoError.
  void clear();
  /// `lengths` cut `tokens` into sequences. Errors: IoError (disk full).
  void append(size_t stream, std::span<const int32_t> tokens, std::span<const int32_t> lengths);
  /// Makes what was appended visible to stream(), but not certain.
  void flush();
  /// Makes everything appended so far certain, together with `cursor`. Errors: IoError.
  void commit(Json cursor);

  /// The flushed or committed sequences of one stream, mapped. The store must not be appended to
  /// meanwhile.
  class Stream {
   public:
    std::span<const int32_t> lengths() const;
    std::span<const int32_t> tokens() const;
    /// Lets the system take back the memory of the tokens read so far.
    void forget() const { tokens_.forget(); }

   private:
    friend class TokenStore;
    MappedFile tokens_, lengths_;
  };
  Stream stream(size_t index) const;
  size_t num_streams() const { return files_.size() / 2; }

 private:
  struct File;
  bool open_files(std::span<const uint64_t> sizes_bytes);
  bool lengths_fit_tokens() const;

  std::filesystem::path directory_;
  std::string key_;
  Json cursor_;
  std::vector<std::unique_ptr<File>> files_;  ///< tokens and lengths of stream 0, of stream 1, …
};

}  // namespace danlu::data
