#include "settings/model_changes.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "text/template_record.h"
#include "weights/lora/adapter_places.h"
#include "weights/lora/peft.h"

namespace danlu::settings {
namespace {

constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "tokenizer.model", "vocab.json",
                                          "vocab.txt"};
constexpr const char* kOriginal = "original_max_position_embeddings";

/// How long the model's texts were before anything was stretched; 0: nobody says.
int64_t original_length(const arch::ModelConfig& model, const Json& scaling) {
  if (const auto said = json_get<int64_t>(scaling, kOriginal)) return *said;
  const Json old = arch::scaling_of(model.raw);
  if (const auto said = json_get<int64_t>(old, kOriginal)) return *said;
  const auto factor = json_get<double>(old, "factor");
  const auto positions = static_cast<double>(model.max_positions);
  return factor && *factor > 0 ? static_cast<int64_t>(std::floor(positions / *factor))
                               : model.max_positions;
}

/// Whether `factor` says how much longer texts may be than they were.
bool lengthens(const std::string& type) {
  return type == "linear" || type == "dynamic" || type == "yarn";
}

/// The list under `key`, or the words of its text, which commas part.
std::vector<std::string> recorded_words(const Json& record, const char* key) {
  std::vector<std::string> words;
  const auto found = record.find(key);
  if (found == record.end()) return words;
  if (found->is_array()) {
    for (const Json& item : *found)
      if (item.is_string()) words.push_back(item.get<std::string>());
  } else if (found->is_string()) {
    std::string text = found->get<std::string>();
    while (!text.empty()) {
      const size_t comma = text.find(',');
      const std::string word = text.substr(0, comma);
      const size_t first = word.find_first_not_of(' ');
      if (first != word.npos)
        words.push_back(word.substr(first, word.find_last_not_of(' ') + 1 - first));
      text = comma == text.npos ? "" : text.substr(comma + 1);
    }
  }
  return words;
}

/// rope_scaling of a record: an object, or its text.
arch::PositionChange recorded_positions(const Json& record) {
  arch::PositionChange change;
  const auto found = record.find("rope_scaling");
  if (found == record.end()) return change;
  Json scaling = *found;
  if (scaling.is_string()) {
    const auto parsed = try_parse_json(scaling.get<std::string>());
    scaling = parsed ? *parsed : Json();
  }
  if (!scaling.is_object() || arch::scaling_type(scaling) == "default") return change;
  change.scaling = std::move(scaling);
  change.max_positions = json_get<int64_t>(record, "max_model_len");
  return change;
}

constexpr const char* kAdapterWeights[] = {"adapter_model.safetensors",
                                           "adapter_model.safetensors.index.json",
                                           "adapter_model.bin", "adapter_model.bin.index.json"};

/// Rows of the table or the head that adapters bring whole; 0: they bring neither.
int64_t rows_of_adapter(const fs::path& adapter, const arch::ModelConfig& base) {
  int64_t rows = 0;
  if (!fs::exists(adapter / "adapter_config.json")) return rows;
  // Whoever opens adapters without weights says so.
  const bool has_weights =
      std::any_of(std::begin(kAdapterWeights), std::end(kAdapterWeights),
                  [&](const char* name) { return fs::exists(adapter / name); });
  if (!has_weights) return rows;
  const auto tensors = weights::open_weights(adapter);
  for (const arch::ParamSpec& spec : arch::parameters_of(base)) {
    const bool is_of_tokens =
        (spec.role == arch::Role::kEmbedding || spec.role == arch::Role::kHead) && !spec.is_bias;
    if (!is_of_tokens) continue;
    for (const weights::TensorInfo& info : tensors->tensors()) {
      const auto name = weights::parse_adapter_name(info.name);
      if (!name || name->part != weights::AdapterPart::kSavedModule || info.shape.size() != 2)
        continue;
      if (weights::base_module(*name) == arch::module_of(spec.name))
        rows = std::max(rows, info.shape.front());
    }
  }
  return rows;
}

/// Errors: ModelError where files hold tables or heads that are not part of the network.
void require_one_table(const weights::CheckpointSource& opened) {
  const std::string where = opened.path.string();
  if (opened.config.experts.prediction_layers > 0) {
    throw ModelError(tr("{}: its layers that predict further ahead (MTP) have tables of their own, "
                        "and do not gain tokens",
                        where),
                     tr("with num_nextn_predict_layers 0 in config.json there is no such layer"));
  }
  if (opened.config.score && opened.config.score->form == arch::ScoreForm::kBeside) {
    throw ModelError(
        tr("{}: a head of numbers beside the files of a model with a vocabulary, "
           "which does not grow",
           where));
  }
}

}  // namespace

