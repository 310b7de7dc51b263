#include "eval/rewards/reward.h"

#include <fmt/ranges.h>

#include <cmath>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "eval/rewards/code_reward.h"
#include "eval/rewards/program_reward.h"
#include "eval/rewards/rules.h"
#include "eval/scoring/python_str.h"

namespace danlu::eval {
namespace {

constexpr const char* kProgram = "program:";
constexpr const char* kCode = "code";

using Judge = std::function<Score(const Completion&, const RewardSettings&)>;

struct NamedRule {
  const char* name;
  Judge judge;
};

/// A rule that needs the right answer has no score where a row holds none.
Judge with_reference(double (*rule)(const std::string&, const std::string&)) {
  return [rule](const Completion& completion, const RewardSettings& settings) -> Score {
    const auto reference = reference_of(completion.row, settings.reference_column);
    if (!reference) return std::nullopt;
    return rule(*reference, completion.text);
  };
}

Judge of_text(double (*rule)(const std::string&)) {
  return [rule](const Completion& completion, const RewardSettings&) -> Score {
    return rule(completion.text);
  };
}

Score cosine(const Completion& completion, const RewardSettings& settings) {
  const auto reference = reference_of(completion.row, settings.reference_column);
  if (!reference) return std::nullopt;
  return cosine_rule(accuracy_rule(*reference, completion.text) == 1,
                     static_cast<int64_t>(completion.ids.size()), settings);
}

Score of_environment(const Completion& completion, const RewardSettings&) {
  return completion.of_environment;
}

Score repetition(const Completion& completion, const RewardSettings& settings) {
  return repetition_rule(completion.text, settings);
}

Score overlong(const Completion& completion, const RewardSettings& settings) {
  return overlong_rule(static_cast<int64_t>(completion.ids.size()), settings);
}

const std::vector<NamedRule>& rules() {
  static const std::vector<NamedRule> kRules = {
      {"accuracy", with_reference(accuracy_rule)},
      {"gsm8k", with_reference(gsm8k_rule)},
      {"choice", with_reference(choice_rule)},
      {"acc", with_reference(boxed_rule)},
      {"math_17k_acc", with_reference(last_boxed_rule)},
      {"base_acc", with_reference(tagged_boxed_rule)},
      {"acc_for_dapo", with_reference(answer_line_rule)},
      {"format", of_text(format_rule)},
      {"mindspeed_format", of_text(loose_format_rule)},
      {"strict_format", of_text(strict_format_rule)},
      {"think_format", of_text(think_format_rule)},
      {"react_format", of_text(react_format_rule)},
      {"step", of_text(steps_rule)},
      {"cosine", cosine},
      {"repetition", repetition},
      {"soft_overlong", overlong},
      {"environment", of_environment},
  };
  return kRules;
}

class RuleReward : public Reward {
 public:
  RuleReward(const NamedRule& rule, RewardSettings settings)
      : rule_(rule), settings_(std::move(settings)) {}
  std::string name() const override { return rule_.name; }
  std::vector<Score> scores(std::span<const Completion> completions) const override {
    std::vector<Score> scores;
    for (const Completion& completion : completions)
      scores.push_back(rule_.judge(completion, settings_));
    return scores;
  }

 private:
  const NamedRule& rule_;
  RewardSettings settings_;
};

/// Without a buffer every answer would get 0, and with one as long as the limit none would.
void require_buffer(const RewardSettings& settings) {
  if (settings.overlong_buffer > 0 && settings.overlong_buffer < settings.overlong_length) return;
  throw UsageError(
      tr("[reward] soft_overlong: answers are punished within a buffer before the limit of {} "
         "tokens, and the buffer has {}",
         settings.overlong_length, settings.overlong_buffer),
      tr("--soft_cache_length gives its tokens: above 0, and fewer than --soft_max_length (or "
         "--max_completion_length)"));
}

void require_positive(const char* what, int64_t value) {
  if (value <= 0) throw UsageError(tr("[reward] {} {}: must be positive", what, value));
}

}  // namespace

std::optional<std::string> reference_of(const Json& row, const std::string& column) {
  const auto text = [](const Json& value) -> std::optional<std::string> {
    if (value.is_null()) return std::nullopt;
    std::string result = value.is_string() ? value.get<std::string>() : python_str(value);
    if (result.empty()) return std::nullopt;
    return result;
  };
  if (!row.is_object()) return std::nullopt;
  if (!column.empty()) return row.contains(column) ? text(row.at(column)) : std::nullopt;
  for (const char* name : {"solution", "answer", "ground_truth", "labels", "response"}) {
    if (row.contains(name)) return text(row.at(name));
  }
  const auto model = row.find("reward_model");
  if (model != row.end() && model->is_object() && model->contains("ground_truth"))
    return text(model->at("ground_truth"));
  return std::nullopt;
}

std::vector<Score> usable_scores(const Reward& reward, std::span<const Completion> completions) {
  std::vector<Score> scores = reward.scores(completions);
  int64_t unusable = 0;
  for (Score& score : scores) {
    if (!score || std::abs(*score) <= kLargestScore) continue;  // NaN is not
    score.reset();
    ++unusable;
  }
  if (unusable > 0) {
    log::warning(
        "[reward] {}: {} of {} scores are beyond {:g}, with which nothing can be computed: these "
        "answers have none",
        reward.name(), unusable, scores.size(), kLargestScore);
  }
  return scores;
}

std::vector<std::string> reward_names() {
  std::vector<std::string> names;
  for (const NamedRule& rule : rules()) names.emplace_back(rule.name);
  names.emplace_back(kCode);
  return names;
}

std::unique_ptr<Reward> make_reward(const std::string& name, const RewardSettings& settings) {
  require_positive("cosine_length", settings.cosine_length);
  require_positive("repetition_words", settings.repetition_words);
  require_positive("overlong_length", settings.overlong_length);
  require_positive("program_timeout_ms", settings.program_timeout_ms);
  if (name == "soft_overlong") require_buffer(settings);
  if (name.starts_with(kProgram)) {
    return make_program_reward(name.substr(std::string_view(kProgram).size()),
                               settings.program_timeout_ms);
  }
  if (name == kCode) {
    if (!settings.allows_code) {
      throw UsageError(tr("[reward] code: its answers are code, which is not executed unless you "
                          "allow it"),
                       tr("--allow_code_execution runs it in a sandbox (docs/sandbox.md)"));
    }
    return make_code_reward(settings);
  }
  for (const NamedRule& rule : rules()) {
    if (name == rule.name) return std::make_unique<RuleReward>(rule, settings);
  }
  const std::vector<std::string> names = reward_names();
  const auto near = nearest_name(name, names);
  throw UsageError(tr("[reward] no reward is called \"{}\"", name),
                   near ? tr("did you mean {}?", *near)
                        : tr("one of {}, or program:COMMAND", fmt::join(names, ", ")));
}

}  // namespace danlu::eval
