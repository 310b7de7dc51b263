// `danlu diff A B`: where two checkpoints differ, tensor by tensor.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "base/progress.h"
#include "cli/commands/commands.h"
#include "weights/compare.h"
#include "weights/compare_text.h"
#include "weights/describe.h"
#include "weights/tensor_source.h"

namespace danlu::cli {
namespace {

/// The one place that knows which formats there are.
std::shared_ptr<const weights::TensorSource> open_any(const std::string& path) {
  return weights::open_weights(path);
}

weights::Comparison compare(const weights::TensorSource& a, const weights::TensorSource& b) {
  constexpr uint64_t kMega = 1'000'000, kWorthShowing = 200;  // below that it takes a moment
  const uint64_t total = weights::bytes_to_compare(a, b) / kMega;
  if (total < kWorthShowing) return weights::compare_sources(a, b);
  ProgressBar bar("comparing", total, "MB");
  const weights::Comparison comparison = weights::compare_sources(
      a, b, {.progress = [&](uint64_t done) { bar.update(done / kMega); }});
  bar.finish();
  return comparison;
}

/// The verdict that the exit code gives, in words.
std::string verdict_text(const weights::Comparison& comparison, std::optional<double> tolerance) {
  if (comparison.identical()) return "the same: names, shapes, dtypes and every bit";
  if (!tolerance) return "different";
  return fmt::format("{} {:g}",
                     comparison.within(*tolerance) ? "the same within" : "different by more than",
                     *tolerance);
}

}  // namespace

OptionTable diff_options() {
  return OptionTable(
      "diff",
      "compare two checkpoints tensor by tensor: names, shapes, dtypes and values.\n"
      "Exit code 0 if they are the same, 4 if they differ",
      "danlu diff A B [--tolerance X]",
      {{.name = "tolerance",
        .type = OptionType::kFloat,
        .help = "call values the same up to this absolute difference, whatever their dtypes "
                "(default: every bit counts, and the dtype)",
        .range = at_least(0)},
       {.name = "every_tensor",
        .type = OptionType::kBool,
        .default_text = "false",
        .help = "list every tensor, identical ones too",
        .aliases = {"tensors"}},
       {.name = "json",
        .type = OptionType::kBool,
        .default_text = "false",
        .help = "print one JSON object instead of tables"}});
}

int run_diff(const Options& options) {
  const std::vector<std::string>& paths = options.positional();
  if (paths.size() != 2) {
    throw UsageError(
        fmt::format("[diff] name two checkpoints: danlu diff A B, got {}", paths.size()),
        {"each is a model directory or a weight file", "每个参数应为模型目录或权重文件"});
  }
  const auto a = open_any(paths[0]), b = open_any(paths[1]);
  const bool json = options.get_bool("json"), every_tensor = options.get_bool("every_tensor");
  std::optional<double> tolerance;
  if (options.is_set("tolerance")) tolerance = options.get_float("tolerance");

  const weights::Comparison comparison = compare(*a, *b);
  const bool same = tolerance ? comparison.within(*tolerance) : comparison.identical();
  if (json) {
    Json report = {{"a", paths[0]}, {"b", paths[1]}, {"same", same}};
    if (tolerance) report["tolerance"] = *tolerance;
    report.update(weights::comparison_json(comparison, every_tensor));
    std::fputs((report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n").c_str(), stdout);
  } else {
    std::fputs(fmt::format("A  {}: {}\nB  {}: {}\n{}{}\n", paths[0], weights::describe_totals(*a),
                           paths[1], weights::describe_totals(*b),
                           weights::describe_comparison(comparison, every_tensor),
                           verdict_text(comparison, tolerance))
                   .c_str(),
               stdout);
  }
  return same ? 0 : static_cast<int>(ExitCode::kModel);
}

}  // namespace danlu::cli