void make_changes(const ModelChanges& changes, weights::CheckpointSource& opened) {
  opened.config = arch::with_positions(opened.config, changes.positions);
  if (changes.rows.empty()) return;
  if (changes.rows.vocab_size > opened.config.vocab_size) require_one_table(opened);
  if (opened.model)
    opened.model = weights::with_new_rows(opened.model, opened.config, changes.rows);
  if (changes.rows.vocab_size > 0)
    opened.config = arch::with_vocabulary(opened.config, changes.rows.vocab_size);
}

arch::PositionChange completed_positions(const arch::ModelConfig& model, Json scaling,
                                         std::optional<int64_t> length, const std::string& flag) {
  arch::PositionChange change;
  const std::string type = arch::scaling_type(scaling);
  if (!lengthens(type)) {
    // Its lengths are said by the object itself.
    change.scaling = std::move(scaling);
    change.max_positions = length;
    return change;
  }
  const int64_t original = original_length(model, scaling);
  if (original <= 0) {
    throw UsageError(
        tr("[{}] {}: config.json does not say how long the model's texts were", flag, type),
        tr("say it: '{{\"rope_type\": \"{}\", \"factor\": 4, "
           "\"original_max_position_embeddings\": 4096}}'",
           type));
  }
  scaling[kOriginal] = original;
  if (!scaling.contains("factor") || scaling["factor"].is_null()) {
    if (!length) {
      throw UsageError(
          tr("[{}] {}: nothing says how far positions are stretched", flag, type),
          tr("--max_model_len says how many tokens are to be read: the model has {}", original));
    }
    scaling["factor"] =
        std::max(1.0, std::ceil(static_cast<double>(*length) / static_cast<double>(original)));
  }
  const auto factor = json_get<double>(scaling, "factor");
  const auto longest = static_cast<int64_t>(static_cast<double>(original) * factor.value_or(1.0));
  if (length && *length > longest) {
    log::warning("{}: {} positions times {} are {}, fewer than the {} tokens of --max_model_len",
                 flag, original, factor.value_or(1.0), longest, *length);
  }
  change.scaling = std::move(scaling);
  change.max_positions = length.value_or(longest);
  if (type == "dynamic" && *change.max_positions > original) {
    log::notice(
        "{} dynamic: config.json has {} positions now, and as in transformers only longer texts "
        "are stretched",
        flag, *change.max_positions);
  }
  return change;
}

weights::NewRows rows_of_tokens(const arch::ModelConfig& model, const text::GrownTokenizer& grown,
                                int64_t multiple) {
  weights::NewRows rows;
  if (grown.new_ids.empty()) return rows;
  rows.tokens.assign(grown.new_ids.begin(), grown.new_ids.end());
  const auto tokens = static_cast<int64_t>(grown.tokenizer->size());
  if (tokens > model.vocab_size) rows.vocab_size = (tokens + multiple - 1) / multiple * multiple;
  return rows;
}

std::vector<text::NewToken> recorded_tokens(const Json& record) {
  std::vector<text::NewToken> tokens;
  for (const std::string& word : recorded_words(record, "add_tokens"))
    tokens.push_back({word, /*special=*/false});
  for (const char* key : {"add_special_tokens", "new_special_tokens"}) {
    for (const std::string& word : recorded_words(record, key))
      tokens.push_back({word, /*special=*/true});
  }
  return tokens;
}

ModelChanges recorded_changes(const fs::path& adapter, const arch::ModelConfig& base) {
  ModelChanges changes;
  if (adapter.empty()) return changes;
  const Json record = text::read_record(adapter);
  changes.positions = recorded_positions(record);
  changes.tokens = recorded_tokens(record);
  const int64_t rows = rows_of_adapter(adapter, base);
  if (rows > base.vocab_size) {
    changes.rows.vocab_size = rows;
    changes.rows.seed = static_cast<uint64_t>(json_get<int64_t>(record, "seed").value_or(42));
  }
  return changes;
}

bool has_tokenizer_files(const fs::path& directory) {
  return std::any_of(std::begin(kTokenizerFiles), std::end(kTokenizerFiles),
                     [&](const char* name) { return fs::is_regular_file(directory / name); });
}

fs::path tokenizer_beside(const fs::path& companions, const fs::path& adapter) {
  if (companions.empty() || adapter.empty()) return companions.empty() ? adapter : companions;
  bool brings = !recorded_tokens(text::read_record(adapter)).empty();
  if (!brings && fs::exists(adapter / "adapter_config.json")) {
    const std::vector<std::string> whole = weights::load_peft_config(adapter).modules_to_save;
    brings = std::any_of(whole.begin(), whole.end(), [](const std::string& entry) {
      return arch::last_name(entry).starts_with("embed");
    });
  }
  return brings && has_tokenizer_files(adapter) ? adapter : companions;
}

}  // namespace danlu::settings
