// `danlu inspect` of models: Hugging Face directories, Megatron and native checkpoints.
#include "cli/commands/inspect_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <set>
#include <utility>

#include "arch/learned_positions.h"
#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"
#include "text/gguf_tokenizer.h"
#include "text/template_choice.h"
#include "text/tokenizer.h"
#include "weights/compare/describe.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/convert/optimizer_state.h"
#include "weights/hf/body_names.h"
#include "weights/hf/stored_form.h"
#include "weights/hf/tower_names.h"
#include "weights/native/native.h"

namespace danlu::cli {
namespace {

std::string rope_text(const arch::ModelConfig& config) {
  if (config.alibi) return "ALiBi";
  if (const int64_t rows = arch::learned_positions(config))
    return fmt::format("learned, {} rows", rows);
  constexpr const char* kScaling[] = {"",         ", linear", ", dynamic",
                                      ", llama3", ", yarn",   ", longrope"};
  const double theta = config.rope.theta;
  // 1000000, not 1e+06: people compare it with config.json.
  std::string text =
      fmt::format("rotary, theta {}{}",
                  theta == std::floor(theta) && theta < 1e15 ? fmt::format("{:.0f}", theta)
                                                             : fmt::format("{}", theta),
                  kScaling[static_cast<int>(config.rope.scaling)]);
  if (!config.rope.mrope_section.empty())
    text +=
        fmt::format(", of time, height and width by {}", fmt::join(config.rope.mrope_section, "/"));
  if (config.rope.scaling != arch::RopeScaling::kNone)
    text += fmt::format(" scaling by {:g}", config.rope.factor);
  if (config.rope.rotated_dims > 0) {
    text += fmt::format(", of {} of {} dimensions of a head", config.rope.rotated_dims,
                        config.head_dim);
  }
  return text;
}

std::string attention_text(const arch::ModelConfig& config) {
  std::vector<std::string> parts = {rope_text(config)};
  if (config.qkv_bias) parts.push_back("q/k/v bias");
  if (config.qk_norm) parts.push_back("q/k norm");
  if (config.has_post_norms) parts.push_back("norms behind attention and MLP");
  if (config.attention_softcap > 0)
    parts.push_back(fmt::format("scores capped at {:g}", config.attention_softcap));
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

std::string tower_text(const arch::VisionConfig& vision) {
  std::string text = fmt::format(
      "{} blocks, width {}, {} heads of {}, FFN {}{}, patches of {} pixels, {} to a token",
      vision.depth, vision.width, vision.num_heads, vision.width / vision.num_heads,
      vision.ffn_size, vision.is_gated ? " (gated)" : "", vision.patch_size,
      vision.merge_size * vision.merge_size);
  if (vision.window_size > 0) {
    text += fmt::format("; windows of {} pixels but in blocks {}", vision.window_size,
                        fmt::join(vision.full_blocks, ", "));
  }
  return text;
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
  for (const char* name : {"tokenizer.json", "tokenizer.model", "qwen.tiktoken", "vocab.json",
                           "merges.txt", "vocab.txt", "tokenizer_config.json"}) {
    if (fs::exists(directory / name)) tokenizer.push_back(name);
  }
  print_line("tokenizer",
             tokenizer.empty() ? "none here" : fmt::format("{}", fmt::join(tokenizer, ", ")));
  if (tokenizer.empty()) return;
  print_line("template", template_text(directory));
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

}  // namespace

void print_gguf_tokenizer(const fs::path& file) {
  try {
    const auto vocabulary = text::read_gguf_file_vocabulary(file);
    if (!vocabulary) return print_line("tokenizer", "none in it");
    print_line("tokenizer", fmt::format("in the file: {}, {}, {} tokens", vocabulary->model,
                                        vocabulary->pre, vocabulary->tokens.size()));
    print_line("template", template_text(file));
  } catch (const ModelError& e) {
    print_line("tokenizer", fmt::format("cannot be used: {}", e.what()));
  }
}

void print_line(std::string_view label, const std::string& text) {
  std::fputs(fmt::format("  {:<12}{}\n", label, text).c_str(), stdout);
}

void print_title(const fs::path& path, std::string_view kind) {
  std::fputs(fmt::format("{}: {}\n", path.string(), kind).c_str(), stdout);
}

std::string head_text(const arch::ScoreHead& head) {
  if (!head.problem) return ", a reward model's head";
  return fmt::format(", a classifier's head of {} labels ({})", head.labels,
                     arch::label_problem_name(*head.problem));
}

/// The class that config.json names where it has another head than the family's models.
std::string class_of(const arch::ModelConfig& config) {
  const auto named = config.raw.find("architectures");
  const bool is_named = config.score && named != config.raw.end() && named->is_array() &&
                        !named->empty() && named->front().is_string();
  return is_named ? named->front().get<std::string>()
                  : arch::family_named(config.family).architectures.front();
}

void print_config(const arch::ModelConfig& config) {
  print_line("family", fmt::format("{} ({})", config.family, class_of(config)));
  print_line("parameters",
             fmt::format("{}{}", format_count(static_cast<uint64_t>(arch::parameter_count(config))),
                         config.score            ? head_text(*config.score)
                         : config.tie_embeddings ? ", head tied to the embedding"
                                                 : ""));
  print_line("shape",
             fmt::format(
                 "{} layers, width {}, {} heads of {} ({} KV), FFN {}, vocabulary {}, positions {}",
                 config.num_layers, config.hidden_size, config.num_heads, config.head_dim,
                 config.num_kv_heads, config.ffn_size, config.vocab_size,
                 config.max_positions > 0 ? std::to_string(config.max_positions) : "unlimited"));
  if (config.has_experts()) print_line("experts", experts_text(config));
  print_line("attention", attention_text(config));
  if (config.vision) print_line("vision", tower_text(*config.vision));
  if (!config.eos_ids.empty())
    print_line("stops at", fmt::format("ids {}", fmt::join(config.eos_ids, ", ")));
}

namespace {

/// On one line where it is short, else a line for each key (GGUF).
void print_metadata(const Json& metadata) {
  const auto text = [](const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  if (metadata.size() <= 4) {
    if (!metadata.empty()) print_line("metadata", text(metadata));
    return;
  }
  std::string_view label = "metadata";
  for (const auto& [key, value] : metadata.items()) {
    print_line(label, fmt::format("{} = {}", key, text(value)));
    label = "";
  }
}

}  // namespace

void print_weights(const weights::TensorSource& source, bool every_tensor) {
  print_line("weights", weights::describe_totals(source));
  print_metadata(source.metadata());
  std::fputs(weights::describe_tensor_table(source, every_tensor).c_str(), stdout);
}

void inspect_model(const fs::path& directory, bool every_tensor) {
  print_title(directory, "Hugging Face model directory");
  std::optional<arch::ModelConfig> config;
  try {
    config = arch::load_model_config(directory, arch::Heads::kAny);
    print_config(*config);
  } catch (const ModelError& e) {
    // Weights and tokenizer can be looked at all the same.
    print_line("family", fmt::format("cannot be used: {}", e.what()));
  }
  print_companions(directory);
  if (!weights::has_weights(directory)) return print_line("weights", "none here");
  auto source = weights::open_weights(directory);
  if (config) {
    const auto as_stored =
        std::exchange(source, weights::with_hub_names(source, *config, directory));
    if (source != as_stored)
      print_line("names", "newer ones (model.visual., model.language_model.), shown as the hub's");
    source = weights::as_parameters(weights::with_body_names(source, *config), *config);
    print_fit(*config, *source);
  }
  print_weights(*source, every_tensor);
}

namespace {

/// The iterations beside the one that is looked at.
std::string other_iterations(const weights::megatron::Place& place) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(place.root)) {
    const std::string name = entry.path().filename();
    const bool is_one = name == "release" || name.starts_with("iter_");
    if (is_one && entry.is_directory() && entry.path() != place.directory) names.insert(name);
  }
  return names.empty() ? "" : fmt::format("; also here: {}", fmt::join(names, ", "));
}

std::string optimizer_text(const weights::megatron::Header& header) {
  if (!header.has_optimizer) return "none";
  const bool distributed = fs::exists(header.place.directory / header.place.ranks.front() /
                                      weights::megatron::kOptimizerFile);
  return distributed ? "Adam, distributed layout (distrib_optim.pt)" : "Adam, plain layout";
}

/// What args say of training, as far as they say it.
std::string arguments_text(const weights::torch_file::PyValue& args) {
  std::vector<std::string> parts;
  for (const char* key : {"hidden_size", "num_layers", "num_attention_heads", "ffn_hidden_size",
                          "padded_vocab_size", "params_dtype", "consumed_train_samples"}) {
    const auto* value = args.find(key);
    if (value && !value->is_none()) parts.push_back(fmt::format("{} {}", key, value->repr()));
  }
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", "));
}

/// The files as they are: how many, and what the first one holds.
void print_rank_files(const weights::megatron::Header& header, bool every_tensor) {
  uint64_t bytes = 0;
  for (const std::string& rank : header.place.ranks) {
    for (const auto& entry : fs::directory_iterator(header.place.directory / rank)) {
      if (entry.is_regular_file()) bytes += entry.file_size();
    }
  }
  print_line("files", fmt::format("{} ranks, {}", header.place.ranks.size(), format_bytes(bytes)));
  const fs::path first =
      header.place.directory / header.place.ranks.front() / weights::megatron::kModelFile;
  print_line("one rank", header.place.ranks.front());
  print_weights(*weights::open_torch_file(first), every_tensor);
}

/// Whether ranks hold the same norms, routers and other copies: converting reads the first's.
void print_copies(const weights::megatron::Checkpoint& checkpoint) {
  if (checkpoint.header.place.ranks.size() == 1) return;
  constexpr size_t kShown = 10;
  constexpr uint64_t kMostBytes = uint64_t{64} << 20;
  const std::vector<std::string> lines = checkpoint.differing_copies(kShown + 1, kMostBytes);
  if (lines.empty()) return print_line("copies", "all ranks agree");
  print_line("copies", "ranks do not agree; the first one's are read:");
  for (size_t i = 0; i < std::min(lines.size(), kShown); ++i) print_line("", lines[i]);
  if (lines.size() > kShown) print_line("", "and more");
}

}  // namespace

