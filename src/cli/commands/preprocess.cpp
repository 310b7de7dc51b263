// `danlu preprocess`: raw rows to Megatron's .bin/.idx, with MindSpeed's flag names.
#include "data/preprocess.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>

#include "arch/model_config.h"
#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "cli/commands/commands.h"
#include "cli/commands/foreign_options.h"
#include "cli/commands/media_options.h"
#include "cli/commands/row_options.h"
#include "settings/embedding_files.h"
#include "settings/options/media_flags.h"
#include "settings/options/mm_data.h"
#include "settings/options/model_names.h"
#include "text/template_choice.h"
#include "text/trained_part.h"

namespace danlu::cli {
namespace {

std::vector<OptionSpec> input_options() {
  const std::string group = "Input";
  return {
      {.name = "input",
       .type = OptionType::kList,
       .help = "files, directories, globs or names in dataset_info.json: path[:split][#n]",
       .aliases = {"i", "dataset", "data_path"},
       .group = group},
      {.name = "mm_data",
       .help = "MindSpeed-MM's data.json: its data sets, columns, template and picture limits",
       .group = group},
      {.name = "max_total_samples",
       .type = OptionType::kInt,
       .default_text = "-1",
       .help = "use only the first n rows of all data sets together (-1: all)",
       .range = at_least(1).or_value(-1),
       .group = group},
      {.name = "handler_name",
       .help = "row layout by MindSpeed's handler name (default: detected and printed)",
       .group = group},
      {.name = "json_keys",
       .type = OptionType::kList,
       .help = "columns of plain text; each makes a data set of its own (default: text)",
       .group = group},
      {.name = "map_keys",
       .type = OptionType::kJson,
       .help = "role -> column, e.g. '{\"prompt\":\"instruction\",\"response\":\"output\"}'",
       .group = group},
      {.name = "columns",
       .type = OptionType::kJson,
       .help = "column -> standard name, e.g. '{\"question\":\"query\"}'",
       .group = group},
      {.name = "document_per_file",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = ".txt files: one document each, instead of one a line",
       .group = group},
      {.name = "strict",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "a row that cannot be used is an error, instead of dropped and counted",
       .group = group},
      max_dropped_ratio_option(group),
  };
}

std::vector<OptionSpec> kind_options() {
  const std::string group = "Prompts and judged steps";
  return {
      {.name = "dataset_additional_keys",
       .type = OptionType::kList,
       .help = "of prompts (R1 and PPO handlers): columns to be tokenised beside them; labels is "
               "the answer",
       .group = group},
      {.name = "placeholder_token",
       .default_text = "ки",
       .help = "the token behind each judged step",
       .group = group},
      {.name = "reward_tokens",
       .type = OptionType::kList,
       .help =
           "the tokens that judge a step, good first (default: any, + and - for true and false)",
       .group = group},
  };
}

std::vector<OptionSpec> text_options() {
  const std::string group = "Tokens";
  return {
      {.name = "tokenizer_name_or_path",
       .help = "model directory or tokenizer file (rows of input_ids need none)",
       .aliases = {"m", "model", "tokenizer", "tokenizer_model", "model_name_or_path"},
       .group = group},
      {.name = "vocab_file",
       .help =
           "the same of a tokenizer in two files: NAMEvocab.json, with NAMEmerges.txt beside it",
       .group = group},
      {.name = "prompt_type",
       .help = "chat template by name or *.jinja file (default: the tokenizer's own)",
       .aliases = {"template", "template_type"},
       .group = group},
      {.name = "prompt_type_path", .help = "file of further named templates", .group = group},
      {.name = "enable_thinking",
       .type = OptionType::kBool,
       .help = "the template's variable of this name (default: as the template has it)",
       .group = group},
      {.name = "loss_scale",
       .default_text = "default",
       .help = "what is learnt, in ms-swift's words: default, last_round, all, or "
               "last_answer, each with +ignore_empty_think",
       .group = group},
      {.name = "append_eod",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "end every text or sample with the end-of-text token",
       .group = group},
      {.name = "seq_length",
       .type = OptionType::kInt,
       .help = "samples of this many tokens or more are dropped; with --pack the sequence length",
       .aliases = {"max_length", "cutoff_len"},
       .range = at_least(2).up_to(1 << 24).or_value(0),
       .group = group},
      {.name = "pack",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "fill sequences of --seq-length with several samples, padded",
       .aliases = {"packing"},
       .group = group},
      {.name = "neat_pack",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "--pack with sample numbers in the attention mask; long samples are cut",
       .aliases = {"neat_packing"},
       .group = group},
  };
}

std::vector<OptionSpec> output_options() {
  const std::string group = "Output and work";
  return {
      {.name = "output_prefix",
       .help = "files are named <prefix>_text_document or <prefix>_packed_…_document",
       .aliases = {"o"},
       .group = group,
       .required = true},
      {.name = "workers",
       .type = OptionType::kInt,
       .default_text = "0",
       .help = "threads that tokenise; 0: every CPU; the files do not depend on it",
       .aliases = {"num_workers", "dataset_num_proc"},
       .range = at_least(0).up_to(4096),
       .group = group},
      {.name = "cache_dir",
       .help = "directory for unfinished work (default: hidden, beside the output)",
       .group = group},
      {.name = "overwrite_cache",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "replace other data at --output-prefix; do the work again although nothing changed",
       .aliases = {"overwrite"},
       .group = group},
      {.name = "merge_group_keys",
       .type = OptionType::kList,
       .help =
           "merge the .bin/.idx in the directory --input, by key in their names; no rows are read",
       .group = group},
  };
}

/// Flags of preprocess_data.py that need nothing done here.
std::vector<OptionSpec> compatible_options() {
  const auto ignored = [](std::string name, OptionType type, const std::string& why) {
    return OptionSpec{.name = std::move(name),
                      .type = type,
                      .help = "accepted; " + why,
                      .group = "Accepted for compatibility",
                      .ignored_because = why};
  };
  const std::string by_content = "the tokenizer's kind is read from its files";
  return {
      ignored("mm_model", OptionType::kString, "rows do not depend on it"),
      ignored("mm_tool", OptionType::kString, "rows do not depend on it"),
      ignored("tokenizer_type", OptionType::kString, by_content),
      ignored("tokenizer_not_use_fast", OptionType::kBool, by_content),
      ignored("merge_file", OptionType::kString, "it is what lies beside --vocab-file"),
      ignored("split_sentences", OptionType::kBool, "texts are tokenised whole"),
      ignored("keep_newlines", OptionType::kBool, "texts are tokenised whole"),
      ignored("dataset_impl", OptionType::kString, "files are always read by mmap"),
      unavailable({"interleave_probs"}, "data sets are mixed when training reads them", {},
                  tr("danlu pretrain --data-path takes weights")),
      unavailable({"script_data_dir"}, "Python scripts of data sets are not run", {},
                  tr("name the files that hold the rows: --input")),
      ignored("n_subs", OptionType::kInt,
              "work is saved as it goes and a killed run continues, without parts"),
      ignored("log_interval", OptionType::kInt, "progress is shown by time"),
      ignored("streaming", OptionType::kBool, "rows are always streamed"),
      ignored("make_vocab_size_divisible_by", OptionType::kInt, "vocabularies are not padded"),
      ignored("pad_vocab_size_to", OptionType::kInt, "vocabularies are not padded"),
      ignored("seed", OptionType::kInt, "nothing here is drawn at random"),
  };
}

data::PreprocessSpec spec_from(const Options& options) {
  data::PreprocessSpec spec;
  spec.inputs = options.get_list("input");
  spec.output_prefix = options.get_string("output_prefix");
  spec.format.handler_name = options.get_string_or("handler_name", "");
  if (options.has_value("json_keys")) spec.format.json_keys = options.get_list("json_keys");
  if (options.has_value("map_keys")) spec.format.map_keys = options.get_json("map_keys");
  if (options.has_value("columns")) spec.format.columns = options.get_json("columns");
  spec.format.text_first = true;
  spec.steps.placeholder = options.get_string("placeholder_token");
  spec.steps.reward_tokens = options.get_list("reward_tokens");
  spec.additional_keys = options.get_list("dataset_additional_keys");
  spec.max_rows_of_all = options.get_int("max_total_samples");
  spec.append_eod = options.get_bool("append_eod");
  spec.seq_length = options.get_int_or("seq_length", 0);
  if (options.get_bool("pack")) spec.pack = data::PackMode::kPack;
  if (options.get_bool("neat_pack")) spec.pack = data::PackMode::kNeat;
  spec.document_per_file = options.get_bool("document_per_file");
  spec.num_workers = static_cast<size_t>(options.get_int("workers"));
  spec.strict = options.get_bool("strict");
  spec.max_dropped_ratio = options.get_float("max_dropped_ratio");
  spec.overwrite = options.get_bool("overwrite_cache");
  spec.work_dir = options.get_string_or("cache_dir", "");
  return spec;
}

/// Where the tokenizer lies; empty: none is named.
fs::path named_tokenizer(const Options& options) {
  for (const char* name : {"tokenizer_name_or_path", "vocab_file"}) {
    if (options.has_value(name)) return settings::located_if_named(options.get_string(name));
  }
  return {};
}

data::PreprocessText text_from(const Options& options) {
  data::PreprocessText text;
  const fs::path named = named_tokenizer(options);
  if (!named.empty()) {
    text.load_tokenizer = [path = named] { return text::Tokenizer::load(path); };
  }
  const fs::path directory = text::directory_of_model(named);
  const text::TrainedPart learnt = text::trained_part_from_name(options.get_string("loss_scale"),
                                                                options.given_as("loss_scale"));
  Json variables;
  if (options.has_value("enable_thinking"))
    variables = Json{{"enable_thinking", options.get_bool("enable_thinking")}};
  const bool may_be_unknown = !options.get_bool_or("enable_thinking", false);
  const std::string named_template = options.get_string_or("prompt_type", "");
  text.embeds_plainly =
      named_template.empty() && !settings::embedded_by_template(directory).value_or(true);
  const text::TemplateRequest request{
      .named = named_template,
      .templates_file = options.get_string_or("prompt_type_path", ""),
      .recorded_in = directory,
      .family_default = arch::default_template_in(directory)};
  text.make_chat_encoder = [learnt, variables, may_be_unknown,
                            request](std::shared_ptr<const text::Tokenizer> tokenizer) {
    const auto with = [&](const Json& arguments) {
      const text::TemplateChoice choice = text::choose_template(tokenizer, request, arguments);
      text::report_idle_arguments(*tokenizer, choice, arguments);
      return text::with_trained_part(choice.required(), tokenizer, learnt);
    };
    if (variables.is_null() || !may_be_unknown) return with(variables);
    try {
      return with(variables);
    } catch (const UsageError&) {
      return with(Json());  // without thoughts is how such a template writes anyway
    }
  };
  return text;
}

/// fmt::print throws where standard output cannot be written; what was made is complete all the
/// same.
template <typename... T>
void say(fmt::format_string<T...> format, T&&... values) {
  std::fputs(fmt::format(format, std::forward<T>(values)...).c_str(), stdout);
}

/// The command that trains on such samples.
const char* training_for(data::SampleKind kind) {
  switch (kind) {
    case data::SampleKind::kTokens:
      return "sft";
    case data::SampleKind::kPairs:
      return "posttrain --stage=dpo";
    case data::SampleKind::kUnpaired:
      return "rlhf --rlhf_type=kto";
    case data::SampleKind::kSteps:
      return "posttrain --stage=prm";
    case data::SampleKind::kPrompts:
      return "rlhf --rlhf_type=grpo";
    case data::SampleKind::kLabelled:
      return "sft --task_type=seq_cls";
    case data::SampleKind::kGroups:
      return "sft --task_type=embedding";
  }
  return "sft";
}

void print_result(const data::PreprocessResult& result, const std::string& prefix, double seconds) {
  std::fputs(result.report.text().c_str(), stdout);
  for (const auto& output : result.outputs) say("written   {}.bin, .idx\n", output.string());
  const auto rows = static_cast<double>(result.report.rows_read);
  say("time      {}: {} rows/s, {:.1f} MB/s, {} tokens/s\n", format_duration(seconds),
      format_count(static_cast<uint64_t>(rows / seconds)),
      static_cast<double>(result.input_bytes) / 1e6 / seconds,
      format_count(
          static_cast<uint64_t>(static_cast<double>(result.report.lengths.sum) / seconds)));
  const bool is_text = result.kind == data::SampleKind::kTokens && result.report.target_tokens == 0;
  say("next      danlu {} --model DIR --data-path {}\n",
      is_text ? "pretrain" : training_for(result.kind),
      is_text ? result.outputs[0].string() : prefix);
}

}  // namespace

OptionTable preprocess_options() {
  std::vector<OptionSpec> specs;
  for (auto group : {input_options(), text_options(), kind_options(), output_options(),
                     compatible_options(), media_options(), reinforcement_options()}) {
    specs.insert(specs.end(), group.begin(), group.end());
  }
  return OptionTable("preprocess", "Tokenise data sets into Megatron's .bin/.idx files",
                     "danlu preprocess --input FILE --tokenizer-name-or-path DIR --output-prefix "
                     "out/name [--handler-name NAME]",
                     std::move(specs));
}

int run_preprocess(const Options& given) {
  const Options options =
      settings::with_mm_data(given, {{"dataset", "input"},
                                     {"tokenizer", "tokenizer_name_or_path"},
                                     {"template", "prompt_type"},
                                     {"packing", "neat_pack"},
                                     {"val_dataset", ""},  // a data set of its own
                                     {"val_ratio", ""},
                                     {"shuffle", ""}});
  if (!options.has_value("input")) {
    throw UsageError(tr("[preprocess] --input is required: the data sets to read"),
                     tr("or --mm-data, MindSpeed-MM's data.json, which names them"));
  }
  if (options.has_value("merge_group_keys")) {
    const std::vector<std::string> inputs = options.get_list("input");
    if (inputs.size() != 1) throw UsageError(tr("[input] merging takes one directory"));
    for (const std::string& key : options.get_list("merge_group_keys")) {
      const auto output = data::merge_preprocessed(
          inputs[0], key, options.get_string("output_prefix"), options.get_bool("overwrite_cache"));
      say("written   {}.bin, .idx\n", output.string());
    }
    return 0;
  }
  watch_interrupts();
  const auto start = std::chrono::steady_clock::now();
  data::PreprocessSpec spec = spec_from(options);
  spec.media =
      settings::media_settings_from(options, text::directory_of_model(named_tokenizer(options)));
  if (spec.num_workers == 0) warn_of_many_threads();
  const data::PreprocessResult result = data::preprocess(spec, text_from(options));
  if (result.up_to_date) {
    say("up to date, nothing to do: {} rows are in {}_* from the same content "
        "(--overwrite-cache does the work again)\n",
        format_count(static_cast<uint64_t>(result.report.rows_kept)), spec.output_prefix.string());
    return 0;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  print_result(result, spec.output_prefix.string(), seconds.count());
  return 0;
}

}  // namespace danlu::cli
