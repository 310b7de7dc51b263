// weights/megatron/arguments.h: the `args` Namespace of a Megatron checkpoint: written complete
// enough for --use-checkpoint-args, and read back as split and form.
#pragma once
#include <optional>
#include <string>

#include "arch/model_config.h"
#include "weights/megatron/names.h"
#include "weights/megatron/split.h"
#include "weights/torch/py_value.h"

namespace danlu::weights::megatron {

using torch_file::PyValue;

/// The architecture, the split and the training counters (zero) as Megatron-LM and MindSpeed-LLM
/// name them. `dtype`: of the parameters.
PyValue make_arguments(const arch::ModelConfig& config, const Split& split, const Form& form,
                       DType dtype);

/// `existing` with everything replaced that the model or a re-split decides: the architecture,
/// sizes of the split, vocabulary padding, dtype, dialect. What a run chooses freely (sequence
/// length, coefficients, counters) stays, and so does a data parallel size that the expert ranks
/// divide. Only plain values are kept (a warning names the others): a file from elsewhere
/// does not get to say what readers of ours call, and ours open where Megatron is not installed.
PyValue update_arguments(const PyValue& existing, const arch::ModelConfig& config,
                         const Split& split, const Form& form, DType dtype);

/// The sizes of a job: expert ranks lie inside the data and context parallel ones.
/// Errors: UsageError for sizes below 1 or beyond all reason.
void put_job(PyValue& args, const Split& split, int64_t data_parallel, int64_t context_parallel);

/// A whole number, also where it stands in a string, as some converters leave it. `what` begins
/// the message. Errors: ModelError.
int64_t whole_number(const PyValue& value, const std::string& what);

/// Sizes and placement that `args` records; `where` begins messages.
/// Errors: ModelError for values of the wrong kind, sizes and a vocabulary's divisor below 1.
Split split_of_arguments(const PyValue& args, const std::string& where);

/// What `args` says of the architecture and config.json says otherwise, one line each with both
/// values; empty if they agree. Keys that `args` lacks are not compared.
std::vector<std::string> disagreements(const PyValue& args, const arch::ModelConfig& config);

/// What may well be a mistake, one line each: Megatron's default of the rotary base or the norm's
/// epsilon where config.json says otherwise (converters leave it there; any other value is a
/// disagreement), and rows of the vocabulary that no padding rule explains. `padded_rows`: of the
/// embedding over all ranks; 0: not known.
std::vector<std::string> doubts(const PyValue& args, const arch::ModelConfig& config,
                                int64_t padded_rows);

}  // namespace danlu::weights::megatron