void inspect_megatron(const fs::path& path, bool every_tensor) {
  print_title(path, "Megatron checkpoint");
  const weights::megatron::Header header = weights::megatron::read_header(path);
  print_line("format", fmt::format("{}, checkpoint_version {:g}",
                                   weights::megatron::describe(header.form.dialect),
                                   header.checkpoint_version));
  print_line("split", weights::megatron::describe(header.split));
  print_line("iteration",
             (header.place.iteration ? std::to_string(*header.place.iteration) : "release") +
                 other_iterations(header.place));
  print_line("optimizer", optimizer_text(header));
  if (header.has_adapters)
    print_line("adapters", header.only_adapters ? "LoRA, without the base" : "LoRA and its base");
  print_line("args", arguments_text(header.args));
  try {
    const weights::megatron::Checkpoint source = weights::megatron::open_checkpoint(path);
    print_config(source.config);
    print_copies(source);
    if (source.companions.empty()) {
      print_line("config", "no config.json here: the family is what args describe");
      return print_rank_files(header, every_tensor);
    }
    print_companions(source.companions);
    print_weights(source.model ? *source.model : *source.adapters, every_tensor);
  } catch (const ModelError& e) {
    print_line("check", e.what());
    print_rank_files(header, every_tensor);
  }
}

void inspect_native(const fs::path& directory, bool every_tensor) {
  print_title(directory, "native checkpoint");
  const weights::native::Checkpoint opened = weights::native::open_checkpoint(directory);
  print_line("split", opened.split);
  print_line("iteration", std::to_string(opened.iteration));
  print_line("optimizer", opened.optimizer.tensors ? "Adam" : "none");
  if (fs::exists(directory / "config.json")) {
    const arch::ModelConfig config = arch::load_model_config(directory, arch::Heads::kAny);
    print_config(config);
    print_companions(directory);
    print_fit(config, *opened.model);
  }
  print_weights(*opened.model, every_tensor);
}

