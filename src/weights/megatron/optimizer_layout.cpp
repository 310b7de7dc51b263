#include "weights/megatron/optimizer_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "weights/convert/optimizer_state.h"
#include "weights/megatron/arguments.h"
#include "weights/torch/py_value.h"

namespace danlu::weights::megatron {
namespace {

constexpr int64_t kParameterAlignment = 64;  ///< elements
constexpr int64_t kBucketAlignment = 128;    ///< elements; with the data parallel size

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

/// Where each parameter begins in a buffer's file, in the order given, and the file's length.
struct FlatPlaces {
  std::vector<int64_t> first;
  int64_t numel_unpadded = 0;
};

struct FlatParameter {
  int64_t size = 0;
  bool is_alone = false;  ///< in a bucket of its own
};

/// Megatron's buckets of a buffer, one after the other; the file joins them without the padding at
/// their ends.
struct Buckets {
  int64_t unit;  ///< what a bucket's beginning is a multiple of
  int64_t begin = 0, in_file = 0;
  bool holds_some = false;

  /// Not inlined: GCC 12.2 at -O2 then gives another beginning, which megatron_optimizer_test sees.
  [[gnu::noinline]] void close(int64_t end) {
    in_file += end - begin;
    begin = round_up(end, unit);
    holds_some = false;
  }
};

/// Follows ParamAndGradBuffer: `parameters` in the buffer's order.
FlatPlaces place_flat(const std::vector<FlatParameter>& parameters, int64_t data_parallel,
                      int64_t bucket_elements) {
  Buckets buckets{std::lcm(data_parallel, kBucketAlignment)};
  FlatPlaces places;
  int64_t position = 0;
  for (const FlatParameter& parameter : parameters) {
    position = round_up(position, kParameterAlignment);
    if (parameter.is_alone && buckets.holds_some) buckets.close(position);
    // Megatron does not move the parameter to the new bucket's padded beginning.
    if (position < buckets.begin) {
      throw ModelError(
          tr("[distributed optimizer] with {} data parallel ranks the tied embedding's "
             "bucket begins at element {}, which Megatron itself cannot place",
             data_parallel, position),
          tr("write the plain layout instead"));
    }
    places.first.push_back(position - buckets.begin + buckets.in_file);
    position += parameter.size;
    buckets.holds_some = true;
    const bool full = bucket_elements > 0 && position - buckets.begin >= bucket_elements;
    if (full || parameter.is_alone) {
      buckets.close(position);
      position = buckets.begin;
    }
  }
  if (buckets.holds_some) buckets.close(position);
  places.numel_unpadded = buckets.in_file;
  return places;
}

/// Megatron's bias of a router is no parameter: no gradient moves it, and it has no state.
bool is_buffer(const ParameterTraits& traits) {
  return traits.key.ends_with("mlp.router.expert_bias");
}

class Builder {
 public:
  Builder(const ModelLayout& model, const OptimizerShape& shape) : model_(model), shape_(shape) {
    has_master_ = shape.distributed || !shape.fp32;
    std::vector<bool> without_state(model.layout.globals.size(), false);
    for (size_t tensor = 0; tensor < model.layout.tensors.size(); ++tensor) {
      if (!is_buffer(model.traits[tensor])) continue;
      for (const Piece& piece : model.layout.tensors[tensor].sections.front().pieces)
        without_state[piece.global] = true;
    }
    std::vector<const TensorInfo*> with_state;
    for (size_t global = 0; global < model.layout.globals.size(); ++global) {
      place_.push_back(with_state.size());
      if (!without_state[global]) with_state.push_back(&model.layout.globals[global]);
    }
    for (const char* prefix : kStatePrefixes) {
      if (!has_master_ && std::string_view(prefix) == "master.") continue;
      begin_[prefix] = out_.layout.globals.size();
      for (const TensorInfo* info : with_state)
        out_.layout.globals.push_back({prefix + info->name, DType::kF32, info->shape});
    }
  }

  OptimizerLayout build() {
    for (size_t rank = 0; rank < model_.ranks.size(); ++rank) {
      // Experts of other ranks have gradients to exchange with other partners.
      const bool chained = has_own_experts(model_.ranks[rank]);
      add_file(rank, chained);
      out_.ranks.push_back({});
      for (int member = 0; member < (chained ? 2 : 1); ++member) {
        prefix_ = chained ? std::to_string(member) + "." : "";
        out_.ranks[rank].push_back(one(model_.ranks[rank], chained, member == 1));
      }
    }
    return std::move(out_);
  }

