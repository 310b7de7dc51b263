#include "weights/megatron/split.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"

namespace danlu::weights::megatron {
namespace {

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d <= number && found.size() < 32; ++d) {
    if (number % d == 0) found.push_back(d);
  }
  return found;
}

[[noreturn]] void does_not_divide(const char* what, int64_t size, const char* of, int64_t number) {
  throw UsageError(tr("[split] {} size {} does not divide {} {}", what, size, number, of),
                   tr("sizes that do: {}", fmt::join(divisors(number), ", ")));
}

void require_divides(const char* what, int64_t size, const char* of, int64_t number) {
  if (number % size != 0) does_not_divide(what, size, of, number);
}

/// The model's layer in each global slot.
std::vector<int64_t> layers_of_slots(const Split& split, int64_t num_layers) {
  const std::set<int64_t> noops(split.noop_layers.begin(), split.noop_layers.end());
  if (noops.size() != split.noop_layers.size())
    throw UsageError(tr("[--noop-layers] a slot is named twice"));
  const int64_t slots = num_layers + static_cast<int64_t>(noops.size());
  if (!noops.empty() && (*noops.begin() < 0 || *noops.rbegin() >= slots)) {
    throw UsageError(
        tr("[--noop-layers] {} no-op slots beside {} layers make slots 0 to {}, got slot {}",
           noops.size(), num_layers, slots - 1,
           *noops.begin() < 0 ? *noops.begin() : *noops.rbegin()));
  }
  std::vector<int64_t> layers;
  int64_t next = 0;
  for (int64_t slot = 0; slot < slots; ++slot)
    layers.push_back(noops.count(slot) ? kNoopLayer : next++);
  return layers;
}

std::vector<int64_t> stage_sizes(const Split& split, int64_t slots) {
  if (split.layer_list.empty()) {
    require_divides("pipeline", split.pp, "layers", slots);
    return std::vector<int64_t>(static_cast<size_t>(split.pp), slots / split.pp);
  }
  if (split.layers_per_virtual_stage > 0)
    throw UsageError(tr("[--num-layer-list] cannot be combined with virtual pipeline stages"));
  // Sums of numbers in this range cannot overflow.
  const bool possible = std::all_of(split.layer_list.begin(), split.layer_list.end(),
                                    [&](int64_t n) { return n >= 0 && n <= slots; });
  if (static_cast<int64_t>(split.layer_list.size()) != split.pp || !possible ||
      std::accumulate(split.layer_list.begin(), split.layer_list.end(), int64_t{0}) != slots) {
    throw UsageError(
        tr("[--num-layer-list] {} does not cut {} layers into {} pipeline stages",
           fmt::join(split.layer_list, ","), slots, split.pp),
        tr("one number per stage, which sum to the model's layers (no-op slots included)"));
  }
  return split.layer_list;
}

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

}  // namespace

Placement place_layers(const Split& split, int64_t num_layers) {
  const std::vector<int64_t> layers = layers_of_slots(split, num_layers);
  const auto slots = static_cast<int64_t>(layers.size());
  const auto run = [&](int64_t begin, int64_t count) {
    return std::vector<int64_t>(layers.begin() + begin, layers.begin() + begin + count);
  };
  if (split.layers_per_virtual_stage < 0) {
    throw UsageError(tr("[split] layers of a virtual pipeline stage must be at least 1, got {}",
                        split.layers_per_virtual_stage));
  }
  Placement placement(static_cast<size_t>(split.pp));
  if (split.layers_per_virtual_stage == 0) {
    const std::vector<int64_t> sizes = stage_sizes(split, slots);
    int64_t begin = 0;
    for (size_t stage = 0; stage < sizes.size(); ++stage) {
      placement[stage].push_back(run(begin, sizes[stage]));
      begin += sizes[stage];
    }
    return placement;
  }
  (void)stage_sizes(split, slots);  // the equal cut must be possible, and a list is refused
  const int64_t per_stage = slots / split.pp, count = split.layers_per_virtual_stage;
  require_divides("virtual pipeline stage", count, "layers of a pipeline stage", per_stage);
  const int64_t chunks = per_stage / count;
  for (int64_t stage = 0; stage < split.pp; ++stage) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      placement[static_cast<size_t>(stage)].push_back(
          run(chunk * (slots / chunks) + stage * count, count));
  }
  return placement;
}

void check_split(const arch::ModelConfig& config, const Split& split) {
  for (const auto& [name, size] : {std::pair{"tensor", split.tp}, std::pair{"pipeline", split.pp},
                                   std::pair{"expert", split.ep}}) {
    if (size < 1 || size > 4096)
      throw UsageError(tr("[split] {} parallel size must be from 1 to 4096, got {}", name, size));
  }
  if (split.layers_per_virtual_stage > 0 && split.pp == 1) {
    throw UsageError(tr("[split] virtual pipeline stages need more than one pipeline stage"),
                     tr("give --pp, or leave them out"));
  }
  check_padding(config.vocab_size, split);
  require_divides("tensor parallel", split.tp, "KV groups", config.num_kv_heads);
  const bool all_sparse = config.has_experts() && std::all_of(config.experts.sparse_layer.begin(),
                                                              config.experts.sparse_layer.end(),
                                                              [](bool sparse) { return sparse; });
  if (!all_sparse) require_divides("tensor parallel", split.tp, "FFN columns", config.ffn_size);
  if (config.has_experts()) {
    const int64_t owners = split.tp_extends_ep ? split.tp * split.ep : split.ep;
    require_divides("expert parallel", owners, "experts", config.experts.count);
    if (!split.tp_extends_ep)
      require_divides("tensor parallel", split.tp, "columns of an expert", config.experts.ffn_size);
    if (config.experts.shared_ffn_size > 0)
      require_divides("tensor parallel", split.tp, "columns of the shared expert",
                      config.experts.shared_ffn_size);
  } else if (split.ep > 1 || split.tp_extends_ep) {
    throw UsageError(tr("[split] {} has no experts: the expert parallel size must be 1, got {}",
                        config.family, split.ep));
  }
  (void)place_layers(split, config.num_layers);
}

int64_t padded_vocab(int64_t vocab_size, const Split& split) {
  const int64_t unit = split.vocab_divisor * split.tp;
  return (vocab_size + unit - 1) / unit * unit;
}

std::string rank_directory(const Split& split, int64_t tp_rank, int64_t pp_rank, int64_t ep_rank) {
  std::string name = fmt::format("mp_rank_{:02}", tp_rank);
  if (split.pp > 1) name += fmt::format("_{:03}", pp_rank);
  if (split.ep > 1) name += fmt::format("_{:03}", ep_rank);
  return name;
}

std::string describe(const Split& split) {
  std::string text = fmt::format("TP{} PP{}", split.tp, split.pp);
  if (!split.layer_list.empty())
    text += fmt::format(" ({} layers)", fmt::join(split.layer_list, ","));
  if (split.layers_per_virtual_stage > 0)
    text += fmt::format(" VPP (chunks of {} layers)", split.layers_per_virtual_stage);
  if (split.ep > 1) text += fmt::format(" EP{}", split.ep);
  if (!split.noop_layers.empty())
    text += fmt::format(", no-op slots {}", fmt::join(split.noop_layers, ","));
  return text;
}

}  // namespace danlu::weights::megatron
