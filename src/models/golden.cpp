#include "models/golden.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "arch/stacked_experts.h"
#include "base/error.h"
#include "models/batch.h"
#include "models/golden_pictures.h"
#include "models/tensor_io.h"
#include "ops/pointwise.h"
#include "weights/hf/renamed_source.h"
#include "weights/hf/stacked_experts.h"

namespace danlu::models {
namespace {

constexpr std::string_view kGradient = "grad.";
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Lets gradients flow to tensors, and when it goes puts them back as they were.
class GradientsOn {
 public:
  void add(const at::Tensor& tensor) {
    before_.emplace_back(tensor, tensor.requires_grad());
    tensor.requires_grad_(true);
  }
  GradientsOn() = default;
  GradientsOn(const GradientsOn&) = delete;
  GradientsOn& operator=(const GradientsOn&) = delete;
  ~GradientsOn() {
    for (const auto& [tensor, required] : before_) tensor.requires_grad_(required);
  }

 private:
  std::vector<std::pair<at::Tensor, bool>> before_;
};

class Comparison {
 public:
  Comparison(CausalLM& model, const weights::TensorSource& golden, double tolerance)
      : model_(&model), golden_(golden), tolerance_(tolerance) {
    if (model.config().vision) {
      pictures_.emplace(*model.config().vision,
                        [this](const std::string& name) { return take(name); });
    }
  }

  GoldenReport run(const std::function<CausalLM&()>& merged) {
    if (has("input_ids")) compare_batch();
    if (has("long_input_ids") && has("long_logits"))
      compare_logits("long_input_ids", "", "long_logits");
    if (has("gen_prompt_ids") && has("gen_output_ids"))
      compare_greedy("gen_prompt_ids", "gen_output_ids");
    if (pictures_) compare_pictures();
    if (has("input_ids") && has("logits_merged") && merged) {
      model_ = &merged();
      compare_logits("input_ids", "attention_mask", "logits_merged");
    }
    return finish();
  }

 private:
  bool has(const std::string& name) const { return golden_.find(name) != nullptr; }
  at::Tensor take(const std::string& name) {
    if (name.empty() || !has(name)) return {};
    used_.insert(name);
    return read_tensor(golden_, name);
  }

  void judge(const std::string& name, const at::Tensor& ours, const at::Tensor& theirs,
             bool relative = false) {
    if (ours.sizes() != theirs.sizes()) {
      throw ModelError(tr("[golden] {} is {} in the file, the model gives {}", name,
                          shape_text(theirs.sizes().vec()), shape_text(ours.sizes().vec())));
    }
    if (theirs.numel() == 0) return;
    const at::Tensor expected = theirs.to(at::kDouble);
    const double largest = expected.abs().max().item<double>();
    TensorDifference difference;
    difference.name = name;
    difference.max_abs =
        (ours.detach().cpu().to(at::kDouble) - expected).abs().max().item<double>();
    difference.max_rel =
        largest > 0 ? difference.max_abs / largest : (difference.max_abs > 0 ? kInfinity : 0);
    difference.judged = relative ? difference.max_rel : difference.max_abs;
    // Written this way round so that NaN is outside.
    difference.within = difference.judged <= tolerance_;
    differences_.push_back(difference);
  }

  /// Rows of a [B, T, X] tensor that were packed.
  static at::Tensor packed_rows(const at::Tensor& full_BTX, const PaddedBatch& batch) {
    if (full_BTX.dim() != 3)
      throw ModelError(
          tr("[golden] expected a [B, T, X] tensor, got {}", shape_text(full_BTX.sizes().vec())));
    return full_BTX.reshape({-1, full_BTX.size(2)}).index_select(0, batch.index_N);
  }

  /// pack_padded, with the pictures that the ids name. rows: of the file.
  PaddedBatch packed(const at::Tensor& ids_BT, const at::Tensor& mask_BT,
                     const at::Tensor& labels_BT, std::vector<int64_t> rows = {}) {
    PaddedBatch batch = pack_padded(ids_BT, mask_BT, labels_BT);
    if (!pictures_) return batch;
    for (int64_t row = static_cast<int64_t>(rows.size()); row < ids_BT.size(0); ++row)
      rows.push_back(row);
    behind_ = pictures_->attach(batch, ids_BT, mask_BT, rows);
    return batch;
  }

