// weights/lora/trained_base.h: the numbers that the base of an adapter had while it was trained.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>

#include "arch/model_config.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

/// A base whose files are dense and that was held in NF4 (base/nf4.h) as it was loaded.
struct MadeNf4 {
  bool doubly = true;  ///< factors are quantised too
};

/// What the record beside an adapter says: args.json of Danlu and of ms-swift, and sft_args.json,
/// as ms-swift 2 calls it. Nothing where there is none, or none that can be read, or where the base
/// was held otherwise.
std::optional<MadeNf4> recorded_nf4(const std::filesystem::path& adapter);

/// Whether `made` says that the base was of other numbers than `base`, whose files do not hold NF4.
bool is_other_base(const std::optional<MadeNf4>& made, const TensorSource& base);

/// `base` with the matrices that NF4 takes dequantised from it. A loader that keeps NF4 gets them
/// in NF4. `base`: of `config`; what it holds in NF4 stays as it is.
std::shared_ptr<const TensorSource> through_nf4(std::shared_ptr<const TensorSource> base,
                                                const arch::ModelConfig& config,
                                                const MadeNf4& made);

}  // namespace danlu::weights
