// Times that Megatron-LM publishes for A100 80 GB, beside what is planned with the machine's file.
// docs/plan.md has these tables and where each figure is from; DANLU_PRINT_TABLES=1 prints them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "plan/published_model.h"

namespace danlu::plan {
namespace {

using settings::RecomputeFlags;

bool prints() { return std::getenv("DANLU_PRINT_TABLES") != nullptr; }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Request request_of(const arch::ModelConfig& model, int64_t tp, int64_t pp, int64_t dp) {
  Request request;
  request.model = model;
  request.mesh = {.tensor = tp, .data = dp, .pipeline = pp};
  request.pipeline.stages = pp;
  request.tokens = 2048;
  return request;
}

void interleave(int64_t runs, Request& request) {
  if (runs == 1) return;
  request.pipeline.virtual_stages = runs;
  request.mesh.ring = true;
  request.order = arch::PipelineOrder::kInterleaved;
}

/// Before fused attention: scores in memory, dropout on them and on what a layer adds.
constexpr ProgramTraits kOf2021{
    .keeps_scores = true, .drops = true, .wide_loss = true, .repeats_attention_alone = true};
/// And gradients' exchanges beside the weights' products (arXiv:2205.05198, §6.1).
constexpr ProgramTraits kOf2022{.keeps_scores = true,
                                .drops = true,
                                .wide_loss = true,
                                .hides_exchanges = true,
                                .repeats_attention_alone = true};

/// arXiv:2104.04473, table 1. runs: of layers in a stage, which the paper does not give; those of
/// arXiv:2205.05198 where it has the model, else 3 or 2, whichever divides.
struct Scaling {
  const char* name;
  int64_t heads, hidden, layers, tp, pp, devices, batch;
  double tflops;
  int64_t runs, micro;
};

TEST(PublishedMegatron, WeakScalingOfTable1) {
  std::vector<double> errors;
  const Machine machine = load_machine("a100-80g");
  for (const Scaling& row :
       std::vector<Scaling>{{"1.7B", 24, 2304, 24, 1, 1, 32, 512, 137, 1, 4},
                            {"3.6B", 32, 3072, 30, 2, 1, 64, 512, 138, 1, 4},
                            {"7.5B", 32, 4096, 36, 4, 1, 128, 512, 142, 1, 4},
                            {"18.4B", 48, 6144, 40, 8, 1, 256, 1024, 135, 1, 4},
                            {"39.1B", 64, 8192, 48, 8, 2, 512, 1536, 138, 3, 1},
                            {"76.1B", 80, 10240, 60, 8, 4, 1024, 1792, 140, 3, 1},
                            {"145.6B", 96, 12288, 80, 8, 8, 1536, 2304, 148, 2, 1},
                            {"310.1B", 128, 16384, 96, 8, 16, 1920, 2160, 155, 3, 1},
                            {"529.6B", 128, 20480, 105, 8, 35, 2520, 2520, 163, 3, 1},
                            {"1008B", 160, 25600, 128, 8, 64, 3072, 3072, 163, 1, 1}}) {
    const int64_t dp = row.devices / row.tp / row.pp;
    Request request = request_of(gpt(row.layers, row.hidden, row.heads), row.tp, row.pp, dp);
    interleave(row.runs, request);
    request.micro_batch_size = row.micro;
    request.num_micro_batches = row.batch / dp / row.micro;
    request.recompute = {.granularity = "full"};
    const Plan plan = make_plan(request, machine, kOf2021);
    // Their count: 96 B s l h² (1 + s / 6h + V / 16lh), a second forward included.
    const auto h = static_cast<double>(row.hidden), l = static_cast<double>(row.layers);
    const double flops = 96.0 * static_cast<double>(row.batch) * 2048 * l * h * h *
                         (1 + 2048 / (6 * h) + 51200 / (16 * l * h));
    const double planned = flops / plan.step_s / static_cast<double>(row.devices) / 1e12;
    const double error = planned / row.tflops - 1;
    errors.push_back(std::abs(error));
    if (prints())
      std::printf("| %s | %d | %d | %d | %d | %.0f | %.0f | %+.0f %% | %s |\n", row.name,
                  static_cast<int>(row.tp), static_cast<int>(row.pp), static_cast<int>(dp),
                  static_cast<int>(row.batch), row.tflops, planned, 100 * error,
                  plan.limit().c_str());
  }
  EXPECT_LT(median(errors), 0.12);
  EXPECT_LT(*std::max_element(errors.begin(), errors.end()), 0.2);
}

/// arXiv:2205.05198, tables 3 and 5; the last two rows: its abstract.
struct Iteration {
  const char* name;
  int64_t heads, hidden, layers, pp, dp, batch, micro, runs;
  bool full;  ///< recompute, without sequence parallelism; else selective with it
  double seconds;
};

TEST(PublishedMegatron, IterationTimesOfSelectiveRecompute) {
  std::vector<double> errors;
  const Machine machine = load_machine("a100-80g");
  const double flops_530b = 72.0 * 2240 * 105 * 2048 * 20480.0 * 20480 *
                            (1 + 2048 / (6 * 20480.0) + 51200 / (12 * 20480.0 * 105));
  const double at_full_speed = flops_530b / 2240 / 312e12;
  for (const Iteration& row : std::vector<Iteration>{
           {"22B", 64, 6144, 48, 1, 1, 4, 4, 1, true, 1.42},
           {"22B", 64, 6144, 48, 1, 1, 4, 4, 1, false, 1.10},
           {"175B", 96, 12288, 96, 8, 1, 64, 1, 3, true, 18.13},
           {"175B", 96, 12288, 96, 8, 1, 64, 1, 3, false, 13.75},
           {"530B", 128, 20480, 105, 35, 1, 280, 1, 3, true, 49.05},
           {"530B", 128, 20480, 105, 35, 1, 280, 1, 3, false, 37.83},
           {"1T", 160, 25600, 128, 64, 1, 512, 1, 1, true, 94.42},
           {"1T", 160, 25600, 128, 64, 1, 512, 1, 1, false, 71.49},
           {"530B", 128, 20480, 105, 35, 8, 2240, 1, 3, true, at_full_speed / 0.421},
           {"530B", 128, 20480, 105, 35, 8, 2240, 1, 3, false, at_full_speed / 0.542}}) {
    Request request = request_of(gpt(row.layers, row.hidden, row.heads), 8, row.pp, row.dp);
    interleave(row.runs, request);
    request.mesh.sequence_parallel = !row.full;
    request.micro_batch_size = row.micro;
    request.num_micro_batches = row.batch / row.dp / row.micro;
    request.recompute = {.granularity = row.full ? "full" : "selective"};
    const Plan plan = make_plan(request, machine, kOf2022);
    const double error = plan.step_s / row.seconds - 1;
    errors.push_back(std::abs(error));
    if (prints())
      std::printf("| %s | %s | 8 | %d | %d | %d | %.2f | %.2f | %+.0f %% | %s |\n", row.name,
                  row.full ? "full" : "selective", static_cast<int>(row.pp),
                  static_cast<int>(row.dp), static_cast<int>(row.batch), row.seconds, plan.step_s,
                  100 * error, plan.limit().c_str());
  }
  EXPECT_LT(median(errors), 0.12);
  EXPECT_LT(*std::max_element(errors.begin(), errors.end()), 0.2);
}

/// arXiv:2205.05198, table 4: one layer of the 22B model on 8 devices, milliseconds.
TEST(PublishedMegatron, TimesOfOneLayer) {
  struct Row {
    const char* recompute;
    bool sequence;
    double forward, backward;
  };
  const Machine machine = load_machine("a100-80g");
  for (const Row& row :
       {Row{"none", false, 7.7, 11.9}, Row{"none", true, 7.2, 11.8}, Row{"full", false, 7.7, 19.5},
        Row{"selective", false, 7.7, 13.2}, Row{"selective", true, 7.2, 13.1}}) {
    Request request = request_of(gpt(48, 6144, 64), 8, 1, 1);
    request.mesh.sequence_parallel = row.sequence;
    request.micro_batch_size = 4;
    request.recompute = {.granularity = row.recompute};
    const arch::Stage layer{.chain = {.layers = 48}, .chunks = {{1, 2}}, .copies_embedding = false};
    StageClock clock(request, machine, kOf2022);
    const WorkTimes times =
        clock.chunk(layer, 0, traffic_of(request, layer), elements_of(request, layer)).work;
    const double forward = 1e3 * times.forward;
    const double backward = 1e3 * (times.backward_input + times.backward_weight);
    if (prints())
      std::printf("| %s | %s | %.1f | %.1f | %+.0f %% | %.1f | %.1f | %+.0f %% |\n", row.recompute,
                  row.sequence ? "yes" : "no", row.forward, forward,
                  100 * (forward / row.forward - 1), row.backward, backward,
                  100 * (backward / row.backward - 1));
    EXPECT_NEAR(forward, row.forward, 0.2 * row.forward);
    EXPECT_NEAR(backward, row.backward, 0.25 * row.backward);
  }
}

}  // namespace
}  // namespace danlu::plan
