#include "cli/engine/adapter_head.h"

#include <string>

#include "base/error.h"
#include "base/lower_case.h"
#include "text/template_record.h"
#include "weights/hf/value_head.h"
#include "weights/lora/peft.h"
#include "weights/tensor_source.h"

namespace danlu::cli {

std::optional<arch::LabelProblem> recorded_problem(const Json& run_args) {
  if (lower_case(text::recorded_text(run_args, "task_type")) != "seq_cls") return std::nullopt;
  return arch::label_problem_from_name(lower_case(text::recorded_text(run_args, "problem_type")))
      .value_or(arch::LabelProblem::kByNumber);
}

std::optional<arch::ScoreHead> head_in(const std::filesystem::path& adapters) {
  if (weights::has_value_head(adapters)) return std::nullopt;
  const std::string task = weights::load_peft_config(adapters).task_type;
  if (task != "SEQ_CLS" && task != "TOKEN_CLS") return std::nullopt;
  arch::ScoreHead head;
  if (task == "TOKEN_CLS") head.form = arch::ScoreForm::kTokens;
  const auto tensors = weights::open_weights(adapters);
  const weights::TensorInfo* weight = nullptr;
  // Encoders have names of their own.
  for (const std::string& module :
       {head.module(), std::string("classifier"), std::string("classifier.out_proj")}) {
    if (!weight) weight = tensors->find(weights::kWholeModulePrefix + module + ".weight");
  }
  if (!weight || weight->shape.empty())
    throw ModelError(tr("{}: adapters of a reward model without its head", adapters.string()));
  head.labels = weight->shape[0];
  if (task == "SEQ_CLS") head.problem = recorded_problem(text::read_record(adapters));
  if (head.problem) head.problem = arch::settled(*head.problem, head.labels);
  return head;
}

}  // namespace danlu::cli
