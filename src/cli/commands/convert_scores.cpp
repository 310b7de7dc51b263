#include "cli/commands/convert_scores.h"

#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "weights/hf/new_head.h"
#include "weights/hf/renamed_source.h"
#include "weights/hf/value_head.h"

namespace danlu::cli {
namespace {

using weights::TensorInfo;

/// MindSpeed-LLM's head as the model has it: a number of each token, with a bias.
constexpr arch::ScoreHead kOfMindSpeed{.form = arch::ScoreForm::kTokens, .labels = 1};

/// Every tensor under its name, but for those of the head `from`, which get those of `to`.
std::shared_ptr<const weights::TensorSource> with_head_of(
    const std::shared_ptr<const weights::TensorSource>& source, const arch::ScoreHead& from,
    const arch::ScoreHead& to) {
  weights::RenamedSource::Names names;
  const std::string before = from.module() + ".";
  for (const TensorInfo& info : source->tensors()) {
    if (!info.name.starts_with(before)) {
      names.emplace(info.name, info.name);
      continue;
    }
    names.emplace(to.module() + "." + info.name.substr(before.size()), info.name);
  }
  return std::make_shared<weights::RenamedSource>(source, names);
}

void make_mindspeed(const ConvertRequest& request, ConvertPlan& plan) {
  const arch::ScoreHead from = *plan.config.score;
  if (from.labels != 1) {
    throw ModelError(tr("{}: its head gives {} numbers, MindSpeed-LLM's rm_head gives one",
                        request.source.string(), from.labels));
  }
  plan.model = with_head_of(plan.model, from, kOfMindSpeed);
  plan.config = arch::with_score(plan.config, kOfMindSpeed);
  plan.model = weights::with_empty_head(plan.model, plan.config);
}

/// A head whose bias is 0 was opened as one that has none.
void require_no_bias(const ConvertRequest& request, ConvertPlan& plan) {
  if (plan.config.score->has_bias()) {
    throw ModelError(
        tr("{}: the bias of rm_head is not 0, and transformers' head of a reward model has none",
           request.source.string()),
        tr("it moves every score alike; danlu takes the checkpoint itself with --reward_model"));
  }
  plan.config_changed = true;
}

}  // namespace

bool keeps_scores(const ConvertRequest& request) {
  if (request.to == ConvertTo::kCore) return true;
  // A head in a file of its own stays beside the model; files of transformers' have none among a
  // model's weights.
  return request.to == ConvertTo::kHf && !weights::has_value_head(request.source) &&
         !weights::holds_value_head(request.source);
}

void convert_scores(const ConvertRequest& request, ConvertPlan& plan) {
  if (!plan.config.score) {
    if (!request.is_reward_model) return;
    throw UsageError(tr("[--orm] {} has no head of a reward model", request.source.string()),
                     tr("danlu posttrain --stage orm begins from the model itself, with a head "
                        "that is drawn"));
  }
  if (request.with_optimizer) {
    throw UsageError(tr("[--with-optimizer] optimizer states of reward models are not converted"));
  }
  if (request.to == ConvertTo::kCore) make_mindspeed(request, plan);
  if (request.to == ConvertTo::kHf && plan.source.megatron) require_no_bias(request, plan);
}

void require_place_for_scores(const ConvertRequest& request) {
  if (!request.is_reward_model || request.to == ConvertTo::kCore || request.to == ConvertTo::kHf)
    return;
  throw UsageError(
      tr("[--orm] heads of reward models have a place in Megatron-core's format and Hugging Face's "
         "alone"),
      request.to == ConvertTo::kLegacy
          ? tr("--to mcore, or --use-mcore-models in MindSpeed-LLM's words")
          : tr("--to mcore or --to hf"));
}

std::optional<DType> type_of_head(const ConvertRequest& request, const ConvertPlan& plan,
                                  const std::string& name) {
  if (!plan.config.score || !name.starts_with(plan.config.score->module() + "."))
    return std::nullopt;
  if (request.to == ConvertTo::kCore) return DType::kF32;
  if (request.to != ConvertTo::kHf || request.dtype || !plan.source.megatron) return std::nullopt;
  const TensorInfo* const head = plan.model->find(name);
  const DType of_model = plan.model->find(plan.globals.front().name)->dtype;
  if (head->dtype != DType::kF32 || of_model == DType::kF32) return std::nullopt;
  std::vector<std::byte> wide(head->size_bytes());
  plan.model->read(name, wide);
  std::vector<std::byte> narrow(wide.size()), back(wide.size());
  const size_t count = wide.size() / dtype_size_bytes(DType::kF32);
  cast_elements(wide.data(), DType::kF32, narrow.data(), of_model, count);
  cast_elements(narrow.data(), of_model, back.data(), DType::kF32, count);
  if (wide != back) return std::nullopt;
  return of_model;
}

}  // namespace danlu::cli
