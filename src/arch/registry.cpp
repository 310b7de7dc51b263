// The explicit list of model families, and how config.json picks one.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "arch/config_reader.h"
#include "arch/families/families.h"
#include "arch/layer_kind.h"
#include "arch/prediction.h"
#include "base/error.h"
#include "base/nearest_name.h"

namespace danlu::arch {
namespace {

[[noreturn]] void unsupported(const std::string& what, const std::vector<std::string>& supported) {
  auto nearest = nearest_name(what, supported);
  if (!nearest) {
    // llama4_vision, internlm2_reward_model, …: what stands before the suffix is the kin.
    const auto kin = std::find_if(supported.begin(), supported.end(), [&](const std::string& name) {
      return what.rfind(name, 0) == 0;
    });
    if (kin != supported.end()) nearest = *kin;
  }
  std::string hint;
  if (what.ends_with("ForSequenceClassification")) {
    hint =
        tr("a reward model: danlu rlhf --rlhf_type rm trains one further, and --reward_model of "
           "--rlhf_type grpo has it judge answers; of a classifier danlu infer has the labels");
  } else if (what.ends_with("ForTokenClassification")) {
    hint = tr("a judge of steps: --stage prm --step_head class trains one further");
  } else if (nearest) {
    hint = tr("the nearest supported one is {}; its arithmetic may differ", *nearest);
  }
  throw ModelError(tr("[config.json] unsupported architecture \"{}\"; supported: {}", what,
                      fmt::join(supported, ", ")),
                   hint);
}

std::vector<std::string> all_model_types() {
  std::vector<std::string> types;
  for (const Family& family : families()) {
    types.insert(types.end(), family.model_types.begin(), family.model_types.end());
  }
  return types;
}

bool holds(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

std::vector<Family>& known_families() {
  static std::vector<Family> list = {
      llama_family(),      qwen2_family(),        qwen3_family(),
      mistral_family(),    baichuan_family(),     internlm2_family(),
      mixtral_family(),    qwen2_moe_family(),    qwen3_moe_family(),
      glm4_moe_family(),   phimoe_family(),       qwen2_vl_family(),
      qwen2_5_vl_family(), phi3_family(),         gemma_family(),
      gemma2_family(),     gemma3_text_family(),  glm_family(),
      glm4_family(),       chatglm_family(),      minicpm_family(),
      internlm3_family(),  deepseek_v2_family(),  deepseek_v3_family(),
      minicpm3_family(),   llama4_text_family(),  internlm_family(),
      qwen_family(),       bloom_family(),        gpt2_family(),
      qwen3_next_family(), qwen3_5_text_family(), qwen3_5_moe_text_family(),
      bert_family(),       roberta_family(),      xlm_roberta_family()};
  return list;
}

}  // namespace

const std::vector<Family>& families() { return known_families(); }

void add_family(Family family) { known_families().push_back(std::move(family)); }

const Family& family_of(const Json& config_json) {
  const ConfigReader config(config_json);
  const auto model_type = config.text("model_type");
  const auto classes = config.texts("architectures").value_or(std::vector<std::string>{});
  if (!model_type && classes.empty()) {
    throw ModelError(tr("[config.json] required key model_type is missing"));
  }
  for (const Family& family : families()) {
    if (model_type && !holds(family.model_types, *model_type)) continue;
    // A reward or classification head over a known body is another model: do not load it as this
    // one.
    if (classes.empty() || holds(family.architectures, classes.front())) return family;
    if (model_type) unsupported(classes.front(), family.architectures);
  }
  if (model_type) unsupported(*model_type, all_model_types());
  std::vector<std::string> known;
  for (const Family& family : families()) {
    known.insert(known.end(), family.architectures.begin(), family.architectures.end());
  }
  unsupported(classes.front(), known);
}

const Family& family_named(const std::string& name) {
  for (const Family& family : families()) {
    if (family.name == name) return family;
  }
  unsupported(name, all_model_types());
}

std::string default_template_in(const std::filesystem::path& directory) {
  if (directory.empty() || !std::filesystem::exists(directory / "config.json")) return {};
  try {
    return load_model_config(directory, Heads::kAny).default_template;
  } catch (const ModelError&) {
    return {};
  }
}

std::vector<ParamSpec> parameters_of(const ModelConfig& config) {
  return family_named(config.family).parameters(config);
}

std::vector<std::string> result_names(const ModelConfig& config) {
  std::vector<std::string> names;
  if (config.has_experts()) names = {"aux_loss", "z_loss"};
  for (const LayerKind* kind : config.own_kinds) {
    if (!kind) continue;
    for (const std::string& name : kind->results) {
      if (!holds(names, name)) names.push_back(name);
    }
  }
  for (int64_t depth = 1; depth <= config.num_predictions(); ++depth)
    names.push_back(prediction_loss_name(depth));
  return names;
}

Axes ParamSpec::cut_on() const {
  Axes axes = {Axis::kPipeline};
  if (cut != Cut::kCopiedBetween && cut != Cut::kCopiedInside) axes = axes.with(Axis::kTensor);
  return expert < 0 ? axes : axes.with(Axis::kExpert);
}

Axes ParamSpec::copied_on() const {
  Axes axes;
  for (const Axis axis : kAllAxes) {
    if (!cut_on().has(axis)) axes = axes.with(axis);
  }
  return axes;
}

std::string module_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

std::string last_name(const std::string& module) { return module.substr(module.rfind('.') + 1); }

bool turns_by_length(const RopeConfig& rope) {
  return rope.scaling == RopeScaling::kDynamic || rope.scaling == RopeScaling::kLongRope;
}

std::set<std::string> wide_parameters(const ModelConfig& config) {
  ModelConfig all = config;
  all.predicts_ahead = true;
  std::set<std::string> names;
  for (const ParamSpec& spec : parameters_of(all)) {
    if (spec.role == Role::kRouterBias) names.insert(spec.name);
  }
  return names;
}

int64_t parameter_count(const ModelConfig& config) {
  int64_t count = 0;
  for (const ParamSpec& spec : parameters_of(config)) {
    if (!spec.tied_to.empty()) continue;
    int64_t elements = 1;
    for (const int64_t size : spec.shape) elements *= size;
    count += elements;
  }
  return count;
}

}  // namespace danlu::arch
