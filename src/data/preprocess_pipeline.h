// data/preprocess_pipeline.h: reading and tokenising on several threads, results in row order.
#pragma once
#include <cstdint>
#include <memory>

#include "data/preprocess_encode.h"
#include "data/readers/row_reader.h"

namespace danlu::data {

/// One thread reads, `num_workers` threads encode, the caller takes the batches in order. Batches
/// in flight are bounded, by number and by the bytes of their rows. The sequence of rows in the
/// results does not depend on the number of workers (how they are cut into batches is a function of
/// the rows alone).
class EncodePipeline {
 public:
  /// Rows before `skip_rows` are read but not encoded. The arguments must outlive the pipeline.
  EncodePipeline(const Dataset& dataset, const RowEncoder& encoder, size_t num_workers,
                 int64_t skip_rows);
  /// Stops the threads between two rows.
  ~EncodePipeline();
  EncodePipeline(const EncodePipeline&) = delete;
  EncodePipeline& operator=(const EncodePipeline&) = delete;

  /// The next batch, or an empty one if a signal came (see interrupt.h); false at the end.
  /// Errors: those of RowReader and RowEncoder.
  bool next(EncodedBatch* batch);
  /// How many of the files' bytes were read.
  uint64_t bytes_read() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace danlu::data
