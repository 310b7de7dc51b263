// bench/decode_bench.cpp: seconds a token of greedy decoding, one sequence, by type of the weights.
//
//   decode_bench [MODEL_DIR] [--tokens 16]
//
// One model for each type (fp32, bf16, fp16) answers in turn, so that ratios do not depend on what
// else the machine does. Without a directory: random weights of Qwen2.5-0.5B's shape. Prints one
// JSON line a type: median seconds a token, and bytes of weights read a second.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/cpu_class.h"
#include "half_billion.h"
#include "infer/kv_cache.h"
#include "infer/step.h"
#include "models/causal_lm.h"

namespace {

using danlu::bench::half_billion;

struct Decoder {
  std::string name;
  std::unique_ptr<danlu::models::CausalLM> model;
  std::unique_ptr<danlu::infer::SequenceCache> cache;
  danlu::infer::SequenceId sequence;
  int64_t next = 1;
  std::vector<double> seconds;

  void token() {
    const auto start = std::chrono::steady_clock::now();
    const at::Tensor logits = danlu::infer::next_logits(*model, *cache, {{sequence, {next}}});
    next = logits.argmax(1).item<int64_t>();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
};

Decoder decoder(const std::string& directory, const std::string& name, at::ScalarType type) {
  Decoder result;
  result.name = name;
  const at::Device device(at::kCPU);
  if (directory.empty()) {
    result.model = std::make_unique<danlu::models::CausalLM>(
        half_billion(), danlu::parallel::Mesh::single(), type, device);
    result.model->initialize(0);
  } else {
    result.model =
        danlu::models::load_model(directory, danlu::parallel::Mesh::single(), type, device);
  }
  result.cache =
      std::make_unique<danlu::infer::SequenceCache>(result.model->config(), type, device);
  result.sequence = result.cache->add();
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  danlu::restart_constrained(argv);
  std::string directory;
  int tokens = 16;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--tokens" && i + 1 < argc) {
      tokens = std::max(1, std::atoi(argv[++i]));
    } else {
      directory = argv[i];
    }
  }
  std::vector<Decoder> decoders;
  decoders.push_back(decoder(directory, "fp32", at::kFloat));
  decoders.push_back(decoder(directory, "bf16", at::kBFloat16));
  decoders.push_back(decoder(directory, "fp16", at::kHalf));
  for (int i = 0; i < tokens + 2; ++i)
    for (Decoder& each : decoders) each.token();
  for (Decoder& each : decoders) {
    std::vector<double> counted(each.seconds.begin() + 2, each.seconds.end());
    std::sort(counted.begin(), counted.end());
    const double median = counted[counted.size() / 2];
    const auto weights = static_cast<double>(danlu::arch::parameter_count(each.model->config()));
    const double bytes = weights * (each.name == "fp32" ? 4 : 2);
    fmt::print(
        "{{\"cpu\": \"{}\", \"dtype\": \"{}\", \"token_s\": {:.4f}, \"gb_per_s\": {:.2f}}}\n",
        danlu::describe_cpu_class(), each.name, median, bytes / median / 1e9);
  }
  return 0;
}
