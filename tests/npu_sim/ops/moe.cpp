// Routing of tokens to experts and back.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/kinds.h"

using namespace npu_sim;

namespace {

constexpr int64_t kMostEntries = 16777215;

/// For entry i = token·k + choice: its place among all entries, sorted by expert.
std::vector<int64_t> places_by_expert(const std::vector<int64_t>& experts) {
  std::vector<int64_t> order(experts.size()), places(experts.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t i, int64_t j) { return experts[at(i)] < experts[at(j)]; });
  for (size_t i = 0; i < order.size(); ++i) places[at(order[i])] = static_cast<int64_t>(i);
  return places;
}

void check_entries(Plan& p, const Tensor& sorted) {
  p.dtype(sorted, {ACL_INT32});
  p.require(sorted.rank() == 1 && sorted.dim(0) < kMostEntries, "sortedIndices is [T·k]");
}

}  // namespace

NPU_SIM_DEFINE(aclnnMoeGatingTopKSoftmaxV2, const aclTensor* x, const aclTensor* finishedOptional,
               int64_t k, int64_t renorm, bool outputSoftmaxResultFlag, const aclTensor* yOut,
               const aclTensor* expertIdxOut, const aclTensor* softmaxResultOutOptional) {
  NPU_SIM_PLAN(aclnnMoeGatingTopKSoftmaxV2) {
    const Tensor a = p.in(x, "x"), y = p.out(yOut, "yOut"),
                 ids = p.out(expertIdxOut, "expertIdxOut");
    const bool wants = outputSoftmaxResultFlag && renorm == 0;
    const Tensor all = wants ? p.out(softmaxResultOutOptional, "softmaxResultOut") : Tensor{};
    p.require(!finishedOptional, "'finished' is not simulated");
    p.dtype(a, kFloats);
    p.same_dtype(a, y);
    p.dtype(ids, {ACL_INT32});
    p.require((a.rank() == 2 || a.rank() == 3) && k >= 1 && k <= 1024 && k <= a.dim(-1),
              "x has 2 or 3 dimensions, k fits");
    p.require(renorm == 0 || renorm == 1, "renorm is 0 or 1");
    std::vector<int64_t> dims = a.dims();
    dims.back() = k;
    p.shape(y, dims);
    p.shape(ids, dims);
    if (all) {
      p.dtype(all, {ACL_FLOAT});
      p.shape(all, a.dims());
    }
    p.run([=](Run& run) {
      std::vector<double> in = read<double>(bytes(run, a)), weights;
      std::vector<int64_t> experts;
      const int64_t width = a.dim(-1);
      for (auto row = in.begin(); row != in.end(); row += width) {
        std::vector<int64_t> order(at(width));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](int64_t i, int64_t j) { return row[i] > row[j]; });
        const double most = row[order[0]];
        double sum = 0;
        for (int64_t i = 0; i < (renorm ? k : width); ++i)
          sum += std::exp(row[order[at(i)]] - most);
        for (int64_t i = 0; i < k; ++i) {
          experts.push_back(order[at(i)]);
          weights.push_back(std::exp(row[order[at(i)]] - most) / sum);
        }
        for (int64_t i = 0; i < width; ++i) row[i] = std::exp(row[i] - most) / sum;
      }
      write(bytes(run, y), weights);
      write(bytes(run, ids), experts);
      if (all) write(bytes(run, all), in);
    });
  });
}

NPU_SIM_DEFINE(aclnnMoeTokenPermute, const aclTensor* tokens, const aclTensor* indices,
               int64_t numOutTokens, bool paddedMode, const aclTensor* permuteTokensOut,
               const aclTensor* sortedIndicesOut) {
  NPU_SIM_PLAN(aclnnMoeTokenPermute) {
    const Tensor t = p.in(tokens, "tokens"), i = p.in(indices, "indices");
    const Tensor o = p.out(permuteTokensOut, "permuteTokensOut"),
                 s = p.out(sortedIndicesOut, "sortedIndicesOut");
    p.only_910b();
    p.dtype(t, kFloats);
    p.dtype(i, kIds);
    p.same_dtype(t, o);
    check_entries(p, s);
    p.require(!paddedMode, "paddedMode is false");
    p.require(t.rank() == 2 && i.rank() == 2 && i.dim(0) == t.dim(0) && i.dim(1) <= 512,
              "tokens [T,H], indices [T,k]");
    const int64_t entries = i.view.numel(), width = t.dim(1), k = i.dim(1);
    const int64_t kept =
        numOutTokens > 0 ? std::min(numOutTokens, entries) : entries + numOutTokens;
    p.shape(o, {kept, width});
    p.shape(s, {entries});
    p.run([=](Run& run) {
      const std::vector<int64_t> places = places_by_expert(read<int64_t>(bytes(run, i)));
      const std::vector<double> in = read<double>(bytes(run, t));
      std::vector<double> out(at(kept * width));
      for (int64_t e = 0; e < entries; ++e) {
        if (places[at(e)] >= kept) continue;
        const auto row = in.begin() + e / k * width;
        std::copy(row, row + width, out.begin() + places[at(e)] * width);
      }
      write(bytes(run, o), out);
      write(bytes(run, s), places);
    });
  });
}