  /// What the tower makes of each picture, and positions.
  void compare_pictures() {
    for (const auto& [name, picture] : pictures_->by_name()) {
      const at::Tensor theirs = take(name + ".vision_embeds");
      if (!theirs.defined()) continue;
      const at::NoGradGuard no_grad;
      Visuals visuals;
      visuals.grids = {picture.grid};
      visuals.pixels_PX = picture.pixels_PX;
      judge(name + ".vision_embeds", model_->visual_tokens(visuals), theirs);
    }
    if (has("input_ids") && has("position_ids")) {
      const at::Tensor ids = take("input_ids"), mask = take("attention_mask");
      const PaddedBatch batch = packed(ids, mask, {});
      const at::Tensor theirs =
          take("position_ids").reshape({3, -1}).index_select(1, batch.index_N);
      at::Tensor ours = batch.input.positions_N;
      if (ours.dim() == 1) ours = ours.unsqueeze(0).expand({3, -1});
      judge("position_ids", ours, theirs);
      std::vector<int64_t> deltas;
      for (const int64_t behind : behind_) deltas.push_back(behind - ids.size(1));
      if (has("rope_deltas"))
        judge("rope_deltas", at::tensor(deltas, at::TensorOptions(at::kLong)),
              take("rope_deltas").reshape({-1}));
    }
    for (const std::string name : {"gen_image", "gen_video", "gen_text"}) {
      if (has(name + ".prompt_ids") && has(name + ".output_ids"))
        compare_greedy(name + ".prompt_ids", name + ".output_ids");
    }
  }

  /// The row of input_ids that begins as the prompt does; 0 if none does.
  int64_t row_of_prompt(const at::Tensor& prompt_P) {
    const at::Tensor ids = take("input_ids");
    for (int64_t row = 0; ids.defined() && row < ids.size(0); ++row) {
      if (prompt_P.size(0) <= ids.size(1) &&
          at::equal(ids[row].narrow(0, 0, prompt_P.size(0)), prompt_P))
        return row;
    }
    return 0;
  }

  void compare_batch() {
    PaddedBatch batch = packed(take("input_ids"), take("attention_mask"), take("labels"));
    batch.input.on_hidden = [&](int64_t index, const at::Tensor& hidden_NH) {
      const std::string name = "hidden_states." + std::to_string(index);
      if (has(name)) judge(name, hidden_NH, packed_rows(take(name), batch));
    };
    PassResults results;
    results.on_routing = [&](int64_t layer, const at::Tensor& logits_NE,
                             const ops::Routing& routing) {
      compare_routing(layer, logits_NE, routing, batch);
    };
    {
      const at::NoGradGuard no_grad;
      batch.input.results = &results;
      const at::Tensor hidden_NH = model_->forward_hidden(batch.input);
      batch.input.results = nullptr;
      if (has("logits"))
        judge("logits", model_->logits(hidden_NH), packed_rows(take("logits"), batch));
    }
    batch.input.on_hidden = {};
    if (batch.targets_N.defined()) compare_loss(batch);
  }

  /// What a router made of the batch: logits, and the chosen experts in the order of their numbers.
  void compare_routing(int64_t layer, const at::Tensor& logits_NE, const ops::Routing& routing,
                       const PaddedBatch& batch) {
    const std::string end = "." + std::to_string(layer);
    const auto theirs = [&](const std::string& name) {
      return take(name + end).index_select(0, batch.index_N);
    };
    if (has("router_logits" + end))
      judge("router_logits" + end, logits_NE, theirs("router_logits"));
    if (!has("router_topk_ids" + end)) return;
    const auto [ids_NK, order_NK] = routing.experts_NK.sort(-1);
    judge("router_topk_ids" + end, ids_NK, theirs("router_topk_ids"));
    judge("router_topk_weights" + end, routing.weights_NK.cpu().gather(1, order_NK),
          theirs("router_topk_weights"));
  }

