// Weights in and out: what is read, written, refused; initialisation; freezing; the comparison
// tool.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "models/golden.h"
#include "models/merge.h"
#include "models/tensor_io.h"
#include "models/weight_files.h"
#include "support/throws.h"
#include "support/tiny_model.h"

namespace danlu::models {
namespace files_test {

using test::error_of;
using testing::HasSubstr;

/// A source with tensors of another one changed, added or left out.
class Doctored : public weights::TensorSource {
 public:
  explicit Doctored(const CausalLM& model) {
    for (const Parameter& p : model.parameters()) tensors_[p.name()] = p.tensor.detach().clone();
    refresh();
  }
  void set(const std::string& name, const at::Tensor& tensor) {
    tensors_[name] = tensor;
    refresh();
  }
  void drop(const std::string& name) {
    tensors_.erase(name);
    refresh();
  }
  const std::vector<weights::TensorInfo>& tensors() const override { return infos_; }
  void read(const std::string& name, std::span<std::byte> out) const override {
    std::memcpy(out.data(), tensors_.at(name).data_ptr(), out.size());
  }
  void read_range(const std::string& name, int64_t begin, int64_t,
                  std::span<std::byte> out) const override {
    const at::Tensor& tensor = tensors_.at(name);
    std::memcpy(out.data(),
                static_cast<const char*>(tensor.data_ptr()) + begin * tensor.element_size(),
                out.size());
  }
  std::span<const std::byte> mapped(const std::string&) const override { return {}; }
  std::filesystem::path file_of(const std::string&) const override { return "model.safetensors"; }
  const Json& metadata() const override { return metadata_; }

 private:
  void refresh() {
    infos_.clear();
    for (const auto& [name, tensor] : tensors_)
      infos_.push_back({name, DType::kF32, tensor.sizes().vec()});
  }
  std::map<std::string, at::Tensor> tensors_;
  std::vector<weights::TensorInfo> infos_;
  Json metadata_ = Json::object();
};

std::unique_ptr<CausalLM> tiny(const std::string& family = "llama",
                               const Json& changes = Json::object(),
                               at::ScalarType dtype = at::kFloat) {
  const test::TemporaryDirectory directory;
  Json config = test::tiny_config(family);
  config.update(changes);
  test::write_tiny_model(directory.path(), config);
  return load_model(directory.path(), parallel::Mesh::single(), dtype, at::kCPU);
}

at::Tensor weight_named(const CausalLM& model, const std::string& name) {
  for (const Parameter& p : model.parameters()) {
    if (p.name() == name) return p.tensor.detach();
  }
  ADD_FAILURE() << "no " << name;
  return {};
}

/// One row of five tokens.
struct PaddedRow {
  at::Tensor ids_BT = at::tensor({5, 9, 2, 7, 31}, at::TensorOptions(at::kLong)).view({1, 5});
  ForwardInput input{ids_BT.view({-1}), at::arange(5), {{0, 5}, {0, 5}}};
};

/// A dump and the input it belongs to.
class Both : public weights::TensorSource {
 public:
  Both(std::shared_ptr<const weights::TensorSource> dump, at::Tensor ids_BT)
      : dump_(std::move(dump)), ids_BT_(std::move(ids_BT)) {
    infos_.push_back({"input_ids", DType::kI64, ids_BT_.sizes().vec()});
    if (dump_) infos_.insert(infos_.begin(), dump_->tensors().begin(), dump_->tensors().end());
    std::sort(infos_.begin(), infos_.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
  }
  const std::vector<weights::TensorInfo>& tensors() const override { return infos_; }
  void read(const std::string& name, std::span<std::byte> out) const override {
    if (name != "input_ids") return dump_->read(name, out);
    std::memcpy(out.data(), ids_BT_.data_ptr(), out.size());
  }
  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    dump_->read_range(name, begin, end, out);
  }
  std::span<const std::byte> mapped(const std::string&) const override { return {}; }
  std::filesystem::path file_of(const std::string&) const override { return "dump"; }
  const Json& metadata() const override { return metadata_; }

