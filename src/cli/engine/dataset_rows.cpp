#include "cli/engine/dataset_rows.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "base/interrupt.h"
#include "base/log.h"

namespace danlu::cli {
namespace {

bool is_blank_line(const data::RawRow& raw) {
  return !raw.is_json && raw.text.find_first_not_of(" \t\r") == std::string::npos;
}

}  // namespace

void each_row(const data::PlannedDataset& planned, double max_dropped_ratio,
              const RowTaker& taker) {
  log::info("{}", planned.description);
  data::RowReader reader(planned.dataset);
  data::RowPlaces places(planned.dataset);
  std::vector<data::RawRow> block;
  data::PreprocessReport report;
  data::ColumnCounts unread;
  report.datasets = {planned.description};
  while (taker.wants_more() && reader.next_block(&block)) {
    for (const data::RawRow& raw : block) {
      if (!taker.wants_more()) break;
      if (const int signal = pending_interrupt()) throw_interrupted(signal, "stopped");
      ++report.rows_read;
      RowPlace place{places.of(raw.file, raw.index),
                     planned.dataset.files[raw.file].path.parent_path()};
      if (taker.take_blank && is_blank_line(raw)) {
        ++report.rows_kept;
        taker.take_blank(std::move(place));
        continue;
      }
      data::RowResult result = data::read_row(*planned.handler, planned.dataset, raw, &unread);
      if (const auto* problem = std::get_if<data::RowProblem>(&result)) {
        data::count_reason(&report.dropped, problem->reason, [&] {
          return problem->detail.empty() ? place.text : place.text + ": " + problem->detail;
        });
        continue;
      }
      ++report.rows_kept;
      taker.take(std::get<data::Row>(std::move(result)), std::move(place));
    }
    block.clear();
  }
  data::report_unread_columns(planned.dataset.name, *planned.handler, unread,
                              planned.dataset.format, planned.first_rows);
  data::judge_dropped(&report, max_dropped_ratio);
  if (report.rows_dropped() > 0) {
    log::warning("{}: rows that cannot be used:{}", planned.dataset.name,
                 data::reasons_of_error(report.dropped));
  }
}

void each_row_of(const std::vector<std::string>& names, const data::FormatOptions& format,
                 const Options& options, size_t already, std::vector<std::filesystem::path>& files,
                 const std::function<void(data::Row row, RowPlace place)>& take) {
  if (names.empty()) return;
  const auto limit = static_cast<size_t>(std::max<int64_t>(0, options.get_int("max_samples")));
  const RowTaker taker = {.wants_more = [&] { return limit == 0 || already < limit; },
                          .take =
                              [&](data::Row row, RowPlace place) {
                                ++already;
                                take(std::move(row), std::move(place));
                              }};
  for (const data::PlannedDataset& planned : data::plan_datasets(names, format)) {
    for (const data::DataFile& file : planned.dataset.files) files.push_back(file.path);
    each_row(planned, options.get_float_or("max_dropped_ratio", data::kMaxDroppedRatio), taker);
  }
}

}  // namespace danlu::cli
