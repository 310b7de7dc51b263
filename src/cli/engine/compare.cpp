#include "eval/compare/compare.h"

#include <cstdio>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/lower_case.h"
#include "base/new_output.h"
#include "cli/engine/engine.h"

namespace danlu::cli {
namespace {

pictures::PictureFormat format_of(const fs::path& picture) {
  const std::string ending = lower_case(picture.extension().string());
  if (ending == ".svg") return pictures::PictureFormat::kSvg;
  if (ending == ".png") return pictures::PictureFormat::kPng;
  throw UsageError(tr("[--plot] the name must end in .svg or .png, got {}", picture.string()));
}

/// A file that replaces neither what is read nor a directory.
fs::path output_file(const Options& options, const char* name,
                     const eval::RunComparison& comparison) {
  const fs::path path = place_of(options.get_string(name));
  refuse_to_replace_inputs(path, {comparison.path_a, comparison.path_b});
  std::error_code ignored;
  if (fs::is_directory(path, ignored))
    throw UsageError(tr("[--{}] {} is a directory: name a file", name, path.string()));
  return path;
}

}  // namespace

int run_compare(const Options& options) {
  if (!options.has_value("run_a") || !options.has_value("run_b")) {
    throw UsageError(tr("[compare] name two runs: danlu compare RUN_A RUN_B"),
                     tr("each is a results_*.json with its samples beside it, or a directory"));
  }
  if (options.has_value("plot")) format_of(options.get_string("plot"));
  const eval::RunComparison comparison =
      eval::compare_runs(options.get_string("run_a"), options.get_string("run_b"));
  std::optional<fs::path> output, picture;
  if (options.has_value("output")) output = output_file(options, "output", comparison);
  if (options.has_value("plot")) picture = output_file(options, "plot", comparison);
  std::fputs(eval::comparison_text(comparison, options.get_int("show")).c_str(), stdout);
  for (const std::string& warning : comparison.warnings)
    log::write(log::Level::kWarning, tr("not the same in both: {}", warning));
  if (output) {
    const MadeDirectory directory = parent_of(*output);
    write_json_file(*output, eval::comparison_json(comparison));
  }
  if (picture) {
    const MadeDirectory directory = parent_of(*picture);
    write_file_atomic(*picture, eval::comparison_picture(comparison, format_of(*picture)));
  }
  return 0;
}

}  // namespace danlu::cli
