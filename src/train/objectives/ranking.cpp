#include "train/objectives/ranking.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "data/groups.h"
#include "device/sent.h"
#include "parallel/agree.h"
#include "train/objectives/pairs.h"
#include "train/objectives/reward.h"

namespace danlu::train {
namespace {

using settings::RankingLoss;

/// The segments of a document that goes with its query, and of those of its row that do not.
struct List {
  int64_t right;
  std::vector<int64_t> others;
};

std::vector<List> lists_of(const data::Batch& batch) {
  std::vector<List> lists;
  for (const data::Group& group : data::groups_of(batch)) {
    if (group.anchor >= 0) {
      throw DataError(
          tr("[train] samples whose queries are texts of their own"),
          tr("rerankers read a query and a document as one text: name the rows, and not "
             "what was made of them for embeddings"));
    }
    for (const int64_t positive : group.positives) lists.push_back({positive, group.negatives});
  }
  return lists;
}

PassMetric ratio_of(double sum, double count) {
  return {at::scalar_tensor(sum, at::kDouble), at::scalar_tensor(count, at::kDouble)};
}

/// The place of the right one, from 1 on. What is no number stands before it.
double place_in(const List& list, const double* x_S) {
  return 1.0 + static_cast<double>(
                   std::count_if(list.others.begin(), list.others.end(),
                                 [&](int64_t other) { return !(x_S[other] < x_S[list.right]); }));
}

std::map<std::string, PassMetric> places_of(const std::vector<List>& lists, const double* x_S) {
  double reciprocal = 0, gain = 0, count = 0;
  for (const List& list : lists) {
    if (list.others.empty()) continue;
    const double place = place_in(list, x_S);
    reciprocal += 1 / place;
    gain += 1 / std::log2(place + 1);
    ++count;
  }
  return {{"mrr", ratio_of(reciprocal, count)}, {"ndcg", ratio_of(gain, count)}};
}

class Ranking : public Objective {
 public:
  Ranking(const settings::RankingConfig& config, std::vector<int64_t> ids)
      : config_(config), ids_(std::move(ids)) {}

  std::vector<std::string> metrics() const override { return {"accuracy", "mrr", "ndcg"}; }
  double weight(const data::Batch& batch) const override {
    double weight = 0;
    for (const List& list : lists_of(batch)) weight += weight_of(list);
    return weight;
  }
  std::vector<Columns> prepare(const ForwardPasses& passes,
                               const std::vector<const data::Batch*>& whole) const override {
    parallel::together(passes.stage().mesh().batch_ranks(), [&] {
      for (const data::Batch* batch : whole) lists_of(*batch);
    });
    return std::vector<Columns>(whole.size());
  }
  Loss evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                const models::ForwardInput& input, const data::Batch& batch, const Columns&,
                double) const override {
    const std::vector<List> lists = lists_of(batch);
    const at::Tensor numbers_SK = segment_numbers(policy, hidden_nH, input, batch, ids_);
    const at::Tensor x_S =
        ids_.empty() ? numbers_SK.view({-1}) : numbers_SK.select(1, 0) - numbers_SK.select(1, 1);
    const at::Tensor on_host_S = x_S.detach().to(at::kCPU).contiguous();
    std::map<std::string, PassMetric> metrics = places_of(lists, on_host_S.data_ptr<double>());
    const at::Tensor sum = config_.loss == RankingLoss::kPointwise
                               ? sum_of_points(lists, x_S, on_host_S, metrics)
                               : sum_of_lists(lists, x_S, on_host_S, metrics);
    return loss_of_whole_segments(policy.mesh(), sum, metrics);
  }

 private:
  double weight_of(const List& list) const {
    const auto texts = 1 + std::ssize(list.others);
    if (config_.loss == RankingLoss::kPointwise) return static_cast<double>(texts);
    return texts >= config_.least_texts ? 1 : 0;
  }

  static at::Tensor sum_of_points(const std::vector<List>& lists, const at::Tensor& x_S,
                                  const at::Tensor& on_host_S,
                                  std::map<std::string, PassMetric>& metrics) {
    std::vector<double> rights(static_cast<size_t>(x_S.numel())), others = rights;
    for (const List& list : lists) {
      rights[static_cast<size_t>(list.right)] += 1;
      for (const int64_t other : list.others) others[static_cast<size_t>(other)] += 1;
    }
    double found = 0, all = 0;
    for (size_t s = 0; s < rights.size(); ++s) {
      // What is no number speaks neither for nor against.
      const double x = on_host_S.data_ptr<double>()[s];
      found += x > 0 ? rights[s] : x <= 0 ? others[s] : 0;
      all += rights[s] + others[s];
    }
    metrics["accuracy"] = ratio_of(found, all);
    const auto sent = [&](const std::vector<double>& counts) {
      return device::sent(at::tensor(counts, at::TensorOptions(at::kDouble)), x_S.device());
    };
    return -(sent(rights) * at::log_sigmoid(x_S) + sent(others) * at::log_sigmoid(-x_S)).sum();
  }

  at::Tensor sum_of_lists(const std::vector<List>& lists, const at::Tensor& x_S,
                          const at::Tensor& on_host_S,
                          std::map<std::string, PassMetric>& metrics) const {
    std::vector<const List*> learnt;
    size_t longest = 1;
    for (const List& list : lists) {
      if (weight_of(list) == 0) continue;
      learnt.push_back(&list);
      longest = std::max(longest, 1 + list.others.size());
    }
    // Shorter lists end in places that no document has.
    const auto count = std::ssize(learnt);
    std::vector<int64_t> segments;
    std::vector<double> absences;
    double first = 0;
    for (const List* list : learnt) {
      first += place_in(*list, on_host_S.data_ptr<double>()) == 1 ? 1 : 0;
      segments.push_back(list->right);
      segments.insert(segments.end(), list->others.begin(), list->others.end());
      absences.resize(segments.size(), 0.0);
      const size_t missing = longest - 1 - list->others.size();
      segments.insert(segments.end(), missing, list->right);
      absences.resize(segments.size(), -std::numeric_limits<double>::infinity());
    }
    metrics["accuracy"] = ratio_of(first, static_cast<double>(count));
    const auto shape = std::vector<int64_t>{count, static_cast<int64_t>(longest)};
    const at::Tensor places =
        device::sent(at::tensor(segments, at::TensorOptions(at::kLong)), x_S.device());
    const at::Tensor absences_CL =
        device::sent(at::tensor(absences, at::TensorOptions(at::kDouble)), x_S.device())
            .view(shape);
    const at::Tensor lists_CL =
        x_S.index_select(0, places).view(shape) / config_.temperature + absences_CL;
    return -at::log_softmax(lists_CL, 1).select(1, 0).sum();
  }

  settings::RankingConfig config_;
  std::vector<int64_t> ids_;  ///< of the two tokens; empty: a head gives the scores
};

}  // namespace

std::shared_ptr<const Objective> ranking_objective(const settings::RankingConfig& config,
                                                   const std::vector<int64_t>& ids) {
  return std::make_shared<Ranking>(config, ids);
}

}  // namespace danlu::train