  void compare_loss(PaddedBatch& batch) {
    const double targets =
        static_cast<double>((batch.targets_N != kIgnoreLabel).sum().item<int64_t>());
    if (targets == 0) throw ModelError(tr("[golden] labels hold no target"));
    compare_gradients(batch, "loss", std::string(kGradient), 1 / targets);
    const arch::ModelConfig& config = model_->config();
    if (!has("loss_with_aux") || !config.experts.aux_loss_coef) return;
    // Terms of single layers are DeepSeek-V2's, in which padding takes part, and that is never
    // here.
    if (has("aux_loss." + std::to_string(config.num_layers - 1))) return;
    // Else they are Hugging Face's, of all layers and the whole batch.
    PassResults results;
    std::vector<double> weights(batch.input.segments.q_starts.size() - 1, 0.0);
    weights.front() = targets;  // all segments are one
    batch.input.routers = {{settings::BalanceLoss::kModel, *config.experts.aux_loss_coef}, weights};
    batch.input.results = &results;
    batch.input.loss_scale = 1 / targets;
    compare_gradients(batch, "loss_with_aux", "grad_with_aux.", 1 / targets, &results);
  }

  /// The loss, with the terms that `results` collects, and those of its gradients that the file
  /// has.
  void compare_gradients(const PaddedBatch& batch, const std::string& loss_name,
                         const std::string& prefix, double factor,
                         const PassResults* results = nullptr) {
    const std::vector<Parameter> wanted = parameters_with_gradients(prefix);
    GradientsOn gradients;
    for (const Parameter& parameter : wanted) gradients.add(parameter.tensor);
    const at::Tensor mean = ops::scaled(model_->loss(batch.input, batch.targets_N).sum, factor);
    at::Tensor value = mean.detach().cpu().to(at::kDouble);
    if (results) {
      for (const auto& [name, there] : results->sums()) {
        if (there.dim() > 0) continue;
        const at::Tensor sum = there.cpu();
        value = value + sum * factor;
        if (!has(name)) continue;
        judge(name, (sum * factor / *model_->config().experts.aux_loss_coef).reshape({1}),
              take(name).reshape({1}));
      }
    }
    if (has(loss_name)) judge(loss_name, value.reshape({1}), take(loss_name).reshape({1}));
    if (wanted.empty()) return;
    std::vector<at::Tensor> leaves;
    for (const Parameter& parameter : wanted) leaves.push_back(parameter.tensor);
    const auto grads = torch::autograd::grad({mean}, leaves);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const std::string name = prefix + wanted[i].name();
      judge(name, grads[i], take(name), /*relative=*/true);
    }
  }

  std::vector<Parameter> parameters_with_gradients(const std::string& prefix) {
    std::map<std::string, Parameter> known;
    for (const auto& list : {model_->parameters(), model_->adapter_parameters()}) {
      for (const Parameter& parameter : list) known[parameter.name()] = parameter;
    }
    std::vector<Parameter> wanted;
    for (const weights::TensorInfo& info : golden_.tensors()) {
      if (info.name.rfind(prefix, 0) != 0) continue;
      const auto it = known.find(info.name.substr(prefix.size()));
      if (it == known.end()) {
        throw ModelError(tr("[golden] {} names no parameter of this model", info.name),
                         tr("give --adapters if the file is about adapters"));
      }
      wanted.push_back(it->second);
    }
    return wanted;
  }

  void compare_logits(const std::string& ids, const std::string& mask, const std::string& logits) {
    const at::NoGradGuard no_grad;
    const PaddedBatch batch = packed(take(ids), take(mask), {});
    judge(logits, model_->logits(model_->forward_hidden(batch.input)),
          packed_rows(take(logits), batch));
  }

  void compare_greedy(const std::string& prompt_name, const std::string& output_name) {
    const at::Tensor prompts = take(prompt_name), outputs = take(output_name);
    int64_t wrong = 0;
    for (int64_t row = 0; row < prompts.size(0); ++row) {
      const int64_t of_file = pictures_ ? row_of_prompt(prompts[row]) : 0;
      const at::Tensor ours = greedy_tokens(
          *model_, prompts[row], outputs.size(1) - prompts.size(1),
          [&](const at::Tensor& ids_BT) { return packed(ids_BT, {}, {}, {of_file}); });
      wrong += (ours != outputs[row]).sum().item<int64_t>();
    }
    TensorDifference difference{output_name, static_cast<double>(wrong), 0, wrong ? kInfinity : 0,
                                wrong == 0};
    difference.max_rel = static_cast<double>(wrong) / static_cast<double>(outputs.numel());
    differences_.push_back(difference);
  }

