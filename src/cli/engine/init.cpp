#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "base/control_group.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/new_output.h"
#include "cli/engine/engine.h"
#include "models/causal_lm.h"
#include "models/weight_files.h"
#include "text/tokenizer.h"
#include "weights/convert/replaceable.h"

namespace danlu::cli {
namespace {

void check_vocabulary(const arch::ModelConfig& config, const fs::path& directory) {
  const auto tokenizer = text::Tokenizer::load(directory);
  if (static_cast<int64_t>(tokenizer->size()) <= config.vocab_size) return;
  throw ModelError(tr("[init] the tokenizer of {} has {} ids, but vocab_size is {}: ids from {} on "
                      "would have no row",
                      directory.string(), tokenizer->size(), config.vocab_size, config.vocab_size),
                   tr("set vocab_size to {} or more in the config", tokenizer->size()));
}

/// Numbers are drawn in fp32, all of them before the first is written.
void check_memory(const arch::ModelConfig& config) {
  const double wanted = static_cast<double>(arch::parameter_count(config)) * sizeof(float),
               available = static_cast<double>(available_memory_bytes());
  if (available == 0 || wanted <= available) return;
  throw MemoryError(tr("[init] {} parameters take {:.1f} GB in fp32, and {:.1f} GB are available",
                       arch::parameter_count(config), wanted / 1e9, available / 1e9),
                    tr("training begins from random weights without a file of them: danlu pretrain "
                       "--from_scratch --model DIR, its parts on several machines"));
}

}  // namespace

int run_init(const Options& options) {
  const arch::ModelConfig config = arch::load_model_config(options.get_string("config"));
  const DType dtype =
      options.has_value("dtype") ? dtype_from_name(options.get_string("dtype")) : config.dtype;
  const fs::path output = options.get_string("output"),
                 tokenizer = options.get_string_or("tokenizer", "");
  if (!tokenizer.empty()) check_vocabulary(config, tokenizer);
  check_memory(config);
  const NewDirectory made(
      output, options.get_bool("overwrite"), {options.get_string("config"), tokenizer},
      [](const fs::path& old) { weights::require_replaceable(old, /*is_file=*/false); });
  models::CausalLM model(config, parallel::Mesh::single(), at::kFloat, at::Device(at::kCPU));
  models::initialize(model, static_cast<uint64_t>(options.get_int("seed")));
  made.publish(
      [&](const fs::path& directory) { models::save(model, directory, dtype, tokenizer); });
  log::info("wrote {}: {}, {} parameters, {}, seed {}", output.string(), config.family,
            arch::parameter_count(config), dtype_name(dtype), options.get_int("seed"));
  return 0;
}

}  // namespace danlu::cli
