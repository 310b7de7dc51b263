#include "settings/options/vision_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "settings/options/mm_data.h"

namespace danlu::settings {
namespace {

using Lists = std::vector<std::vector<int64_t>>;

/// A part of model.json, and where it stands for messages.
struct MmPart {
  const Json* json = nullptr;
  std::string file, where;

  /// nullptr where the part is not there or null.
  const Json* at(const char* key) const {
    if (!json) return nullptr;
    const auto found = json->find(key);
    return found == json->end() || found->is_null() ? nullptr : &*found;
  }
  MmPart part(const char* key) const {
    const Json* found = at(key);
    if (found && !found->is_object())
      throw DataError(tr("{}: {}{} must be an object", file, where, key));
    return {found, file, where + key + "."};
  }
  bool flag(const char* key, bool fallback) const {
    const Json* found = at(key);
    if (!found) return fallback;
    if (!found->is_boolean())
      throw DataError(tr("{}: {}{} must be true or false", file, where, key));
    return found->get<bool>();
  }
  /// The file describes a whole model, and most of its keys say what config.json says. One that is
  /// nearly one of `keys`, which have an effect, was mistyped. Errors: UsageError naming it.
  void refuse_misspelt(const std::vector<std::string>& keys,
                       const std::vector<std::string>& others = {}) const {
    if (!json) return;
    for (const auto& [key, value] : json->items()) {
      const auto is_one = [&](const auto& list) {
        return std::find(list.begin(), list.end(), key) != list.end();
      };
      if (is_one(keys) || is_one(others)) continue;
      if (const auto near = nearest_name(key, keys)) {
        throw UsageError(tr("{}: {}: unknown key", file, where + key),
                         tr("did you mean \"{}\"?", *near));
      }
    }
  }
  /// Errors: UsageError unless the key is missing or says `value`.
  void require(const char* key, int64_t value) const {
    const Json* found = at(key);
    if (!found) return;
    if (!found->is_number_integer())
      throw DataError(tr("{}: {}{} must be a whole number", file, where, key));
    if (found->get<int64_t>() == value) return;
    throw UsageError(tr("[--mm-model] {}{} is {}, the model in the checkpoint has {}", where, key,
                        found->get<int64_t>(), value),
                     tr("take the model.json of this size, or the checkpoint that it describes"));
  }
};

/// [1, 10] is one chunk; [[0, 1], [4, 4]] is one list for each.
Lists layer_lists(const MmPart& part) {
  const Json* found = part.at("pipeline_num_layers");
  if (!found) return {};
  const auto wrong = [&] {
    return DataError(tr("{}: {}pipeline_num_layers must be a list of numbers, or of such lists",
                        part.file, part.where));
  };
  const auto numbers = [&](const Json& list) {
    std::vector<int64_t> result;
    if (!list.is_array() || list.empty()) throw wrong();
    for (const Json& number : list) {
      if (!number.is_number_integer()) throw wrong();
      result.push_back(number.get<int64_t>());
    }
    return result;
  };
  if (!found->is_array() || found->empty()) throw wrong();
  if (!found->front().is_array()) return {numbers(*found)};
  Lists lists;
  for (const Json& list : *found) lists.push_back(numbers(list));
  return lists;
}

void require_tower(const MmPart& encoder, const arch::VisionConfig& vision) {
  encoder.require("num_layers", vision.depth);
  encoder.require("hidden_size", vision.width);
  encoder.require("num_attention_heads", vision.num_heads);
  encoder.require(vision.is_gated ? "intermediate_size" : "ffn_hidden_size", vision.ffn_size);
  encoder.require("patch_size", vision.patch_size);
  encoder.require("temporal_patch_size", vision.temporal_patch_size);
  encoder.require("spatial_merge_size", vision.merge_size);
  if (!encoder.at("window_attn_size")) return;
  encoder.require("window_attn_size", vision.window_size);
  if (!encoder.at("fullatt_block_indexes")) {
    throw UsageError(
        tr("[--mm-model] {}window_attn_size without fullatt_block_indexes", encoder.where));
  }
}

void require_decoder(const MmPart& decoder, const arch::ModelConfig& model) {
  decoder.require("num_layers", model.num_layers);
  decoder.require("hidden_size", model.hidden_size);
  decoder.require("ffn_hidden_size", model.ffn_size);
  decoder.require("num_attention_heads", model.num_heads);
  decoder.require("num_query_groups", model.num_kv_heads);
  decoder.require("vocab_size", model.vocab_size);
}

constexpr const char* kTower = "visual.blocks.";
constexpr const char* kMerger = "visual.merger.";

/// The linear layers of the tower's blocks, or of its merger.
std::vector<std::string> linears_of(const arch::ModelConfig& model, const std::string& prefix) {
  std::vector<std::string> modules;
  for (const arch::ParamSpec& spec : arch::parameters_of(model)) {
    if (spec.tower_place >= 0 && spec.shape.size() == 2 && spec.name.starts_with(prefix))
      modules.push_back(arch::module_of(spec.name));
  }
  return modules;
}

/// Every module of the tower, or of its merger, that has weights.
std::vector<std::string> modules_of(const arch::ModelConfig& model, bool of_merger) {
  std::vector<std::string> modules;
  for (const arch::ParamSpec& spec : arch::parameters_of(model)) {
    if (!spec.name.starts_with("visual.") || spec.name.starts_with(kMerger) != of_merger) continue;
    const std::string module = arch::module_of(spec.name);
    if (modules.empty() || modules.back() != module) modules.push_back(module);
  }
  return modules;
}

}  // namespace

Options with_multimodal(const std::string& verb, const Options& options) {
  if (!options.has_value("mm_data")) return options;
  const Options result = with_mm_data(options, {});
  if (verb != "pretrain" || options.is_given("stage")) return result;
  return result.with("stage", "sft", "--mm-data");
}

MmModel read_mm_model(const std::filesystem::path& path, const arch::ModelConfig& model) {
  if (!model.vision) {
    throw UsageError(
        tr("[--mm-model] {} describes a model that sees pictures; the checkpoint's "
           "is {}",
           path.string(), model.family));
  }
  const Json json = read_json_file(path);
  if (!json.is_object())
    throw DataError(tr("{}: must be an object, got {}", path.string(), json.type_name()));
  const MmPart all{&json, path.string(), ""};
  const MmPart encoder = all.part("image_encoder"), tower = encoder.part("vision_encoder"),
               merger = encoder.part("vision_projector"), decoder = all.part("text_decoder");
  all.refuse_misspelt({"image_encoder", "text_decoder"},
                      {"text_encoder", "video_encoder", "audio_encoder"});
  encoder.refuse_misspelt({"vision_encoder", "vision_projector"});
  tower.refuse_misspelt({"pipeline_num_layers", "freeze"});
  merger.refuse_misspelt({"freeze"});
  decoder.refuse_misspelt({"pipeline_num_layers"});
  // MindSpeed-MM trains the decoder whatever this says: neither is what the user meant.
  if (decoder.flag("freeze", false))
    throw UsageError(tr("{}: text_decoder.freeze is no switch of MindSpeed-MM", path.string()),
                     tr("take it out; --freeze_llm freezes the decoder"));
  require_tower(tower, *model.vision);
  require_decoder(decoder, model);
  all.require("vision_start_token_id", model.vision->start_token);
  return {.block_list = layer_lists(tower),
          .layer_list = layer_lists(decoder),
          .freezes_tower = tower.flag("freeze", true),
          .freezes_merger = merger.flag("freeze", false)};
}

VisionTraining vision_training_from(const Options& options, const arch::ModelConfig& model) {
  VisionTraining result;
  MmModel described;
  described.freezes_merger = true;
  if (options.has_value("mm_model"))
    described = read_mm_model(options.get_string("mm_model"), model);
  const bool is_whole = options.get_string_or("tuner", "") == "lora_llm";
  if (is_whole && !model.vision) {
    throw UsageError(tr("[train] {} lora_llm: {} reads text alone, and has no tower",
                        options.given_as("tuner"), model.family),
                     tr("--tuner lora adapts the whole model"));
  }
  if (is_whole) described.freezes_tower = described.freezes_merger = false;
  if (!model.vision) {
    for (const char* flag : {"freeze_vit", "freeze_aligner", "freeze_llm"}) {
      if (options.is_given(flag))
        log::notice("{} has no effect: {} reads text alone", options.given_as(flag), model.family);
    }
    return result;
  }
  result.block_list = described.block_list;
  result.layer_list = described.layer_list;
  const bool tower = options.get_bool_or("freeze_vit", described.freezes_tower),
             merger = options.get_bool_or("freeze_aligner", described.freezes_merger),
             decoder = options.get_bool_or("freeze_llm", false);
  if (tower && merger && decoder) {
    throw UsageError(tr("[train] {}: the vision tower, the merger and the decoder are all frozen",
                        options.given_as("freeze_llm")),
                     tr("--freeze_vit false trains the tower, --freeze_aligner false the merger"));
  }
  if (tower) result.freeze.emplace_back(kFrozenTower);
  if (merger) result.freeze.emplace_back(kFrozenMerger);
  if (decoder) result.freeze.emplace_back(R"(^(model|lm_head)\.)");
  result.adapts_decoder = !decoder;
  for (const char* part : {kTower, kMerger}) {
    if (part == kTower ? tower : merger) continue;
    if (is_whole) {
      const std::vector<std::string> modules = modules_of(model, part == kMerger);
      result.whole_modules.insert(result.whole_modules.end(), modules.begin(), modules.end());
      continue;
    }
    const std::vector<std::string> linears = linears_of(model, part);
    result.lora_targets.insert(result.lora_targets.end(), linears.begin(), linears.end());
  }
  return result;
}

}  // namespace danlu::settings
