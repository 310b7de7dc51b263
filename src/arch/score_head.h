// arch/score_head.h: a head that gives numbers for a token in place of the vocabulary's: what a
// reward model ends in.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace danlu::arch {

struct ModelConfig;

/// How files hold such a head.
enum class ScoreForm {
  /// transformers' *ForSequenceClassification: score.weight, and no head of the vocabulary.
  kSequence,
  /// transformers' *ForTokenClassification, such as TRL's models of steps:
  /// score.{weight,bias}, and
  /// no head of the vocabulary.
  kTokens,
  /// TRL's and LLaMA-Factory's: v_head.summary.{weight,bias} in
  /// value_head.safetensors, beside a
  /// model or an adapter whose files stay as they are. Their config.json does
  /// not know of it.
  kBeside,
};

/// What a classifier's numbers are of, in transformers' words (problem_type).
enum class LabelProblem {
  kByNumber,  ///< of one label kNumbers, of more kOneClass, as transformers takes it
  kOneClass,  ///< single_label_classification: a text is of one of the classes
  kClasses,   ///< multi_label_classification: of any of them
  kNumbers,   ///< regression: a number for each label
};
const char* label_problem_name(LabelProblem problem);
/// nullopt: no such word.
std::optional<LabelProblem> label_problem_from_name(const std::string& name);
/// kByNumber as what it means.
LabelProblem settled(LabelProblem problem, int64_t labels);

struct ScoreHead {
  ScoreForm form = ScoreForm::kSequence;
  int64_t labels = 1;  ///< numbers for a token; a reward is one
  /// What the labels are, of a head that sorts texts. Empty: nothing says so, as of a reward model.
  std::optional<LabelProblem> problem = {};
  /// Files have no such head: it begins as in a model from scratch with this seed.
  std::optional<uint64_t> seed = {};
  /// The module in files of families with a name of their own for it; "": the form's.
  std::string named = {};

  /// "score", "v_head.summary".
  std::string module() const;
  bool has_bias() const { return form != ScoreForm::kSequence || !named.empty(); }
  /// Whether config.json knows of it.
  bool is_described() const { return form != ScoreForm::kBeside; }
};

/// Whether a config.json is of a model with a head of the form kSequence or
/// kTokens.
bool is_scorer(const Json& config_json);
/// Reads the config of such a model, without validating it. Errors: as Family::parse, and
/// ModelError as with_score.
ModelConfig parse_scorer(const Json& config_json);

/// The model with that head in place of the vocabulary's. Errors: ModelError for a model that sees
/// pictures.
ModelConfig with_score(ModelConfig config, const ScoreHead& head);

/// config.json's keys of the class, as transformers writes them: architectures,
/// id2label, label2id, and pad_token_id where it is missing. REQUIRES: a head
/// that is described.
void describe_score(const ModelConfig& config, Json& config_json);

/// What id2label calls the labels; LABEL_0, LABEL_1, … where it does not name so many.
std::vector<std::string> label_names(const Json& config_json, int64_t labels);

/// The parameters of a vocabulary's head, tied or not, which files of the decoder may hold beside
/// or in place of `config`'s own head.
std::vector<std::string> vocabulary_head_names(const ModelConfig& config);

}  // namespace danlu::arch
