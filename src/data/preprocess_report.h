// data/preprocess_report.h: what became of the rows: counts, reasons, lengths, one sample to look
// at.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "data/formats/unread_columns.h"
#include "data/media_span.h"
#include "text/tokenizer.h"

namespace danlu::data {

/// Lengths of the samples kept, in tokens.
struct LengthStats {
  int64_t count = 0, sum = 0, min = 0, max = 0;
  double sum_of_squares = 0;

  void add(int64_t length);
  void add(const LengthStats& other);
  double mean() const;
  /// Population standard deviation.
  double deviation() const;
};

/// Pictures and videos of the samples kept, and the tokens that stand for them.
struct VisualCounts {
  int64_t pictures = 0, videos = 0;
  LengthStats tokens;  ///< of each sample that has any
  /// Samples with up to 64, 128, 256, … visual tokens, each counted once.
  std::vector<int64_t> histogram;

  bool empty() const { return pictures + videos == 0; }
  /// Adds the pictures of one sample.
  void add(const std::vector<MediaSpan>& spans);
  void add(const VisualCounts& other);
  /// "≤ 64: 3, ≤ 128: 12".
  std::string histogram_text() const;
};

/// Rows that share a fate, with the first few named.
struct ReasonCount {
  std::string reason;
  int64_t count = 0;
  std::vector<std::string> examples;  ///< "file:line: detail"
};
inline constexpr size_t kMaxReasonExamples = 3;

/// Counts `reason`; `example` is called where one more is wanted.
template <typename Example>
void count_reason(std::vector<ReasonCount>* reasons, const std::string& reason, Example example) {
  auto entry = std::find_if(reasons->begin(), reasons->end(),
                            [&](const ReasonCount& known) { return known.reason == reason; });
  if (entry == reasons->end()) entry = reasons->insert(entry, {reason, 0, {}});
  ++entry->count;
  if (entry->examples.size() < kMaxReasonExamples) entry->examples.push_back(example());
}

/// More of a data set's rows dropped than this share, and it is another data set than was meant.
inline constexpr double kMaxDroppedRatio = 0.5;

/// Files of pictures for which rows were dropped: path -> what there was of it then.
class LostMedia {
 public:
  /// No more files than this are asked whether they have changed.
  static constexpr size_t kMost = 100'000;

  void add(const std::vector<std::string>& paths);
  void add(const LostMedia& other);
  bool empty() const { return states_.empty(); }
  /// Whether all of them are still missing, or have the sizes and times that they had.
  bool is_as_it_was() const;
  Json to_json() const { return states_; }
  /// Errors: DataError.
  static LostMedia from_json(const Json& json);

 private:
  std::map<std::string, std::string> states_;  ///< "": no such file
};

struct PreprocessReport {
  std::vector<std::string> datasets;  ///< "alpaca.json: 1 json file, 22.8 MB; detected: alpaca (…)"
  int64_t rows_read = 0, rows_kept = 0;
  std::vector<ReasonCount> dropped, truncated;
  std::vector<ColumnCounts> unread_columns;  ///< of each data set
  LengthStats lengths;                       ///< of the samples kept, before packing
  VisualCounts visual;                       ///< of the samples kept
  LostMedia lost_media;                      ///< of the rows dropped
  int64_t target_tokens = 0;     ///< tokens that carry loss; 0 for plain pre-training texts
  int64_t packed_sequences = 0;  ///< 0: not packed
  int64_t padding_tokens = 0;
  std::string sample;  ///< the first sample, decoded, with its mask
  /// Share of the rows dropped, where several data sets are counted the largest of theirs. Set by
  /// judge_dropped.
  double dropped_ratio = 0;

  int64_t rows_dropped() const { return rows_read - rows_kept; }
  /// The rows among them that were dropped for `reason`.
  int64_t rows_dropped_for(const std::string& reason) const;
  /// Counts of both, data sets one after the other; the sample shown is the first there is.
  void add(const PreprocessReport& other);
  Json to_json() const;
  /// Errors: DataError if `json` is not what to_json writes, naming what is missing or of another
  /// type.
  static PreprocessReport from_json(const Json& json);
  /// Several lines for people.
  std::string text() const;
  /// The lines of text() that are about rows.
  std::string rows_text() const;
};

/// Sets dropped_ratio of the report on one data set. Blank lines of .txt files do not count,
/// neither as dropped nor as rows. Errors: DataError with the counts by reason if it is above
/// `max_dropped_ratio`.
void judge_dropped(PreprocessReport* of_one, double max_dropped_ratio);

/// "\n  60 rows: column \"output\" is missing\n    a.jsonl:1\n …", for error messages.
std::string reasons_of_error(const std::vector<ReasonCount>& dropped);
/// What to do about rows dropped for these reasons.
std::string hint_about(const std::vector<ReasonCount>& dropped);

/// Decoded ids and labels as ms-swift shows them: masked runs read [-100 * 27]. labels may be
/// empty. The placeholders of `media` read [<|image_pad|> * 27]; a line for each says what it is.
std::string describe_sample(const text::Tokenizer* tokenizer, std::span<const int32_t> ids,
                            std::span<const int32_t> labels,
                            const std::vector<MediaSpan>& media = {});
/// "picture 1: a.png, grid 1 x 6 x 6, 9 tokens at 15": one line for each.
std::string describe_media(const std::vector<MediaSpan>& media);
/// `ids` decoded, with the placeholders of `media` as describe_sample shows them.
std::string decode_with_media(const text::Tokenizer* tokenizer, std::span<const int32_t> ids,
                              const std::vector<MediaSpan>& media);

}  // namespace danlu::data
