// data/preprocess_run.h: from data sets to a token store, continued where an earlier run stopped.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "data/preprocess_encode.h"
#include "data/preprocess_report.h"
#include "data/preprocess_store.h"

namespace danlu::data {

/// A data set whose layout is known.
struct PlannedDataset {
  Dataset dataset;
  std::unique_ptr<RowHandler> handler;
  std::string description;       ///< "alpaca.json: 1 json file, 22.8 MB; detected: alpaca (…)"
  std::vector<Json> first_rows;  ///< what the layout was chosen from
};

/// Says which columns of the data sets were not read; `counts`: PreprocessReport's, of this plan.
void report_unread_columns(const std::vector<PlannedDataset>& plan,
                           const std::vector<ColumnCounts>& counts);

/// Whether samples that lack the rows `report` names would lack them again, as far as pictures are
/// concerned: no file of theirs has come or changed. Says, where pictures could not be fetched,
/// that `flag` fetches them again.
bool lacks_the_same_pictures(const PreprocessReport& report, const char* flag);

/// Resolves every name and looks at its first rows. Errors: DataError if format.columns renames a
/// column that none of the data sets has; those of resolve_dataset, RowReader and make_row_handler.
std::vector<PlannedDataset> plan_datasets(const std::vector<std::string>& names,
                                          const FormatOptions& format,
                                          const std::filesystem::path& info_dir = {},
                                          bool document_per_file = false);

/// Reads the files' contents: equal keys mean equal tokens. `settings` and `extra` are part of it,
/// the number of workers is not.
std::string content_key(const std::vector<PlannedDataset>& plan, const EncodeSettings& settings,
                        const Json& extra);

struct RunSettings {
  size_t num_workers = 0;                       ///< 0: every CPU
  bool strict = false;                          ///< a row that would be dropped is an error
  double max_dropped_ratio = kMaxDroppedRatio;  ///< of a data set's rows; more is an error
  /// Rows read of all data sets together, in their order; those after are as if they were not
  /// there. -1: all.
  int64_t max_rows_of_all = -1;
  bool show_progress = true;
  double commit_interval_s = 5;
};

/// Encodes all rows into `store`; rows that `store` holds already are passed by.
/// Errors: DataError (malformed file; no usable row; too many dropped, see judge_dropped; with
/// strict, the first bad row at file:line);
/// as throw_interrupted after a signal, with the finished work kept.
PreprocessReport encode_datasets(const std::vector<PlannedDataset>& plan,
                                 const EncodeSettings& settings, const RunSettings& run,
                                 TokenStore* store);

}  // namespace danlu::data
