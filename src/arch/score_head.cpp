#include "arch/score_head.h"

#include <optional>
#include <string_view>
#include <utility>

#include "arch/config_reader.h"
#include "arch/model_config.h"
#include "base/error.h"

namespace danlu::arch {
namespace {

constexpr std::string_view kTextClass = "ForSequenceClassification";
constexpr std::string_view kTokenClass = "ForTokenClassification";
constexpr std::string_view kUsualClass = "ForCausalLM";
constexpr int64_t kMostLabels = 1 << 16;

/// "LlamaForSequenceClassification" as "LlamaForCausalLM", or the other way.
std::string with_ending(const std::string& name, std::string_view ending, std::string_view other) {
  if (!name.ends_with(ending)) return name;
  return name.substr(0, name.size() - ending.size()) + std::string(other);
}

std::string class_of(const Json& config_json) {
  const auto classes = ConfigReader(config_json).texts("architectures");
  return classes && !classes->empty() ? classes->front() : "";
}

/// How files of such a class hold the head; nothing: it is another class.
std::optional<ScoreForm> form_of(const std::string& name) {
  if (name.ends_with(kTextClass)) return ScoreForm::kSequence;
  if (name.ends_with(kTokenClass)) return ScoreForm::kTokens;
  return std::nullopt;
}

std::string_view ending_of(ScoreForm form) {
  return form == ScoreForm::kTokens ? kTokenClass : kTextClass;
}

/// The same class with the vocabulary's head.
std::string as_usual(const std::string& name) {
  return with_ending(with_ending(name, kTextClass, kUsualClass), kTokenClass, kUsualClass);
}

/// The class of the family's models with a vocabulary; "" where transformers
/// names it otherwise.
std::string usual_class(const ModelConfig& config) {
  const std::string own = as_usual(class_of(config.raw));
  if (own.ends_with(kUsualClass)) return own;
  for (const std::string& name : family_named(config.family).architectures)
    if (name.ends_with(kUsualClass)) return name;
  return "";
}

bool names_labels(const Json& config_json, int64_t labels) {
  const auto told = config_json.find("id2label");
  return told != config_json.end() && told->is_object() &&
         static_cast<int64_t>(told->size()) == labels;
}

}  // namespace

const char* label_problem_name(LabelProblem problem) {
  switch (problem) {
    case LabelProblem::kOneClass:
      return "single_label_classification";
    case LabelProblem::kClasses:
      return "multi_label_classification";
    case LabelProblem::kNumbers:
      return "regression";
    case LabelProblem::kByNumber:
      break;
  }
  return "";
}

std::optional<LabelProblem> label_problem_from_name(const std::string& name) {
  for (const LabelProblem problem :
       {LabelProblem::kOneClass, LabelProblem::kClasses, LabelProblem::kNumbers})
    if (name == label_problem_name(problem)) return problem;
  return std::nullopt;
}

LabelProblem settled(LabelProblem problem, int64_t labels) {
  if (problem != LabelProblem::kByNumber) return problem;
  return labels == 1 ? LabelProblem::kNumbers : LabelProblem::kOneClass;
}

std::string ScoreHead::module() const {
  if (!named.empty()) return named;
  return form == ScoreForm::kBeside ? "v_head.summary" : "score";
}

bool is_scorer(const Json& config_json) {
  return config_json.is_object() && form_of(class_of(config_json)).has_value();
}

ModelConfig parse_scorer(const Json& config_json) {
  Json usual = config_json;
  usual["architectures"] = Json::array({as_usual(class_of(config_json))});
  ModelConfig config = family_of(usual).parse(usual);
  config.raw = config_json;
  const ConfigReader reader(config_json);
  ScoreHead head;
  head.form = form_of(class_of(config_json)).value();
  const Json* const names = reader.value("id2label");
  // transformers' own default where nothing says how many.
  head.labels = names && names->is_object() ? static_cast<int64_t>(names->size()) : 2;
  head.labels = reader.size_or("num_labels", head.labels, kMostLabels);
  const Json* const problem = reader.value("problem_type");
  if (problem && problem->is_string() && head.form == ScoreForm::kSequence)
    head.problem = label_problem_from_name(problem->get<std::string>());
  return with_score(std::move(config), head);
}

ModelConfig with_score(ModelConfig config, const ScoreHead& head) {
  if (config.vision) {
    throw ModelError(tr("[model config] a head that judges or sorts is not supported on a model "
                        "that sees pictures"),
                     tr("take a model of text alone"));
  }
  if (head.is_described() && usual_class(config).empty()) {
    throw ModelError(tr("[model config] {}: transformers has no reward models "
                        "of this family",
                        config.family),
                     tr("LLaMA-Factory's lines (stage: rm) keep the head in a "
                        "file of its own"));
  }
  if (config.encoder && head.form != ScoreForm::kSequence) {
    throw ModelError(tr("[model config] {}: an encoder's head says something of a text, and not of "
                        "its tokens",
                        config.family),
                     tr("--task_type seq_cls or reranker"));
  }
  config.score = head;
  if (config.encoder) config.score->named = config.encoder->score;
  config.tie_embeddings = false;
  config.predicts_ahead = false;
  return config;
}

std::vector<std::string> label_names(const Json& config_json, int64_t labels) {
  std::vector<std::string> names;
  const bool are_told = names_labels(config_json, labels);
  for (int64_t label = 0; label < labels; ++label) {
    const std::string number = std::to_string(label);
    std::string name = "LABEL_" + number;
    if (are_told)
      name = json_get<std::string>(config_json.at("id2label"), number.c_str()).value_or(name);
    names.push_back(std::move(name));
  }
  return names;
}

void describe_score(const ModelConfig& config, Json& config_json) {
  config_json["architectures"] =
      Json::array({with_ending(usual_class(config), kUsualClass, ending_of(config.score->form))});
  if (!names_labels(config_json, config.score->labels)) {
    Json names = Json::object(), numbers = Json::object();
    for (const std::string& name : label_names(config_json, config.score->labels)) {
      const size_t label = names.size();
      names[std::to_string(label)] = name;
      numbers[name] = label;
    }
    config_json["id2label"] = names;
    config_json["label2id"] = numbers;
  }
  if (config.score->problem)
    config_json["problem_type"] =
        label_problem_name(settled(*config.score->problem, config.score->labels));
  const auto pad = config_json.find("pad_token_id");
  const bool has_pad = pad != config_json.end() && pad->is_number_integer();
  if (!has_pad && config.pad_id) config_json["pad_token_id"] = *config.pad_id;
}

std::vector<std::string> vocabulary_head_names(const ModelConfig& config) {
  ModelConfig usual = config;
  usual.score.reset();
  std::vector<std::string> names;
  for (const ParamSpec& spec : parameters_of(usual))
    if (spec.role == Role::kHead) names.push_back(spec.name);
  return names;
}

}  // namespace danlu::arch