 private:
  std::shared_ptr<const weights::TensorSource> dump_;
  at::Tensor ids_BT_;
  std::vector<weights::TensorInfo> infos_;
  Json metadata_ = Json::object();
};

constexpr const char* kQ = "model.layers.1.self_attn.q_proj.weight";

TEST(Load, NamesMissingAndUnknownTensors) {
  const auto model = tiny();
  Doctored source(*model);
  source.drop(kQ);
  source.set("model.layers.1.self_attn.rotary_emb.inv_freq",
             at::zeros({4}));  // an old buffer: ignored
  source.set("model.layers.7.mlp.extra", at::zeros({4}));
  const std::string text = error_of<ModelError>([&] { load(*model, source); });
  EXPECT_THAT(text,
              HasSubstr(std::string("missing: ") + kQ + "; unknown: model.layers.7.mlp.extra"));
}

TEST(Load, ListsFiveNamesAndTheirNumber) {
  const auto model = tiny();
  Doctored source(*model);
  for (int i = 0; i < 7; ++i) source.set("extra." + std::to_string(i), at::zeros({1}));
  const std::string text = error_of<ModelError>([&] { load(*model, source); });
  EXPECT_THAT(text, HasSubstr("extra.4, … (7 in all)"));
  EXPECT_THAT(text, testing::Not(HasSubstr("extra.5")));
}

TEST(Load, NamesBothShapes) {
  const auto model = tiny();
  Doctored source(*model);
  source.set(kQ, at::zeros({32, 31}));
  const std::string text = error_of<ModelError>([&] { load(*model, source); });
  EXPECT_THAT(text, HasSubstr(std::string(kQ) +
                              " is [32, 31] in model.safetensors, the config asks for [32, 32]"));
}

TEST(Load, RefusesValuesThatAreNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    const auto model = tiny();
    Doctored source(*model);
    at::Tensor weight = at::zeros({32, 32});
    weight[3][5].fill_(bad);
    source.set(kQ, weight);
    const std::string text = error_of<ModelError>([&] { load(*model, source); });
    EXPECT_THAT(text, HasSubstr(kQ));
    EXPECT_THAT(text, HasSubstr("at element 101"));
  }
}

TEST(Load, RefusesValuesThatFp16CannotHold) {
  const auto model = tiny("llama", Json::object(), at::kHalf);
  Doctored source(*tiny());
  source.set(kQ, at::full({32, 32}, 70000.0f));
  EXPECT_THAT(error_of<ModelError>([&] { load(*model, source); }),
              HasSubstr("after the cast to fp16"));
}

TEST(Load, RefusesValuesThatBf16CannotHold) {
  const auto model = tiny("llama", Json::object(), at::kBFloat16);
  Doctored source(*tiny());
  source.set(kQ, at::full({32, 32}, 3.4e38f));
  EXPECT_THAT(error_of<ModelError>([&] { load(*model, source); }),
              HasSubstr("after the cast to BF16"));
}

TEST(Save, RefusesWhatIsNotFiniteThen) {
  const test::TemporaryDirectory directory;
  const auto model = tiny();
  const auto saved = [&](DType dtype) {
    return error_of<ModelError>([&] { save(*model, directory.path(), dtype, {}); });
  };
  at::Tensor weight = model->parameters()[1].tensor.detach();
  weight.view({-1})[7].fill_(70000.0f);
  EXPECT_THAT(saved(DType::kF16), HasSubstr(model->parameters()[1].name() +
                                            " holds inf at element 7 after the cast to fp16"));
  weight.view({-1})[7].fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(saved(DType::kF32), HasSubstr("holds nan at element 7 and is not saved"));
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

/// Memory of this process that shows a file, in kB.
int64_t resident_kb(const std::filesystem::path& file) {
  std::ifstream lines("/proc/self/smaps");
  bool is_of_file = false;
  int64_t sum = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" kB") == line.npos) is_of_file = line.ends_with(file.string());
    if (is_of_file && line.starts_with("Rss:")) sum += std::stoll(line.substr(4));
  }
  return sum;
}

