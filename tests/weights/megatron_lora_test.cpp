// MindSpeed-LLM's LoRA checkpoints: the rows of its fused adapters, taken apart by formula here,
// come out as PEFT adapters, and merged as base + alpha/r · B·A.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "support/throws.h"
#include "support/tiny_model.h"
#include "weights/bytes.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/edit_torch_file.h"
#include "weights/lora/lora_source.h"
#include "weights/megatron/arguments.h"
#include "weights/megatron/checkpoint.h"
#include "weights/planned_bytes.h"
#include "weights/small_tensors.h"
#include "weights/torch/torch_writer.h"

namespace danlu::weights::megatron {
namespace {

using testing::HasSubstr;
using torch_file::PyValue;

// A Llama of 2 layers, cut TP2 PP2; 2 KV groups of 2 query heads of 4.
constexpr int64_t kH = 16, kF = 24, kD = 4, kGroups = 2, kQueries = 2, kTp = 2, kRank = 3;
constexpr double kAlpha = 6;

Json config_json() {
  Json json = test::tiny_config("llama");
  json["hidden_size"] = kH;
  json["intermediate_size"] = kF;
  json["num_attention_heads"] = kGroups * kQueries;
  json["num_key_value_heads"] = kGroups;
  json["vocab_size"] = 10;
  return json;
}

/// A number that says where it belongs.
double number(const std::string& tensor, int64_t row, int64_t col) {
  const uint64_t seed = hash_bytes(tensor);
  return test::tiny_normal(seed, static_cast<uint64_t>(row * 1000 + col));
}

/// Row `row` of rank `tp`'s fused q, k, v: of which module, and which of its rows.
std::pair<std::string, int64_t> qkv_row(int64_t tp, int64_t row) {
  const int64_t group_rows = (kQueries + 2) * kD, groups = kGroups / kTp;
  const int64_t group = tp * groups + row / group_rows, within = row % group_rows;
  if (within < kQueries * kD) return {"self_attn.q_proj", group * kQueries * kD + within};
  if (within < (kQueries + 1) * kD)
    return {"self_attn.k_proj", group * kD + within - kQueries * kD};
  return {"self_attn.v_proj", group * kD + within - (kQueries + 1) * kD};
}
std::pair<std::string, int64_t> fc1_row(int64_t tp, int64_t row) {
  const int64_t half = kF / kTp;
  return row < half ? std::pair<std::string, int64_t>{"mlp.gate_proj", tp * half + row}
                    : std::pair<std::string, int64_t>{"mlp.up_proj", tp * half + row - half};
}

class LoraCheckpoint : public testing::Test {
 protected:
  /// Writes the four rank files. `with_base`: base weights under base_layer; else adapters alone.
  void write(bool with_base, bool with_alpha = true) {
    with_base_ = with_base;
    const arch::ModelConfig config = arch::family_of(config_json()).parse(config_json());
    const Split split{.tp = kTp, .pp = 2};
    args_ = make_arguments(config, split, {}, DType::kF32);
    if (with_alpha)
      args_.put("lora_alpha", PyValue::real(kAlpha)).put("lora_r", PyValue::integer(kRank));
    for (int64_t tp = 0; tp < kTp; ++tp) {
      for (int64_t pp = 0; pp < 2; ++pp) write_rank(split, tp, pp);
    }
    write_file_atomic(root() / kTrackerFile, "1");
    write_json_file(root() / "config.json", config_json());
  }
  fs::path root() const { return directory_ / "lora"; }

  using Element = std::function<double(int64_t row, int64_t col)>;
  void add(const std::string& key, std::vector<int64_t> shape, const Element& element) {
    const int64_t cols = shape.size() > 1 ? shape[1] : 1;
    std::string bytes;
    for (int64_t row = 0; row < shape[0]; ++row) {
      for (int64_t col = 0; col < cols; ++col)
        test::append_number(bytes, element(row, col), DType::kF32);
    }
    state_.put(key, PyValue::tensor(infos_.size()));
    infos_.push_back({key, DType::kF32, std::move(shape)});
    bytes_.push_back(std::move(bytes));
  }

  /// A matrix whose rows are cut over ranks, with its adapter.
  void add_column_parallel(const std::string& key, const std::string& layer, int64_t rows,
                           const std::function<std::pair<std::string, int64_t>(int64_t)>& row_of) {
    if (with_base_) {
      add(key + ".base_layer.weight", {rows, kH}, [&](int64_t row, int64_t col) {
        const auto [module, at] = row_of(row);
        return number(layer + module, at, col);
      });
    }
    add(key + ".lora_A.default.weight", {kRank, kH},
        [&](int64_t row, int64_t col) { return number(layer + key + "A", row, col); });
    add(key + ".lora_B.default.weight", {rows, kRank}, [&](int64_t row, int64_t col) {
      const auto [module, at] = row_of(row);
      return number(layer + module + "B", at, col);
    });
  }
  /// A matrix whose columns are cut over ranks.
  void add_row_parallel(const std::string& key, const std::string& layer, const std::string& module,
                        int64_t cols, int64_t tp) {
    const int64_t mine = cols / kTp;
    if (with_base_) {
      add(key + ".base_layer.weight", {kH, mine},
          [&](int64_t row, int64_t col) { return number(layer + module, row, tp * mine + col); });
    }
    add(key + ".lora_A.default.weight", {kRank, mine}, [&](int64_t row, int64_t col) {
      return number(layer + module + "A", row, tp * mine + col);
    });
    add(key + ".lora_B.default.weight", {kH, kRank},
        [&](int64_t row, int64_t col) { return number(layer + module + "B", row, col); });
  }

