// cli/engine/judged_rows.h: rows of a data set that a model judges in place of answering them.
#pragma once
#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "base/options.h"
#include "base/progress.h"
#include "cli/engine/infer_output.h"

namespace danlu::cli {

/// Row has a `place`; Found, what became of it, an `error`, empty where it was judged.
template <typename Row, typename Found>
struct RowJudging {
  std::function<std::vector<Found>(std::span<const Row>)> judge;  ///< one for each row
  std::function<void(const Row&, const Found&)> count;
  std::function<Json(const Row&, const Found&)> json;         ///< a line of --output
  std::function<std::string(const Row&, const Found&)> text;  ///< of the screen, with its line ends
};

/// Judges rows, --batch_size at a time, to --output or else to the screen. How many had an error,
/// of which a warning says the first. REQUIRES: --output is locked. Errors: as throw_interrupted
/// after a signal; as AnswerFile.
template <typename Row, typename Found>
size_t judge_rows(const Options& options, const std::vector<Row>& rows,
                  const RowJudging<Row, Found>& how) {
  watch_interrupts();
  std::optional<AnswerFile> file;
  if (options.has_value("output"))
    file.emplace(options.get_string("output"), options.get_bool("overwrite"), "", "");
  ProgressBar bar("infer", rows.size(), "rows");
  const auto at_a_time = static_cast<size_t>(options.get_int("batch_size"));
  size_t errors = 0;
  for (size_t begin = 0; begin < rows.size();) {
    if (const int signal = pending_interrupt())
      throw_interrupted(signal, tr("[infer] stopped: {} of {} rows are done", begin, rows.size()));
    const auto some = std::span(rows).subspan(begin, std::min(at_a_time, rows.size() - begin));
    const std::vector<Found> found = how.judge(some);
    for (size_t i = 0; i < found.size(); ++i) {
      if (!found[i].error.empty() && errors++ == 0)
        log::warning("{}: {}; such rows are marked \"error\"", some[i].place, found[i].error);
      how.count(some[i], found[i]);
      if (file) {
        file->add(dump_text(how.json(some[i], found[i])) + "\n");
      } else {
        print_text(how.text(some[i], found[i]));
      }
    }
    bar.update(begin += found.size());
  }
  bar.finish();
  if (file) file->finish();
  return errors;
}

}  // namespace danlu::cli