  GoldenReport finish() {
    GoldenReport report;
    for (const weights::TensorInfo& info : golden_.tensors()) {
      if (!used_.count(info.name)) report.not_compared.push_back(info.name);
    }
    if (differences_.empty()) {
      throw ModelError(
          tr("[golden] the file holds nothing to compare: it needs input_ids and at least one of "
             "logits, loss, grad.<parameter>, hidden_states.<k>"));
    }
    report.first_deviation = first_deviation();
    report.passed = std::all_of(differences_.begin(), differences_.end(),
                                [](const auto& d) { return d.within; });
    std::stable_sort(differences_.begin(), differences_.end(), [](const auto& a, const auto& b) {
      return !std::isnan(b.judged) && (std::isnan(a.judged) || a.judged > b.judged);
    });
    report.differences = std::move(differences_);
    return report;
  }

  std::string first_deviation() const {
    const auto outside = [&](const std::string& name) {
      return std::any_of(differences_.begin(), differences_.end(),
                         [&](const auto& d) { return d.name == name && !d.within; });
    };
    const int64_t num_layers = model_->config().num_layers;
    for (int64_t k = 0; k <= num_layers; ++k) {
      if (!outside("hidden_states." + std::to_string(k))) continue;
      if (k == 0) return "embeddings";
      // HF keeps no output of the last layer alone: its entry is after the final norm.
      if (k == num_layers) return "layer " + std::to_string(k - 1) + " or the final norm";
      return "layer " + std::to_string(k - 1);
    }
    return has("hidden_states.0") && outside("logits") ? "head" : "";
  }

  CausalLM* model_;
  const weights::TensorSource& golden_;
  double tolerance_;
  std::set<std::string> used_;
  std::optional<GoldenPictures> pictures_;  ///< of a model that sees pictures
  std::vector<int64_t> behind_;             ///< positions after the rows of the last batch
  std::vector<TensorDifference> differences_;
};

}  // namespace

namespace {

/// `golden` with a gradient of each expert's matrix where the family's files stack experts.
std::shared_ptr<const weights::TensorSource> with_single_gradients(
    const weights::TensorSource& golden, const arch::ModelConfig& config) {
  const std::shared_ptr<const weights::TensorSource> as_it_is(std::shared_ptr<void>(), &golden);
  if (!arch::stacks_experts(config)) return as_it_is;
  weights::RenamedSource::Names plain, ours;
  for (const weights::TensorInfo& info : golden.tensors())
    plain.emplace(info.name.starts_with(kGradient) ? info.name.substr(kGradient.size()) : info.name,
                  info.name);
  const auto single = weights::with_single_experts(
      std::make_shared<weights::RenamedSource>(as_it_is, plain), config);
  for (const weights::TensorInfo& info : single->tensors()) {
    const auto at = plain.find(info.name);
    const bool is_other = at != plain.end() && at->second == info.name;
    ours.emplace(is_other ? info.name : std::string(kGradient) + info.name, info.name);
  }
  return std::make_shared<weights::RenamedSource>(single, ours);
}

}  // namespace

GoldenReport compare_with_golden(CausalLM& model, const weights::TensorSource& golden,
                                 double tolerance, const std::function<CausalLM&()>& merged) {
  const auto named = with_single_gradients(golden, model.config());
  return Comparison(model, *named, tolerance).run(merged);
}

at::Tensor greedy_tokens(const CausalLM& model, const at::Tensor& prompt_P, int64_t new_tokens,
                         const std::function<PaddedBatch(const at::Tensor& ids_BT)>& packed) {
  const at::NoGradGuard no_grad;
  at::Tensor ids = prompt_P.to(at::kLong);
  for (int64_t i = 0; i < new_tokens; ++i) {
    const PaddedBatch batch = packed ? packed(ids.unsqueeze(0)) : pack_padded(ids.unsqueeze(0));
    const at::Tensor hidden_NH = model.forward_hidden(batch.input);
    const at::Tensor next =
        model.logits(hidden_NH.narrow(0, hidden_NH.size(0) - 1, 1)).cpu().argmax(-1);
    ids = at::cat({ids, next});
  }
  return ids;
}

}  // namespace danlu::models
