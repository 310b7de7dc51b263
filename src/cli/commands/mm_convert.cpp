// `danlu mm-convert CONVERTER hf_to_mm|mm_to_hf|resplit`: MindSpeed-MM's line as a conversion.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/commands/commands.h"
#include "cli/commands/convert_plan.h"
#include "cli/commands/mm_flags.h"
#include "cli/commands/stage_lists.h"
#include "settings/options/model_names.h"

namespace danlu::cli {
namespace {

using weights::megatron::Split;

std::string required_text(const Options& options, const std::string& name) {
  if (options.is_set(name)) return options.get_string(name);
  throw UsageError(tr("[mm-convert] {} needs --{}", options.get_string("action"), name),
                   tr("danlu mm-convert --help shows what each is for"));
}

fs::path required_directory(const Options& options, const std::string& name) {
  fs::path path = settings::located_if_named(required_text(options, name));
  if (fs::exists(path)) return path;
  throw UsageError(tr("[{}] {}: no such file or directory", options.given_as(name), path.string()));
}

/// Flags of another action would be silently without effect.
void refuse_other_flags(const Options& options, const std::vector<std::string>& used) {
  for (const std::string& name :
       {std::string("cfg.mm_dir"), std::string("cfg.hf_config.hf_dir"),
        std::string("cfg.save_hf_dir"), std::string("cfg.source_dir"),
        std::string("cfg.target_dir"), kMmParallel, kMmSource, kMmTarget}) {
    if (std::find(used.begin(), used.end(), name) != used.end()) continue;
    for (const char* key : {"", ".llm_pp_layers", ".vit_pp_layers", ".tp_size"}) {
      const bool is_group = name.ends_with("parallel_config");
      if (is_group == (*key == '\0') || !options.is_given(name + key)) continue;
      throw UsageError(
          tr("[{}] is not for {}", options.given_as(name + key), options.get_string("action")));
    }
  }
}

Split split_of(const Options& options, const std::string& prefix) {
  Split split;
  split.tp = options.get_int(prefix + ".tp_size");
  put_stage_lists(options, prefix + ".llm_pp_layers", prefix + ".vit_pp_layers", split);
  return split;
}

Split required_split(const Options& options, const std::string& prefix) {
  for (const char* key : {".llm_pp_layers", ".vit_pp_layers"}) {
    if (options.is_set(prefix + key)) continue;
    throw UsageError(tr("[mm-convert] {} needs --{}", options.get_string("action"), prefix + key),
                     tr("danlu mm-convert --help shows what each is for"));
  }
  return split_of(options, prefix);
}

void read_hf_to_mm(const Options& options, ConvertRequest& request) {
  refuse_other_flags(options, {"cfg.mm_dir", "cfg.hf_config.hf_dir", kMmParallel});
  request.source = required_directory(options, "cfg.hf_config.hf_dir");
  request.output = required_text(options, "cfg.mm_dir");
  request.expected_source = weights::Format::kHuggingFace;
  request.to = ConvertTo::kMm;
  request.split = required_split(options, kMmParallel);
}

void read_mm_to_hf(const Options& options, ConvertRequest& request) {
  refuse_other_flags(options,
                     {"cfg.mm_dir", "cfg.hf_config.hf_dir", "cfg.save_hf_dir", kMmParallel});
  request.source = required_directory(options, "cfg.mm_dir");
  request.output = required_text(options, "cfg.save_hf_dir");
  request.source_options.config_dir = required_directory(options, "cfg.hf_config.hf_dir");
  request.expected_source = weights::Format::kMegatron;
  request.to = ConvertTo::kHf;
  request.shards_like = request.source_options.config_dir;
}

void read_resplit(const Options& options, ConvertRequest& request) {
  refuse_other_flags(
      options, {"cfg.source_dir", "cfg.target_dir", "cfg.hf_config.hf_dir", kMmSource, kMmTarget});
  request.source = required_directory(options, "cfg.source_dir");
  request.output = required_text(options, "cfg.target_dir");
  if (options.is_set("cfg.hf_config.hf_dir"))
    request.source_options.config_dir = required_directory(options, "cfg.hf_config.hf_dir");
  request.expected_source = weights::Format::kMegatron;
  request.to = ConvertTo::kMm;
  request.split = required_split(options, kMmTarget);
}

ConvertRequest read_mm_request(const Options& options) {
  for (const char* word : {"converter", "action"}) {
    if (options.is_set(word)) continue;
    throw UsageError(tr("[mm-convert] {} is not named", translated(word)),
                     tr("danlu mm-convert Qwen2VLConverter hf_to_mm --cfg.mm_dir DIR …"));
  }
  ConvertRequest request;
  const std::string action = options.get_string("action");
  if (action == "hf_to_mm") read_hf_to_mm(options, request);
  if (action == "mm_to_hf") read_mm_to_hf(options, request);
  if (action == "resplit") read_resplit(options, request);
  request.split.vocab_divisor = 1;
  if (options.is_set("check")) request.check = options.get_bool("check");
  request.overwrite = options.get_bool("overwrite");
  request.num_threads = static_cast<size_t>(options.get_int_or("threads", 0));
  return request;
}

void check_family(const Options& options, const arch::ModelConfig& config) {
  const std::string converter = options.get_string("converter");
  const bool is_qwen2 = converter == "Qwen2VLConverter";
  if (config.family == (is_qwen2 ? "qwen2_vl" : "qwen2_5_vl")) return;
  const bool is_others = config.family == (is_qwen2 ? "qwen2_5_vl" : "qwen2_vl");
  throw UsageError(tr("[mm-convert] {} was given, but config.json describes a model of family {}",
                      converter, config.family),
                   is_others
                       ? tr("use {}", is_qwen2 ? "Qwen2_5_VLConverter" : "Qwen2VLConverter")
                       : tr("danlu convert converts every family: danlu convert SRC DST --to …"));
}

/// What is said of the source's split, against what its files are.
void check_found_split(const Options& options, const std::string& prefix,
                       const weights::CheckpointSource& source) {
  const Split said = split_of(options, prefix), &found = source.megatron->split;
  const auto differ = [&](const std::string& key, const std::string& given,
                          const std::string& actual) {
    throw UsageError(tr("[{}] says {}, but {} was saved with {}", options.given_as(prefix + key),
                        given, source.path.string(), actual),
                     tr("leave the flag out: the files say it"));
  };
  if (!said.chunk_list.empty() && said.chunk_list != found.chunk_list)
    differ(".llm_pp_layers", stage_lists_text(said.chunk_list), stage_lists_text(found.chunk_list));
  if (!said.block_list.empty() && said.block_list != found.block_list)
    differ(".vit_pp_layers", stage_lists_text(said.block_list), stage_lists_text(found.block_list));
  if (options.is_given(prefix + ".tp_size") && said.tp != found.tp)
    differ(".tp_size", std::to_string(said.tp), std::to_string(found.tp));
}

void check_mm_source(const Options& options, const ConvertRequest& request,
                     const weights::CheckpointSource& source) {
  const bool is_ready =
      options.get_string("action") == "mm_to_hf" && source.format == weights::Format::kHuggingFace;
  if (is_ready) {
    log::info("{}",
              tr("{} is in Hugging Face's format, as danlu saves what it trains: it is copied",
                 source.path.string()));
  } else if (*request.expected_source != source.format) {
    throw UsageError(tr("[mm-convert] {} reads {}, but {} is: {}", options.get_string("action"),
                        weights::format_name(*request.expected_source), source.path.string(),
                        source.description));
  }
  check_family(options, source.config);
  if (source.megatron)
    check_found_split(options, request.to == ConvertTo::kMm ? kMmSource : kMmParallel, source);
}

/// What MindSpeed-MM's parser may be told to read instead of flags.
void report_idle_variables() {
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text(*entry);
    if (text.starts_with("MM_CONVERT_")) {
      log::warning("{} is set, and variables are not read: give a flag, or --config FILE",
                   text.substr(0, text.find('=')));
    }
  }
}

}  // namespace

int run_mm_convert(const Options& options) {
  report_idle_variables();
  ConvertRequest request = read_mm_request(options);
  request.check_source = [&](const weights::CheckpointSource& source) {
    check_mm_source(options, request, source);
  };
  return convert_as_asked(options, request);
}

}  // namespace danlu::cli