  void write_rank(const Split& split, int64_t tp, int64_t pp) {
    state_ = PyValue::ordered_dict();
    infos_.clear();
    bytes_.clear();
    const std::string layer = "model.layers." + std::to_string(pp) + ".";
    if (with_base_ && pp == 0) {
      add("embedding.word_embeddings.weight", {5, kH},
          [&](int64_t row, int64_t col) { return number("embed", tp * 5 + row, col); });
    }
    const std::string at = "decoder.layers.0.";
    const auto ones = [](int64_t, int64_t) { return 1.0; };
    if (with_base_) {
      add(at + "input_layernorm.weight", {kH}, ones);
      add(at + "pre_mlp_layernorm.weight", {kH}, ones);
    }
    add_row_parallel(at + "self_attention.linear_proj", layer, "self_attn.o_proj",
                     kGroups * kQueries * kD, tp);
    add_column_parallel(at + "self_attention.linear_qkv", layer,
                        (kQueries + 2) * kD * kGroups / kTp,
                        [&](int64_t row) { return qkv_row(tp, row); });
    add_column_parallel(at + "mlp.linear_fc1", layer, 2 * kF / kTp,
                        [&](int64_t row) { return fc1_row(tp, row); });
    add_row_parallel(at + "mlp.linear_fc2", layer, "mlp.down_proj", kF, tp);
    state_.put(at + "mlp.linear_fc2._extra_state", PyValue::none());
    if (with_base_ && pp == 1) {
      add("decoder.final_layernorm.weight", {kH}, ones);
      add("output_layer.weight", {5, kH},
          [&](int64_t row, int64_t col) { return number("head", tp * 5 + row, col); });
    }
    PyValue file = PyValue::dict();
    file.put("args", args_)
        .put("checkpoint_version", PyValue::real(3.0))
        .put("iteration", PyValue::integer(1))
        .put("model", state_);
    const fs::path folder = root() / "iter_0000001" / rank_directory(split, tp, pp, 0);
    fs::create_directories(folder);
    write_file_atomic(
        folder / kModelFile,
        test::planned_bytes(torch_file::plan_torch_file(file, infos_, "model_optim_rng"), bytes_));
  }

