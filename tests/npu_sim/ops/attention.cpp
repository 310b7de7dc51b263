#include "ops/attention.h"

#include <cmath>
#include <limits>

namespace npu_sim {
namespace {

constexpr int64_t kTriangle = 2048;

/// Scores of one query, with −Inf where a key is hidden. Returns whether any is seen.
bool scores_of(const Attention& a, const Segment& s, int64_t head, int64_t i, const float* q,
               const float* k, std::vector<double>* scores) {
  bool any = false;
  scores->assign(at(s.k_len), -std::numeric_limits<double>::infinity());
  for (int64_t j = 0; j < s.k_len; ++j) {
    if (a.pattern.hidden(s, head, i, j)) continue;
    double product = 0;
    for (int64_t d = 0; d < a.width; ++d)
      product += static_cast<double>(q[d]) * static_cast<double>(k[j * a.k.token + d]);
    (*scores)[at(j)] = a.pattern.score(s, head, i, j, product, a.scale);
    any = true;
  }
  return any;
}

}  // namespace

Sizes sizes_of(Plan& p, const Tensor& t, const std::string& layout, int64_t heads) {
  Sizes z;
  const int64_t rank = layout == "BSND" || layout == "BNSD" ? 4 : 3;
  p.require(layout == "BSH" || layout == "SBH" || layout == "TND" || rank == 4,
            "unknown layout '" + layout + "'");
  p.require(t.rank() == rank, "layout " + layout + " with a tensor of " + shown(t.dims()));
  if (layout == "BSH" || layout == "SBH") {
    p.require(heads > 0 && t.dim(2) % heads == 0, "H does not divide by the number of heads");
    const bool batch_first = layout == "BSH";
    z = {t.dim(batch_first ? 0 : 1), t.dim(batch_first ? 1 : 0), heads, t.dim(2) / heads, {}};
    z.walk = batch_first ? Walk{z.tokens * t.dim(2), t.dim(2), z.width}
                         : Walk{t.dim(2), z.batch * t.dim(2), z.width};
  } else if (layout == "BSND") {
    z = {t.dim(0), t.dim(1), t.dim(2), t.dim(3), {}};
    z.walk = {z.tokens * z.heads * z.width, z.heads * z.width, z.width};
  } else if (layout == "BNSD") {
    z = {t.dim(0), t.dim(2), t.dim(1), t.dim(3), {}};
    z.walk = {z.tokens * z.heads * z.width, z.width, z.tokens * z.width};
  } else {
    z = {1, t.dim(0), t.dim(1), t.dim(2), {}};
    z.walk = {0, z.heads * z.width, z.width};
  }
  return z;
}

bool Pattern::hidden(const Segment& s, int64_t head, int64_t i, int64_t j) const {
  if (!masked) return false;
  const int64_t from_top = j - i, from_bottom = j - (i + s.k_len - s.q_len);
  switch (mode) {
    case 0:
    case 1: {
      const bool band = mode == 1 || (from_top >= -before && from_top <= after);
      return !band || mask[at(s.row * mask_batch + head * mask_head + i * mask_row + j)] != 0;
    }
    case 2:
      return from_top > 0;
    case 3:
      return from_bottom > 0;
    default:
      return from_bottom < -before || from_bottom > after;
  }
}

double Pattern::score(const Segment& s, int64_t head, int64_t i, int64_t j, double product,
                      double scale) const {
  if (!slopes.empty()) {
    const double distance = std::fabs(static_cast<double>((j + k_start) - (i + q_start)));
    const double slope = slopes[at(s.row * slopes_batch + head)];
    return scale * product - slope * (pse_type == 3 ? std::sqrt(distance) : distance);
  }
  if (pse.empty()) return scale * product;
  const double bias = pse[at(s.row * pse_batch + head * pse_head + i * pse_row + j)];
  return pse_type == 0 ? scale * product + bias : scale * (product + bias);
}

bool Attention::kept(const Segment& s, int64_t head, int64_t i, int64_t j) const {
  if (drop.empty()) return true;
  const int64_t bit = s.drop + (head * s.q_len + i) * s.k_len + j;
  return drop[at(bit / 8)] >> (bit % 8) & 1;
}

AttentionResult attend(const Attention& a, const std::vector<float>& q, const std::vector<float>& k,
                       const std::vector<float>& v, int64_t rows, int64_t out_size) {
  const double garbage = std::numeric_limits<double>::quiet_NaN();
  AttentionResult r{std::vector<double>(at(out_size), garbage),
                    std::vector<double>(at(rows), garbage), std::vector<double>(at(rows), garbage)};
  std::vector<double> scores;
  for (const Segment& s : a.segments) {
    for (int64_t n = 0; n < a.heads; ++n) {
      const int64_t kv = n / (a.heads / a.kv_heads);
      for (int64_t i = 0; i < s.q_len; ++i) {
        const float* query = q.data() + s.q + i * a.q.token + n * a.q.head;
        const bool any = scores_of(a, s, n, i, query, k.data() + s.k + kv * a.k.head, &scores);
        if (!any && !a.empty_rows_are_zero) continue;
        double most = -std::numeric_limits<double>::infinity(), sum = 0;
        for (const double x : scores) most = std::max(most, x);
        std::vector<double> out(at(a.v_width));
        for (int64_t j = 0; any && j < s.k_len; ++j) {
          const double e = std::exp(scores[at(j)] - most);
          sum += e;
          if (e == 0 || !a.kept(s, n, i, j)) continue;
          const float* value = v.data() + s.v + j * a.v.token + kv * a.v.head;
          for (int64_t d = 0; d < a.v_width; ++d)
            out[at(d)] += e / a.keep * static_cast<double>(value[d]);
        }
        const size_t stat = at(s.stat + n * (a.stat_head ? a.stat_head : s.q_len) +
                               i * (a.stat_row ? a.stat_row : 1));
        r.most[stat] = most;
        r.sum[stat] = sum;
        double* to = r.out.data() + s.out + i * a.out.token + n * a.out.head;
        for (int64_t d = 0; d < a.v_width; ++d) to[d] = any ? out[at(d)] / sum : 0;
      }
    }
  }
  return r;
}

AttentionGradients attend_backward(Run& run, const Attention& a, const std::vector<float>& q,
                                   const std::vector<float>& k, const std::vector<float>& v,
                                   const std::vector<float>& out, const std::vector<float>& up,
                                   const std::vector<double>& most,
                                   const std::vector<double>& sum) {
  AttentionGradients g{std::vector<double>(q.size()), std::vector<float>(k.size()),
                       std::vector<float>(v.size())};
  std::vector<double> scores;
  for (const Segment& s : a.segments) {
    for (int64_t n = 0; n < a.heads; ++n) {
      const int64_t kv = n / (a.heads / a.kv_heads);
      for (const int64_t i : run.order(s.q_len)) {
        const int64_t at_q = s.q + i * a.q.token + n * a.q.head,
                      at_out = s.out + i * a.out.token + n * a.out.head;
        if (!scores_of(a, s, n, i, q.data() + at_q, k.data() + s.k + kv * a.k.head, &scores))
          continue;
        const size_t stat = at(s.stat + n * (a.stat_head ? a.stat_head : s.q_len) +
                               i * (a.stat_row ? a.stat_row : 1));
        double delta = 0;
        for (int64_t d = 0; d < a.v_width; ++d) {
          delta +=
              static_cast<double>(up[at(at_out + d)]) * static_cast<double>(out[at(at_out + d)]);
        }
        for (int64_t j = 0; j < s.k_len; ++j) {
          const double weight = std::exp(scores[at(j)] - most[stat]) / sum[stat];
          if (weight == 0) continue;
          const int64_t at_k = s.k + j * a.k.token + kv * a.k.head,
                        at_v = s.v + j * a.v.token + kv * a.v.head;
          const double kept = a.kept(s, n, i, j) ? 1 / a.keep : 0;
          double dp = 0;
          for (int64_t d = 0; d < a.v_width; ++d) {
            const auto grad = static_cast<double>(up[at(at_out + d)]);
            dp += grad * static_cast<double>(v[at(at_v + d)]);
            g.dv[at(at_v + d)] += static_cast<float>(weight * kept * grad);
          }
          const double ds = weight * (dp * kept - delta) * a.scale;
          for (int64_t d = 0; d < a.width; ++d) {
            g.dq[at(at_q + d)] += ds * static_cast<double>(k[at(at_k + d)]);
            g.dk[at(at_k + d)] += static_cast<float>(ds * static_cast<double>(q[at(at_q + d)]));
          }
        }
      }
    }
  }
  return g;
}

void check_triangle(const Live& mask) {
  constexpr int64_t kEvery = 61;  // rows that are looked at
  for (int64_t i = 0; i < kTriangle; i += kEvery) {
    for (int64_t j = 0; j < kTriangle; ++j) {
      const auto hides = load<int64_t>(
          mask, mask.view.offset + i * mask.view.strides[0] + j * mask.view.strides[1]);
      if ((hides != 0) == (j > i)) continue;
      throw TaskError{507035, "'attenMask' is not 1 strictly above the diagonal and 0 elsewhere"};
    }
  }
}

}  // namespace npu_sim
