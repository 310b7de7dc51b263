// Losses over classes.
#include <cmath>
#include <cstring>

#include "ops/kinds.h"

using namespace npu_sim;

namespace {

constexpr int64_t kNone = 0, kMean = 1, kSum = 2;

void check_loss(Plan& p, const Tensor& self, const Tensor& target, const Tensor& weight) {
  p.dtype(self, kFloats);
  p.dtype(target, {ACL_INT64, ACL_INT32, ACL_UINT8});
  p.require(self.rank() == 2, "the input is [N, C]");
  p.shape(target, {self.dim(0)});
  if (weight) p.shape(weight, {self.dim(1)});
}

/// The class of each row, or -1 where it is ignored.
std::vector<int64_t> classes(const Live& target, int64_t ignore, int64_t count) {
  std::vector<int64_t> ids = read<int64_t>(target);
  for (int64_t& id : ids) {
    if (id == ignore) {
      id = -1;
    } else if (id < 0 || id >= count) {
      throw TaskError{
          507035, "'target' holds class " + std::to_string(id) + " of " + std::to_string(count)};
    }
  }
  return ids;
}

std::vector<double> weights_of(const Run& run, const Tensor& weight, int64_t count) {
  return weight ? read<double>(bytes(run, weight)) : std::vector<double>(at(count), 1.0);
}

double total_of(const std::vector<int64_t>& ids, const std::vector<double>& weights) {
  double total = 0;
  for (const int64_t id : ids) total += id < 0 ? 0 : weights[at(id)];
  return total;
}

/// Losses of rows as the reduction wants them.
std::vector<double> reduced_loss(const std::vector<double>& rows, double total, int64_t reduction) {
  if (reduction == kNone) return rows;
  double sum = 0;
  for (const double row : rows) sum += row;
  return {reduction == kMean ? sum / total : sum};
}

int64_t reduction_by_name(Plan& p, const char* name) {
  const std::string word = name && *name ? name : "mean";
  p.require(word == "none" || word == "mean" || word == "sum", "reduction is none, mean or sum");
  return word == "none" ? kNone : word == "mean" ? kMean : kSum;
}

/// What a row's gradient is multiplied by.
double row_scale(const std::vector<double>& up, size_t row, double total, int64_t reduction) {
  return reduction == kNone ? up[row] : reduction == kMean ? up[0] / total : up[0];
}

}  // namespace

NPU_SIM_DEFINE(aclnnNLLLoss, const aclTensor* self, const aclTensor* target,
               const aclTensor* weight, int64_t reduction, int64_t ignoreIndex, aclTensor* out,
               aclTensor* totalWeightOut) {
  NPU_SIM_PLAN(aclnnNLLLoss) {
    const Tensor a = p.in(self, "self"), t = p.in(target, "target"), w = p.in(weight, "weight");
    const Tensor o = p.out(out, "out"), total = p.out(totalWeightOut, "totalWeightOut");
    check_loss(p, a, t, w);
    p.require(reduction >= kNone && reduction <= kSum, "reduction is 0, 1 or 2");
    p.require(o.view.numel() == (reduction == kNone ? a.dim(0) : 1), "'out' has the wrong size");
    p.require(total.view.numel() == 1, "'totalWeightOut' has one element");
    p.run([=](Run& run) {
      const std::vector<double> in = read<double>(bytes(run, a)),
                                weights = weights_of(run, w, a.dim(1));
      const std::vector<int64_t> ids = classes(bytes(run, t), ignoreIndex, a.dim(1));
      std::vector<double> rows(ids.size());
      for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] >= 0) rows[i] = -weights[at(ids[i])] * in[i * at(a.dim(1)) + at(ids[i])];
      }
      const double sum = total_of(ids, weights);
      write(bytes(run, o), reduced_loss(rows, sum, reduction));
      write(bytes(run, total), std::vector<double>{sum});
    });
  });
}

NPU_SIM_DEFINE(aclnnNLLLossBackward, const aclTensor* gradOutput, const aclTensor* self,
               const aclTensor* target, const aclTensor* weight, int64_t reduction,
               int64_t ignoreIndex, const aclTensor* totalWeight, aclTensor* out) {
  NPU_SIM_PLAN(aclnnNLLLossBackward) {
    const Tensor g = p.in(gradOutput, "gradOutput"), a = p.in(self, "self"),
                 t = p.in(target, "target");
    const Tensor w = p.in(weight, "weight"), total = p.in(totalWeight, "totalWeight"),
                 o = p.out(out, "out");
    check_loss(p, a, t, w);
    p.shape(o, a.dims());
    p.require(reduction >= kNone && reduction <= kSum, "reduction is 0, 1 or 2");
    p.require(g.view.numel() == (reduction == kNone ? a.dim(0) : 1),
              "'gradOutput' has the wrong size");
    p.run([=](Run& run) {
      const std::vector<double> up = read<double>(bytes(run, g)),
                                weights = weights_of(run, w, a.dim(1));
      const std::vector<int64_t> ids = classes(bytes(run, t), ignoreIndex, a.dim(1));
      const double sum = read<double>(bytes(run, total))[0];
      std::vector<double> grad(at(a.view.numel()));
      for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < 0) continue;
        grad[i * at(a.dim(1)) + at(ids[i])] =
            -weights[at(ids[i])] * row_scale(up, i, sum, reduction);
      }
      write(bytes(run, o), grad);
    });
  });
}

