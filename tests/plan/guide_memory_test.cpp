// The memory of LoRA training that the ms-swift guide for Ascend publishes, beside what Danlu plans
// for the same lines. docs/plan.md has this table; DANLU_PRINT_TABLES=1 prints it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "plan/memory.h"

namespace danlu::plan {
namespace {

using settings::Sharding;

struct Row {
  const char* model;
  int64_t devices;
  Sharding sharding;
  double published_gb;
};

/// Qwen1.5's 7B and 14B chat models: config.json of the hub.
arch::ModelConfig model_of(const std::string& name) {
  Json json = Json::parse(R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
    "vocab_size": 151936, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 32, "intermediate_size": 11008, "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "hidden_act": "silu"})");
  if (name == "14B")
    json.update({{"vocab_size", 152064},
                 {"hidden_size", 5120},
                 {"num_hidden_layers", 40},
                 {"num_attention_heads", 40},
                 {"num_key_value_heads", 40},
                 {"intermediate_size", 13696}});
  return arch::parse_model_config(json, "test");
}

/// The guide's line: LoRA of rank 8 with dropout 0.05, one sample a pass, of at most 563 tokens
/// (blossom-math-zh), recompute on (ms-swift's default).
Request request_of(const Row& row) {
  Request request;
  request.model = model_of(row.model);
  request.mesh.data = row.devices;
  request.sharding = row.sharding;
  request.recompute.granularity = "full";
  request.precision = settings::Precision::kBF16;
  request.adapters = settings::new_adapters();
  request.adapters->dropout = 0.05;
  request.tokens = 563;
  request.num_micro_batches = 16;
  return request;
}

TEST(GuideMemory, LoraNeedsLessThanThePublishedTableAndNoLessThanTheWeights) {
  const bool prints = std::getenv("DANLU_PRINT_TABLES") != nullptr;
  for (const Row& row : std::vector<Row>{{"7B", 1, Sharding::kNone, 28},
                                         {"7B", 4, Sharding::kNone, 22},
                                         {"7B", 4, Sharding::kGradients, 28},
                                         {"7B", 4, Sharding::kParameters, 22},
                                         {"7B", 8, Sharding::kNone, 22},
                                         {"14B", 1, Sharding::kNone, 45},
                                         {"14B", 8, Sharding::kNone, 51},
                                         {"14B", 8, Sharding::kGradients, 49},
                                         {"14B", 8, Sharding::kParameters, 31}}) {
    const Memory memory = memory_by_stage(request_of(row))[0].memory;
    const auto gb = [](int64_t bytes) { return static_cast<double>(bytes) / 1e9; };
    const double planned = gb(memory.total());
    if (prints) {
      std::printf("| %s | %d | %s | %.0f | %.1f | %.1f | %.2f | %+.0f %% |\n", row.model,
                  static_cast<int>(row.devices),
                  row.sharding == Sharding::kNone
                      ? "-"
                      : fmt::format("zero{}", static_cast<int>(row.sharding)).c_str(),
                  row.published_gb, planned, gb(memory.weights), gb(memory.pass()),
                  100 * (planned / row.published_gb - 1));
    }
    EXPECT_LT(planned, row.published_gb);
    const auto parameters = static_cast<double>(arch::parameter_count(model_of(row.model)));
    const bool shared = row.sharding == Sharding::kParameters;
    EXPECT_GT(planned, 2e-9 * parameters / (shared ? static_cast<double>(row.devices) : 1));
  }
}

}  // namespace
}  // namespace danlu::plan
