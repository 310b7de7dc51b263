#include "cli/engine/infer_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "cli/engine/infer_figures.h"

namespace danlu::cli {
namespace {

void report_idle_among(const Options& options, const std::vector<const char*>& names,
                       const std::string& why) {
  std::vector<std::string> idle;
  for (const char* name : names) {
    if (options.is_given(name)) idle.push_back(options.given_as(name));
  }
  if (idle.empty()) return;
  if (idle.size() == 1) {
    log::notice("{} has no effect {}", idle.front(), why);
  } else {
    log::notice("{} have no effect {}", fmt::join(idle, ", "), why);
  }
}

/// Flags about answers, which neither judges of steps nor labels and vectors have a use for.
const std::vector<const char*>& about_answers() {
  static const std::vector<const char*> names = {"system",
                                                 "max_new_tokens",
                                                 "num_beams",
                                                 "temperature",
                                                 "top_k",
                                                 "top_p",
                                                 "do_sample",
                                                 "task",
                                                 "quantize",
                                                 "qlora",
                                                 "quantization_bit",
                                                 "load_in_4bit",
                                                 "load_in_8bit",
                                                 "quantization",
                                                 "quant_method",
                                                 "bnb_4bit_quant_type",
                                                 "double_quantization",
                                                 "stream",
                                                 "save_result"};
  return names;
}

/// What it was that keeps tokens from being drawn.
std::string why_no_draws(const Options& options) {
  const auto said = [&](const char* name, const std::string& value) {
    return tr("with {} {}: no token is drawn", options.given_as(name), value);
  };
  if (options.is_given("task")) {
    const std::string task = options.get_string("task");
    if (task == "greedy" || task == "beam_search") return said("task", task);
  }
  if (options.is_given("do_sample") && !options.get_bool("do_sample"))
    return said("do_sample", "false");
  if (options.is_given("temperature") && options.get_float("temperature") == 0)
    return said("temperature", "0");
  if (options.is_given("do_sample")) return tr("with a temperature of 0: no token is drawn");
  return "without sampling (--do_sample, --temperature)";
}

}  // namespace

Options with_plain_prompts(const Options& options) {
  if (options.get_bool("use_chat_template") || options.get_bool("raw")) return options;
  return options.with("raw", "true", options.given_as("use_chat_template"));
}

Options with_output_dir(const Options& options) {
  const bool has_rows = options.has_value("dataset") || options.get_bool("load_dataset_config");
  if (!options.has_value("output_dir") || options.has_value("output") || !has_rows) return options;
  const fs::path place = options.get_string("output_dir");
  require_writable_directory(place);
  return options.with("output", answers_in(place).string(), options.given_as("output_dir"));
}

void report_idle_step_flags(const Options& options) {
  std::vector<const char*> names = about_answers();
  names.insert(names.end(), {"prompt_type", "raw", "stop_words", "metric"});
  report_idle_among(options, names, "where steps are judged");
}

void report_idle_label_flags(const Options& options) {
  report_idle_among(options, about_answers(), "where texts are sorted");
}

void report_idle_vector_flags(const Options& options) {
  std::vector<const char*> names = about_answers();
  names.push_back("metric");
  report_idle_among(options, names, "where texts become vectors");
}

void report_idle_rank_flags(const Options& options) {
  std::vector<const char*> names = about_answers();
  std::erase_if(names, [](const std::string& name) { return name == "system"; });
  names.push_back("metric");
  report_idle_among(options, names, "where documents are ranked");
}

void report_idle_infer_flags(const Options& options, const InferUse& use) {
  if (use.chat) {
    report_idle_among(options,
                      {"prompt", "dataset", "load_dataset_config", "max_samples", "columns",
                       "handler_name", "max_dropped_ratio", "output", "overwrite", "batch_size",
                       "output_dir", "metric", "dataset_dir"},
                      "in a chat");
  } else {
    report_idle_among(options, {"history_turns"}, "outside a chat");
    if (!use.data_set) {
      report_idle_among(options,
                        {"columns", "handler_name", "max_dropped_ratio", "max_samples",
                         "batch_size", "output_dir", "metric", "dataset_dir"},
                        tr("with {} alone: it is one text", options.given_as("prompt")));
    }
    if (!options.has_value("output")) report_idle_among(options, {"overwrite"}, "without --output");
  }
  if (!use.has_template) {
    report_idle_among(options,
                      {"system", "prompt_type", "hf_chat_template", "prompt_type_path",
                       "chat_template_kwargs", "enable_thinking"},
                      options.get_bool("raw") ? tr("with {}", options.given_as("raw"))
                                              : std::string("on a model without a chat template"));
  }
  std::vector<const char*> of_draws = {"top_k", "top_p", "min_p", "seed"};
  if (!options.is_given("temperature") || options.get_float("temperature") != 0)
    of_draws.insert(of_draws.begin(), "temperature");
  if (options.is_given("do_sample") && options.get_bool("do_sample"))
    of_draws.insert(of_draws.begin(), "do_sample");
  if (!use.sampling.do_sample) report_idle_among(options, of_draws, why_no_draws(options));
  if (use.sampling.num_beams < 2)
    report_idle_among(options, {"length_penalty"}, "without --num_beams of 2 or more");
}

}  // namespace danlu::cli
