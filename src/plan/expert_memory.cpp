#include "plan/expert_memory.h"

#include <algorithm>

namespace danlu::plan {
namespace {

using arch::Role, settings::LayerRecompute;

/// What one product of the layer is to training: of all experts together, where it is theirs.
struct Reader {
  bool is_trained = false;
  int64_t adapter_rank = 0;
};
struct Readers {
  Reader router, gate, up, down, shared_gate, shared_up, shared_down, shared_factor;
};

Readers readers_of(const Uses& uses, const std::vector<arch::ParamSpec>& specs, int64_t layer) {
  Readers all;
  const auto of = [&](Role role) -> Reader* {
    switch (role) {
      case Role::kRouter:
        return &all.router;
      case Role::kExpertGate:
        return &all.gate;
      case Role::kExpertUp:
        return &all.up;
      case Role::kExpertDown:
        return &all.down;
      case Role::kSharedGateProj:
        return &all.shared_gate;
      case Role::kSharedUp:
        return &all.shared_up;
      case Role::kSharedDown:
        return &all.shared_down;
      case Role::kSharedExpertGate:
        return &all.shared_factor;
      default:
        return nullptr;
    }
  };
  for (const arch::ParamSpec& spec : specs) {
    Reader* const product = spec.layer == layer ? of(spec.role) : nullptr;
    if (!product) continue;
    const Use& use = uses.at(spec.name);
    product->is_trained |= use.is_trained;
    product->adapter_rank = std::max(product->adapter_rank, use.adapter_rank);
  }
  return all;
}

/// How often the products keep their common input: once as it is, once for each adapter that drops
/// some of it.
int64_t times_kept(const Request& request, std::initializer_list<Reader> readers) {
  const bool drops = request.adapters && request.adapters->dropout > 0;
  bool as_it_is = false;
  int64_t count = 0;
  for (const Reader& reader : readers) {
    as_it_is |= reader.is_trained || (reader.adapter_rank > 0 && !drops);
    if (reader.adapter_rank > 0 && drops) ++count;
  }
  return count + (as_it_is ? 1 : 0);
}

int64_t narrow_of(std::initializer_list<Reader> products) {
  int64_t elements = 0;
  for (const Reader& product : products) elements += product.adapter_rank;
  return elements;
}

/// Bytes of the tensors of one layer.
struct ExpertSizes {
  int64_t inside;       ///< a hidden state
  int64_t wide;         ///< the same in f32 for the router, if that is another tensor; else 0
  int64_t logits;       ///< f32
  int64_t sent, given;  ///< rows that this rank takes to experts; that its own are given
  int64_t dots;         ///< what the gradients of weights take, in f32 (row_dots in ops)
  int64_t ffn, shared;  ///< the width of an expert for rows that are given; of the shared one
  int64_t numbers;      ///< where rows come from and go, and their weights
  int64_t router;       ///< the router's weight in f32, if that is another type
};

ExpertSizes expert_sizes(const Request& request) {
  const arch::ExpertConfig& experts = request.model.experts;
  const int64_t tokens = request.pass_tokens(), bytes = request.element_bytes(),
                hidden = request.model.hidden_size;
  const int64_t sent = request.sent_rows(), given = request.expert_rows();
  const bool is_narrow = bytes < 4;
  // A token's choices; of a row its token, its place among all choices and its weight; where rows
  // of other ranks stand.
  const int64_t numbers =
      request.routed_rows() * 8 + sent * (8 + 8 + 4) + (request.mesh.expert > 1 ? given * 16 : 0);
  return {.inside = tokens * hidden * bytes,
          .wide = is_narrow || request.router_noise ? tokens * hidden * 4 : 0,
          .logits = tokens * experts.count * 4,
          .sent = sent * hidden * bytes,
          .given = given * hidden * bytes,
          .dots = sent * hidden * 4 * (is_narrow ? 3 : 1),
          .ffn = given * up(experts.ffn_size, request.mesh.expert_tensor()) * bytes,
          .shared = tokens * up(experts.shared_ffn_size, request.mesh.tensor) * bytes,
          .numbers = numbers,
          .router = is_narrow ? experts.count * hidden * 4 : 0};
}

/// Whether rows travel to experts and back beside the shared expert: SharedWork::waits() in
/// layers/experts.cpp says where not.
bool shared_is_beside(const Request& request, const Reader& shared_down, LayerRecompute kind) {
  const settings::MeshShape& mesh = request.mesh;
  if (mesh.expert == 1 || !mesh.overlaps_experts) return false;
  const bool waits = (shared_down.adapter_rank > 0 && request.adapters->dora) ||
                     (mesh.sequence_parallel && settings::makes_norms_again(kind));
  return mesh.tensor == 1 || !waits;
}

}  // namespace

bool is_of_experts(const arch::ParamSpec& spec) {
  switch (spec.role) {
    case Role::kRouter:
    case Role::kRouterBias:
    case Role::kExpertGate:
    case Role::kExpertUp:
    case Role::kExpertDown:
    case Role::kSharedGateProj:
    case Role::kSharedUp:
    case Role::kSharedDown:
    case Role::kSharedExpertGate:
      return true;
    default:
      return false;
  }
}

ExpertBytes expert_bytes(const Request& request, const Uses& uses,
                         const std::vector<arch::ParamSpec>& specs, int64_t layer,
                         LayerRecompute kind) {
  const ExpertSizes of = expert_sizes(request);
  const arch::ExpertConfig& experts = request.model.experts;
  const Readers all = readers_of(uses, specs, layer);
  const bool has_shared = experts.shared_ffn_size > 0;
  // Experts make the product after their activation again too where that alone is not kept.
  const bool made = kind == LayerRecompute::kSelective || settings::makes_activation_again(kind);
  const int64_t rows = times_kept(request, {all.gate, all.up}),
                product = times_kept(request, {all.down});
  const int64_t shared_product = has_shared && !made ? times_kept(request, {all.shared_down}) : 0;
  // The router reads what it is given in f32.
  const bool router_reads =
      all.router.is_trained || (request.router_noise && all.router.adapter_rank > 0);
  const Reader as_it_is = of.wide == 0 ? all.router : Reader{};
  const int64_t inputs =
      settings::makes_norms_again(kind)
          ? 0
          : times_kept(request, {as_it_is, all.shared_gate, all.shared_up, all.shared_factor});

  const int64_t low =
      (narrow_of({all.gate, all.up, all.down}) * request.expert_rows() +
       narrow_of({all.shared_gate, all.shared_up, all.shared_down}) * request.pass_tokens()) *
      request.element_bytes();
  const int64_t product_kept = made ? 0 : product * of.ffn;
  ExpertBytes bytes;
  bytes.kept = (router_reads ? of.wide : 0) + of.router + of.logits + of.numbers +
               inputs * of.inside + rows * of.given + 2 * of.ffn + product_kept + of.sent +
               2 * of.shared + shared_product * of.shared + low;
  if (experts.shared_gate) bytes.kept += of.inside;

  // The shared expert comes first, or where rows travel beside it, when the weights' products are
  // done, with the gradient of the rows twice; its gate and up then come last. Then comes the
  // activation of the experts, whose rows after it are done with.
  const bool travels_beside = has_shared && shared_is_beside(request, all.shared_down, kind);
  const int64_t shared_kept = (2 + shared_product) * of.shared;
  const int64_t in_shared = 3 * of.shared - shared_product * of.shared;
  int64_t at_shared = has_shared ? in_shared : 0, before = has_shared ? of.inside - shared_kept : 0,
          beside = before;
  if (travels_beside) {
    at_shared = of.given + in_shared;  // gradients that travel, in the place of kept rows
    before = 0;
    beside = -shared_product * of.shared;
  }
  const int64_t at_weights = 2 * of.sent + of.dots;
  const int64_t at_exchange =
      request.mesh.expert > 1 ? std::max(of.given, 2 * of.given - of.sent) : 0;
  const int64_t again = made ? 2 * of.given : 0;
  const int64_t at_activation = 3 * of.ffn - product_kept - of.sent + again;
  const int64_t at_input = 2 * of.given - product_kept - of.sent - of.ffn;
  bytes.early = std::max({at_shared, before + at_weights, beside + at_exchange});
  bytes.backward = beside + std::max({at_exchange, at_activation, at_input});
  bytes.passing = passing_expert_bytes(request).passing;
  bytes.later = (router_reads ? (of.wide > 0 ? of.wide : of.inside) : 0) + of.logits +
                inputs * of.inside + rows * of.given + product * of.ffn + 2 * of.ffn + of.given +
                (2 + shared_product) * of.shared;
  return bytes;
}

ExpertBytes passing_expert_bytes(const Request& request) {
  const ExpertSizes of = expert_sizes(request);
  ExpertBytes bytes;
  bytes.passing = of.logits + of.numbers +
                  std::max({of.wide, of.given + 3 * of.ffn, 2 * of.given, of.sent + of.wide,
                            of.inside + 3 * of.shared});
  return bytes;
}

}  // namespace danlu::plan
