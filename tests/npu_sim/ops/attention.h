// Attention as sums over pairs of a query and a key, for all operators of the family.
#pragma once

#include "ops/kinds.h"

namespace npu_sim {

/// Where head n of token s lies in a tensor that was read in order: base + s·token + n·head.
struct Walk {
  int64_t batch = 0, token = 0, head = 0;
};

/// The sizes that a layout's name gives a tensor's dimensions.
struct Sizes {
  int64_t batch = 1, tokens = 0, heads = 0, width = 0;
  Walk walk;
};
/// "BSH", "SBH" (with the number of heads), "BSND", "BNSD", "TND". 161002 for other names and
/// ranks.
Sizes sizes_of(Plan& p, const Tensor& t, const std::string& layout, int64_t heads);

/// One sequence: where its first query, key and value lie, and which row of masks is its.
struct Segment {
  int64_t q = 0, k = 0, v = 0, out = 0;  // elements
  int64_t q_len = 0, k_len = 0;
  int64_t row = 0;   // its number in the batch
  int64_t stat = 0;  // elements to its first softmax statistic
  int64_t drop = 0;  // bits to its first in the dropout mask
};

/// Which keys a query sees, and what is added to its scores.
struct Pattern {
  int64_t mode = 0;
  int64_t before = 2147483647, after = 2147483647;  // preTokens, nextTokens
  bool masked = false;                              // a mask was given
  std::vector<int64_t> mask;                        // 1 hides; of modes 0 and 1
  int64_t mask_row = 0, mask_batch = 0, mask_head = 0;
  int64_t pse_type = 1;
  std::vector<double> pse;
  int64_t pse_row = 0, pse_batch = 0, pse_head = 0;
  std::vector<double> slopes;  // pseType 2 and 3
  int64_t slopes_batch = 0, q_start = 0, k_start = 0;

  bool hidden(const Segment& s, int64_t head, int64_t i, int64_t j) const;
  double score(const Segment& s, int64_t head, int64_t i, int64_t j, double product,
               double scale) const;
};

/// A call's arguments and the tensors' values.
struct Attention {
  std::vector<Segment> segments;
  Pattern pattern;
  int64_t heads = 0, kv_heads = 0, width = 0, v_width = 0;
  Walk q, k, v, out;
  double scale = 1, keep = 1;
  bool empty_rows_are_zero = false;  // innerPrecise 2; otherwise such a row is garbage
  std::vector<unsigned char> drop;   // bits, 1 keeps
  int64_t stat_head = 0, stat_row = 0;

  bool kept(const Segment& s, int64_t head, int64_t i, int64_t j) const;
};

struct AttentionResult {
  std::vector<double> out;
  std::vector<double> most, sum;  // of the softmax, one a row
};

/// `rows`: how many rows of statistics there are; `out_size`: elements of the result.
AttentionResult attend(const Attention& a, const std::vector<float>& q, const std::vector<float>& k,
                       const std::vector<float>& v, int64_t rows, int64_t out_size);

struct AttentionGradients {
  std::vector<double> dq;
  std::vector<float> dk, dv;  // summed in the order that `run` gives
};
/// `most` and `sum` as the forward pass gave them (or merged from several), `out` its result, `up`
/// the result's gradient.
AttentionGradients attend_backward(Run& run, const Attention& a, const std::vector<float>& q,
                                   const std::vector<float>& k, const std::vector<float>& v,
                                   const std::vector<float>& out, const std::vector<float>& up,
                                   const std::vector<double>& most, const std::vector<double>& sum);

/// Throws TaskError if a compressed mask is not the triangle that modes 2, 3 and 4 need.
void check_triangle(const Live& mask);

}  // namespace npu_sim
