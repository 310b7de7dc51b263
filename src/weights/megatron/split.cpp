#include "weights/megatron/split.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace danlu::weights::megatron {
namespace {

/// Rows of padding are rows of files: a slip of the hand would fill a disk.
void check_padding(int64_t vocab_size, const Split& split) {
  constexpr int64_t kMostDivisor = int64_t{1} << 40;
  if (split.vocab_divisor < 1 || split.vocab_divisor > kMostDivisor) {
    throw UsageError(tr("[--make-vocab-size-divisible-by] must be from 1 to {}, got {}",
                        kMostDivisor, split.vocab_divisor));
  }
  constexpr int64_t kAlwaysFine = 1 << 16, kNever = 1'000'000, kTimes = 16;
  const int64_t padded = padded_vocab(vocab_size, split);
  const int64_t most = std::clamp(kTimes * vocab_size, kAlwaysFine, kNever);
  if (padded - vocab_size <= most) return;
  throw UsageError(tr("[--make-vocab-size-divisible-by] {} on {} tensor parallel ranks pads a "
                      "vocabulary of {} to {} rows",
                      split.vocab_divisor, split.tp, vocab_size, padded),
                   tr("at most {} rows of padding are written; 128 is usual", most));
}

/// "1,10,10,7", and with virtual stages "[0,4],[4,3]".
std::string list_text(const std::vector<std::vector<int64_t>>& list) {
  if (list.size() == 1) return fmt::format("{}", fmt::join(list.front(), ","));
  std::vector<std::string> chunks;
  for (const std::vector<int64_t>& chunk : list)
    chunks.push_back(fmt::format("[{}]", fmt::join(chunk, ",")));
  return fmt::format("{}", fmt::join(chunks, ","));
}

void check_tower(const arch::VisionConfig& vision, int64_t tp) {
  arch::require_divides("tensor parallel", tp, "heads of the vision tower", vision.num_heads);
  arch::require_divides("tensor parallel", tp, "FFN columns of the vision tower", vision.ffn_size);
  arch::require_divides("tensor parallel", tp, "columns of the vision tower's merger",
                        vision.merged_width());
}

}  // namespace

void check_split(const arch::ModelConfig& config, const Split& split) {
  for (const auto& [name, size] : {std::pair{"tensor", split.tp}, std::pair{"pipeline", split.pp},
                                   std::pair{"expert", split.ep}}) {
    if (size < 1 || size > 4096)
      throw UsageError(tr("[split] {} parallel size must be from 1 to 4096, got {}", name, size));
  }
  if ((split.layers_per_virtual_stage > 0 || split.chunk_list.size() > 1) && split.pp == 1) {
    throw UsageError(tr("[split] virtual pipeline stages need more than one pipeline stage"),
                     tr("give --pp, or leave them out"));
  }
  check_padding(config.vocab_size, split);
  arch::require_divides("tensor parallel", split.tp, "KV groups", config.num_kv_heads);
  const bool all_sparse = config.has_experts() && std::all_of(config.experts.sparse_layer.begin(),
                                                              config.experts.sparse_layer.end(),
                                                              [](bool sparse) { return sparse; });
  if (!all_sparse)
    arch::require_divides("tensor parallel", split.tp, "FFN columns", config.ffn_size);
  if (config.has_experts()) {
    arch::require_divides("expert parallel", split.ep * split.expert_dealers(), "experts",
                          config.experts.count);
    arch::require_divides("tensor parallel", split.tp / split.expert_dealers(),
                          "columns of an expert", config.experts.ffn_size);
    if (config.experts.shared_ffn_size > 0)
      arch::require_divides("tensor parallel", split.tp, "columns of the shared expert",
                            config.experts.shared_ffn_size);
  } else if (split.ep > 1) {
    throw UsageError(tr("[split] {} has no experts: the expert parallel size must be 1, got {}",
                        config.family, split.ep));
  } else if (split.tp_extends_ep) {
    throw UsageError(tr("[split] {} has no experts: --moe-tp-extend-ep deals none", config.family),
                     tr("leave it out"));
  }
  if (config.vision) check_tower(*config.vision, split.tp);
  const arch::Placement placement = arch::place_layers(split.pipeline(), config.num_layers);
  (void)arch::place_blocks(split.pipeline(), placement, config.vision ? config.vision->depth : -1);
}

arch::PipelineLayers Split::pipeline() const {
  return {.stages = pp,
          .layers_per_virtual_stage = layers_per_virtual_stage,
          .layer_list = layer_list,
          .noop_layers = noop_layers,
          .chunk_list = chunk_list,
          .block_list = block_list};
}

int64_t padded_vocab(int64_t vocab_size, const Split& split) {
  const int64_t unit = split.vocab_divisor * split.tp;
  return (vocab_size + unit - 1) / unit * unit;
}

std::string rank_directory(const Split& split, int64_t tp_rank, int64_t pp_rank, int64_t ep_rank) {
  std::string name = fmt::format("mp_rank_{:02}", tp_rank);
  if (split.pp > 1) name += fmt::format("_{:03}", pp_rank);
  if (split.counts_tensor_ranks) {
    name += fmt::format("_{:03}", ep_rank * split.expert_dealers() + tp_rank / split.expert_tp);
  } else if (split.ep > 1) {
    name += fmt::format("_{:03}", ep_rank);
  }
  return name;
}

std::string describe(const Split& split) {
  std::string text = fmt::format("TP{} PP{}", split.tp, split.pp);
  if (!split.layer_list.empty())
    text += fmt::format(" ({} layers)", fmt::join(split.layer_list, ","));
  if (!split.chunk_list.empty() && split.pp > 1)
    text += fmt::format(" (layers {})", list_text(split.chunk_list));
  if (!split.block_list.empty() && split.pp > 1)
    text += fmt::format(" (vision blocks {})", list_text(split.block_list));
  if (split.layers_per_virtual_stage > 0)
    text += fmt::format(" VPP (chunks of {} layers)", split.layers_per_virtual_stage);
  if (split.counts_tensor_ranks) {
    text += fmt::format(" EP{} ETP{}", split.ep * split.expert_dealers(), split.expert_tp);
  } else if (split.ep > 1) {
    text += fmt::format(" EP{}", split.ep);
  }
  if (!split.noop_layers.empty())
    text += fmt::format(", no-op slots {}", fmt::join(split.noop_layers, ","));
  return text;
}

}  // namespace danlu::weights::megatron
