// Tokens a second and device that MindSpeed-LLM 1.0.RC3 publishes for Atlas 900 A2 PODc, beside
// what is planned with the file of Atlas 800T A2 for its own scripts. docs/plan.md has this table;
// DANLU_PRINT_TABLES=1 prints it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "plan/published_model.h"

namespace danlu::plan {
namespace {

/// A row of the table, and the script of the same release for as many nodes.
struct ScriptRow {
  const char* name;
  Shape shape;
  int64_t nodes, tp, pp;
  int64_t tokens, micro, batch;
  double published;                ///< tokens a second and device
  int64_t run = 0;                 ///< layers of a virtual stage
  std::vector<int64_t> list = {};  ///< layers of each stage
  bool zero1 = false;
  /// What of the script's operations is fused: a attention, r rotary, g the gated activation.
  std::string fused = "arg";
};

constexpr Shape kLlama7b{32, 4096, 11008, 32, 32, 32000}, kLlama13b{40, 5120, 13824, 40, 40, 32000};

std::vector<ScriptRow> script_rows() {
  return {
      {"LLaMA-7B", kLlama7b, 1, 1, 8, 2048, 4, 256, 3600, 0, {}, false, "a"},
      {"LLaMA-13B", kLlama13b, 1, 1, 8, 2048, 1, 128, 1895, 0, {}, false, "a"},
      {"LLaMA-33B", {60, 6656, 17920, 52, 52, 32000}, 4, 4, 4, 2048, 4, 256, 621, 0, {}, true, "a"},
      {"LLaMA-65B", {80, 8192, 22016, 64, 64, 32000}, 4, 8, 4, 2048, 2, 128, 348, 0, {}, true, "a"},
      {"LLaMA2-7B", kLlama7b, 1, 1, 2, 4096, 1, 256, 4672, 0, {}, true},
      {"LLaMA2-13B", kLlama13b, 1, 8, 1, 4096, 4, 512, 2016},
      {"LLaMA2-34B", {48, 8192, 22016, 64, 8, 32000}, 2, 8, 2, 4096, 2, 1024, 810},
      {"LLaMA2-70B", {80, 8192, 28672, 64, 8, 32000}, 4, 8, 4, 4096, 1, 1024, 439, 5},
      {"LLaMA3-8B", {32, 4096, 14336, 32, 8, 128256}, 1, 8, 1, 8192, 2, 64, 2400},
      {"LLaMA3-70B", {80, 8192, 28672, 64, 8, 128256}, 8, 8, 8, 8192, 1, 512, 353},
      {"LLaMA3.1-8B",
       {32, 4096, 14336, 32, 8, 128256},
       1,
       8,
       1,
       8192,
       2,
       64,
       2280,
       0,
       {},
       false,
       "ag"},
      {"LLaMA3.1-70B",
       {80, 8192, 28672, 64, 8, 128256},
       4,
       8,
       4,
       8192,
       1,
       512,
       399,
       0,
       {17, 20, 22, 21},
       false,
       "ag"},
      {"Baichuan-7B",
       {32, 4096, 11008, 32, 32, 64000},
       1,
       8,
       1,
       4096,
       4,
       32,
       2685,
       0,
       {},
       false,
       "a"},
      {"Baichuan-13B",
       {40, 5120, 13696, 40, 40, 64000},
       1,
       8,
       1,
       4096,
       1,
       32,
       1213,
       0,
       {},
       false,
       ""},
      {"Baichuan2-7B",
       {32, 4096, 11008, 32, 32, 125696},
       1,
       8,
       1,
       4096,
       4,
       64,
       2664,
       0,
       {},
       false,
       "a"},
      {"Baichuan2-13B",
       {40, 5120, 13696, 40, 40, 125696},
       1,
       8,
       1,
       4096,
       2,
       128,
       1754,
       0,
       {},
       false,
       "ag"},
      {"InternLM-7B",
       {32, 4096, 11008, 32, 32, 103168},
       1,
       8,
       1,
       2048,
       8,
       64,
       2776,
       0,
       {},
       false,
       "ar"},
      {"InternLM-65B",
       {80, 8192, 22016, 64, 64, 103168},
       4,
       8,
       4,
       2048,
       2,
       256,
       341,
       0,
       {},
       false,
       "ar"},
      {"InternLM2-20B", {48, 6144, 16384, 48, 8, 92544}, 1, 4, 2, 4096, 2, 256, 1141, 0, {22, 26}},
      {"Aquila-7B",
       {32, 4096, 11008, 32, 32, 100008},
       1,
       8,
       1,
       2048,
       8,
       64,
       2849,
       0,
       {},
       false,
       "a"},
      {"Aquila2-7B",
       {32, 4096, 11008, 32, 32, 100008},
       1,
       8,
       1,
       2048,
       8,
       64,
       3323,
       0,
       {},
       false,
       "a"},
      {"CodeLlama-34B", {48, 8192, 22016, 64, 8, 32000}, 2, 8, 2, 4096, 2, 1024, 902},
      {"Yi-34B", {60, 7168, 20480, 56, 8, 64000}, 2, 8, 2, 4096, 2, 1024, 855, 0, {}, false, "ar"},
      {"Qwen-7B", {32, 4096, 11008, 32, 32, 151936}, 1, 8, 1, 8192, 2, 64, 2499, 0, {}, false, "a"},
      {"Qwen-14B",
       {40, 5120, 13696, 40, 40, 152064},
       1,
       8,
       1,
       2048,
       4,
       64,
       1560,
       0,
       {},
       false,
       "a"},
      {"Qwen1.5-0.5B",
       {24, 1024, 2816, 16, 16, 151936, true},
       1,
       1,
       1,
       8192,
       1,
       64,
       23239,
       0,
       {},
       true},
      {"Qwen1.5-1.8B", {24, 2048, 5504, 16, 16, 151936}, 1, 1, 1, 8192, 1, 64, 12603, 0, {}, true},
      {"Qwen1.5-4B", {40, 2560, 6912, 20, 20, 151936}, 1, 1, 2, 8192, 1, 64, 5221, 0, {}, true},
      {"Qwen1.5-7B", {32, 4096, 11008, 32, 32, 151936}, 1, 8, 1, 8192, 2, 64, 2951},
      {"Qwen1.5-14B", {40, 5120, 13696, 40, 40, 152064}, 1, 4, 1, 8192, 1, 64, 1760, 0, {}, true},
      {"Qwen1.5-32B",
       {64, 5120, 27392, 40, 8, 152064},
       4,
       8,
       4,
       8192,
       1,
       64,
       768,
       0,
       {14, 17, 18, 15}},
      {"Qwen1.5-72B", {80, 8192, 24576, 64, 64, 152064}, 8, 8, 8, 8192, 1, 64, 339, 2},
      {"Qwen1.5-110B",
       {80, 8192, 49152, 64, 8, 152064},
       8,
       8,
       8,
       8192,
       1,
       64,
       223,
       0,
       {7, 8, 9, 10, 11, 11, 12, 12}},
      {"Qwen2-0.5B",
       {24, 896, 4864, 14, 2, 151936, true},
       1,
       1,
       1,
       4096,
       2,
       128,
       28618,
       0,
       {},
       true},
      {"Qwen2-1.5B",
       {28, 1536, 8960, 12, 2, 151936, true},
       1,
       1,
       1,
       4096,
       2,
       64,
       15456,
       0,
       {},
       true},
      {"Qwen2-7B", {28, 3584, 18944, 28, 4, 152064}, 1, 1, 2, 4096, 1, 256, 4034, 0, {}, true},
      {"Qwen2-7B 32K", {28, 3584, 18944, 28, 4, 152064}, 1, 4, 2, 32768, 1, 64, 2040},
      {"Qwen2-72B", {80, 8192, 29568, 64, 8, 152064}, 4, 8, 4, 4096, 1, 64, 368, 0, {}, true},
  };
}

Plan plan_of_script(const ScriptRow& row, const arch::ModelConfig& model) {
  Request request;
  request.model = model;
  const int64_t dp = row.nodes * 8 / row.tp / row.pp;
  request.mesh = {
      .tensor = row.tp, .data = dp, .pipeline = row.pp, .sequence_parallel = row.tp > 1};
  request.pipeline = {
      .stages = row.pp, .layers_per_virtual_stage = row.run, .layer_list = row.list};
  if (row.run > 0) {
    request.mesh.ring = true;
    request.order = arch::PipelineOrder::kInterleaved;
  }
  request.tokens = row.tokens;
  request.micro_batch_size = row.micro;
  request.num_micro_batches = row.batch / dp / row.micro;
  if (row.zero1) request.sharding = settings::Sharding::kState;
  const auto steps = [&](char operation) { return row.fused.find(operation) == std::string::npos; };
  const ProgramTraits program{.keeps_scores = steps('a'),
                              .gates_in_steps = steps('g'),
                              .rotates_in_steps = steps('r'),
                              .wide_loss = true,
                              .adds_apart = true,
                              .hides_exchanges = true};
  return make_plan(request, load_machine("atlas-800t-a2"), program);
}

TEST(PublishedMindSpeed, TokensASecondOfItsScripts) {
  std::vector<double> errors;
  std::vector<std::pair<ScriptRow, arch::ModelConfig>> all;
  for (const ScriptRow& row : script_rows()) all.emplace_back(row, model_shaped(row.shape));
  all.push_back({{"GPT3-15B", {}, 1, 8, 1, 2048, 1, 64, 1890}, gpt(8, 12288, 96)});
  all.push_back({{"GPT3-175B", {}, 16, 8, 16, 2048, 2, 1024, 153, 2}, gpt(96, 12288, 96)});
  for (const auto& [row, model] : all) {
    const Plan plan = plan_of_script(row, model);
    const double planned = plan.tokens_per_s / static_cast<double>(plan.world());
    const double error = planned / row.published - 1;
    // That row the machine's reachable_share comes from.
    if (std::string(row.name) != "LLaMA2-7B") errors.push_back(std::abs(error));
    if (std::getenv("DANLU_PRINT_TABLES") != nullptr)
      std::printf("| %s | %dx8 | %d | %d | %d | %d x %d | %.0f | %.0f | %+.0f %% | %s |\n",
                  row.name, static_cast<int>(row.nodes), static_cast<int>(row.tp),
                  static_cast<int>(row.pp), static_cast<int>(row.tokens),
                  static_cast<int>(plan.request.num_micro_batches), static_cast<int>(row.micro),
                  row.published, planned, 100 * error, plan.limit().c_str());
  }
  std::sort(errors.begin(), errors.end());
  if (std::getenv("DANLU_PRINT_TABLES") != nullptr)
    std::printf("median %.1f %%, largest %.1f %%\n", 100 * errors[errors.size() / 2],
                100 * errors.back());
  EXPECT_LT(errors[errors.size() / 2], 0.16);
}

}  // namespace
}  // namespace danlu::plan