 private:
  void add_file(size_t rank, bool chained) {
    if (shape_.distributed && !chained && model_.ranks[rank].ep > 0) return;
    file_ = out_.layout.files.size();
    out_.layout.files.push_back(shape_.distributed
                                    ? model_.ranks[rank].directory + "/" + kOptimizerFile
                                    : model_.layout.files[rank]);
    out_.rank_of_file.push_back(rank);
  }
  bool has_own_experts(const Rank& rank) const {
    if (!model_.splits_experts) return false;
    for (const Chunk& chunk : rank.chunks) {
      for (const size_t tensor : chunk.tensors) {
        if (model_.traits[tensor].is_expert) return true;
      }
    }
    return false;
  }
  /// One optimizer of a rank: of all its parameters, or of its experts only, or of the others.
  RankOptimizer one(const Rank& rank, bool chained, bool experts) {
    RankOptimizer optimizer;
    std::vector<std::vector<size_t>> chunks;
    for (const Chunk& chunk : rank.chunks) {
      chunks.push_back({});
      for (const size_t tensor : chunk.tensors) {
        const ParameterTraits& traits = model_.traits[tensor];
        const bool is_own = !chained || traits.is_expert == experts;
        if (is_own && !is_buffer(traits)) chunks.back().push_back(tensor);
      }
    }
    group(chunks, chained && experts, optimizer);
    if (!shape_.distributed) {
      add_states(optimizer);
      return optimizer;
    }
    // Expert ranks are data parallel ranks to all that is no expert, and the first of those writes.
    if (rank.ep > 0 && !(chained && experts)) return optimizer;
    for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
      if (!chunks[chunk].empty())
        add_buffer(rank, chunk, chunks[chunk], chained && experts, optimizer);
    }
    return optimizer;
  }

  void group(const std::vector<std::vector<size_t>>& chunks, bool experts,
             RankOptimizer& optimizer) const {
    // In the order in which they are met first.
    for (const auto& tensors : chunks) {
      for (const size_t tensor : tensors) {
        const bool no_decay = model_.traits[tensor].key.ends_with(".bias") ||
                              model_.layout.tensors[tensor].info.shape.size() == 1;
        auto at = std::find_if(optimizer.groups.begin(), optimizer.groups.end(),
                               [&](const auto& g) { return g.no_weight_decay == no_decay; });
        if (at == optimizer.groups.end())
          at = optimizer.groups.insert(at, {no_decay, experts, {}, {}});
        at->tensors.push_back(tensor);
      }
    }
    int64_t id = 0;
    for (ParameterGroup& g : optimizer.groups) {
      for (size_t i = 0; i < g.tensors.size(); ++i) g.ids.push_back(id++);
    }
  }

  /// The sections of a parameter's state: as the parameter's own, of other global tensors.
  std::vector<Section> sections_of(size_t tensor, const char* prefix, int64_t first) const {
    std::vector<Section> sections = model_.layout.tensors[tensor].sections;
    for (Section& section : sections) {
      section.first += first;
      for (Piece& piece : section.pieces) piece.global = begin_.at(prefix) + place_[piece.global];
    }
    return sections;
  }
  size_t add_tensor(std::string name, std::vector<int64_t> shape, std::vector<Section> sections) {
    StoredTensor stored;
    stored.file = file_;
    stored.info = {std::move(name), DType::kF32, std::move(shape)};
    stored.sections = std::move(sections);
    out_.layout.tensors.push_back(std::move(stored));
    return out_.layout.tensors.size() - 1;
  }

  void add_states(RankOptimizer& optimizer) {
    for (size_t g = 0; g < optimizer.groups.size(); ++g) {
      const ParameterGroup& group = optimizer.groups[g];
      for (size_t i = 0; i < group.tensors.size(); ++i) {
        const std::vector<int64_t>& shape = model_.layout.tensors[group.tensors[i]].info.shape;
        const auto state = [&](const char* prefix, std::string name) {
          return add_tensor(std::move(name), shape, sections_of(group.tensors[i], prefix, 0));
        };
        const std::string inner = fmt::format("optimizer.{}{}state.{}.", prefix_,
                                              shape_.fp32 ? "" : "optimizer.", group.ids[i]);
        RankOptimizer::State places;
        places.master =
            shape_.fp32 ? SIZE_MAX
                        : state("master.", fmt::format("optimizer.{}fp32_from_fp16_params.{}.{}",
                                                       prefix_, g, i));
        places.exp_avg = state("exp_avg.", inner + "exp_avg");
        places.exp_avg_sq = state("exp_avg_sq.", inner + "exp_avg_sq");
        optimizer.states.push_back(places);
      }
    }
  }

