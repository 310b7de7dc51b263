// Every kind of adapter through a whole run: trained, saved, loaded, merged, resumed.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "base/json.h"
#include "models/causal_lm.h"
#include "models/merge.h"
#include "models/tensor_io.h"
#include "models/weight_files.h"
#include "support/temporary_directory.h"
#include "train/report/metrics_log.h"
#include "train/run.h"
#include "train/support.h"
#include "weights/hf/save_model.h"

namespace danlu::train {
namespace lora_variants_test {

struct Variant {
  std::string name;
  bool dora = false, rslora = false;
  std::vector<std::string> targets = {"all-linear"}, modules_to_save = {};
};
void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

class LoraVariant : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override { test::write_run_inputs(folder_, DType::kF32, 60); }

  TrainConfig config() const {
    TrainConfig config;
    config.tuner = Tuner::kLora;
    config.precision = Precision::kF32;
    config.device = "cpu";
    config.lora.rank = 4;
    config.lora.alpha = 8;
    config.lora.dropout = 0.1;
    config.lora.dora = GetParam().dora;
    config.lora.rslora = GetParam().rslora;
    weights::set_targets(config.lora, GetParam().targets);
    config.lora.modules_to_save = GetParam().modules_to_save;
    config.model.path = config.model.tokenizer = folder_ / "model";
    config.data.train = {(folder_ / "data.jsonl").string()};
    config.data.cache_dir = folder_ / "cache";
    config.data.max_length = 64;
    config.batch.micro_batch_size = 4;
    config.batch.accumulation = 2;
    config.batch.max_steps = 20;
    config.schedule.shape.kind = settings::ScheduleKind::kCosine;
    config.schedule.shape.lr = 2e-2;
    config.output.directory = folder_ / "run";
    config.output.save_steps = 10;
    config.output.logging_steps = 1;
    config.output.plot_loss = false;
    return config;
  }
  std::unique_ptr<models::CausalLM> load(const std::string& model,
                                         const fs::path& adapter = {}) const {
    return models::load_model(folder_ / model, parallel::Mesh::single(), at::kFloat,
                              at::Device(at::kCPU), adapter);
  }
  /// merged/: model/ with the adapters of run/.
  void merge() const {
    const auto base = weights::open_checkpoint_source(folder_ / "model", {.all_tensors = true});
    const auto adapter = weights::open_adapter_source(folder_ / "run", base.config);
    const weights::MergedModel merged =
        weights::merge_adapters(base.model, adapter.tensors, adapter.peft, base.config);
    fs::create_directory(folder_ / "merged");
    weights::save_model(*merged.source, merged.config, DType::kF32, folder_ / "merged");
    weights::carry_over_files(folder_ / "model", folder_ / "merged");
  }
  std::vector<std::pair<int64_t, double>> losses() const {
    return read_metrics(folder_ / "run" / "logging.jsonl")["loss"];
  }

  const danlu::test::TemporaryDirectory folder_;
};

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

/// The weight of `module` with its adapter, by the papers' formulas in f64, from the raw files.
at::Tensor merged_by_formula(const weights::TensorSource& base,
                             const weights::TensorSource& adapter, const std::string& module,
                             double scale) {
  const auto read = [](const weights::TensorSource& source, const std::string& name) {
    return models::read_tensor(source, name).to(at::kDouble);
  };
  const std::string start = "base_model.model." + module;
  const at::Tensor sum =
      read(base, module + ".weight") + scale * at::mm(read(adapter, start + ".lora_B.weight"),
                                                      read(adapter, start + ".lora_A.weight"));
  if (!adapter.find(start + ".lora_magnitude_vector")) return sum;
  const at::Tensor length = (sum * sum).sum(1).sqrt();
  return sum * (read(adapter, start + ".lora_magnitude_vector") / length).unsqueeze(1);
}

TEST_P(LoraVariant, TrainedSavedLoadedAndMergedItIsTheSameModel) {
  run(config());
  EXPECT_LT(losses().back().second, losses().front().second - 0.3);
  const Json peft = read_json_file(folder_ / "run" / "adapter_config.json");
  EXPECT_EQ(peft["use_dora"], GetParam().dora);
  EXPECT_EQ(peft["use_rslora"], GetParam().rslora);
  if (!GetParam().modules_to_save.empty()) {
    EXPECT_EQ(peft["modules_to_save"], Json(GetParam().modules_to_save));
  }

  const auto model = load("model", folder_ / "run");
  const at::Tensor adapted = models::probe_logits(*model);
  const at::Tensor untuned = models::probe_logits(*load("model"));
  EXPECT_GT(distance(adapted, untuned), 0.1);
  merge();
  models::check_merged(*load("merged"), adapted, untuned, 1e-5);
  EXPECT_LT(distance(models::probe_logits(*load("merged")), adapted), 1e-4);

  // alpha 8, rank 4: scale 2; rsLoRA 8/sqrt(4) = 4.
  const auto base = weights::open_weights(folder_ / "model");
  const auto adapter = weights::open_weights(folder_ / "run");
  const auto merged = weights::open_weights(folder_ / "merged");
  size_t num_adapted = 0;
  for (const weights::TensorInfo& info : base->tensors()) {
    const std::string module = info.name.substr(0, info.name.rfind('.'));
    if (!adapter->find("base_model.model." + module + ".lora_A.weight")) continue;
    ++num_adapted;
    const at::Tensor expected =
        merged_by_formula(*base, *adapter, module, GetParam().rslora ? 4.0 : 2.0);
    EXPECT_LT(distance(models::read_tensor(*merged, info.name).to(at::kDouble), expected), 1e-5)
        << module;
  }
  EXPECT_GT(num_adapted, 0u);
  for (const std::string& name : GetParam().modules_to_save) {
    for (const weights::TensorInfo& info : base->tensors()) {
      if (info.name.find("." + name + ".") == std::string::npos && info.name != name + ".weight")
        continue;
      const at::Tensor trained = models::read_tensor(*adapter, "base_model.model." + info.name);
      EXPECT_TRUE(at::equal(models::read_tensor(*merged, info.name), trained)) << info.name;
      EXPECT_GT(distance(models::read_tensor(*base, info.name), trained), 0) << info.name;
    }
  }
}

TEST_P(LoraVariant, AResumedRunContinuesBitForBit) {
  run(config());
  const auto whole_losses = losses();
  const std::string whole = read_file(folder_ / "run" / "adapter_model.safetensors");
  // As if it had been stopped after step 10.
  fs::remove_all(folder_ / "run" / "checkpoint-20");
  fs::remove(folder_ / "run" / "adapter_model.safetensors");
  run(config());
  EXPECT_EQ(losses(), whole_losses);
  EXPECT_EQ(read_file(folder_ / "run" / "adapter_model.safetensors"), whole);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, LoraVariant,
    testing::Values(Variant{.name = "Dora", .dora = true},
                    Variant{.name = "RsLora", .rslora = true},
                    Variant{.name = "DoraAndRsLora", .dora = true, .rslora = true},
                    Variant{.name = "ModulesToSave",
                            .targets = {"q_proj", "v_proj"},
                            .modules_to_save = {"lm_head", "embed_tokens", "input_layernorm"}},
                    Variant{.name = "Head", .targets = {"lm_head", "o_proj"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace lora_variants_test
}  // namespace danlu::train