TEST(Load, LeavesNoPagesOfFilesInMemory) {
  const test::TemporaryDirectory directory;
  test::write_tiny_model(directory.path(), test::tiny_config("llama"));
  const auto source = weights::open_checkpoint_source(directory.path());
  const std::filesystem::path file =
      std::filesystem::canonical(directory.path() / "model.safetensors");
  std::vector<std::byte> bytes(source.model->tensors().front().size_bytes());
  source.model->read(source.model->tensors().front().name, bytes);
  EXPECT_GT(resident_kb(file), 0);
  const auto model = load_model(source, parallel::Mesh::single(), at::kFloat, at::kCPU);
  EXPECT_EQ(resident_kb(file), 0);
}

TEST(Load, AcceptsATiedHeadInTheFile) {
  const auto model = tiny("qwen2", {{"tie_word_embeddings", true}});
  Doctored source(*model);
  const at::Tensor before = probe_logits(*model);
  source.set("lm_head.weight", model->parameters()[0].tensor.detach());
  load(*model, source);
  EXPECT_TRUE(at::equal(probe_logits(*model), before));
}

TEST(Save, RoundTripsInEveryDtypeAndCarriesFilesOver) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const test::TemporaryDirectory from, to;
    test::write_tiny_model(from.path(), test::tiny_config("qwen2"));
    write_file_atomic(from / "tokenizer.json", "{}");
    write_file_atomic(from / "generation_config.json", "{\"eos_token_id\": [2, 7]}");
    const auto model = load_model(from.path(), parallel::Mesh::single(), at::kFloat, at::kCPU);
    save(*model, to.path(), dtype, from.path());
    EXPECT_EQ(read_file(to / "tokenizer.json"), "{}");
    const auto again = load_model(to.path(), parallel::Mesh::single(), std::nullopt, at::kCPU);
    EXPECT_EQ(again->config().dtype, dtype);
    EXPECT_THAT(again->config().eos_ids, testing::Contains(7));
    const auto expected = model->parameters(), read = again->parameters();
    ASSERT_EQ(expected.size(), read.size());
    for (size_t i = 0; i < read.size(); ++i) {
      EXPECT_EQ(read[i].name(), expected[i].name());
      EXPECT_TRUE(at::equal(read[i].tensor, expected[i].tensor.to(again->dtype())))
          << read[i].name();
    }
  }
}

TEST(Initialize, IsAFunctionOfSeedAndNameAndHasTheConfiguredSpread) {
  const Json bias = {{"attention_bias", true}, {"initializer_range", 0.5}};
  const auto a = tiny("llama", bias), b = tiny("llama", bias), c = tiny("llama", bias);
  initialize(*a, 4);
  initialize(*b, 4);
  initialize(*c, 5);
  const auto pa = a->parameters(), pb = b->parameters(), pc = c->parameters();
  at::Tensor first_matrix;
  for (size_t i = 0; i < pa.size(); ++i) {
    const at::Tensor value = pa[i].tensor.detach();
    EXPECT_TRUE(at::equal(value, pb[i].tensor)) << pa[i].name();
    if (value.dim() == 1) {
      const double expected = pa[i].name().find("bias") == std::string::npos ? 1 : 0;
      EXPECT_TRUE((value == expected).all().item<bool>()) << pa[i].name();
      continue;
    }
    EXPECT_FALSE(at::equal(value, pc[i].tensor)) << pa[i].name();
    EXPECT_NEAR(value.std().item<double>(), 0.5, 0.08) << pa[i].name();
    EXPECT_NEAR(value.mean().item<double>(), 0.0, 0.08) << pa[i].name();
  }
  EXPECT_FALSE(
      at::equal(weight_named(*a, "model.layers.0.self_attn.q_proj.weight"), weight_named(*a, kQ)));
}

