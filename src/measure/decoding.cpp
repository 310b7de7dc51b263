#include "measure/decoding.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "arch/attention_size.h"
#include "arch/gated_delta.h"
#include "base/rng.h"
#include "device/parallel.h"
#include "infer/kv_cache.h"
#include "infer/sampling.h"
#include "infer/step.h"
#include "layers/experts.h"
#include "models/weight_files.h"

namespace danlu::measure {
namespace {

std::vector<int64_t> made_up(uint64_t stream, int64_t count, int64_t vocab) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int64_t>(mix64(stream, static_cast<uint64_t>(i)) %
                                       static_cast<uint64_t>(vocab)));
  }
  return ids;
}

std::vector<text::TokenId> token_ids(const std::vector<int64_t>& ids) {
  return {ids.begin(), ids.end()};
}

/// Experts that got rows in a pass, by layer and number.
using ReadExperts = std::set<std::pair<int64_t, int64_t>>;

/// Bytes of the weights that a token is multiplied with, where matrices may be held in blocks.
/// experts: nullptr: all are.
double multiplied_bytes(const models::CausalLM& model, const ReadExperts* experts = nullptr) {
  const bool reads_table = model.config().tie_embeddings;
  double bytes = 0;
  for (const parallel::Parameter& parameter : model.parameters()) {
    const arch::ParamSpec& spec = parameter.spec;
    if (spec.role == arch::Role::kEmbedding && !reads_table) continue;
    if (spec.role == arch::Role::kPositions) continue;  // a token takes one row
    if (spec.expert >= 0 && experts && !experts->count({spec.layer, spec.expert})) continue;
    bytes += parameter.quantized ? static_cast<double>(parameter.quantized->size_bytes())
                                 : static_cast<double>(parameter.tensor.nbytes());
  }
  return bytes;
}

/// How many weights stand in experts that a token is not sent to.
int64_t idle_expert_weights(const arch::ModelConfig& config) {
  if (!config.has_experts()) return 0;
  const arch::ExpertConfig& experts = config.experts;
  const int64_t layers = std::count(experts.sparse_layer.begin(), experts.sparse_layer.end(), true);
  return layers * (experts.count - experts.per_token) * 3 * config.hidden_size * experts.ffn_size;
}

/// Weights that a token is multiplied with; the table of embeddings is not one of them, unless the
/// head is tied to it.
double multiplied(const arch::ModelConfig& config) {
  const auto all = static_cast<double>(arch::parameter_count(config));
  const double table =
      static_cast<double>(config.vocab_size) * static_cast<double>(config.hidden_size);
  const auto idle = static_cast<double>(idle_expert_weights(config));
  return (config.tie_embeddings ? all : all - table) - idle;
}

}  // namespace

std::unique_ptr<models::CausalLM> random_model(const arch::ModelConfig& config, at::ScalarType type,
                                               const at::Device& device) {
  auto model = std::make_unique<models::CausalLM>(config, parallel::Mesh::single(), type, device);
  models::initialize(*model, 0);
  return model;
}

struct Decoding::Impl {
  explicit Impl(const models::CausalLM& of)
      : model(of), cache(of.config(), of.dtype(), of.device()) {}
  const models::CausalLM& model;
  infer::SequenceCache cache;
  std::vector<infer::StepInput> next;
  std::vector<std::vector<int64_t>> prompts, chosen;
  ReadExperts read;  ///< in the last step

  void note(const models::PassResults& results) {
    read.clear();
    const auto load = results.sums().find(layers::kExpertLoad);
    if (load == results.sums().end()) return;
    const at::Tensor load_LE = load->second.contiguous();
    const int64_t columns = load_LE.size(1);  // the last counts what was dropped
    const double* const rows = load_LE.data_ptr<double>();
    for (int64_t layer = 0; layer < load_LE.size(0); ++layer) {
      for (int64_t expert = 0; expert + 1 < columns; ++expert) {
        if (rows[layer * columns + expert] > 0) read.emplace(layer, expert);
      }
    }
  }

  void step() {
    models::PassResults results;
    const bool routes = model.config().has_experts();
    const at::Tensor logits_BV =
        infer::next_logits(model, cache, next, routes ? &results : nullptr);
    note(results);
    const int64_t vocab = logits_BV.size(1);
    device::parallel_for(0, logits_BV.size(0), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const std::span<float> row{logits_BV.data_ptr<float>() + i * vocab,
                                   static_cast<size_t>(vocab)};
        next[static_cast<size_t>(i)].ids = {infer::sample_token(row, {}, {}, 0, 0, model.dtype())};
      }
    });
  }
};

Decoding::Decoding(const models::CausalLM& model, int64_t sequences, int64_t context)
    : impl_(std::make_unique<Impl>(model)) {
  for (int64_t i = 0; i < sequences; ++i) {
    const auto ids = made_up(static_cast<uint64_t>(i), context, model.config().vocab_size);
    impl_->prompts.push_back(ids);
    impl_->next.push_back({impl_->cache.add(), token_ids(ids)});
  }
  impl_->chosen.resize(impl_->next.size());
  impl_->step();
}
Decoding::~Decoding() = default;

void Decoding::token() {
  for (size_t i = 0; i < impl_->next.size(); ++i)
    impl_->chosen[i].push_back(impl_->next[i].ids.front());
  impl_->step();
}

void Decoding::token_again() {
  std::vector<int64_t> lengths;
  for (const infer::StepInput& input : impl_->next)
    lengths.push_back(impl_->cache.length(input.sequence));
  impl_->step();
  for (size_t i = 0; i < lengths.size(); ++i)
    impl_->cache.truncate(impl_->next[i].sequence, lengths[i]);
}

const std::vector<std::vector<int64_t>>& Decoding::prompts() const { return impl_->prompts; }

const std::vector<std::vector<int64_t>>& Decoding::chosen() const { return impl_->chosen; }

bench::Work Decoding::work() const {
  const arch::ModelConfig& config = impl_->model.config();
  const at::ScalarType type = impl_->model.dtype();
  const double size = static_cast<double>(c10::elementSize(type)), weights = multiplied(config);
  double keys = 0;
  for (const infer::StepInput& input : impl_->next) {
    keys += static_cast<double>(impl_->cache.length(input.sequence)) *
            static_cast<double>(arch::count_key_layers(config) * arch::kept_of_token(config).elements());
  }
  return {2 * weights * static_cast<double>(impl_->next.size()), type == at::kBFloat16,
          multiplied_bytes(impl_->model, &impl_->read) + size * keys, 0};
}

int64_t Decoding::experts_read() const { return std::ssize(impl_->read); }

void prefill(const models::CausalLM& model, int64_t tokens) {
  infer::SequenceCache cache(model.config(), model.dtype(), model.device());
  const auto ids = made_up(0, tokens, model.config().vocab_size);
  infer::next_logits(model, cache, {{cache.add(), token_ids(ids)}});
}

bench::Work prefill_work(const models::CausalLM& model, int64_t tokens) {
  const arch::ModelConfig& config = model.config();
  const double weights = multiplied(config), head = static_cast<double>(config.vocab_size) *
                                                    static_cast<double>(config.hidden_size);
  // The head sees the last token alone.
  return {2 * (weights - head) * static_cast<double>(tokens) + 2 * head,
          model.dtype() == at::kBFloat16, multiplied_bytes(model), 0};
}

}  // namespace danlu::measure
