#include "data/sample_kind.h"

#include <fmt/format.h>

#include "base/error.h"

namespace danlu::data {
namespace {

constexpr SampleKind kAllKinds[] = {
    SampleKind::kTokens,  SampleKind::kPairs,    SampleKind::kUnpaired, SampleKind::kSteps,
    SampleKind::kPrompts, SampleKind::kLabelled, SampleKind::kGroups};

}  // namespace

const char* sample_kind_name(SampleKind kind) {
  switch (kind) {
    case SampleKind::kTokens:
      return "tokens";
    case SampleKind::kPairs:
      return "pairs";
    case SampleKind::kUnpaired:
      return "unpaired";
    case SampleKind::kSteps:
      return "steps";
    case SampleKind::kPrompts:
      return "prompts";
    case SampleKind::kLabelled:
      return "labelled";
    case SampleKind::kGroups:
      return "groups";
  }
  throw InternalError("a kind of samples without a name");
}

SampleKind sample_kind_from_name(const std::string& name) {
  for (const SampleKind kind : kAllKinds) {
    if (name == sample_kind_name(kind)) return kind;
  }
  throw DataError(tr("unknown kind of samples \"{}\"", name));
}

std::string sample_kind_description(SampleKind kind) {
  switch (kind) {
    case SampleKind::kTokens:
      return tr("texts or conversations");
    case SampleKind::kPairs:
      return tr("preference pairs");
    case SampleKind::kUnpaired:
      return tr("answers that are liked or not");
    case SampleKind::kSteps:
      return tr("steps with a reward each");
    case SampleKind::kPrompts:
      return tr("prompts for reinforcement learning");
    case SampleKind::kLabelled:
      return tr("texts with labels");
    case SampleKind::kGroups:
      return tr("texts beside others that fit them");
  }
  throw InternalError("a kind of samples without a description");
}

std::string hint_for_kind(SampleKind kind) {
  switch (kind) {
    case SampleKind::kTokens:
      return tr("danlu sft trains on them");
    case SampleKind::kPairs:
      return tr("danlu rlhf --rlhf_type dpo (or danlu posttrain --stage dpo) trains on them");
    case SampleKind::kUnpaired:
      return tr("danlu rlhf --rlhf_type kto trains on them");
    case SampleKind::kSteps:
      return tr("danlu posttrain --stage prm trains on them");
    case SampleKind::kPrompts:
      return tr("danlu rlhf --rlhf_type grpo trains with them");
    case SampleKind::kLabelled:
      return tr("danlu sft --task_type seq_cls trains on them");
    case SampleKind::kGroups:
      return tr("danlu sft --task_type embedding trains on them");
  }
  throw InternalError("a kind of samples without a hint");
}

}  // namespace danlu::data
