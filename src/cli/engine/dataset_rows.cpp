#include "cli/engine/dataset_rows.h"

#include <utility>
#include <variant>
#include <vector>

#include "base/log.h"

namespace danlu::cli {

void each_row(const data::PlannedDataset& planned, double max_dropped_ratio,
              const std::function<bool()>& wants_more,
              const std::function<void(data::Row row, std::string place)>& take) {
  log::info("{}", planned.description);
  data::RowReader reader(planned.dataset);
  data::RowPlaces places(planned.dataset);
  std::vector<data::RawRow> block;
  data::PreprocessReport report;
  data::ColumnCounts unread;
  report.datasets = {planned.description};
  while (wants_more() && reader.next_block(&block)) {
    for (const data::RawRow& raw : block) {
      if (!wants_more()) break;
      ++report.rows_read;
      std::string place = places.of(raw.file, raw.index);
      data::RowResult result = data::read_row(*planned.handler, planned.dataset, raw, &unread);
      if (const auto* problem = std::get_if<data::RowProblem>(&result)) {
        data::count_reason(&report.dropped, problem->reason, [&] {
          return problem->detail.empty() ? place : place + ": " + problem->detail;
        });
        continue;
      }
      ++report.rows_kept;
      take(std::get<data::Row>(std::move(result)), std::move(place));
    }
    block.clear();
  }
  data::judge_dropped(&report, max_dropped_ratio);
}

}  // namespace danlu::cli
