// settings/options/data_options.h: the data sets of a run and what becomes of their rows.
#pragma once
#include <cstdint>
#include <string>

#include "arch/model_config.h"
#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

/// What the meaning of the options depends on.
struct DataOf {
  Task task = Task::kSft;
  ObjectiveKind kind = ObjectiveKind::kLanguage;
  uint64_t seed = 0;          ///< of the run: where data have none of their own
  int64_t window = 0;         ///< longest_sample()
  bool is_planned = false;    ///< data sets and directories need not be there
  bool is_rewarded = false;   ///< rows are prompts, whose answers are judged
  bool may_be_packed = true;  ///< in ms-swift: not where answers may be drawn
};
/// Everything but `learnt` (learnt_from). Errors: UsageError, also as locate_dataset.
DataConfig data_from(const Options& options, const DataOf& of);

/// Whether each text of pretraining is a sample, as in ms-swift, whose pt is sft without a
/// template; else texts fill rows of max_length one behind the other, as Megatron's files of tokens
/// do.
bool has_texts_as_samples(const Options& options, Task task);

/// What a template's name means in this line: in LLaMA-Factory's (text/template_file.h) another
/// text than elsewhere.
std::string template_of_line(const Options& options, const std::string& name);

/// Tokens that a sample may have at most. A plan without a command asks what other lengths take.
int64_t longest_sample(const std::string& verb, const arch::ModelConfig& model);

}  // namespace danlu::settings
