// A plan as text and as JSON says what it is a plan of.
#include <gmock/gmock.h>

#include "plan/estimate.h"

namespace danlu::plan {
namespace report_test {

using testing::HasSubstr;

Request small() {
  Request request;
  request.model = arch::parse_model_config(Json{{"model_type", "llama"},
                                                {"architectures", {"LlamaForCausalLM"}},
                                                {"vocab_size", 1000},
                                                {"hidden_size", 256},
                                                {"intermediate_size", 768},
                                                {"num_hidden_layers", 8},
                                                {"num_attention_heads", 8},
                                                {"num_key_value_heads", 8},
                                                {"rms_norm_eps", 1e-6},
                                                {"max_position_embeddings", 512},
                                                {"tie_word_embeddings", false},
                                                {"hidden_act", "silu"}},
                                           "test");
  request.tokens = 512;
  request.num_micro_batches = 4;
  return request;
}

TEST(Report, NamesTheOffloadThatLimitsIt) {
  Machine machine = load_machine("a100-80g");
  machine.host_link_bytes_per_s = 1e6;
  Request request = small();
  request.offload.to = settings::OffloadTo::kHost;
  const Plan plan = make_plan(request, machine);
  ASSERT_THAT(plan.limit(), HasSubstr("offload of activations"));
  const std::string text = describe(plan);
  EXPECT_THAT(text.substr(0, text.find("limited by")), HasSubstr("offload of activations"));
}

/// What a plan was made from, of its JSON and what it does not say: model and machine.
Request rebuilt(const Json& json, const arch::ModelConfig& model) {
  Request request;
  request.model = model;
  request.mesh = {.tensor = json.at("tp"),
                  .data = json.at("dp"),
                  .pipeline = json.at("pp"),
                  .context = {.ulysses = json.at("cp_ulysses"),
                              .ring = json.at("cp_ring"),
                              .window = json.at("cp_window")},
                  .sequence_parallel = json.at("sequence_parallel"),
                  .ring = json.at("vpp") > 1};
  const std::string order = json.at("order");
  request.order = order == "zero_bubble"   ? arch::PipelineOrder::kZeroBubble
                  : order == "interleaved" ? arch::PipelineOrder::kInterleaved
                                           : arch::PipelineOrder::kOneForwardOneBackward;
  const int64_t runs = json.at("vpp");
  request.pipeline = {.stages = json.at("pp"),
                      .virtual_stages = runs > 1 ? runs : 0,
                      .layer_list = json.at("layer_list"),
                      .noop_layers = json.at("noop_layers")};
  request.freeze = json.at("freeze");
  if (!json.at("lora_rank").is_null()) {
    request.adapters = settings::new_adapters();
    request.adapters->rank = json.at("lora_rank");
  }
  request.sharding = static_cast<settings::Sharding>(json.at("zero").get<int>());
  const Json& again = json.at("recompute_flags");
  const auto count = [](const Json& at) {
    return at.is_null() ? std::nullopt : std::optional<int64_t>(at.get<int64_t>());
  };
  request.recompute = {
      .granularity = again.at("granularity"),
      .method = again.at("method"),
      .num_layers = count(again.at("num_layers")),
      .activation_function = again.at("activation_function"),
      .norm = again.at("norm"),
      .activation_function_num_layers = count(again.at("activation_function_num_layers")),
      .norm_num_layers = count(again.at("norm_num_layers"))};
  const Json& leaves = json.at("activation_offload");
  request.offload = {.to = leaves.at("to") == "host"   ? settings::OffloadTo::kHost
                           : leaves.at("to") == "file" ? settings::OffloadTo::kFile
                                                       : settings::OffloadTo::kNone,
                     .num_layers = count(leaves.at("num_layers")),
                     .input_norm = leaves.at("input_norm"),
                     .self_attention = leaves.at("self_attention"),
                     .post_attention_norm = leaves.at("post_attention_norm"),
                     .mlp = leaves.at("mlp")};
  request.state_in_files = json.at("offload_optimizer");
  const bool is_wide = json.at("dtype") == settings::precision_name(settings::Precision::kF32);
  request.precision = is_wide ? settings::Precision::kF32 : settings::Precision::kBF16;
  request.tokens = json.at("tokens");
  request.micro_batch_size = json.at("micro_batch_size");
  request.num_micro_batches = json.at("num_micro_batches");
  return request;
}

TEST(Report, APlanIsMadeAgainFromItsJson) {
  const Machine machine = load_machine("a100-80g");
  std::vector<Request> all(4, small());
  all[0].mesh = {.tensor = 2, .data = 2, .context = {.ulysses = 2, .ring = 2}};
  all[0].mesh.sequence_parallel = true;
  all[0].recompute = {.granularity = "full", .method = "block", .num_layers = 2, .norm = true};
  all[1].mesh = {.pipeline = 2, .context = {.ring = 4, .window = 2}};
  all[1].pipeline = {.stages = 2, .layer_list = {5, 3}};
  all[1].freeze = {"mlp"};
  all[1].order = arch::PipelineOrder::kZeroBubble;
  all[1].offload = {.to = settings::OffloadTo::kFile, .num_layers = 3, .mlp = false};
  all[2].mesh = {.data = 2, .pipeline = 2, .ring = true};
  all[2].pipeline = {.stages = 2, .virtual_stages = 2};
  all[2].order = arch::PipelineOrder::kInterleaved;
  all[2].sharding = settings::Sharding::kState;
  all[2].state_in_files = true;
  all[3].offload.to = settings::OffloadTo::kHost;
  all[3].adapters = settings::new_adapters();
  all[3].adapters->rank = 4;
  all[3].precision = settings::Precision::kF32;
  all[3].micro_batch_size = 2;
  for (const Request& request : all) {
    const Json json = to_json(make_plan(request, machine));
    EXPECT_EQ(to_json(make_plan(rebuilt(Json::parse(json.dump()), request.model), machine)), json);
  }
}

}  // namespace report_test
}  // namespace danlu::plan
