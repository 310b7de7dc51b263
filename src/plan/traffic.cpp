#include "plan/traffic.h"

#include <algorithm>

#include "arch/attention_size.h"

namespace danlu::plan {
namespace {

using settings::Sharding;

/// Sums of gradients in f32, gathers in the weights' type, as rings send them: a rank of D sends
/// (D - 1) / D of what is summed or gathered.
double data_bytes(const Request& request, const arch::Stage& stage, const Elements& elements) {
  const auto ranks = static_cast<double>(request.mesh.model_copies());
  const auto passes = static_cast<double>(request.num_micro_batches);
  const auto width = static_cast<double>(request.element_bytes());
  const auto trained = static_cast<double>(elements.trained),
             all = static_cast<double>(elements.all);
  const double part = (ranks - 1) / ranks;
  // A table that the head of the same stage is tied to is let go of between the two.
  const bool returns = request.model.tie_embeddings && stage.has_embedding() && stage.has_head();
  const auto once = returns ? 0.0 : static_cast<double>(elements.ends);
  switch (request.sharding) {
    case Sharding::kNone:
      return part * 2 * 4 * trained;
    case Sharding::kState:
      return part * (4 + width) * trained;
    case Sharding::kGradients:
      return part * (4 * passes + width) * trained;
    case Sharding::kParameters:
      // Backward gathers again, but neither the head nor the embedding.
      return part * passes * (4 * trained + width * (2 * all - once));
  }
  return 0;
}

/// Bytes of one pass through a layer (docs/context_parallel.md): heads exchanged for tokens within
/// a group, keys and values round the ring, their gradients in f32.
struct ContextBytes {
  double heads = 0, keys = 0, gradients = 0;
};
ContextBytes context_bytes(const Request& request) {
  const settings::ContextShape& shape = request.mesh.context;
  const arch::ModelConfig& model = request.model;
  const auto tensor = static_cast<double>(request.mesh.tensor);
  const auto tokens = static_cast<double>(request.pass_tokens());
  // A query and what it sees, or a key and its value.
  const auto both = static_cast<double>(model.head_dim + arch::value_dim(model));
  const double queries = static_cast<double>(model.num_heads) / tensor * both;
  const auto width = static_cast<double>(request.element_bytes());
  const auto members = static_cast<double>(shape.ulysses), groups = static_cast<double>(shape.ring);
  // With fewer key heads than members each goes to every member that takes it.
  const double keys = std::max(members, static_cast<double>(model.num_kv_heads) / tensor) * both;
  ContextBytes bytes{.heads = tokens * (queries + keys) * width * (members - 1) / members};
  if (shape.ring == 1) return bytes;
  bytes.keys = tokens * keys * width * (groups - 1);
  bytes.gradients = tokens * keys * 4 * groups;
  return bytes;
}

}  // namespace

double tied_bytes(const Request& request, const Elements& elements) {
  // An all-reduce of two sends what is summed once.
  const bool shares = request.sharding >= Sharding::kState;
  return 4 * static_cast<double>(elements.tied) /
         static_cast<double>(shares ? request.sharers() : 1);
}

Traffic traffic_of(const Request& request, const arch::Stage& stage) {
  return traffic_of(request, stage, elements_of(request, stage));
}

Traffic traffic_of(const Request& request, const arch::Stage& stage, const Elements& elements) {
  const auto hidden = static_cast<double>(request.pass_tokens() * request.model.hidden_size *
                                          request.element_bytes());
  const auto ranks = static_cast<double>(request.mesh.tensor);
  const auto passes = static_cast<double>(request.num_micro_batches);
  const auto layers = static_cast<double>(stage.layers().size());
  const double all_reduce = 2 * (ranks - 1) / ranks * hidden;
  const auto share = [&](settings::LayerRecompute kind) {
    return share_again(request, stage, kind);
  };
  using settings::LayerRecompute;
  const double again = share(LayerRecompute::kFull);
  // Norms that are made again where ranks share the rows: half of a sum before each of two parts.
  const double gathered = request.mesh.sequence_parallel ? share(LayerRecompute::kNorm) : 0;
  Traffic traffic;
  traffic.data = data_bytes(request, stage, elements);
  traffic.tied = tied_bytes(request, elements);
  traffic.tensor_of_layer = (4 + 2 * again + gathered) * all_reduce;
  const double ends = (stage.has_embedding() ? 1 : 0) + (stage.has_head() ? 1 : 0);
  traffic.tensor = passes * (layers * traffic.tensor_of_layer + ends * all_reduce);
  traffic.message = hidden / (request.mesh.sequence_parallel ? ranks : 1);
  const ContextBytes context = context_bytes(request);
  traffic.context_keys = context.keys;
  traffic.context_forward = context.heads + context.keys;
  traffic.context_backward = traffic.context_forward + context.gradients;
  const double core_again = again + share(LayerRecompute::kSelective);
  traffic.context =
      passes * layers * (traffic.context_forward * (1 + core_again) + traffic.context_backward);
  const double borders = 2 * static_cast<double>(stage.num_chunks()) -
                         (stage.has_embedding() ? 1 : 0) - (stage.has_head() ? 1 : 0);
  const double messages = request.mesh.pipeline > 1 ? passes * borders * traffic.message : 0;
  traffic.pipeline = messages + traffic.tied;
  return traffic;
}

}  // namespace danlu::plan
