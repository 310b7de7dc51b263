// bench/train_step_bench.cpp: the time of one full fine-tuning step (forward, backward, AdamW).
//
//   train_step_bench [--dtype fp32|bf16] [--batch 4] [--seq 256] [--steps 8] [--layers 12] …
//
// Prints one JSON line with the keys of the PyTorch peer it is compared with
// (tools/bench_train.sh): median step seconds after two warm-ups, tokens/s, GFLOP/s at 6N per
// token, peak resident memory in MiB, last loss. Default shape: 100.1 M parameters, tied
// embeddings, biases on q, k, v.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "base/rng.h"
#include "models/causal_lm.h"
#include "optim/adamw.h"

namespace {

using danlu::Json;

struct Settings {
  std::string dtype = "fp32";
  std::map<std::string, int64_t> sizes{{"vocab", 32000}, {"hidden", 768}, {"layers", 12},
                                       {"heads", 12},    {"kv", 4},       {"ffn", 2048},
                                       {"batch", 4},     {"seq", 256},    {"steps", 8}};
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = std::string(argv[i]).substr(2);
    if (name == "dtype") {
      settings.dtype = argv[i + 1];
    } else if (settings.sizes.count(name)) {
      settings.sizes[name] = std::stoll(argv[i + 1]);
    } else {
      std::fprintf(stderr, "unknown option --%s\n", name.c_str());
      std::exit(2);
    }
  }
  for (const auto& [name, size] : settings.sizes) {
    if (size >= 1) continue;
    std::fprintf(stderr, "--%s must be at least 1\n", name.c_str());
    std::exit(2);
  }
  return settings;
}

danlu::arch::ModelConfig config_of(const Settings& settings) {
  const auto& s = settings.sizes;
  const Json json = {{"model_type", "qwen2"},
                     {"vocab_size", s.at("vocab")},
                     {"hidden_size", s.at("hidden")},
                     {"intermediate_size", s.at("ffn")},
                     {"num_hidden_layers", s.at("layers")},
                     {"num_attention_heads", s.at("heads")},
                     {"num_key_value_heads", s.at("kv")},
                     {"max_position_embeddings", 4096},
                     {"rms_norm_eps", 1e-6},
                     {"rope_theta", 10000.0},
                     {"tie_word_embeddings", true}};
  return danlu::arch::family_of(json).parse(json);
}

danlu::models::ForwardInput input_of(const Settings& settings, at::Tensor* targets_N) {
  const int64_t batch = settings.sizes.at("batch"), seq = settings.sizes.at("seq"),
                vocab = settings.sizes.at("vocab");
  std::vector<int64_t> ids, targets, positions;
  danlu::models::ForwardInput input;
  input.segments = {{0}, {0}};
  for (int64_t b = 0; b < batch; ++b) {
    auto token = [&](int64_t t) {
      return static_cast<int64_t>(danlu::mix64(static_cast<uint64_t>(b), static_cast<uint64_t>(t)) %
                                  static_cast<uint64_t>(vocab));
    };
    for (int64_t t = 0; t < seq; ++t) {
      ids.push_back(token(t));
      targets.push_back(token(t + 1));
      positions.push_back(t);
    }
    input.segments.q_starts.push_back((b + 1) * seq);
    input.segments.k_starts.push_back((b + 1) * seq);
  }
  input.ids_N = at::tensor(ids, at::kLong);
  input.positions_N = at::tensor(positions, at::kLong);
  *targets_N = at::tensor(targets, at::kLong);
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  const Settings settings = parse(argc, argv);
  const bool bf16 = settings.dtype == "bf16";
  danlu::models::CausalLM model(config_of(settings), bf16 ? at::kBFloat16 : at::kFloat,
                                at::Device(at::kCPU));
  model.initialize(0);
  std::vector<danlu::optim::Parameter> parameters;
  for (const auto& parameter : model.trainable_parameters())
    parameters.push_back({parameter.name, parameter.tensor});
  danlu::optim::AdamWConfig adamw;
  adamw.groups.weight_decay = 0.01;  // torch.optim.AdamW's default, as the peer uses it
  danlu::optim::GradBuffer gradients(parameters);
  danlu::optim::AdamW optimizer(parameters, adamw);
  at::Tensor targets_N;
  const danlu::models::ForwardInput input = input_of(settings, &targets_N);

  std::vector<double> seconds;
  double loss = 0;
  for (int64_t step = 0; step < settings.sizes.at("steps") + 2; ++step) {
    const auto start = std::chrono::steady_clock::now();
    gradients.zero();
    const danlu::models::LossSum result = model.loss(input, targets_N);
    result.sum.backward();
    gradients.collect();
    optimizer.step(gradients, 1e-4, 1.0 / static_cast<double>(result.num_targets));
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    loss = result.sum.item<double>() / static_cast<double>(result.num_targets);
  }
  std::vector<double> counted(seconds.begin() + 2, seconds.end());
  std::sort(counted.begin(), counted.end());
  const double step_s = counted[counted.size() / 2];
  const double params = static_cast<double>(danlu::arch::parameter_count(model.config()));
  const double tokens = static_cast<double>(targets_N.numel());
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print(
      "{{\"program\": \"danlu\", \"dtype\": \"{}\", \"params\": {}, \"step_s\": {:.4f}, "
      "\"tokens_per_s\": {:.1f}, "
      "\"gflops_6N\": {:.1f}, \"peak_rss_mib\": {}, \"loss\": {:.4f}}}\n",
      settings.dtype, static_cast<int64_t>(params), step_s, tokens / step_s,
      6 * params * tokens / step_s / 1e9, usage.ru_maxrss / 1024, loss);
  return 0;
}
