// bench/train_step_bench.cpp: the time of one full fine-tuning step (forward, backward, AdamW).
//
//   train_step_bench [--dtype fp32|bf16|fp16[,…]] [--batch 4] [--seq 256] [--steps 8] [--layers 12]
//   …
//
// Prints one JSON line for each type with the keys of the PyTorch peer it is compared with
// (tools/bench_train.sh): median step seconds after two warm-ups, tokens/s, GFLOP/s at 6N per
// token, processor seconds and page faults of a step (medians too), peak memory of tensors and peak
// resident memory in MiB (of all types together), last loss. Several types take steps
// in turn, so that their ratio does not depend on what else the machine does. Default shape: 100.1
// M parameters, tied embeddings, biases on q, k, v.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "base/cpu_class.h"
#include "base/rng.h"
#include "device/counted_memory.h"
#include "models/causal_lm.h"
#include "optim/adamw.h"

namespace {

using danlu::Json;

const std::map<std::string, at::ScalarType> kTypes{
    {"fp32", at::kFloat}, {"bf16", at::kBFloat16}, {"fp16", at::kHalf}};

struct Settings {
  std::vector<std::string> dtypes{"fp32"};
  std::map<std::string, int64_t> sizes{{"vocab", 32000}, {"hidden", 768}, {"layers", 12},
                                       {"heads", 12},    {"kv", 4},       {"ffn", 2048},
                                       {"batch", 4},     {"seq", 256},    {"steps", 8}};
};

std::vector<std::string> words(const std::string& list) {
  std::vector<std::string> result;
  std::istringstream text(list);
  for (std::string word; std::getline(text, word, ',');) {
    if (!kTypes.count(word)) {
      std::fprintf(stderr, "--dtype: unknown type '%s'\n", word.c_str());
      std::exit(2);
    }
    result.push_back(word);
  }
  return result;
}

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = std::string(argv[i]).substr(2);
    if (name == "dtype") {
      settings.dtypes = words(argv[i + 1]);
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

class Run {
 public:
  Run(const Settings& settings, const std::string& dtype)
      : dtype_(dtype),
        model_(config_of(settings), danlu::parallel::Mesh::single(), kTypes.at(dtype),
               at::Device(at::kCPU)),
        store_(initialized(model_)),
        gradients_(store_),
        optimizer_(store_, adamw()),
        input_(input_of(settings, &targets_N_)) {}

  void step() {
    const auto start = std::chrono::steady_clock::now();
    const Used before = used();
    gradients_.zero();
    // As train/step.cpp does it; fp16 gradients need a loss scale to stay in range.
    const double loss_scale = dtype_ == "fp16" ? 1024.0 : 1.0;
    const double scale = loss_scale / static_cast<double>(targets_N_.numel());
    const danlu::models::LossSum result = model_.loss(input_, targets_N_, scale);
    (result.sum * scale).backward();
    gradients_.end_pass();
    optimizer_.step(gradients_, 1e-4, 1.0 / loss_scale);
    seconds_.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    const Used after = used();
    cpu_seconds_.push_back(after.seconds - before.seconds);
    faults_.push_back(after.faults - before.faults);
    loss_ = result.sum.item<double>() / static_cast<double>(result.num_targets);
  }

  void print() const {
    const double step_s = median(seconds_);
    const double params = static_cast<double>(danlu::arch::parameter_count(model_.config()));
    const double tokens = static_cast<double>(targets_N_.numel());
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    fmt::print(
        "{{\"program\": \"danlu\", \"cpu\": \"{}\", \"dtype\": \"{}\", \"params\": {}, "
        "\"step_s\": {:.4f}, \"tokens_per_s\": {:.1f}, \"gflops_6N\": {:.1f}, "
        "\"cpu_s\": {:.4f}, \"page_faults\": {:.0f}, \"peak_tensors_mib\": {}, \"mapped_mib\": {}, "
        "\"peak_rss_mib\": "
        "{}, "
        "\"loss\": {:.4f}}}\n",
        danlu::describe_cpu_class(), dtype_, static_cast<int64_t>(params), step_s, tokens / step_s,
        6 * params * tokens / step_s / 1e9, median(cpu_seconds_), median(faults_),
        danlu::device::peak_host_memory() >> 20, danlu::device::mapped_host_memory() >> 20,
        usage.ru_maxrss / 1024, loss_);
  }

 private:
  struct Used {
    double seconds, faults;  ///< of all threads
  };
  static Used used() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return {seconds(usage.ru_utime) + seconds(usage.ru_stime),
            static_cast<double>(usage.ru_minflt)};
  }
  /// Without the first two steps.
  static double median(const std::vector<double>& of_steps) {
    std::vector<double> counted(of_steps.begin() + 2, of_steps.end());
    std::sort(counted.begin(), counted.end());
    return counted[counted.size() / 2];
  }
  static danlu::parallel::ParameterStore& initialized(danlu::models::CausalLM& model) {
    model.initialize(0);
    return model.keep({});
  }
  static danlu::optim::AdamWConfig adamw() {
    danlu::optim::AdamWConfig config;
    config.groups.weight_decay = 0.01;  // torch.optim.AdamW's default, as the peer uses it
    return config;
  }

  std::string dtype_;
  danlu::models::CausalLM model_;
  danlu::parallel::ParameterStore& store_;
  danlu::optim::GradBuffer gradients_;
  danlu::optim::AdamW optimizer_;
  at::Tensor targets_N_;
  danlu::models::ForwardInput input_;
  std::vector<double> seconds_, cpu_seconds_, faults_;
  double loss_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  danlu::restart_constrained(argv);
  danlu::device::count_host_memory();
  const Settings settings = parse(argc, argv);
  std::vector<std::unique_ptr<Run>> runs;
  for (const std::string& dtype : settings.dtypes)
    runs.push_back(std::make_unique<Run>(settings, dtype));
  for (int64_t step = 0; step < settings.sizes.at("steps") + 2; ++step)
    for (const auto& run : runs) run->step();
  for (const auto& run : runs) run->print();
  return 0;
}
