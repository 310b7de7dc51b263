// data/megatron/indexed_dataset.h: reader of Megatron's indexed token files (<prefix>.idx +
// <prefix>.bin).
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace danlu::data {

/// Element type of the .bin file. Values are the codes stored in the .idx: never renumber.
enum class TokenType : uint8_t {
  kU8 = 1,
  kI8 = 2,
  kI16 = 3,
  kI32 = 4,
  kI64 = 5,
  kF64 = 6,
  kF32 = 7,
  kU16 = 8,
};

/// Bytes of one element.
int64_t token_type_bytes(TokenType type);
/// "uint16", "int32", … (numpy's spelling).
std::string_view token_type_name(TokenType type);

/// `<prefix>.idx` and `<prefix>.bin`. A prefix that already ends in .idx or .bin loses that ending.
std::filesystem::path index_path(const std::filesystem::path& prefix);
std::filesystem::path tokens_path(const std::filesystem::path& prefix);
/// True if both files exist.
bool indexed_dataset_exists(const std::filesystem::path& prefix);

/// Sequences of tokens, grouped into documents, mapped from disk. Thread-safe to read.
///
/// Errors  IoError if a file cannot be opened; DataError naming file, rule and offending number if
///         magic, version, type code, sizes, lengths, offsets or document bounds are wrong.
/// Source  docs/formats/megatron_indexed.md.
class IndexedDataset {
 public:
  /// kIndexOnly does not need the .bin: lengths and documents are known, tokens cannot be read.
  enum class Open { kAll, kIndexOnly };

  explicit IndexedDataset(const std::filesystem::path& prefix, Open open = Open::kAll);

  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_documents() const { return num_document_bounds_ - 1; }
  int64_t num_tokens() const { return num_tokens_; }
  TokenType type() const { return type_; }
  const std::filesystem::path& prefix() const { return prefix_; }

  /// Tokens of a sequence. REQUIRES: 0 <= sequence < num_sequences().
  int32_t length(int64_t sequence) const;
  /// Lengths of all sequences.
  std::vector<int32_t> lengths() const;
  /// First sequence of a document; document == num_documents() gives num_sequences().
  int64_t document_start(int64_t document) const;
  /// True if each sequence carries a mode byte (multimodal data).
  bool has_modes() const { return modes_ != nullptr; }
  int8_t mode(int64_t sequence) const;

  /// Tokens [offset, offset + count) of a sequence into `out`.
  /// Errors: DataError if out of range, if the type is a float, or a 64-bit token does not fit.
  void read(int64_t sequence, int64_t offset, int64_t count, int32_t* out) const;
  std::vector<int32_t> tokens(int64_t sequence) const;

  /// The stored bytes of a sequence, for copying.
  std::string_view stored_bytes(int64_t sequence) const;
  /// Hash of the whole index: changes when lengths or documents do.
  uint64_t index_hash() const;
  /// Hash of the whole index and of samples of the tokens: changes when the data do.
  uint64_t content_hash() const;

 private:
  void parse_header();
  void check_sequences(Open open);
  void check_documents() const;
  int64_t byte_offset(int64_t sequence) const;

  std::filesystem::path prefix_;
  MappedFile index_, bin_;
  TokenType type_ = TokenType::kI32;
  int64_t num_sequences_ = 0, num_document_bounds_ = 0, num_tokens_ = 0;
  // The header is 34 bytes, so none of these arrays is aligned: read through load functions only.
  const std::byte* lengths_ = nullptr;
  const std::byte* offsets_ = nullptr;
  const std::byte* documents_ = nullptr;
  const std::byte* modes_ = nullptr;
};

}  // namespace danlu::data
