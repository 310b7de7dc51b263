#include "infer/logit_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"

namespace danlu::infer {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

float* logit_of(std::span<float> logits_V, text::TokenId id) {
  return id >= 0 && static_cast<size_t>(id) < logits_V.size() ? &logits_V[static_cast<size_t>(id)]
                                                              : nullptr;
}

void penalise(std::span<float> logits_V, const LogitRules& rules,
              std::span<const text::TokenId> answer) {
  std::unordered_map<text::TokenId, int64_t> times;
  for (const text::TokenId id : answer) ++times[id];
  for (const auto& [id, count] : times) {
    float* const logit = logit_of(logits_V, id);
    if (!logit) continue;
    *logit -= static_cast<float>(rules.presence_penalty +
                                 rules.frequency_penalty * static_cast<double>(count));
  }
}

void forbid_all_but(std::span<float> logits_V, std::span<const uint64_t> allowed) {
  for (size_t word = 0; word * 64 < logits_V.size(); ++word) {
    const uint64_t bits = word < allowed.size() ? allowed[word] : 0;
    const size_t end = std::min(logits_V.size(), word * 64 + 64);
    for (size_t id = word * 64; id < end; ++id) {
      if (!(bits >> (id % 64) & 1)) logits_V[id] = kForbidden;
    }
  }
}

bool any_may_come(std::span<const float> logits_V) {
  return std::any_of(logits_V.begin(), logits_V.end(),
                     [](float logit) { return logit != kForbidden; });
}

/// A form that is complete allows nothing but the end, however short the answer is.
void forbid_end(std::span<float> logits_V, std::span<const text::TokenId> stop_ids) {
  std::vector<std::pair<float*, float>> before;
  for (const text::TokenId id : stop_ids) {
    float* const logit = logit_of(logits_V, id);
    if (!logit) continue;
    before.emplace_back(logit, *logit);
    *logit = kForbidden;
  }
  if (any_may_come(logits_V)) return;
  for (auto last = before.rbegin(); last != before.rend(); ++last) *last->first = last->second;
}

void require_penalty(double value, const char* name) {
  if (!std::isfinite(value))
    throw UsageError(tr("[sampling] {} must be {}, got {}", name, "a finite number", value));
}

}  // namespace

bool apply_rules(std::span<float> logits_V, const LogitRules& rules,
                 std::span<const text::TokenId> answer, std::span<const text::TokenId> stop_ids) {
  for (const auto& [id, bias] : rules.bias) {
    if (float* const logit = logit_of(logits_V, id)) *logit += bias;
  }
  if (rules.presence_penalty != 0 || rules.frequency_penalty != 0)
    penalise(logits_V, rules, answer);
  if (rules.constraint) forbid_all_but(logits_V, rules.constraint->allowed());
  if (std::ssize(answer) < rules.min_new_tokens) forbid_end(logits_V, stop_ids);
  return any_may_come(logits_V);
}

void keep_form(std::span<float> logits_V, const LogitRules& rules) {
  if (rules.constraint && rules.constraint->is_form())
    forbid_all_but(logits_V, rules.constraint->allowed());
}

void check_rules(const LogitRules& rules, int64_t vocabulary) {
  require_penalty(rules.presence_penalty, "presence_penalty");
  require_penalty(rules.frequency_penalty, "frequency_penalty");
  for (const auto& [id, bias] : rules.bias) {
    require_penalty(bias, "logit_bias");
    if (id < 0 || id >= vocabulary) {
      throw DataError(
          tr("[sampling] logit_bias names token {}, the vocabulary has {}", id, vocabulary));
    }
  }
}

}  // namespace danlu::infer
