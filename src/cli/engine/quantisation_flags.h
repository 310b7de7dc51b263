// cli/engine/quantisation_flags.h: what flags of several systems say of how weights are held that
// only answer.
#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>

#include "base/options.h"
#include "models/weight_files.h"
#include "weights/convert/checkpoint_source.h"

namespace danlu::cli {

/// A value of --quantize, and the flag that asks for it.
struct WantedQuantisation {
  std::string type = "auto";  ///< auto, none, q8_0, q4_0, nf4
  std::string flag = "--quantize";
  bool doubly = true;            ///< of nf4
  std::string doubly_flag = "";  ///< that says so; "": none does
  std::string gguf_flag = "";    ///< that takes the files for GGUF; "": none does
  /// The type, and what else tells weights that are held so from others.
  std::string described() const;
};

/// --quantize, and the names that MindSpeed-LLM, ms-swift and LLaMA-Factory have for it: --qlora,
/// --quantization_bit 4 or 8, --load_in_4bit, --load_in_8bit, --quantization bitsandbytes or gguf.
/// A line of the log says what 8 bits are here, a notice which of these flags have no effect.
/// Errors: UsageError for two that ask for different things, and for other bits.
WantedQuantisation wanted_quantisation(const Options& options);

/// The same where nothing is asked for and `adapter`, which may be empty, was trained on its base
/// in NF4: then that. Notices say so, and where what is asked for has other numbers.
WantedQuantisation as_adapters_were_trained(WantedQuantisation wanted,
                                            const weights::CheckpointSource& source,
                                            const std::filesystem::path& adapter);

/// How load_model is to hold the weights of `source`. Errors: UsageError for blocks on a device
/// that does not multiply them, and in parts; for files that a flag takes for GGUF and are not.
models::Quantisation quantisation_for(const WantedQuantisation& wanted,
                                      const weights::CheckpointSource& source,
                                      const at::Device& device, bool in_parts);

}  // namespace danlu::cli
