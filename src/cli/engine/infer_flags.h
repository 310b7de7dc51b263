// cli/engine/infer_flags.h: notices about flags of `danlu infer` that change nothing as things are.
#pragma once
#include "base/options.h"
#include "infer/sampling.h"

namespace danlu::cli {

/// How this call answers.
/// --use_chat_template false is --raw. Errors: UsageError where a line asks for both.
Options with_plain_prompts(const Options& options);
/// --output_dir has the answers too, where --output names no other file.
Options with_output_dir(const Options& options);

struct InferUse {
  bool chat = false;
  bool data_set = false;      ///< --dataset or held-out rows
  bool has_template = false;  ///< prompts go through a chat template
  infer::SamplingParams sampling;
};

/// One notice of those that only answers need, where steps are judged.
void report_idle_step_flags(const Options& options);

/// The same where texts are sorted.
void report_idle_label_flags(const Options& options);

/// The same where texts become vectors.
void report_idle_vector_flags(const Options& options);
/// The same where documents are ranked.
void report_idle_rank_flags(const Options& options);

/// One notice for each reason, naming the user's flags as typed.
void report_idle_infer_flags(const Options& options, const InferUse& use);

}  // namespace danlu::cli
