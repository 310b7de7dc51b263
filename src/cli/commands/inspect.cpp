// `danlu inspect PATH`: what is this? Models, weight files, adapters, data sets, runs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "arch/model_config.h"
#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"
#include "cli/commands/commands.h"
#include "cli/commands/inspect_model.h"
#include "cli/commands/inspect_rows.h"
#include "cli/commands/media_options.h"
#include "data/megatron/describe.h"
#include "data/readers/data_files.h"
#include "settings/options/model_names.h"
#include "text/tokenizer.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/lora/peft.h"
#include "weights/native/machine_part.h"
#include "weights/tensor_source.h"

namespace danlu::cli {
namespace {

bool holds(const fs::path& directory, const char* name) { return fs::exists(directory / name); }

// --- adapters ----------------------------------------------------------------------------------

void inspect_adapter(const fs::path& directory, bool every_tensor) {
  print_title(directory, "PEFT adapter directory");
  const weights::PeftConfig config = weights::load_peft_config(directory);
  print_line("kind", fmt::format("LoRA{}{}, rank {}, alpha {:g}, dropout {:g}",
                                 config.rslora ? " (rsLoRA)" : "", config.dora ? " (DoRA)" : "",
                                 config.rank, config.alpha, config.dropout));
  print_line("base model", config.base_model.empty() ? "not named" : config.base_model);
  print_line("targets", fmt::format("{}", fmt::join(config.target_modules, ", ")));
  if (!config.modules_to_save.empty())
    print_line("also saves", fmt::format("{}", fmt::join(config.modules_to_save, ", ")));
  if (!holds(directory, "adapter_model.safetensors") && !holds(directory, "adapter_model.bin")) {
    return print_line("weights", "none here");
  }
  print_weights(*weights::open_weights(directory), every_tensor);
}

// --- runs --------------------------------------------------------------------------------------

std::vector<std::pair<int64_t, fs::path>> checkpoints_of(const fs::path& run) {
  constexpr std::string_view kStart = "checkpoint-";
  std::vector<std::pair<int64_t, fs::path>> found;
  for (const auto& entry : fs::directory_iterator(run)) {
    const std::string name = entry.path().filename().string();
    const std::string step = name.rfind(kStart, 0) == 0 ? name.substr(kStart.size()) : "";
    const bool number = !step.empty() && step.size() < 18 &&
                        step.find_first_not_of("0123456789") == std::string::npos;
    if (number && entry.is_directory()) found.emplace_back(std::stoll(step), entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// Machines that shared no storage have a part each, and it takes all parts to resume.
void print_part(const weights::MachinePart& part) {
  std::string text = part.has_model ? "the model and " : "";
  text += weights::describe(part);
  text += part.has_model ? "; the rest is on the job's other machines"
                         : "; the model is on machine 0, the rest on the job's other machines";
  print_line("this machine", text);
}

void print_checkpoint(const fs::path& directory) {
  if (const auto part = weights::machine_part(directory); part && !part->is_all()) {
    const std::string name = directory.filename().string();
    print_line("checkpoint", name + ": one machine's part, can be resumed by all of them together");
    return print_part(*part);
  }
  const bool complete = holds(directory, "DONE");
  std::string text = complete ? "complete" : "incomplete: writing it was interrupted";
  if (complete)
    text += fs::exists(directory / "optim") ? ", can be resumed (which compares checksums)"
                                            : ", model only";
  print_line("checkpoint", fmt::format("{}: {}", directory.filename().string(), text));
}

void inspect_run(const fs::path& run) {
  print_title(run, "training run");
  for (const auto& [step, directory] : checkpoints_of(run)) print_checkpoint(directory);
  for (const char* link : {"best", "last"}) {
    if (fs::is_symlink(run / link)) print_line(link, fs::read_symlink(run / link).string());
  }
  if (!holds(run, "logging.jsonl")) return;
  const std::string log = read_file(run / "logging.jsonl");
  const size_t end = log.find_last_not_of('\n');
  if (end == std::string::npos) return;
  const size_t before = log.rfind('\n', end);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  print_line("log ends", log.substr(begin, end + 1 - begin));
}

// --- data sets ---------------------------------------------------------------------------------

/// The prefix if `path` is one of an indexed data set, or its .idx or .bin file; else "".
std::string dataset_prefix(const fs::path& path) {
  const std::string text = path.string();
  const bool by_file = path.extension() == ".idx" || path.extension() == ".bin";
  std::string prefix = by_file ? text.substr(0, text.size() - 4) : text;
  for (const char* ending : {".idx", "_packed_input_ids_document.idx", "_text_document.idx"}) {
    if (fs::exists(prefix + ending)) return prefix;
  }
  return {};
}

void inspect_dataset(const std::string& prefix, const Options& options) {
  std::optional<int64_t> sample;
  if (options.is_set("sample")) sample = options.get_int("sample");
  data::DecodeIds decode;
  if (options.is_set("model")) {
    const auto tokenizer = text::Tokenizer::load(options.get_string("model"));
    decode = [tokenizer](const std::vector<int32_t>& ids) { return tokenizer->decode(ids); };
  }
  std::fputs(data::describe_dataset(prefix, sample, decode).c_str(), stdout);
}

/// Errors: IoError if the path leads nowhere that can be looked at; a name that is no path passes.
void require_reachable(const fs::path& path) {
  std::error_code error;
  (void)fs::status(path, error);
  if (!error || error == std::errc::no_such_file_or_directory ||
      error == std::errc::not_a_directory || error == std::errc::filename_too_long)
    return;
  const bool loop = error == std::errc::too_many_symbolic_link_levels;
  throw IoError(tr("{}: {}", path.string(),
                   loop ? tr("its symbolic links lead back to themselves")
                        : tr("cannot be looked at: {}", error.message())));
}

/// Below a directory without rows of its own, everything would else be read as rows, a model's
/// config.json too.
void refuse_directory_of_models(const fs::path& path) {
  if (!fs::is_directory(path) || weights::detect_format(path)) return;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.is_regular_file() && data::file_type_of(entry.path())) return;
  }
  const std::string below = weights::hint_of_models_below(path);
  if (below.empty()) return;
  throw ModelError(tr("{}: no model and no rows in this directory itself", path.string()), below);
}

void inspect_path(const fs::path& path, const Options& options) {
  require_reachable(path);
  const bool every_tensor = options.get_bool_or("tensors", false);
  if (fs::is_directory(path)) {
    const bool is_run = !checkpoints_of(path).empty() || holds(path, "logging.jsonl");
    if (is_run) inspect_run(path);
    const auto part = weights::machine_part(path);
    const bool is_part = part && !part->has_model && !is_run;
    if (is_part) print_title(path, "one machine's part of a training checkpoint");
    if (holds(path, "DONE")) print_checkpoint(path);
    if (is_part) return;
    if (inspect_state(path, every_tensor)) return;
    const auto format = weights::detect_format(path);
    if (format == weights::Format::kMegatron) return inspect_megatron(path, every_tensor);
    if (format == weights::Format::kNative) return inspect_native(path, every_tensor);
    if (holds(path, "config.json")) return inspect_model(path, every_tensor);
    if (holds(path, "adapter_config.json")) return inspect_adapter(path, every_tensor);
    if (is_run) return;
  }
  if (const std::string prefix = dataset_prefix(path); !prefix.empty())
    return inspect_dataset(prefix, options);
  refuse_directory_of_models(path);
  // A path that is there, and what only data sets are called by: path:split#n, a glob, a name.
  const bool is_index_of_weights = path.string().ends_with(".index.json");
  const bool may_be_rows = path.filename() != "config.json" && !is_index_of_weights &&
                           !(fs::is_directory(path) && weights::has_weights(path));
  if (may_be_rows && is_row_dataset(path.string())) return inspect_rows(path.string(), options);
  if (!fs::exists(path)) {
    const fs::path cached = settings::located_if_named(path.string());
    if (cached != path) return inspect_path(cached, options);
    throw IoError(tr("{}: no such file, directory or data set prefix", path.string()));
  }
  if (path.filename() == "config.json") {
    print_title(path, "model configuration");
    return print_config(arch::load_model_config(path, arch::Heads::kAny));
  }
  const auto source = weights::open_weights(path);
  const bool is_gguf = weights::detect_format(path) == weights::Format::kGguf;
  print_title(path, fs::is_directory(path) ? "directory of weights without config.json"
                    : is_gguf              ? "GGUF file"
                                           : "weight file");
  if (is_gguf) print_gguf_tokenizer(path);
  print_weights(*source, every_tensor);
}

}  // namespace

OptionTable inspect_options() {
  std::vector<OptionSpec> specs = {
      {.name = "path", .help = "what to look at (or the first word)", .word = 1},
      {.name = "tensors",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "list every tensor with its file instead of one line per kind"},
      {.name = "sample",
       .type = OptionType::kInt,
       .help = "data sets: show this row or sequence (from 0)",
       .range = at_least(0)},
      {.name = "model",
       .type = OptionType::kString,
       .help =
           "data sets: model directory or tokenizer file; shows a row as training sees it, ids as "
           "text",
       .aliases = {"tokenizer", "tokenizer_name_or_path"}}};
  const std::vector<OptionSpec> media = media_options();
  specs.insert(specs.end(), media.begin(), media.end());
  return OptionTable("inspect", "say what a model, weight file, adapter, data set or run is",
                     "danlu inspect PATH [flags]", std::move(specs));
}

int run_inspect(const Options& options) {
  if (!options.is_set("path")) {
    throw UsageError(tr("[inspect] name a path: danlu inspect PATH"),
                     tr("a model directory, a weight file, an adapter, a data set, the prefix of "
                        "an .idx file, or a run"));
  }
  inspect_path(options.get_string("path"), options);
  return 0;
}

}  // namespace danlu::cli