bool inspect_state(const fs::path& directory, bool every_tensor) {
  const auto state = weights::native::open_state(directory, /*some_elsewhere=*/true);
  if (!state) return false;
  const auto& tensors = state->tensors();
  const auto is_state = [](const weights::TensorInfo& tensor) {
    return weights::is_state(tensor.name);
  };
  if (tensors.empty() || !std::all_of(tensors.begin(), tensors.end(), is_state)) return false;
  const auto has = [&](std::string_view prefix) {
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const auto& tensor) { return tensor.name.starts_with(prefix); });
  };
  const char* const title =
      has("momentum.")       ? "an optimizer's state (Muon and Adam) in a training checkpoint"
      : has("low_norm.")     ? "an optimizer's state (APOLLO and Adam) in a training checkpoint"
      : has("low_avg.")      ? "an optimizer's state (GaLore and Adam) in a training checkpoint"
      : has("block_avg_sq.") ? "an optimizer's state (Adam-mini) in a training checkpoint"
                             : "an optimizer's state (Adam) in a training checkpoint";
  print_title(directory, title);
  const fs::path checkpoint = fs::absolute(directory / "").lexically_normal().parent_path();
  if (fs::exists(checkpoint.parent_path() / "DONE"))
    print_line("of", "danlu inspect " + checkpoint.parent_path().string() + " shows the model");
  print_line("files", std::to_string(state->files().size()));
  print_weights(*state, every_tensor);
  return true;
}

}  // namespace danlu::cli
