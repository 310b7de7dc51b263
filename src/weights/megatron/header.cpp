// What a Megatron checkpoint's pickles say before tensors are looked at.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "weights/megatron/arguments.h"
#include "weights/megatron/checkpoint.h"
#include "weights/megatron/found_stages.h"
#include "weights/torch/torch_document.h"

namespace danlu::weights::megatron {
namespace {

using torch_file::TorchDocument;

std::filesystem::path model_file(const Place& place, const std::string& rank) {
  const std::filesystem::path file = place.directory / rank / kModelFile;
  if (!std::filesystem::exists(file)) {
    throw ModelError(tr("{}: {} is missing", (place.directory / rank).string(), kModelFile),
                     tr("copy this rank's folder again"));
  }
  return file;
}

bool any_name(const TorchDocument& document, std::string_view part) {
  return std::any_of(document.tensors.begin(), document.tensors.end(), [&](const TensorInfo& info) {
    return info.name.starts_with("model") && info.name.find(part) != std::string::npos;
  });
}

void note_form(const TorchDocument& document, Form& form) {
  if (any_name(document, "language_model.")) form.dialect = Dialect::kLegacy;
  if (any_name(document, ".layer_norm_weight")) form.dialect = Dialect::kTransformerEngine;
  if (any_name(document, ".text_decoder.") || any_name(document, ".image_encoder."))
    form.dialect = Dialect::kMindSpeedMm;
  if (any_name(document, "self_attention.linear_kv_up_proj.")) form.latent = LatentForm::kMegatron;
  if (any_name(document, "self_attention.linear_kv_nope."))
    form.latent = LatentForm::kMindSpeedSplit;
  if (any_name(document, ".mtp.layers.")) form.latent = LatentForm::kMegatron;
  if (any_name(document, "mlp.experts.weight1")) form.experts = ExpertForm::kGrouped;
  for (const char* fc1 : {"weight0", "base_layer.weight0", "lora_A.default.weight0"}) {
    if (any_name(document, fmt::format("mlp.experts.linear_fc1.{}", fc1)))
      form.experts = ExpertForm::kTeGrouped;
  }
}

/// The numbers of "mp_rank_00_001", which is_rank_folder keeps small.
std::vector<int64_t> numbers_in_folder(const std::string& rank) {
  std::vector<int64_t> parts;
  for (size_t begin = std::string_view("mp_rank_").size(); begin <= rank.size();) {
    const size_t end = std::min(rank.find('_', begin), rank.size());
    parts.push_back(std::stoll(rank.substr(begin, end - begin)));
    begin = end + 1;
  }
  return parts;
}

/// Whether a second number is an expert rank: those hold the embedding each, of the stages only the
/// first does. Adapters alone have none; experts decide then.
bool is_second_expert(const std::vector<std::string>& ranks,
                      const std::vector<int64_t>& embedding_rows, bool has_experts) {
  bool any = false, on_other = false;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const std::vector<int64_t> parts = numbers_in_folder(ranks[i]);
    any |= embedding_rows[i] > 0;
    on_other |= embedding_rows[i] > 0 && parts.size() > 1 && parts[1] > 0;
  }
  return any ? on_other : has_experts;
}

/// Without args the folders' numbers are all there is.
Split split_of_folders(const std::vector<std::string>& ranks, bool second_is_expert) {
  std::vector<int64_t> largest;
  for (const std::string& rank : ranks) {
    const std::vector<int64_t> parts = numbers_in_folder(rank);
    largest.resize(std::max(largest.size(), parts.size()));
    for (size_t i = 0; i < parts.size(); ++i) largest[i] = std::max(largest[i], parts[i]);
  }
  Split split;
  split.tp = largest[0] + 1;
  if (largest.size() == 3) {
    split.pp = largest[1] + 1;
    split.ep = largest[2] + 1;
  } else if (largest.size() == 2) {
    (second_is_expert ? split.ep : split.pp) = largest[1] + 1;
  }
  return split;
}

void check_ranks(const Place& place, const Split& split) {
  constexpr int64_t kMost = 4096, kMostRanks = 1 << 16;
  const auto [least, most] = std::minmax({split.tp, split.pp, split.ep});
  if (least < 1 || most > kMost || split.tp * split.pp * split.ep > kMostRanks) {
    throw ModelError(tr("{}: its args and folders say TP{} PP{} EP{}, which is no possible split",
                        place.directory.string(), split.tp, split.pp, split.ep));
  }
  std::set<std::string> expected;
  for (int64_t tp = 0; tp < split.tp; ++tp) {
    for (int64_t pp = 0; pp < split.pp; ++pp) {
      for (int64_t ep = 0; ep < split.ep; ++ep) expected.insert(rank_directory(split, tp, pp, ep));
    }
  }
  std::vector<std::string> missing, extra;
  std::set_difference(expected.begin(), expected.end(), place.ranks.begin(), place.ranks.end(),
                      std::back_inserter(missing));
  std::set_difference(place.ranks.begin(), place.ranks.end(), expected.begin(), expected.end(),
                      std::back_inserter(extra));
  if (missing.empty() && extra.empty()) return;
  throw ModelError(
      tr("{}: the checkpoint was saved as {}, so there must be {} rank folders; {}{}{}{}",
         place.directory.string(), describe(split), expected.size(),
         missing.empty() ? "" : fmt::format("missing: {}", fmt::join(missing, ", ")),
         !missing.empty() && !extra.empty() ? "; " : "",
         extra.empty() ? "" : tr("not of it: {}", fmt::join(extra, ", ")), ""),
      tr("a copy may be incomplete, or two checkpoints are mixed in one folder"));
}

/// Rows of the embedding on one tensor rank; 0 if this file holds none.
int64_t embedding_rows(const TorchDocument& document) {
  for (const TensorInfo& info : document.tensors) {
    if (info.name.starts_with("model") && !info.name.starts_with("model.optimizer") &&
        info.name.ends_with("embedding.word_embeddings.weight") && !info.shape.empty() &&
        info.name.find(".mtp_layers.") == std::string::npos)
      return info.shape[0];
  }
  return 0;
}

/// What every rank must say alike.
void check_same_run(const TorchDocument& document, const std::filesystem::path& file,
                    const TorchDocument& first, const std::filesystem::path& first_file) {
  const auto compare = [&](const PyValue& ours, const PyValue& theirs, const char* key) {
    const PyValue* here = ours.find(key);
    const PyValue* there = theirs.find(key);
    if (!here || !there || *here == *there) return;
    throw ModelError(tr("{} is of {} {}, {} of {} {}", file.string(), key, here->repr(),
                        first_file.string(), key, there->repr()),
                     tr("files of two saves are mixed: copy one whole iteration again"));
  };
  compare(document.root, first.root, "iteration");
  compare(document.root, first.root, "checkpoint_version");
  const PyValue* args = document.root.find("args");
  const PyValue* first_args = first.root.find("args");
  if (!args || !first_args) return;
  for (const char* key :
       {"tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size"})
    compare(*args, *first_args, key);
}

/// Megatron names the folder after the iteration it writes into the files.
void check_iteration(const TorchDocument& document, const std::filesystem::path& file,
                     const Place& place) {
  const PyValue* iteration = document.root.find("iteration");
  if (!place.iteration || !iteration || iteration->is_none()) return;
  const int64_t written = iteration->as_int(file.string() + ": iteration");
  if (written == *place.iteration) return;
  throw ModelError(tr("{}: iteration {} is in it, but its folder is {}", file.string(), written,
                      place.directory.filename().string()),
                   tr("was the folder renamed? {} is its name then", iteration_directory(written)));
}

/// Ranks' layers, joined by pipeline stage.
FoundStages stages_of(const std::vector<std::string>& ranks, std::vector<FoundChunks> chunks,
                      const Split& split) {
  std::vector<std::pair<int64_t, FoundChunks>> by_stage;
  for (size_t i = 0; i < ranks.size(); ++i)
    by_stage.emplace_back(split.pp > 1 ? numbers_in_folder(ranks[i])[1] : 0, std::move(chunks[i]));
  return join_stages(by_stage, split.pp);
}

void read_version(const TorchDocument& document, const std::filesystem::path& file,
                  Header& header) {
  const PyValue* version = document.root.find("checkpoint_version");
  if (!version) return;
  header.checkpoint_version = version->as_float(file.string() + ": checkpoint_version");
  if (header.checkpoint_version < 2.0) {
    throw ModelError(tr("{}: checkpoint_version {} keeps query, key and value rows in an "
                        "order that is no longer written; 2.0 and later are read",
                        file.string(), header.checkpoint_version),
                     tr("load and save it once with a Megatron-LM that knows both"));
  }
}

/// Megatron-core's own way of cutting experts over more ranks, unlike MindSpeed's
/// --moe-tp-extend-ep.
void refuse_other_expert_cut(const PyValue& args, const std::filesystem::path& file) {
  const PyValue* extended = args.find("moe_extended_tp");
  const PyValue* ep = args.find("expert_model_parallel_size");
  const bool is_one_expert_rank = !ep || ep->is_none() || *ep == PyValue::integer(1);
  if (!extended || !(*extended == PyValue::boolean(true)) || is_one_expert_rank) return;
  throw ModelError(
      tr("{}: saved with --moe-extended-tp, which cuts every expert over tensor and expert "
         "ranks; this layout is not read",
         file.string()),
      tr("save it without that option"));
}

/// What the ranks' files hold, as far as the header needs it.
struct Seen {
  bool experts = false, weights = false, prediction_tables = false, prediction_heads = false;
  std::vector<int64_t> embedding_rows;  ///< by rank
  std::vector<std::vector<TensorInfo>> tensors;
};

void note_rank(const TorchDocument& document, Header& header, Seen& seen) {
  note_form(document, header.form);
  header.has_optimizer |= document.root.find("optimizer") != nullptr;
  header.has_adapters |= any_name(document, ".lora_A.");
  header.has_score |= any_name(document, ".rm_head.");
  header.has_predictions |=
      any_name(document, ".mtp.layers.") || any_name(document, ".mtp_layers.");
  seen.prediction_tables |= any_name(document, ".mtp_layers.0.embedding.");
  seen.prediction_heads |= any_name(document, ".mtp_layers.0.output_layer.");
  seen.experts |= any_name(document, "mlp.experts.");
  seen.weights |= any_name(document, "layernorm.weight") || any_name(document, "_norm.weight") ||
                  any_name(document, "layer_norm_weight");
  seen.embedding_rows.push_back(embedding_rows(document));
  seen.tensors.push_back(document.tensors);
}

void find_split(const Seen& seen, const std::string& first_file, Header& header) {
  const Place& place = header.place;
  // MindSpeed-MM's args do not say what its models are: those have files of their own.
  const bool is_mm = header.form.dialect == Dialect::kMindSpeedMm;
  const bool has_sizes = !is_mm && header.args.find("tensor_model_parallel_size") != nullptr;
  header.split =
      has_sizes ? split_of_arguments(header.args, first_file)
                : split_of_folders(
                      place.ranks,
                      !is_mm && is_second_expert(place.ranks, seen.embedding_rows, seen.experts));
  const int64_t rows = *std::max_element(seen.embedding_rows.begin(), seen.embedding_rows.end());
  if (rows > 0) header.split.vocab_divisor = rows;
  check_ranks(place, header.split);
  const auto stages_by = [&](const std::string& layer) {
    std::vector<FoundChunks> chunks;
    for (const auto& of_rank : seen.tensors) chunks.push_back(find_chunks(of_rank, layer));
    return stages_of(place.ranks, std::move(chunks), header.split);
  };
  header.stages = stages_by(names_of(header.form.dialect).layer);
  if (is_mm) {
    header.split = with_lists(header.split, header.stages, stages_by(tower_names().block),
                              place.directory.string());
    return;
  }
  // Adapters may leave layers out: how many there are, config.json must say first.
  if (!header.only_adapters)
    header.split = with_stages(header.split, header.stages, place.directory.string());
}

}  // namespace

