#include "settings/options/embedding_options.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/lower_case.h"
#include "settings/embedding_files.h"

namespace danlu::settings {
namespace {

using EmbeddingLoss = EmbeddingConfig::Loss;

EmbeddingLoss embedding_loss_from(const Options& options) {
  const std::string name = lower_case(options.get_string_or("loss_type", "infonce"));
  std::string known;
  for (const EmbeddingLoss loss : {EmbeddingLoss::kContrast, EmbeddingLoss::kCosine,
                                   EmbeddingLoss::kMargin, EmbeddingLoss::kHardMargin}) {
    if (name == embedding_loss_name(loss)) return loss;
    known += (known.empty() ? "" : ", ") + std::string(embedding_loss_name(loss));
  }
  throw UsageError(
      tr("[train] {} {}: {} has no such loss", options.given_as("loss_type"), name, "embedding"),
      tr("it has {}", known));
}

std::vector<EmbeddingConfig::Prefix> prefixes_from(const Options& options) {
  std::vector<EmbeddingConfig::Prefix> prefixes;
  if (!options.has_value("mrl_dims")) return prefixes;
  const Json sizes = options.get_json("mrl_dims");
  const auto refuse = [&](const std::string& what) {
    throw UsageError("[train] " + options.given_as("mrl_dims") + ": " + what,
                     tr("sizes and weights, such as '{}'", R"({"64": 1.0, "256": 0.5})"));
  };
  if (!sizes.is_object() || sizes.empty()) refuse(tr("no sizes with weights"));
  for (const auto& [size, weight] : sizes.items()) {
    int64_t number = 0;
    const char* const end = size.data() + size.size();
    const auto read = std::from_chars(size.data(), end, number);
    if (read.ec != std::errc() || read.ptr != end || number < 1)
      refuse(tr("\"{}\" is no size", size));
    if (!weight.is_number() || !(weight.get<double>() > 0))
      refuse(tr("the weight of {} is no number above 0", size));
    prefixes.push_back({number, weight.get<double>()});
  }
  std::sort(prefixes.begin(), prefixes.end(),
            [](const auto& a, const auto& b) { return a.size < b.size; });
  return prefixes;
}

std::vector<std::string> parameters_of_head(const arch::ModelConfig& model) {
  std::vector<std::string> names;
  for (const arch::ParamSpec& spec : arch::parameters_of(model))
    if (spec.role == arch::Role::kHead && spec.tied_to.empty()) names.push_back(spec.name);
  return names;
}

/// Vectors have no part of the head: nothing would teach it, and weight decay would move it.
void leave_head(const arch::ModelConfig& model, TrainConfig& config) {
  for (const std::string& name : parameters_of_head(model)) {
    if (config.tuner != Tuner::kLora) {
      std::string pattern = "^";
      for (const char c : name) pattern += c == '.' ? std::string("\\.") : std::string(1, c);
      config.freeze.push_back(pattern + "$");
      continue;
    }
    for (const std::string& entry : config.lora.modules_to_save) {
      if (!weights::is_named(arch::module_of(name), entry)) continue;
      throw UsageError(tr("[train] {} {}: vectors of texts have no part of the head",
                          config.flag("lora_modules_to_save"), entry),
                       tr("leave it out"));
    }
  }
}

}  // namespace

void take_embedding(const Options& options, ObjectiveConfig& config) {
  config.kind = ObjectiveKind::kEmbedding;
  EmbeddingConfig& embedding = config.embedding;
  embedding.loss = embedding_loss_from(options);
  embedding.prefixes = prefixes_from(options);
  embedding.temperature = options.get_float("infonce_temperature");
  embedding.in_batch = options.get_bool("infonce_use_batch");
  embedding.hard_negatives = options.get_int_or("infonce_hard_negatives", 0);
  embedding.masks_fakes = options.get_bool("infonce_mask_fake_negative");
  embedding.fake_margin = options.get_float("infonce_fake_neg_margin");
  embedding.among_anchors = options.get_bool("infonce_include_qq");
  embedding.among_positives = options.get_bool("infonce_include_dd");
}

bool embeds_by_template(const std::filesystem::path& model) {
  return embedded_by_template(model).value_or(true);
}

void fit_embedding(const Options& options, const arch::ModelConfig& model, TrainConfig& config) {
  const EmbeddingConfig& embedding = config.objective.embedding;
  for (const EmbeddingConfig::Prefix& prefix : embedding.prefixes) {
    if (prefix.size <= model.hidden_size) continue;
    throw UsageError(tr("[train] {}: {} numbers of a vector, the model's have {}",
                        options.given_as("mrl_dims"), prefix.size, model.hidden_size));
  }
  leave_head(model, config);
  if (!embedding.compares_batch()) return;
  const bool is_lone = config.batch.micro_batch_size * config.mesh.data == 1;
  if (is_lone && !config.data.pack_sequences)
    log::warning(
        "{}: a row is compared with no other, as a micro-batch has one; --per_device_train_"
        "batch_size says how many",
        config.said("loss_type", embedding_loss_name(embedding.loss)));
  if (!config.data.share_passes) return;
  config.data.share_passes = false;
  if (options.is_given("packing"))
    log::notice(
        "{}: {} compares the rows of a micro-batch with each other, and it stays one pass; passes "
        "have no padding anyway",
        options.given_as("packing"), embedding_loss_name(embedding.loss));
}

}  // namespace danlu::settings