  test::TemporaryDirectory directory_;
  bool with_base_ = true;
  PyValue args_, state_;
  std::vector<TensorInfo> infos_;
  std::vector<std::string> bytes_;
};

/// Element [row, col] of a module's ΔW by the definition.
double delta(const std::string& layer, const std::string& module, const std::string& a_name,
             int64_t row, int64_t col) {
  double sum = 0;
  for (int64_t r = 0; r < kRank; ++r)
    sum += number(layer + module + "B", row, r) * number(layer + a_name + "A", r, col);
  return kAlpha / kRank * sum;
}

const std::map<std::string, std::string>& a_names() {
  static const std::string at = "decoder.layers.0.";
  static const std::map<std::string, std::string> names = {
      {"self_attn.q_proj", at + "self_attention.linear_qkv"},
      {"self_attn.k_proj", at + "self_attention.linear_qkv"},
      {"self_attn.v_proj", at + "self_attention.linear_qkv"},
      {"self_attn.o_proj", "self_attn.o_proj"},
      {"mlp.gate_proj", at + "mlp.linear_fc1"},
      {"mlp.up_proj", at + "mlp.linear_fc1"},
      {"mlp.down_proj", "mlp.down_proj"}};
  return names;
}

TEST_F(LoraCheckpoint, BecomesPeftTensorsAndMergesByTheDefinition) {
  write(true);
  const Checkpoint opened = open_checkpoint(root());
  ASSERT_TRUE(opened.peft);
  EXPECT_EQ(opened.peft->rank, kRank);
  EXPECT_EQ(opened.peft->alpha, kAlpha);
  EXPECT_THAT(opened.peft->target_modules,
              testing::UnorderedElementsAre("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj",
                                            "up_proj", "down_proj"));
  EXPECT_EQ(opened.adapters->tensors().size(), 2u * 7 * 2);
  const MergedModel merged =
      merge_adapters(opened.model, opened.adapters, *opened.peft, opened.config);
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    for (const auto& [module, a_name] : a_names()) {
      const TensorInfo* info = merged.source->find(layer + module + ".weight");
      ASSERT_TRUE(info);
      const std::vector<double> values = test::numbers_of(*merged.source, info->name);
      for (size_t i = 0; i < values.size(); ++i) {
        const auto row = static_cast<int64_t>(i) / info->shape[1];
        const auto col = static_cast<int64_t>(i) % info->shape[1];
        EXPECT_NEAR(values[i],
                    number(layer + module, row, col) + delta(layer, module, a_name, row, col), 1e-4)
            << info->name << " " << row << " " << col;
      }
    }
  }
}

TEST_F(LoraCheckpoint, AloneItIsAnAdapterOfANamedModel) {
  write(false);
  const Checkpoint alone = open_checkpoint(root());
  EXPECT_FALSE(alone.model);
  EXPECT_EQ(alone.adapters->tensors().size(), 28u);
  const Checkpoint named = open_adapters(root(), alone.config);
  EXPECT_EQ(named.adapters->tensors().size(), 28u);
}

TEST_F(LoraCheckpoint, AdaptersOnAnUnknownModuleAreAnError) {
  for (const bool with_base : {false, true}) {
    write(with_base);
    const fs::path file = root() / "iter_0000001/mp_rank_01_000" / kModelFile;
    test::edit_torch_file(file, [](test::TorchParts& parts) {
      PyValue state = parts.root.get("model");
      for (const char* part : {"A", "B"}) {
        const std::string key =
            fmt::format("decoder.layers.0.mlp.linear_other.lora_{}.default.weight", part);
        state.put(key, PyValue::tensor(parts.tensors.size()));
        parts.tensors.push_back({key, DType::kF32, {kRank, kRank}});
        parts.bytes.emplace_back(4 * kRank * kRank, '\0');
      }
      parts.root.put("model", state);
    });
    const arch::ModelConfig config = arch::family_of(config_json()).parse(config_json());
    const auto names_it = testing::AllOf(HasSubstr("mp_rank_01_000"),
                                         HasSubstr("mlp.linear_other.lora_A.default.weight"));
    EXPECT_THAT(test::error_of<ModelError>([&] { (void)open_adapters(root(), config); }), names_it);
    EXPECT_THAT(test::error_of<ModelError>([&] { (void)open_checkpoint(root()); }), names_it);
  }
}

TEST_F(LoraCheckpoint, WithItsBaseItIsAnAdapterOfANamedModelToo) {
  write(true);
  const arch::ModelConfig config = arch::family_of(config_json()).parse(config_json());
  EXPECT_EQ(open_adapters(root(), config).adapters->tensors().size(), 28u);
}

/// Whatever opens it, to merge, to answer or to train on.
TEST_F(LoraCheckpoint, CopiesThatDifferBetweenRanksAreRefusedOrTakenKnowingly) {
  write(false);
  const arch::ModelConfig config = arch::family_of(config_json()).parse(config_json());
  EXPECT_EQ(open_adapter_source(root(), config).tensors->tensors().size(), 28u);
  const std::string key = "decoder.layers.0.self_attention.linear_qkv.lora_A.default.weight";
  test::edit_torch_file(
      root() / "iter_0000001/mp_rank_01_000" / kModelFile,
      [&](test::TorchParts& parts) { parts.bytes[parts.at("model." + key)][0] ^= 1; });
  // Said once, though it is the A of three modules.
  EXPECT_THAT(test::error_of<ModelError>([&] { (void)open_adapter_source(root(), config); }),
              testing::AllOf(HasSubstr("mp_rank_01_000"), HasSubstr(key + " differs"),
                             testing::Not(HasSubstr("; " + root().string()))));
  testing::internal::CaptureStderr();
  const AdapterSource loose = open_adapter_source(root(), config, {.loose = true});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("the first rank's copy is taken"));
  EXPECT_EQ(loose.tensors->tensors().size(), 28u);
}

TEST_F(LoraCheckpoint, ADivisorOfZeroInItsArgsIsAnError) {
  write(false);
  test::edit_torch_file(root() / "iter_0000001/mp_rank_00_000" / kModelFile,
                        [](test::TorchParts& parts) {
                          PyValue args = parts.root.get("args");
                          args.put("make_vocab_size_divisible_by", PyValue::integer(0));
                          parts.root.put("args", args);
                        });
  EXPECT_THAT(test::error_of<ModelError>([&] { (void)open_checkpoint(root()); }),
              HasSubstr("args.make_vocab_size_divisible_by"));
}

TEST_F(LoraCheckpoint, TheScaleIsNeverGuessed) {
  write(true, false);
  EXPECT_THAT(test::error_of<ModelError>([&] { open_checkpoint(root()); }),
              testing::AllOf(HasSubstr("no lora_alpha"), HasSubstr("--lora-alpha")));
  EXPECT_EQ(open_checkpoint(root(), {.lora_alpha = 5.0}).peft->alpha, 5.0);
}

TEST_F(LoraCheckpoint, FlagsThatContradictTheFilesAreRefused) {
  write(true);
  EXPECT_THAT(test::error_of<UsageError>([&] { open_checkpoint(root(), {.lora_alpha = 32.0}); }),
              testing::AllOf(HasSubstr("32"), HasSubstr("6")));
  EXPECT_THAT(test::error_of<UsageError>([&] { open_checkpoint(root(), {.lora_rank = 16}); }),
              testing::AllOf(HasSubstr("16"), HasSubstr("rank 3")));
}

}  // namespace
}  // namespace danlu::weights::megatron