Header read_header(const std::filesystem::path& path, const OpenOptions& options) {
  Header header;
  header.place = find_checkpoint(path, options.iteration);
  const Place& place = header.place;
  TorchDocument first;
  const std::filesystem::path first_file = model_file(place, place.ranks.front());
  Seen seen;
  for (const std::string& rank : place.ranks) {
    const std::filesystem::path file = model_file(place, rank);
    TorchDocument document = torch_file::read_torch_document(file);
    if (!document.root.find("model") && !document.root.find("model0")) {
      throw ModelError(tr("{}: no \"model\" in it: not a Megatron checkpoint", file.string()));
    }
    note_rank(document, header, seen);
    if (&rank == &place.ranks.front()) {
      read_version(document, file, header);
      check_iteration(document, file, place);
      if (const PyValue* args = document.root.find("args")) header.args = *args;
      first = std::move(document);
    } else {
      check_same_run(document, file, first, first_file);
    }
  }
  refuse_other_expert_cut(header.args, first_file);
  if (header.has_predictions) {
    header.form.prediction_tables = seen.prediction_tables;
    header.form.prediction_heads = seen.prediction_heads;
  }
  header.only_adapters = header.has_adapters && !seen.weights;
  find_split(seen, first_file.string(), header);
  return header;
}

}  // namespace danlu::weights::megatron
