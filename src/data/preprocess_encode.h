// data/preprocess_encode.h: one row to tokens and labels: template, truncation, the checks that
// drop it.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/formats/row_format.h"
#include "data/formats/unread_columns.h"
#include "data/media_encoder.h"
#include "data/preprocess_report.h"
#include "data/readers/row_reader.h"
#include "text/conversation.h"
#include "text/tokenizer.h"

namespace danlu::data {

/// What happens to a sample longer than allowed.
enum class Truncation {
  kDelete,  ///< dropped and counted
  kLeft,    ///< the end is kept
  kRight,   ///< the beginning is kept
  kSplit,   ///< plain text only: cut into several samples; conversations are dropped
};
/// "delete", "left", "right", "split". Errors: UsageError with the nearest name.
Truncation truncation_from_name(const std::string& name);

enum class EncodedKind {
  kTexts,    ///< one stream per text column: ids only
  kSamples,  ///< two streams: ids, labels; with EncodeSettings::media a third: media_record
};

struct EncodeSettings {
  EncodedKind kind = EncodedKind::kSamples;
  std::shared_ptr<const text::Tokenizer> tokenizer;       ///< may be null for tokenised rows
  std::shared_ptr<const text::ChatEncoder> chat_encoder;  ///< may be null without conversations
  int64_t max_length = 0;  ///< tokens a sample may have; 0: any number
  Truncation truncation = Truncation::kDelete;
  bool append_eod = false;       ///< end of text after every sample or text
  bool append_eod_text = false;  ///< … after plain texts only (kSamples)
  /// Of a model that reads pictures and videos; null: text alone.
  std::shared_ptr<const MediaEncoder> media;
};

/// Streams of samples: see EncodedKind.
inline size_t num_sample_streams(const EncodeSettings& settings) { return settings.media ? 3 : 2; }

/// A row that was dropped or cut.
struct RowEvent {
  bool dropped = true;
  uint32_t file = 0;
  int64_t index = 0;
  std::string reason, detail;
};

/// Tokens of some consecutive rows.
struct EncodedBatch {
  std::vector<std::vector<int32_t>> tokens;   ///< per stream, samples one after the other
  std::vector<std::vector<int32_t>> lengths;  ///< per stream, one per sample
  std::vector<RowEvent> events;
  ColumnCounts unread;  ///< columns that were passed by
  VisualCounts visual;
  int64_t rows = 0, rows_kept = 0, target_tokens = 0;
};

/// What `handler` makes of a row of either kind; adds the columns it passes by to `unread`. Errors:
/// DataError naming the place if the row is not JSON or `handler` refuses it.
RowResult read_row(const RowHandler& handler, const Dataset& dataset, const RawRow& row,
                   ColumnCounts* unread);

/// Immutable; thread-safe.
class RowEncoder {
 public:
  /// Errors: UsageError if `handler`'s rows need a tokenizer or a template that is missing, or
  /// cannot be of this kind; ModelError if eod is asked for and the tokenizer has none.
  RowEncoder(EncodeSettings settings, const RowHandler& handler);

  size_t num_streams() const { return num_streams_; }
  /// Appends the row's tokens, or an event. Errors: as read_row.
  void encode(const Dataset& dataset, const RawRow& row, EncodedBatch* batch) const;

 private:
  bool append_texts(const TextRow& row, EncodedBatch* batch, RowEvent* event) const;
  /// A row on its way to be a sample.
  struct Pieces {
    std::vector<int32_t> ids, labels;
    std::vector<MediaSpan> media;
  };
  bool append_sample(Row row, const Dataset& dataset, EncodedBatch* batch, RowEvent* event) const;
  bool encode_conversation(const text::Conversation& conversation, const Dataset& dataset,
                           Pieces* pieces, RowEvent* event) const;
  bool has_no_placeholder(const std::vector<int32_t>& ids, RowEvent* event) const;
  bool cut(Pieces* pieces, RowEvent* event) const;
  bool check_vocabulary(const TokenRow& row, RowEvent* event) const;
  bool append_pieces(const std::vector<int32_t>& ids, EncodedBatch* batch) const;

  EncodeSettings settings_;
  const RowHandler& handler_;
  size_t num_streams_ = 2;
  int32_t eod_ = -1;
};

}  // namespace danlu::data
