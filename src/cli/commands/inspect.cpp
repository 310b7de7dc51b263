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
#include "cli/commands/inspect_rows.h"
#include "data/megatron/describe.h"
#include "text/template_choice.h"
#include "text/tokenizer.h"
#include "weights/describe.h"
#include "weights/peft.h"
#include "weights/tensor_source.h"

namespace danlu::cli {
namespace {

void print_line(std::string_view label, const std::string& text) {
  std::fputs(fmt::format("  {:<12}{}\n", label, text).c_str(), stdout);
}
void print_title(const fs::path& path, std::string_view kind) {
  std::fputs(fmt::format("{}: {}\n", path.string(), kind).c_str(), stdout);
}

bool holds(const fs::path& directory, const char* name) { return fs::exists(directory / name); }

// --- models ------------------------------------------------------------------------------------

std::string rope_text(const arch::ModelConfig& config) {
  if (config.alibi) return "ALiBi";
  constexpr const char* kScaling[] = {"", ", linear", ", dynamic", ", llama3", ", yarn"};
  const double theta = config.rope.theta;
  // 1000000, not 1e+06: people compare it with config.json.
  std::string text =
      fmt::format("rotary, theta {}{}",
                  theta == std::floor(theta) && theta < 1e15 ? fmt::format("{:.0f}", theta)
                                                             : fmt::format("{}", theta),
                  kScaling[static_cast<int>(config.rope.scaling)]);
  if (config.rope.scaling != arch::RopeScaling::kNone)
    text += fmt::format(" scaling by {:g}", config.rope.factor);
  return text;
}

std::string attention_text(const arch::ModelConfig& config) {
  std::vector<std::string> parts = {rope_text(config)};
  if (config.qkv_bias) parts.push_back("q/k/v bias");
  if (config.qk_norm) parts.push_back("q/k norm");
  if (config.qkv_layout != arch::QkvLayout::kSeparate) parts.push_back("fused q/k/v");
  const auto sliding = std::count_if(config.sliding_window.begin(), config.sliding_window.end(),
                                     [](int64_t w) { return w > 0; });
  if (sliding > 0) {
    const int64_t window =
        *std::max_element(config.sliding_window.begin(), config.sliding_window.end());
    parts.push_back(
        fmt::format("window of {} in {} of {} layers", window, sliding, config.num_layers));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string experts_text(const arch::ModelConfig& config) {
  const arch::ExpertConfig& experts = config.experts;
  const auto sparse = std::count(experts.sparse_layer.begin(), experts.sparse_layer.end(), true);
  std::string text = fmt::format("{} of width {}, {} for each token", experts.count,
                                 experts.ffn_size, experts.per_token);
  if (experts.shared_ffn_size > 0)
    text += fmt::format(", a shared one of width {}", experts.shared_ffn_size);
  if (sparse < config.num_layers)
    text += fmt::format(", in {} of {} layers", sparse, config.num_layers);
  return text;
}

void print_config(const arch::ModelConfig& config) {
  const arch::Family& family = arch::family_named(config.family);
  print_line("family", fmt::format("{} ({})", config.family, family.architectures.front()));
  print_line("parameters",
             fmt::format("{}{}", format_count(static_cast<uint64_t>(arch::parameter_count(config))),
                         config.tie_embeddings ? ", head tied to the embedding" : ""));
  print_line("shape",
             fmt::format(
                 "{} layers, width {}, {} heads of {} ({} KV), FFN {}, vocabulary {}, positions {}",
                 config.num_layers, config.hidden_size, config.num_heads, config.head_dim,
                 config.num_kv_heads, config.ffn_size, config.vocab_size,
                 config.max_positions > 0 ? std::to_string(config.max_positions) : "unlimited"));
  if (config.has_experts()) print_line("experts", experts_text(config));
  print_line("attention", attention_text(config));
  if (!config.eos_ids.empty())
    print_line("stops at", fmt::format("ids {}", fmt::join(config.eos_ids, ", ")));
}

/// The template that training, chat and infer take for this directory, asked of the code they use.
std::string template_text(const fs::path& directory) {
  try {
    const text::TemplateChoice choice = text::choose_template(
        text::Tokenizer::load(directory),
        {.recorded_in = directory, .family_default = arch::default_template_in(directory)});
    if (!choice.encoder) return "none; conversations need --template NAME (plain text needs none)";
    if (choice.is_news())
      return fmt::format("{}, {}", choice.encoder->description(), choice.reason);
    return choice.encoder->description();
  } catch (const Error& e) {
    return fmt::format("cannot be used: {}", e.what());
  }
}

void print_companions(const fs::path& directory) {
  std::vector<std::string> tokenizer;
  for (const char* name :
       {"tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "tokenizer_config.json"}) {
    if (holds(directory, name)) tokenizer.push_back(name);
  }
  print_line("tokenizer",
             tokenizer.empty() ? "none here" : fmt::format("{}", fmt::join(tokenizer, ", ")));
  if (tokenizer.empty()) return;
  print_line("template", template_text(directory));
}

void print_weights(const weights::TensorSource& source, bool every_tensor) {
  print_line("weights", weights::describe_totals(source));
  if (!source.metadata().empty()) {
    print_line("metadata", source.metadata().dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  std::fputs(weights::describe_tensor_table(source, every_tensor).c_str(), stdout);
}

void print_fit(const arch::ModelConfig& config, const weights::TensorSource& source) {
  constexpr size_t kShown = 10;
  const std::vector<std::string> problems = weights::mismatches(config, source);
  if (problems.empty()) return print_line("check", "names and shapes fit config.json");
  print_line("check", fmt::format("{} tensors do not fit config.json:", problems.size()));
  for (size_t i = 0; i < std::min(problems.size(), kShown); ++i) print_line("", problems[i]);
  if (problems.size() > kShown)
    print_line("", fmt::format("and {} more", problems.size() - kShown));
}

void inspect_model(const fs::path& directory, bool every_tensor) {
  print_title(directory, "Hugging Face model directory");
  std::optional<arch::ModelConfig> config;
  try {
    config = arch::load_model_config(directory);
    print_config(*config);
  } catch (const ModelError& e) {
    // Weights and tokenizer can be looked at all the same.
    print_line("family", fmt::format("cannot be used: {}", e.what()));
  }
  print_companions(directory);
  if (!weights::has_weights(directory)) return print_line("weights", "none here");
  const auto source = weights::open_weights(directory);
  if (config) print_fit(*config, *source);
  print_weights(*source, every_tensor);
}

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
  const fs::path file =
      directory / (holds(directory, "adapter_model.safetensors") ? "adapter_model.safetensors"
                                                                 : "adapter_model.bin");
  print_weights(*weights::open_weights(file), every_tensor);
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

void print_checkpoint(const fs::path& directory) {
  const bool complete = holds(directory, "DONE");
  std::string text = complete ? "complete" : "incomplete: writing it was interrupted";
  if (complete) text += fs::exists(directory / "optim") ? ", can be resumed" : ", model only";
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
  throw IoError(fmt::format("{}: {}", path.string(),
                            loop ? "its symbolic links lead back to themselves"
                                 : "cannot be looked at: " + error.message()));
}

void inspect_path(const fs::path& path, const Options& options) {
  require_reachable(path);
  const bool every_tensor = options.get_bool_or("tensors", false);
  if (fs::is_directory(path)) {
    const bool is_run = !checkpoints_of(path).empty() || holds(path, "logging.jsonl");
    if (is_run) inspect_run(path);
    if (holds(path, "DONE")) print_checkpoint(path);
    if (holds(path, "config.json")) return inspect_model(path, every_tensor);
    if (holds(path, "adapter_config.json")) return inspect_adapter(path, every_tensor);
    if (is_run) return;
  }
  if (const std::string prefix = dataset_prefix(path); !prefix.empty())
    return inspect_dataset(prefix, options);
  // A path that is there, and what only data sets are called by: path:split#n, a glob, a name.
  const bool is_index_of_weights = path.string().ends_with(".index.json");
  const bool may_be_rows = path.filename() != "config.json" && !is_index_of_weights &&
                           !(fs::is_directory(path) && weights::has_weights(path));
  if (may_be_rows && is_row_dataset(path.string())) return inspect_rows(path.string(), options);
  if (!fs::exists(path))
    throw IoError(fmt::format("{}: no such file, directory or data set prefix", path.string()));
  if (path.filename() == "config.json") {
    print_title(path, "model configuration");
    return print_config(arch::load_model_config(path));
  }
  const auto source = weights::open_weights(path);
  print_title(path,
              fs::is_directory(path) ? "directory of weights without config.json" : "weight file");
  print_weights(*source, every_tensor);
}

}  // namespace

OptionTable inspect_options() {
  return OptionTable(
      "inspect", "say what a model, weight file, adapter, data set or run is",
      "danlu inspect PATH [flags]",
      {{.name = "tensors",
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
        .aliases = {"tokenizer", "tokenizer_name_or_path"}}});
}

int run_inspect(const Options& options) {
  if (options.positional().empty()) {
    throw UsageError("[inspect] name a path: danlu inspect PATH",
                     {"a model directory, a weight file, an adapter, a data set, the prefix of an "
                      ".idx file, or a "
                      "run",
                      "可以是模型目录、权重文件、适配器、数据集、.idx 前缀或训练目录"});
  }
  inspect_path(options.positional()[0], options);
  return 0;
}

}  // namespace danlu::cli