NPU_SIM_DEFINE(aclnnCrossEntropyLoss, const aclTensor* input, const aclTensor* target,
               const aclTensor* weightOptional, char* reductionOptional, int64_t ignoreIndex,
               double labelSmoothing, double, bool returnZloss, const aclTensor* lossOut,
               const aclTensor* logProbOut, const aclTensor* zlossOut,
               const aclTensor* lseForZlossOut) {
  NPU_SIM_PLAN(aclnnCrossEntropyLoss) {
    const Tensor a = p.in(input, "input"), t = p.in(target, "target"),
                 w = p.optional(weightOptional, "weight");
    const Tensor o = p.out(lossOut, "lossOut"), lp = p.out(logProbOut, "logProbOut");
    p.out(zlossOut, "zlossOut");
    p.out(lseForZlossOut, "lseForZlossOut");
    check_loss(p, a, t, w);
    p.require(!returnZloss, "z-loss is not supported");
    p.shape(lp, a.dims());
    const int64_t reduction = reduction_by_name(p, reductionOptional);
    p.require(o.view.numel() == (reduction == kNone ? a.dim(0) : 1),
              "'lossOut' has the wrong size");
    p.run([=](Run& run) {
      std::vector<double> v = read<double>(bytes(run, a));
      const std::vector<double> weights = weights_of(run, w, a.dim(1));
      const std::vector<int64_t> ids = classes(bytes(run, t), ignoreIndex, a.dim(1));
      const size_t width = at(a.dim(1));
      std::vector<double> rows(ids.size());
      for (size_t i = 0; i < ids.size(); ++i) {
        double most = -INFINITY, sum = 0, smooth = 0;
        for (size_t j = 0; j < width; ++j) most = std::max(most, v[i * width + j]);
        for (size_t j = 0; j < width; ++j) sum += std::exp(v[i * width + j] - most);
        for (size_t j = 0; j < width; ++j) {
          v[i * width + j] -= most + std::log(sum);
          smooth -= weights[j] * v[i * width + j];
        }
        if (ids[i] < 0) continue;
        rows[i] = -(1 - labelSmoothing) * weights[at(ids[i])] * v[i * width + at(ids[i])] +
                  labelSmoothing * smooth / static_cast<double>(width);
      }
      write(bytes(run, lp), v);
      write(bytes(run, o), reduced_loss(rows, total_of(ids, weights), reduction));
    });
  });
}

NPU_SIM_DEFINE(aclnnCrossEntropyLossGrad, const aclTensor* gradLoss, const aclTensor* logProb,
               const aclTensor* target, const aclTensor* weightOptional,
               const aclTensor* gradZlossOptional, const aclTensor* lseForZlossOptional,
               char* reductionOptional, int64_t ignoreIndex, double labelSmoothing, double,
               const aclTensor* out) {
  NPU_SIM_PLAN(aclnnCrossEntropyLossGrad) {
    const Tensor g = p.in(gradLoss, "gradLoss"), lp = p.in(logProb, "logProb"),
                 t = p.in(target, "target");
    const Tensor w = p.optional(weightOptional, "weight"), o = p.out(out, "out");
    p.optional(gradZlossOptional, "gradZloss");
    p.optional(lseForZlossOptional, "lseForZloss");
    check_loss(p, lp, t, w);
    p.shape(o, lp.dims());
    const int64_t reduction = reduction_by_name(p, reductionOptional);
    p.require(labelSmoothing == 0, "gradients with label smoothing are not simulated");
    p.run([=](Run& run) {
      std::vector<double> v = read<double>(bytes(run, lp));
      const std::vector<double> up = read<double>(bytes(run, g)),
                                weights = weights_of(run, w, lp.dim(1));
      const std::vector<int64_t> ids = classes(bytes(run, t), ignoreIndex, lp.dim(1));
      const double total = total_of(ids, weights);
      const size_t width = at(lp.dim(1));
      for (size_t i = 0; i < ids.size(); ++i) {
        const double scale =
            ids[i] < 0 ? 0 : weights[at(ids[i])] * row_scale(up, i, total, reduction);
        for (size_t j = 0; j < width; ++j) {
          const double hit = static_cast<int64_t>(j) == ids[i] ? 1 : 0;
          v[i * width + j] = ids[i] < 0 ? 0 : (std::exp(v[i * width + j]) - hit) * scale;
        }
      }
      write(bytes(run, o), v);
    });
  });
}
