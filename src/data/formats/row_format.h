// data/formats/row_format.h: recognising the layout of rows, and reading rows of each layout.
#pragma once
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data/formats/format_options.h"
#include "data/formats/media_columns.h"
#include "data/formats/row.h"
#include "data/sample_kind.h"

namespace danlu::data {

enum class RowFormat {
  kText,           ///< plain text columns
  kAlpaca,         ///< instruction, input, output, system, history
  kQueryResponse,  ///< query, response, system, history
  kShareGpt,       ///< conversations of {from, value}
  kMessages,       ///< messages of {role, content}, tool calls
  kTokens,         ///< input_ids, labels, attention_mask
  kSteps,          ///< a text with judged steps
};

/// Reads rows of one layout. Immutable; thread-safe.
class RowHandler {
 public:
  virtual ~RowHandler() = default;
  /// The layout of the rows. For pairs and the like: that of the instruction rows they are made of.
  virtual RowFormat format() const = 0;
  /// Which of Row's alternatives it makes: kTokens for the first three.
  virtual SampleKind kind() const { return SampleKind::kTokens; }
  /// Whether its rows are written with a chat template.
  bool needs_template() const;
  /// A row in its meaning, or what is wrong with it. `row` is any JSON value. Errors: DataError if
  /// it holds pictures, video or audio that are not read (see media_in; with
  /// FormatOptions::reads_media conversations may have pictures and video): dropping such rows
  /// would hide that they are of no use here; if it has a standard column that the layout was
  /// chosen without.
  RowResult read(const Json& row) const;
  /// A .txt line or document. Default: a problem.
  virtual RowResult read_text(const std::string& text) const;
  /// "alpaca (instruction,input,output)".
  virtual std::string description() const = 0;
  /// Output names of kText handlers, e.g. {"text"}; empty for others.
  virtual std::vector<std::string> text_keys() const { return {}; }
  /// The columns that it reads, under the names of the files; those that rows may lack among them.
  const std::vector<std::string>& columns() const { return columns_; }
  /// columns() without those of pictures.
  virtual std::vector<std::string> columns_read() const = 0;

 private:
  friend std::unique_ptr<RowHandler> make_row_handler(const FormatOptions&,
                                                      const std::vector<Json>&, bool);
  /// Makes samples of a row as it was read. `row` is no object without values.
  virtual RowResult read_row(const Json& row) const = 0;
  void refuse_late_columns(const Json& row) const;
  void teach_names(const Json& row, Row* read) const;
  bool add_media(const Json& row, Row* read, RowProblem* problem) const;
  bool text_is_named_ = false;                 ///< as media_in's
  std::optional<MediaColumns> media_columns_;  ///< of a model that reads pictures
  SelfNames names_;
  bool adds_tags_ = false;  ///< as attach_media's
  std::vector<std::string> columns_;
  std::set<std::string> late_columns_;  ///< standard ones that neither are read nor were seen first
};

/// The first rows of a data set, as many as make_row_handler needs. Rows without a value say
/// nothing about the layout and are passed over.
class DetectionRows {
 public:
  bool wants_more() const { return rows_.size() < 64 && bytes_ < (16 << 20); }
  /// `size_bytes`: of the row's text.
  void add(Json row, size_t size_bytes);
  const std::vector<Json>& rows() const { return rows_; }

 private:
  std::vector<Json> rows_;
  size_t bytes_ = 0;
};

/// The handler for rows that begin with `first_rows` (see DetectionRows). `plain_text`: rows come
/// from .txt files. Errors: UsageError (unknown handler, with the nearest name; rows or a handler
/// of another kind than options.kind; a malformed map); DataError (no layout fits; two columns for
/// one role; a mapped column that no row has).
std::unique_ptr<RowHandler> make_row_handler(const FormatOptions& options,
                                             const std::vector<Json>& first_rows, bool plain_text);

}  // namespace danlu::data