  /// Ranks that a gradient is reduced over: an expert's are fewer, for each holds other experts.
  int64_t sharing_ranks(bool experts) const {
    int64_t expert_ranks = 1;
    for (const Rank& rank : model_.ranks) expert_ranks = std::max(expert_ranks, rank.ep + 1);
    const int64_t all = shape_.data_parallel * shape_.context_parallel;
    return experts ? std::max<int64_t>(1, all / expert_ranks) : all;
  }

  void add_buffer(const Rank& rank, size_t chunk, std::vector<size_t> tensors, bool experts,
                  RankOptimizer& optimizer) {
    // Gradients become ready from the last layer on.
    std::reverse(tensors.begin(), tensors.end());
    std::vector<FlatParameter> parameters;
    for (const size_t tensor : tensors) {
      parameters.push_back({model_.layout.tensors[tensor].info.num_elements(),
                            model_.traits[tensor].is_shared_embedding});
    }
    constexpr int64_t kLeastBucket = 40'000'000, kBucketPerRank = 1'000'000;
    const bool bucketed = shape_.overlap_grad_reduce && rank.pp == 0 && chunk == 0;
    const FlatPlaces places =
        place_flat(parameters, sharing_ranks(experts),
                   bucketed ? std::max(kLeastBucket, kBucketPerRank * shape_.data_parallel) : 0);
    const auto buffer = [&](const char* prefix, const char* name) {
      std::vector<Section> sections;
      for (size_t i = 0; i < tensors.size(); ++i) {
        for (Section& section : sections_of(tensors[i], prefix, places.first[i]))
          sections.push_back(std::move(section));
      }
      return add_tensor(
          fmt::format("{}{}.{}.{}", prefix_, optimizer.buffers.size(), buffer_key(shape_), name),
          {places.numel_unpadded}, std::move(sections));
    };
    const size_t param = buffer("master.", "param");
    const size_t exp_avg = buffer("exp_avg.", "exp_avg");
    optimizer.buffers.push_back(
        {param, exp_avg, buffer("exp_avg_sq.", "exp_avg_sq"), places.numel_unpadded});
  }

  const ModelLayout& model_;
  const OptimizerShape& shape_;
  bool has_master_;
  std::map<std::string_view, size_t> begin_;  ///< of each state's globals
  std::vector<size_t> place_;                 ///< of a model's global among them
  std::string prefix_;
  size_t file_ = 0;
  OptimizerLayout out_;
};

}  // namespace

OptimizerShape recorded_shape(const torch_file::PyValue& args, DType param_dtype) {
  const auto is_true = [&](const char* key) {
    const torch_file::PyValue* value = args.find(key);
    return value && *value == torch_file::PyValue::boolean(true);
  };
  const auto size_of = [&](const char* key) {
    constexpr int64_t kMost = int64_t{1} << 20;
    const torch_file::PyValue* size = args.find(key);
    if (!size || size->is_none()) return int64_t{1};
    const int64_t number = whole_number(*size, fmt::format("args.{}", key));
    if (number < 1 || number > kMost)
      throw ModelError(tr("args.{} must be from 1 to {}, got {}", key, kMost, number));
    return number;
  };
  OptimizerShape shape;
  shape.distributed = is_true("use_distributed_optimizer");
  shape.param_dtype = param_dtype;
  shape.fp32 = param_dtype == DType::kF32 && !shape.distributed;
  // bf16 training sums gradients in F32 unless told otherwise, and the flag is recorded.
  constexpr const char* kSumsInF32 = "accumulate_allreduce_grads_in_fp32";
  shape.grad_dtype = is_true(kSumsInF32) || !args.find(kSumsInF32) ? DType::kF32 : param_dtype;
  shape.overlap_grad_reduce = is_true("overlap_grad_reduce");
  shape.data_parallel = size_of("data_parallel_size");
  shape.context_parallel = size_of("context_parallel_size");
  return shape;
}

OptimizerLayout optimizer_layout(const ModelLayout& model, const OptimizerShape& shape) {
  return Builder(model, shape).build();
}

std::string buffer_key(const OptimizerShape& shape) {
  using torch_file::PyValue;
  return PyValue::tuple({PyValue::dtype(shape.param_dtype), PyValue::dtype(shape.grad_dtype)})
      .key_text();
}

}  // namespace danlu::weights::megatron
