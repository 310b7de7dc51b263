// cli/commands/convert_request.h: what `danlu convert` is asked for, in either spelling.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/options.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/megatron/names.h"
#include "weights/megatron/split.h"

namespace danlu::cli {

enum class ConvertTo { kHf, kCore, kLegacy, kMm, kNative, kGguf, kPeft };

struct ConvertRequest {
  std::filesystem::path source, output;
  weights::SourceOptions source_options;
  /// What the flags say the source is, to be checked against it; empty: nothing.
  std::optional<weights::Format> expected_source;
  bool expect_legacy = false;
  ConvertTo to = ConvertTo::kHf;
  weights::megatron::Split split;  ///< vocab_divisor 0: the source's, else 1
  /// Megatron targets; empty: the source's where it is Megatron's, else local and sequential.
  std::optional<weights::megatron::Dialect> dialect;
  std::optional<weights::megatron::ExpertForm> experts;
  int64_t virtual_stages = 0;                   ///< --vpp: chunks of each stage; 0: none
  std::optional<std::string> target_iteration;  ///< a number or "release"
  std::optional<DType> dtype;                   ///< empty: the source's
  std::optional<bool> nf4_doubly;               ///< matrices are stored in NF4; empty: they are not
  std::filesystem::path adapters;               ///< PEFT or MindSpeed LoRA checkpoint to merge
  bool with_own_adapters = true;                ///< those beside the model in the source too
  std::filesystem::path tokenizer;  ///< directory whose tokenizer files go along; may be empty
  std::string gguf_type = "f16";
  uint64_t max_shard_bytes = 5'000'000'000;
  /// Hugging Face: a directory whose index says which file a tensor goes into; empty or without
  /// an index: max_shard_bytes decides.
  std::filesystem::path shards_like;
  /// Asked about the source as soon as it is open; throws what does not go with the flags.
  std::function<void(const weights::CheckpointSource& source)> check_source;
  bool is_reward_model = false;  ///< --orm says so
  bool with_optimizer = false;
  std::optional<bool> distributed_optimizer;  ///< empty: as the source
  std::optional<int64_t> data_parallel;
  std::optional<bool> overlap_grad_reduce;
  std::optional<bool> check;
  bool overwrite = false;
  size_t num_threads = 0;
};

/// Errors: UsageError for flags that contradict each other or leave something open.
ConvertRequest read_convert_request(const Options& options);

/// Flags that describe the source (--model-type-hf, --add-qkv-bias, --w-pack, …) against what its
/// files say. Errors: UsageError that shows both.
void check_described(const Options& options, const ConvertRequest& request,
                     const weights::CheckpointSource& source);

}  // namespace danlu::cli
