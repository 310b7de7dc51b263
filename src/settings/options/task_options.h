// settings/options/task_options.h: what is trained: the task, and which parameters.
#pragma once
#include <optional>
#include <string>

#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

/// --stage, by default of `verb`. Errors: UsageError for a task that is not built in.
Task task_from(const std::string& verb, const Options& options);

/// Whether texts are samples of their own, each learnt whole: LLaMA-Factory's stage pt with packing
/// false.
bool takes_texts_apart(const Options& options);

/// --tuner, by default of the task.
Tuner tuner_from(const std::string& verb, Task task, const Options& options);

/// Whether base weights are held in NF4: by --quantization_bit 4 and its like, or since the files
/// of `model` hold them so. Errors: UsageError for another number of bits, or where they are
/// trained.
std::optional<Nf4Base> nf4_from(const Options& options, Tuner tuner,
                                const arch::ModelConfig& model);

}  // namespace danlu::settings
