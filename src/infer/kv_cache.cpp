#include "infer/kv_cache.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/error.h"

namespace danlu::infer {

SequenceCache::SequenceCache(const arch::ModelConfig& config, at::ScalarType dtype,
                             const at::Device& device)
    : num_layers_(config.num_layers),
      num_kv_heads_(config.num_kv_heads),
      head_dim_(config.head_dim),
      dtype_(dtype),
      device_(device) {}

SequenceId SequenceCache::add() {
  Sequence sequence;
  sequence.layers.resize(static_cast<size_t>(num_layers_));
  sequences_.emplace(next_id_, std::move(sequence));
  return next_id_++;
}

SequenceId SequenceCache::fork(SequenceId id, int64_t room) {
  Sequence copy = sequences_.at(id);
  for (Layer& layer : copy.layers) {
    if (!layer.k_CKD.defined()) continue;
    layer.k_CKD = copied(layer.k_CKD, copy.length, copy.length + room);
    layer.v_CKD = copied(layer.v_CKD, copy.length, copy.length + room);
  }
  sequences_.emplace(next_id_, std::move(copy));
  return next_id_++;
}

void SequenceCache::remove(SequenceId id) { sequences_.erase(id); }

void SequenceCache::truncate(SequenceId id, int64_t length) {
  Sequence& sequence = sequences_.at(id);
  if (length > sequence.length)
    throw InternalError("[kv_cache] cannot truncate to more than there is");
  sequence.length = length;
}

int64_t SequenceCache::length(SequenceId id) const { return sequences_.at(id).length; }

ops::Segments SequenceCache::begin(const std::vector<Growth>& batch) {
  batch_ = batch;
  ops::Segments segments{{0}, {0}};
  for (const Growth& growth : batch) {
    segments.q_starts.push_back(segments.q_starts.back() + growth.num_new);
    segments.k_starts.push_back(segments.k_starts.back() + length(growth.id) + growth.num_new);
  }
  return segments;
}

void SequenceCache::end() {
  for (const Growth& growth : batch_) sequences_.at(growth.id).length += growth.num_new;
  batch_.clear();
}

at::Tensor SequenceCache::copied(const at::Tensor& buffer_CKD, int64_t used,
                                 int64_t capacity) const {
  at::Tensor copy =
      at::empty({capacity, num_kv_heads_, head_dim_}, at::TensorOptions(dtype_).device(device_));
  if (used > 0) copy.narrow(0, 0, used).copy_(buffer_CKD.narrow(0, 0, used));
  return copy;
}

at::Tensor SequenceCache::grown(const at::Tensor& buffer_CKD, int64_t used, int64_t needed) const {
  const int64_t capacity = buffer_CKD.defined() ? buffer_CKD.size(0) : 0;
  if (needed <= capacity) return buffer_CKD;
  // Doubling keeps the cost of all copies linear in the final length.
  return copied(buffer_CKD, used, std::max<int64_t>({needed, 2 * capacity, 64}));
}

std::pair<at::Tensor, at::Tensor> SequenceCache::append(int64_t layer, const at::Tensor& k_NKD,
                                                        const at::Tensor& v_NKD) {
  std::vector<at::Tensor> keys, values;
  int64_t from = 0;
  for (const Growth& growth : batch_) {
    Sequence& sequence = sequences_.at(growth.id);
    Layer& store = sequence.layers[static_cast<size_t>(layer)];
    const int64_t total = sequence.length + growth.num_new;
    store.k_CKD = grown(store.k_CKD, sequence.length, total);
    store.v_CKD = grown(store.v_CKD, sequence.length, total);
    store.k_CKD.narrow(0, sequence.length, growth.num_new)
        .copy_(k_NKD.narrow(0, from, growth.num_new));
    store.v_CKD.narrow(0, sequence.length, growth.num_new)
        .copy_(v_NKD.narrow(0, from, growth.num_new));
    from += growth.num_new;
    keys.push_back(store.k_CKD.narrow(0, 0, total));
    values.push_back(store.v_CKD.narrow(0, 0, total));
  }
  if (keys.size() == 1) return {keys[0], values[0]};
  return {at::cat(keys), at::cat(values)};
}

}  // namespace danlu::infer
