// data/megatron/indexed_writer.h: writer of Megatron's indexed token files, and merging of several.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "data/megatron/indexed_dataset.h"

namespace danlu::data {

/// Writes sequences one after the other. Memory stays bounded whatever the number of sequences: the
/// lengths are spooled to an unnamed file beside the target. Nothing appears under the final names
/// before commit(); without commit() nothing is left behind. Not thread-safe.
class IndexedWriter {
 public:
  /// Errors: IoError if the directory is not writable; UsageError for a float type.
  IndexedWriter(const std::filesystem::path& prefix, TokenType type);
  ~IndexedWriter();
  IndexedWriter(IndexedWriter&&) noexcept;
  IndexedWriter(const IndexedWriter&) = delete;
  IndexedWriter& operator=(const IndexedWriter&) = delete;

  /// Appends a sequence to the current document. Errors: DataError naming sequence and token if a
  /// token does not fit the type; IoError (disk full).
  void add_sequence(std::span<const int32_t> tokens);
  /// Ends the current document, which may be empty.
  void end_document();
  /// add_sequence + end_document: GPT texts and instruction samples.
  void add_document(std::span<const int32_t> tokens);
  /// `lengths` cut `tokens` into sequences, each of which is a document. Errors: as add_sequence.
  void add_documents(std::span<const int32_t> tokens, std::span<const int32_t> lengths);
  /// Appends all sequences and documents of `other`. Errors: DataError if its type differs, it has
  /// mode bytes, or a document was left open.
  void append(const IndexedDataset& other);

  int64_t num_sequences() const;
  int64_t num_documents() const;
  int64_t num_tokens() const;

  /// Puts both files on the disk, where only their names are missing; nothing can be appended any
  /// more. For data sets that belong together: finish all, then commit all. Errors: InternalError
  /// if a document was left open; IoError (disk full).
  void finish();
  /// finish, if that was not done; then publishes .bin, then .idx. Errors: as finish.
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Writes the concatenation of `inputs` to `output`, streaming. Errors: as IndexedWriter::append;
/// UsageError if `inputs` is empty or holds `output` itself.
void merge_indexed_datasets(const std::vector<std::filesystem::path>& inputs,
                            const std::filesystem::path& output);

}  // namespace danlu::data
