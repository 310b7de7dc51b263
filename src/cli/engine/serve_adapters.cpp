#include "cli/engine/serve_adapters.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "cli/engine/model_record.h"
#include "cli/engine/ranking.h"
#include "cli/engine/served_vectors.h"
#include "cli/engine/trained_prompt.h"
#include "models/adapters.h"
#include "models/weight_files.h"
#include "settings/embedding_files.h"
#include "settings/model_changes.h"
#include "text/template_record.h"
#include "weights/lora/peft.h"
#include "weights/lora/trained_base.h"

namespace danlu::cli {
namespace {

namespace fs = std::filesystem;
using Named = AdapterFlags::Named;

Named named_by_json(const std::string& flag, const std::string& text) {
  const Json json = parse_json(text, flag);
  const auto word = [&](const char* key) {
    return json.contains(key) && json.at(key).is_string() ? json.at(key).get<std::string>() : "";
  };
  Named adapter{word("name"), word("path"), word("base_model_name")};
  if (!adapter.name.empty() && !adapter.path.empty()) return adapter;
  throw UsageError(tr("[{}] an adapter has \"name\" and \"path\", got {}", flag, text));
}

/// A directory may have a sign of equality in its name.
bool is_named_entry(const std::string& entry) {
  return entry.starts_with('{') || (entry.find('=') != entry.npos && !fs::exists(entry));
}

Named named_by(const std::string& flag, const std::string& entry) {
  if (entry.starts_with('{')) return named_by_json(flag, entry);
  const size_t sign = entry.find('=');
  if (sign == entry.npos || sign == 0 || sign + 1 == entry.size())
    throw UsageError(tr("[{}] adapters are given as NAME=DIR, got {}", flag, entry));
  return {entry.substr(0, sign), entry.substr(sign + 1)};
}

/// Beside other adapters the base stays as it is.
void report_base_in_nf4(const fs::path& adapter, const models::CausalLM& model) {
  if (!weights::recorded_nf4(adapter) || models::holds_nf4(model)) return;
  log::info("notice: {}", tr("{}: these adapters were trained on their base in NF4, and answer "
                             "otherwise here than they "
                             "did there; --quantize nf4 holds it so",
                             adapter.string()));
}

/// Errors: ModelError where the adapter was trained on positions that are stretched otherwise, or
/// on a vocabulary that it made larger.
void require_same_model(const fs::path& adapter, const arch::ModelConfig& config) {
  const settings::ModelChanges changes = settings::recorded_changes(adapter, config);
  if (changes.rows.vocab_size > config.vocab_size) {
    throw ModelError(
        tr("{}: trained with new tokens, {} rows, which the served model does not have",
           adapter.string(), changes.rows.vocab_size),
        tr("serve it alone with --adapters DIR, or merge it first"));
  }
  const arch::PositionChange& trained = changes.positions;
  if (trained.empty()) return;
  const arch::RopeConfig then = arch::with_positions(config, trained).rope;
  if (then.scaling == config.rope.scaling && then.factor == config.rope.factor &&
      then.original_max_positions == config.rope.original_max_positions)
    return;
  throw ModelError(tr("{}: trained with rope_scaling {}, which the served model does not have",
                      adapter.string(), dump_text(trained.scaling)),
                   tr("serve it alone with --adapters DIR, or the model with --rope_scaling"));
}

/// As it was trained, where the line does not say otherwise.
serve::AdapterPrompt prompt_beside_others(const Options& options, const ModelLocation& where,
                                          const InferenceModel& loaded, const fs::path& adapter) {
  serve::AdapterPrompt prompt;
  if (settings::is_embedding_record(text::read_record(adapter)))
    prompt.vectors = text_vectors(options, where.model, adapter);
  if (!loaded.encoder) return prompt;
  TrainedPrompt trained = trained_prompt(options, adapter);
  try {
    if (!trained.variables.empty()) encoder_with(options, where, loaded, trained.variables);
  } catch (const UsageError&) {
    trained.variables = Json::object();  // the template does not know them, and did not in training
  }
  report_trained_prompt(trained, adapter);
  if (options.is_set("system")) trained.system = loaded.system;
  prompt.system = std::move(trained.system);
  prompt.template_arguments = std::move(trained.variables);
  return prompt;
}

}  // namespace

AdapterFlags adapter_flags(const Options& options) {
  AdapterFlags adapters;
  for (const std::string& entry : options.get_list("lora_modules"))
    adapters.named.push_back(named_by(options.given_as("lora_modules"), entry));
  for (const std::string& entry : options.get_list("adapters")) {
    const std::string flag = options.given_as("adapters");
    if (is_named_entry(entry)) {
      adapters.named.push_back(named_by(flag, entry));
    } else if (adapters.own.empty()) {
      adapters.own = entry;
    } else {
      throw UsageError(tr("[{}] several adapters need names: {} has none", flag, entry),
                       tr("give --adapters NAME=DIR NAME=DIR"));
    }
  }
  if (!adapters.own.empty() && !adapters.named.empty()) {
    throw UsageError(tr("[{}] {} becomes a part of the model, beside which no other can be",
                        options.given_as("adapters"), adapters.own.string()),
                     tr("give it a name, too: --adapters NAME=DIR"));
  }
  for (size_t i = 0; i < adapters.named.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (adapters.named[i].name == adapters.named[k].name)
        throw UsageError(tr("[--lora_modules] two adapters are called {}", adapters.named[i].name));
    }
  }
  return adapters;
}

ModelLocation locate_served(const Options& options, const AdapterFlags& adapters) {
  const bool names_base = options.has_value("model") || options.has_value("model_type");
  if (names_base || adapters.named.empty()) return locate_model(options, adapters.own);
  ModelLocation where = locate_model(options, adapters.named.front().path);
  where.adapter.clear();
  return where;
}

serve::LoadAdapter adapter_loader(const Options& options, const ModelLocation& where,
                                  const InferenceModel& loaded) {
  return [&options, &where, &loaded](const std::string& text) -> serve::OpenedAdapter {
    const models::CausalLM& model = *loaded.model;
    const fs::path path = text;
    if (!fs::is_directory(path)) {
      throw ModelError(tr("{}: no such directory", path.string()),
                       did_you_mean_path(path) + tr("an adapter is a directory"));
    }
    if (where.ranks_by == RanksBy::kTokens) refuse_adapters_on_head(path);
    weights::report_other_base(path, where.model);
    report_base_in_nf4(path, model);
    require_same_model(path, model.config());
    warn_if_merged_already(where.model, path);
    const auto adapter = models::load_beside(model, path, lora_alpha_from(options));
    const int64_t most = options.get_int_or("max_lora_rank", 0);
    if (most > 0 && adapter->largest_rank > most) {
      throw ModelError(
          tr("{}: rank {} is above --max_lora_rank {}", path.string(), adapter->largest_rank, most),
          tr("give a larger --max_lora_rank, or none"));
    }
    return {adapter, prompt_beside_others(options, where, loaded, path)};
  };
}

}  // namespace danlu::cli