NPU_SIM_DEFINE(aclnnMoeTokenPermuteGrad, const aclTensor* permutedOutputGrad,
               const aclTensor* sortedIndices, int64_t numTopk, bool paddedMode,
               const aclTensor* out) {
  NPU_SIM_PLAN(aclnnMoeTokenPermuteGrad) {
    const Tensor g = p.in(permutedOutputGrad, "permutedOutputGrad"),
                 s = p.in(sortedIndices, "sortedIndices");
    const Tensor o = p.out(out, "out");
    p.only_910b();
    p.dtype(g, kFloats);
    p.same_dtype(g, o);
    check_entries(p, s);
    p.require(!paddedMode && numTopk >= 1 && s.dim(0) % numTopk == 0,
              "paddedMode false, numTopk divides");
    p.shape(o, {s.dim(0) / numTopk, g.dim(1)});
    const int64_t width = g.dim(1);
    p.run([=](Run& run) {
      const std::vector<int64_t> places = read<int64_t>(bytes(run, s));
      const std::vector<double> in = read<double>(bytes(run, g));
      std::vector<double> sums(at(o.view.numel()));
      for (size_t e = 0; e < places.size(); ++e) {
        if (places[e] >= g.dim(0)) continue;
        for (int64_t d = 0; d < width; ++d) {
          sums[e / at(numTopk) * at(width) + at(d)] += in[at(places[e] * width + d)];
        }
      }
      write(bytes(run, o), sums);
    });
  });
}

NPU_SIM_DEFINE(aclnnMoeTokenUnpermute, const aclTensor* permutedTokens,
               const aclTensor* sortedIndices, const aclTensor* probsOptional, bool paddedMode,
               const aclIntArray* restoreShapeOptional, const aclTensor* out) {
  NPU_SIM_PLAN(aclnnMoeTokenUnpermute) {
    const Tensor t = p.in(permutedTokens, "permutedTokens"),
                 s = p.in(sortedIndices, "sortedIndices");
    const Tensor w = p.optional(probsOptional, "probs"), o = p.out(out, "out");
    p.optional_ints(restoreShapeOptional, "restoreShape");
    p.only_910b();
    p.dtype(t, kFloats);
    p.same_dtype(t, o);
    check_entries(p, s);
    p.require(!paddedMode, "paddedMode is false");
    const int64_t k = w ? w.dim(-1) : 1, width = t.dim(1);
    p.require(!w || w.view.numel() == s.dim(0), "probs are [T,k]");
    p.shape(o, {s.dim(0) / k, width});
    p.run([=](Run& run) {
      const std::vector<int64_t> places = ids_below(bytes(run, s), t.dim(0), "sortedIndices");
      const std::vector<double> in = read<double>(bytes(run, t));
      const std::vector<double> probs =
          w ? read<double>(bytes(run, w)) : std::vector<double>(places.size(), 1.0);
      std::vector<double> sums(at(o.view.numel()));
      for (size_t e = 0; e < places.size(); ++e) {
        for (int64_t d = 0; d < width; ++d) {
          sums[e / at(k) * at(width) + at(d)] += probs[e] * in[at(places[e] * width + d)];
        }
      }
      write(bytes(run, o), sums);
    });
  });
}

NPU_SIM_DEFINE(aclnnMoeTokenUnpermuteGrad, const aclTensor* permutedTokens,
               const aclTensor* unpermutedTokensGrad, const aclTensor* sortedIndices,
               const aclTensor* probsOptional, bool paddedMode,
               const aclIntArray* restoreShapeOptional, const aclTensor* permutedTokensGradOut,
               const aclTensor* probsGradOut) {
  NPU_SIM_PLAN(aclnnMoeTokenUnpermuteGrad) {
    const Tensor t = p.in(permutedTokens, "permutedTokens"),
                 g = p.in(unpermutedTokensGrad, "unpermutedTokensGrad");
    const Tensor s = p.in(sortedIndices, "sortedIndices"), w = p.optional(probsOptional, "probs");
    const Tensor dt = p.out(permutedTokensGradOut, "permutedTokensGradOut");
    const Tensor dw = w ? p.out(probsGradOut, "probsGradOut") : Tensor{};
    p.optional_ints(restoreShapeOptional, "restoreShape");
    p.only_910b();
    p.dtype(t, kFloats);
    p.same_dtype(t, g);
    p.same_dtype(t, dt);
    check_entries(p, s);
    p.require(!paddedMode, "paddedMode is false");
    p.shape(dt, t.dims());
    if (dw) p.shape(dw, w.dims());
    const int64_t k = w ? w.dim(-1) : 1, width = t.dim(1);
    p.run([=](Run& run) {
      const std::vector<int64_t> places = ids_below(bytes(run, s), t.dim(0), "sortedIndices");
      const std::vector<double> in = read<double>(bytes(run, t)), up = read<double>(bytes(run, g));
      const std::vector<double> probs =
          w ? read<double>(bytes(run, w)) : std::vector<double>(places.size(), 1.0);
      std::vector<double> down(in.size()), dprobs(places.size());
      for (size_t e = 0; e < places.size(); ++e) {
        for (int64_t d = 0; d < width; ++d) {
          const double grad = up[e / at(k) * at(width) + at(d)];
          down[at(places[e] * width + d)] = probs[e] * grad;
          dprobs[e] += grad * in[at(places[e] * width + d)];
        }
      }
      write(bytes(run, dt), down);
      if (dw) write(bytes(run, dw), dprobs);
    });
  });
}
