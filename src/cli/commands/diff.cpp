// `danlu diff A B`: where two checkpoints differ, tensor by tensor.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "base/gguf_header.h"
#include "base/progress.h"
#include "cli/commands/commands.h"
#include "weights/compare/compare.h"
#include "weights/compare/compare_text.h"
#include "weights/compare/describe.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/gguf/gguf_model.h"
#include "weights/gguf/gguf_reader.h"
#include "weights/gguf/offset_norms.h"
#include "weights/layout_source.h"
#include "weights/tensor_source.h"

namespace danlu::cli {
namespace {

using Tensors = std::shared_ptr<const weights::TensorSource>;

/// A GGUF file under HF names, as the model of the other path would be laid out in it; as it is if
/// that is no model.
Tensors open_gguf(const fs::path& file, const fs::path& other,
                  const weights::SourceOptions& settings) {
  Tensors tensors = weights::gguf::open(file);
  const auto format = weights::detect_format(other);
  if (!format || *format == weights::Format::kGguf || *format == weights::Format::kPeft)
    return tensors;
  const weights::CheckpointSource model = weights::open_checkpoint_source(other, settings);
  const auto globals = weights::megatron::global_tensors(model.config, model.config.dtype);
  const MappedFile content(file);
  return weights::gguf::with_one_taken(
      weights::open_layout(weights::gguf::plan_model(model.config, globals, {}).layout, {tensors}),
      model.config, gguf::parse_header(content.bytes(), file.string()).metadata);
}

Tensors open_any(const fs::path& path, const fs::path& other,
                 const weights::SourceOptions& settings) {
  if (weights::detect_format(path) == weights::Format::kGguf)
    return open_gguf(path, other, settings);
  return weights::open_any_tensors(path, settings);
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
      {{.name = "checkpoint_a",
        .help = "a model directory or weight file (or the first word)",
        .word = 1},
       {.name = "checkpoint_b", .help = "what to compare it with (or the second word)", .word = 2},
       {.name = "tolerance",
        .type = OptionType::kFloat,
        .help = "call values the same up to this absolute difference, whatever their dtypes "
                "(default: every bit counts, and the dtype)",
        .range = at_least(0)},
       {.name = "hf_config",
        .help = "directory with config.json, for a Megatron checkpoint without one",
        .aliases = {"hf_cfg_dir"}},
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
  std::vector<std::string> paths;
  for (const char* place : {"checkpoint_a", "checkpoint_b"}) {
    if (options.is_set(place)) paths.push_back(options.get_string(place));
  }
  if (paths.size() != 2) {
    throw UsageError(tr("[diff] name two checkpoints: danlu diff A B, got {}", paths.size()),
                     tr("each is a model directory or a weight file"));
  }
  weights::SourceOptions settings;
  if (options.is_set("hf_config")) settings.config_dir = options.get_string("hf_config");
  const Tensors a = open_any(paths[0], paths[1], settings);
  const Tensors b = open_any(paths[1], paths[0], settings);
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
