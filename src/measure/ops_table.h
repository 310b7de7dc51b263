// measure/ops_table.h: the operations of a training step, each alone, at the shapes of a model of
// 100 M parameters.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "bench/report.h"

namespace danlu::measure {

/// Something that can be timed once and again.
struct Op {
  std::string name, group;
  at::ScalarType type = at::kFloat;
  bench::Work work;
  /// Returns what is to be timed, and makes first what that needs, which is not: a graph, for a
  /// backward.
  std::function<std::function<void()>()> prepare;
  double tokens = 0;  ///< of a run, where tokens a second mean something
};

/// How large: the shapes of a step.
struct OpShapes {
  int64_t tokens = 1024, sequences = 4;  ///< of a step, and what they are divided into
  int64_t long_tokens = 2048;            ///< of one sequence
  int64_t head_tokens = 256;             ///< of the head, which makes logits in chunks anyway
  double cold_bytes = 96e6;              ///< operands of runs in succession come to so many
  int64_t hidden = 768, ffn = 2048, heads = 12, kv_heads = 4, vocab = 32000;
};

/// Makes an operation when it is wanted, since its operands are larger than the caches.
struct OpMaker {
  std::string name, group;
  at::ScalarType type;
  std::function<Op()> make;
  /// The operation uses the model of the one made before it, which must then still be there.
  bool shares_model = false;
};
std::vector<OpMaker> ops_of_a_step(const OpShapes& shapes, at::ScalarType type);

}  // namespace danlu::measure
