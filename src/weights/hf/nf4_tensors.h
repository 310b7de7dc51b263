// weights/hf/nf4_tensors.h: matrices in NF4 (base/nf4.h) as bitsandbytes stores them.
//
// Beside a matrix NAME, U8 [(numbers + 1) / 2, 1] of codes, lie
//   NAME.absmax            a factor for each block: F32, or U8 of doubly quantised ones
//   NAME.quant_map         F32 [16], the number of each code
//   NAME.nested_absmax     F32, a factor for each 256 factors; and
//   NAME.nested_quant_map  F32 [256], the number of a factor's code: of doubly quantised ones
//   NAME.quant_state.bitsandbytes__nf4   U8, JSON of type, block, shape and offset
// Source: bitsandbytes, functional.py (QuantState.as_dict), 0.45.
#pragma once
#include <memory>
#include <vector>

#include "arch/model_config.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

/// Gives the source with such matrices under NAME, in the type and shape that were quantised, and
/// without what lies beside them; the same source if it has none. Errors: ModelError for parts that
/// are missing, or of another shape or type, for other maps, and for FP4.
std::shared_ptr<const TensorSource> with_nf4(std::shared_ptr<const TensorSource> source);

/// The matrices that are held in NF4: those of the decoder's linear layers, except routers.
/// Embedding, head and norms stay as they are, as with bitsandbytes.
bool takes_nf4(const arch::ModelConfig& config, const arch::ParamSpec& spec);

/// Their names; tied ones once.
std::vector<std::string> names_in_nf4(const arch::ModelConfig& config);
/// How many of the tensors of `source` its files hold in NF4.
int64_t count_nf4(const TensorSource& source);

/// The other way: a source that has the tensors `names` of `source` in NF4, quantised as they are
/// read, and all others of `source` as they are. What `source` holds in NF4 of the same block and
/// doubleness is passed on bit for bit. `block` and `doubly` as Nf4Form has them; `dtype`: the type
/// that is quantised, to which numbers are rounded first.
std::shared_ptr<const TensorSource> as_nf4(std::shared_ptr<const TensorSource> source,
                                           const std::vector<std::string>& names,
                                           const Nf4Form& form);

/// The type that is quantised of numbers in `stored`: bitsandbytes has none of 64 bits.
DType nf4_dtype(DType stored);

/// What config.json says of such weights of a model ("quantization_config"): linear layers that
/// stay dense are named where there are more than the head, which transformers leaves by itself.
Json nf4_config(const Nf4Form& form, const arch::ModelConfig& config);

}  // namespace danlu::weights