TEST(Freeze, MarksByRegularExpressionAndThawsByExclamationMark) {
  const auto model = tiny();
  model->freeze({".*", "!layers\\.1\\.mlp"});
  std::vector<std::string> trainable;
  for (const Parameter& p : model->trainable_parameters()) {
    EXPECT_TRUE(p.tensor.requires_grad());
    trainable.push_back(p.name());
  }
  EXPECT_THAT(trainable, testing::ElementsAre("model.layers.1.mlp.gate_proj.weight",
                                              "model.layers.1.mlp.up_proj.weight",
                                              "model.layers.1.mlp.down_proj.weight"));
  EXPECT_THAT(error_of<UsageError>([&] { model->freeze({"vision"}); }),
              HasSubstr("'vision' matches no parameter"));
  EXPECT_THAT(error_of<UsageError>([&] { model->freeze({"("}); }),
              HasSubstr("not a valid regular expression"));
}

class Comparison : public testing::Test {
 protected:
  Comparison() : source_(tiny_source()) {}
  static std::shared_ptr<const weights::TensorSource> tiny_source() {
    return weights::open_safetensors(directory() / "golden.safetensors");
  }
  static std::filesystem::path directory() {
    return std::filesystem::path(DANLU_SOURCE_DIR) / "tests/models/goldens/mistral_window";
  }
  std::shared_ptr<const weights::TensorSource> source_;
};

TEST_F(Comparison, PutsTheWorstFirstAndFailsAboveTheTolerance) {
  const auto model = load_model(directory(), parallel::Mesh::single(), at::kFloat, at::kCPU);
  EXPECT_TRUE(compare_with_golden(*model, *source_, 1e-4).passed);
  weight_named(*model, "model.layers.1.mlp.up_proj.weight").mul_(1.01);
  const GoldenReport report = compare_with_golden(*model, *source_, 1e-4);
  EXPECT_FALSE(report.passed);
  for (size_t i = 1; i < report.differences.size(); ++i)
    EXPECT_GE(report.differences[i - 1].judged, report.differences[i].judged);
}

TEST_F(Comparison, NamesTheFirstLayerThatDeviates) {
  const test::TemporaryDirectory dump;
  const auto model = load_model(directory(), parallel::Mesh::single(), at::kFloat, at::kCPU);
  // Our own hidden states as the golden; then layer 1 gets a wrong weight.
  std::vector<Parameter> tensors;
  PaddedRow row;
  row.input.on_hidden = [&](int64_t index, const at::Tensor& hidden) {
    tensors.push_back(parallel::whole_parameter("hidden_states." + std::to_string(index),
                                                hidden.detach().unsqueeze(0).clone()));
  };
  {
    const at::NoGradGuard no_grad;
    tensors.push_back(parallel::whole_parameter(
        "logits", model->logits(model->forward_hidden(row.input)).unsqueeze(0)));
  }
  write_tensors(dump.path(), tensors, DType::kF32, "hidden");
  Both both(weights::open_safetensors(dump / "hidden.safetensors"), row.ids_BT);
  EXPECT_TRUE(compare_with_golden(*model, both, 1e-6).passed);
  weight_named(*model, "model.layers.0.mlp.down_proj.weight").mul_(1.05);
  EXPECT_EQ(compare_with_golden(*model, both, 1e-4).first_deviation, "layer 0");
}

TEST_F(Comparison, RefusesGradientsOfUnknownParametersAndEmptyFiles) {
  const auto model = tiny();
  EXPECT_THAT(error_of<ModelError>([&] {
                compare_with_golden(*model, Both(nullptr, at::ones({1, 3}, at::kLong)), 1e-4);
              }),
              HasSubstr("holds nothing to compare"));
  const auto other = tiny("baichuan", {{"vocab_size", 53}, {"hidden_size", 24}});
  EXPECT_THAT(error_of<ModelError>([&] { compare_with_golden(*other, *source_, 1e-4); }),
              HasSubstr("names no parameter"));
}

}  // namespace files_test
}  // namespace danlu::models
