#include "settings/options/batch_options.h"

#include "settings/run_plan.h"

namespace danlu::settings {
namespace {

/// Megatron-SWIFT counts its steps anew from epochs, but of a stream, whose length it does not
/// know.
bool counts_epochs(const Options& options) {
  const bool streams = options.get_bool_or("streaming", false);
  return options.profile().name == "megatron-swift" && options.is_given("epochs") && !streams;
}

}  // namespace

BatchConfig batch_from(const Options& options) {
  BatchConfig batch;
  batch.micro_batch_size = options.get_int("batch_size");
  batch.eval_batch_size = options.get_int_or("eval_batch_size", 0);
  batch.accumulation = options.get_int_or("accum", 0);
  batch.global_batch_size = options.get_int_or("global_batch_size", 0);
  // One that nobody named, of a plan, gives way to an accumulation.
  if (batch.accumulation > 0 && !options.is_set("global_batch_size")) batch.global_batch_size = 0;
  // A global batch given by the user outweighs an accumulation that only a profile chose.
  if (batch.global_batch_size > 0 && options.source("accum") == OptionSource::kProfile)
    batch.accumulation = 0;
  batch.epochs = options.get_float("epochs");
  batch.max_steps = counts_epochs(options) ? -1 : options.get_int("max_steps");
  batch.max_epochs = options.get_int_or("max_epochs", 0);
  batch.train_samples = counts_epochs(options) ? 0 : options.get_int_or("train_samples", 0);
  return batch;
}

BatchConfig batch_of_fewer(const BatchConfig& batch, int64_t ranks) {
  BatchConfig fewer = batch;
  fewer.global_batch_size = samples_of_step(batch);
  fewer.accumulation = 0;
  fewer.ranks = ranks;
  return fewer;
}

}  // namespace danlu::settings
