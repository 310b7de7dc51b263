// The operators that train: FlashAttentionScore, VarLenScore and their gradients.
#include <cmath>
#include <cstring>

#include "core/report.h"
#include "ops/attention.h"

using namespace npu_sim;

namespace {

constexpr int64_t kTriangle = 2048;
constexpr int64_t kCopies = 8;  // of each softmax statistic

/// What the forward and backward operators have in common.
struct Call {
  const aclTensor *query, *key, *value, *pse, *drop, *padding, *mask;
  const aclIntArray *prefix, *q_ends, *k_ends, *q_start, *k_start;
  double scale, keep;
  int64_t before, after, heads;
  const char* layout;
  int64_t precise, mode, pse_type;
  bool varlen, second;  // VarLen; a V2 operator
};

struct Made {
  Attention a;
  Tensor q, k, v, pse, drop, mask;
  int64_t rows = 0;  // of statistics
  std::vector<int64_t> stat_dims;
};

void check_sizes(Plan& p, const Made& m, const Sizes& q, const Sizes& k, const Sizes& v,
                 const Call& c) {
  p.require(q.heads == c.heads,
            "headNum is " + std::to_string(c.heads) + ", query has " + std::to_string(q.heads));
  p.require(q.width == k.width && v.width <= q.width,
            "D of query and key are equal, that of value is not larger");
  p.require(q.width >= 1 && q.width <= (c.second ? 512 : 768),
            "D is 1 … " + std::to_string(c.second ? 512 : 768));
  p.require(q.heads <= 256 && k.heads > 0 && q.heads % k.heads == 0 && v.heads == k.heads,
            "heads: at most 256, a multiple of those of key and value");
  p.require(k.tokens == v.tokens && k.batch == v.batch && q.batch == k.batch,
            "sizes of query, key and value differ");
  p.require(c.keep > 0 && c.keep <= 1, "keepProb is in (0, 1]");
  p.require(c.keep == 1 || m.drop, "keepProb below 1 needs a dropMask");
  p.require(c.precise == 0 || c.precise == 2, "innerPrecise is 0 or 2");
}

/// Cumulative ends without a leading 0.
std::vector<int64_t> ends_of(Plan& p, const aclIntArray* array, const char* name, int64_t tokens) {
  const std::vector<int64_t> ends = p.ints(array, name);
  p.require(!ends.empty() && ends.size() <= 2048, std::string(name) + ": 1 … 2048 sequences");
  int64_t last = 0;
  for (const int64_t end : ends) {
    p.require(end >= last, std::string(name) + ": ends do not fall");
    last = end;
  }
  p.require(last == tokens, std::string(name) + " ends at " + std::to_string(last) +
                                ", there are " + std::to_string(tokens));
  return ends;
}

void make_segments(Plan& p, Made& m, const Sizes& q, const Sizes& k, const Call& c) {
  Attention& a = m.a;
  if (!c.varlen) {
    for (int64_t b = 0; b < q.batch; ++b) {
      a.segments.push_back({b * a.q.batch, b * a.k.batch, b * a.v.batch, b * a.out.batch, q.tokens,
                            k.tokens, b, b * q.heads * q.tokens,
                            b * q.heads * q.tokens * k.tokens});
    }
    m.rows = q.batch * q.heads * q.tokens;
    m.stat_dims = {q.batch, q.heads, q.tokens, kCopies};
    return;
  }
  const std::vector<int64_t> qs = ends_of(p, c.q_ends, "actualSeqQLen", q.tokens);
  const std::vector<int64_t> ks = ends_of(p, c.k_ends, "actualSeqKvLen", k.tokens);
  p.require(qs.size() == ks.size(), "as many sequences of queries as of keys");
  int64_t q0 = 0, k0 = 0, bits = 0;
  for (size_t i = 0; i < qs.size(); ++i) {
    const int64_t q_len = qs[i] - q0, k_len = ks[i] - k0;
    p.require(c.mode != 3 || !m.mask || q_len <= k_len,
              "sparseMode 3 in TND needs Sq <= Skv in every sequence");
    p.require((q_len > 0 && k_len > 0) || !m.pse, "no pse with an empty sequence");
    // In memory each sequence is [N, S, 8], one after another.
    a.segments.push_back({q0 * a.q.token, k0 * a.k.token, k0 * a.v.token, q0 * a.out.token, q_len,
                          k_len, static_cast<int64_t>(i), q0 * q.heads, bits});
    bits += q.heads * q_len * k_len;
    q0 = qs[i];
    k0 = ks[i];
  }
  m.rows = q.tokens * q.heads;
  m.stat_dims = {q.tokens, q.heads, kCopies};
}

void make_mask(Plan& p, Made& m, const Sizes& q, const Sizes& k, const Call& c) {
  Pattern& t = m.a.pattern;
  if (c.mode >= 5 && c.mode <= 8) throw Refused{561002, "sparse modes 5 to 8 are not simulated"};
  p.require(c.mode >= 0 && c.mode <= 8, "sparseMode is 0 … 8");
  t.mode = c.mode;
  t.masked = static_cast<bool>(m.mask);
  if (c.mode == 0 || c.mode == 4) {
    t.before = c.before;
    t.after = c.after;
  }
  if (!m.mask) {
    count("attention.without_mask");
    return;
  }
  p.dtype(m.mask, {ACL_BOOL, ACL_UINT8});
  if (c.mode >= 2) {
    p.shape(m.mask, {kTriangle, kTriangle});
    p.require(c.mode != 4 || c.before >= 0 || c.after >= 0, "the band of sparseMode 4 is empty");
    p.require(c.mode != 4 || !c.varlen || c.before >= 0, "preTokens below 0 in TND");
    p.require(c.mode != 4 || c.before + c.after >= 0, "the band of sparseMode 4 is empty");
    return;
  }
  const int64_t rank = m.mask.rank();
  p.require(rank == 2 || rank == 4, "attenMask has 2 or 4 dimensions");
  const int64_t rows = m.mask.dim(-2), columns = m.mask.dim(-1);
  p.require(c.varlen ? rows > 0 && columns > 0 : rows == q.tokens && columns == k.tokens,
            "attenMask is " + shown(m.mask.dims()));
  for (const Segment& s : m.a.segments)
    p.require(s.q_len <= rows && s.k_len <= columns, "attenMask is too small");
  t.mask_row = columns;
  if (rank == 4) {
    p.require(
        !c.varlen && m.mask.dim(0) == q.batch && (m.mask.dim(1) == 1 || m.mask.dim(1) == q.heads),
        "attenMask is [B,1,Sq,Skv] or [B,N,Sq,Skv]");
    t.mask_head = m.mask.dim(1) == 1 ? 0 : rows * columns;
    t.mask_batch = m.mask.dim(1) * rows * columns;
  }
}

void make_pse(Plan& p, Made& m, const Sizes& q, const Sizes& k, const Call& c) {
  Pattern& t = m.a.pattern;
  t.pse_type = c.pse_type;
  p.require(c.pse_type >= 0 && c.pse_type <= 3, "pseType is 0 … 3");
  if (!m.pse) return;
  const std::vector<int64_t> q_start = p.optional_ints(c.q_start, "qStartIdx"),
                             k_start = p.optional_ints(c.k_start, "kvStartIdx");
  if (c.pse_type >= 2) {
    p.dtype(m.pse, {ACL_FLOAT});
    for (const Segment& s : m.a.segments)
      p.require(s.q_len == s.k_len, "pseType 2 and 3 need Sq = Skv");
    p.require(m.pse.dim(-1) == q.heads &&
                  (m.pse.rank() == 1 || (m.pse.rank() == 2 && m.pse.dim(0) == q.batch)),
              "slopes are [N] or [B,N]");
    t.slopes_batch = m.pse.rank() == 2 ? q.heads : 0;
    t.q_start = q_start.empty() ? 0 : q_start[0];
    t.k_start = k_start.empty() ? 0 : k_start[0];
    return;
  }
  if (c.varlen) throw Refused{561002, "pse tensors in TND are not simulated"};
  p.same_dtype(m.q, m.pse);
  p.require(m.pse.rank() == 4 && (m.pse.dim(0) == q.batch || m.pse.dim(0) == 1) &&
                m.pse.dim(1) == q.heads && m.pse.dim(2) == q.tokens && m.pse.dim(3) == k.tokens,
            "pse is [B,N,Sq,Skv] or [1,N,Sq,Skv] (other shapes are not simulated)");
  t.pse_row = k.tokens;
  t.pse_head = q.tokens * k.tokens;
  t.pse_batch = m.pse.dim(0) == 1 ? 0 : q.heads * t.pse_head;
}

Made make(Plan& p, const Call& c) {
  p.only_910b();
  Made m;
  m.q = p.in(c.query, "query");
  m.k = p.in(c.key, "key");
  m.v = p.in(c.value, "value");
  m.pse = p.optional(c.pse, "realShift");
  m.drop = p.optional(c.drop, "dropMask");
  m.mask = p.optional(c.mask, "attenMask");
  p.optional(c.padding, "paddingMask");
  p.require(!c.prefix, "prefix is for sparse modes 5 and 6");
  p.dtype(m.q, kFloats);
  p.same_dtype(m.q, m.k);
  p.same_dtype(m.q, m.v);
  const std::string layout = c.layout ? c.layout : "";
  p.require((layout == "TND") == c.varlen, "layout '" + layout + "'");
  p.require(c.heads > 0, "headNum is positive");
  const Sizes q = sizes_of(p, m.q, layout, c.heads);
  int64_t kv_heads = c.heads;
  if (layout == "BSH" || layout == "SBH") {
    p.require(q.width > 0 && m.k.dim(-1) % q.width == 0, "H of key is not a multiple of D");
    kv_heads = m.k.dim(-1) / q.width;
  }
  const Sizes k = sizes_of(p, m.k, layout, kv_heads), v = sizes_of(p, m.v, layout, kv_heads);
  check_sizes(p, m, q, k, v, c);
  Attention& a = m.a;
  a.heads = q.heads;
  a.kv_heads = k.heads;
  a.width = q.width;
  a.v_width = v.width;
  a.q = q.walk;
  a.k = k.walk;
  a.v = v.walk;
  a.out = {q.walk.batch / q.width * v.width, q.walk.token / q.width * v.width,
           q.walk.head / q.width * v.width};
  a.scale = c.scale;
  a.keep = c.keep;
  a.empty_rows_are_zero = c.precise == 2 && !c.varlen;
  make_segments(p, m, q, k, c);
  make_mask(p, m, q, k, c);
  make_pse(p, m, q, k, c);
  if (m.drop) {
    p.dtype(m.drop, {ACL_UINT8});
    int64_t bits = 0;
    for (const Segment& s : a.segments) bits += a.heads * s.q_len * s.k_len;
    p.require(m.drop.view.contiguous() && m.drop.view.numel() * 8 >= (bits + 127) / 128 * 128,
              "dropMask is too short");
  }
  p.scratch(16 << 20);
  return m;
}

/// The masks' and biases' values, which only the card has.
Attention filled(const Run& run, const Made& m) {
  Attention a = m.a;
  if (m.mask && a.pattern.mode >= 2) check_triangle(bytes(run, m.mask));
  if (m.mask && a.pattern.mode < 2) a.pattern.mask = read<int64_t>(bytes(run, m.mask));
  if (m.pse)
    (a.pattern.pse_type >= 2 ? a.pattern.slopes : a.pattern.pse) = read<double>(bytes(run, m.pse));
  if (m.drop && a.keep < 1) {
    const Live bits = bytes(run, m.drop);
    a.drop.resize(at(m.drop.view.numel()));
    std::memcpy(a.drop.data(), bits.base + bits.view.offset, a.drop.size());
  }
  return a;
}

std::vector<double> eightfold(const std::vector<double>& values) {
  std::vector<double> out(values.size() * kCopies);
  for (size_t i = 0; i < out.size(); ++i) out[i] = values[i / kCopies];
  return out;
}

std::vector<double> one_of_eight(const std::vector<double>& copies) {
  std::vector<double> out(copies.size() / kCopies);
  for (size_t i = 0; i < out.size(); ++i) out[i] = copies[i * kCopies];
  return out;
}

void forward(Plan& p, const Call& c, const aclTensor* max_out, const aclTensor* sum_out,
             const aclTensor* softmax_out, const aclTensor* attention_out) {
  const Made m = make(p, c);
  const Tensor most = p.out(max_out, "softmaxMaxOut"), sum = p.out(sum_out, "softmaxSumOut");
  const Tensor soft = p.optional_out(softmax_out, "softmaxOutOut"),
               o = p.out(attention_out, "attentionOutOut");
  for (const Tensor& t : {most, sum}) {
    p.dtype(t, {ACL_FLOAT});
    p.shape(t, m.stat_dims);
  }
  p.require(!soft || soft.view.numel() == 0, "softmaxOut is an empty tensor");
  p.same_dtype(m.q, o);
  std::vector<int64_t> dims = m.q.dims();
  const int64_t last = static_cast<int64_t>(dims.size()) - 1;
  dims[at(last)] = dims[at(last)] / m.a.width * m.a.v_width;
  p.shape(o, dims);
  p.run([=](Run& run) {
    const AttentionResult r =
        attend(filled(run, m), read<float>(bytes(run, m.q)), read<float>(bytes(run, m.k)),
               read<float>(bytes(run, m.v)), m.rows, o.view.numel());
    write(bytes(run, o), r.out);
    write(bytes(run, most), eightfold(r.most));
    write(bytes(run, sum), eightfold(r.sum));
  });
}

struct GradCall {
  const aclTensor *dy, *most, *sum, *softmax, *attention, *dq, *dk, *dv, *dpse;
};

void backward(Plan& p, const Call& c, const GradCall& g) {
  const Made m = make(p, c);
  const Tensor up = p.in(g.dy, "dy"), most = p.in(g.most, "softmaxMax"),
               sum = p.in(g.sum, "softmaxSum");
  const Tensor o = p.in(g.attention, "attentionIn");
  p.optional(g.softmax, "softmaxIn");
  const Tensor dq = p.out(g.dq, "dqOut"), dk = p.out(g.dk, "dkOut"), dv = p.out(g.dv, "dvOut");
  const Tensor dpse = p.optional_out(g.dpse, "dpseOut");
  p.require(!dpse || dpse.view.numel() == 0, "gradients of pse are not simulated");
  for (const Tensor& t : {most, sum}) {
    p.dtype(t, {ACL_FLOAT});
    p.shape(t, m.stat_dims);
  }
  p.same_dtype(m.q, up);
  p.same_dtype(m.q, o);
  p.shape(o, up.dims());
  for (const auto& [grad, of] : {std::pair{dq, m.q}, {dk, m.k}, {dv, m.v}}) {
    p.same_dtype(of, grad);
    p.shape(grad, of.dims());
  }
  p.run([=](Run& run) {
    const AttentionGradients r = attend_backward(
        run, filled(run, m), read<float>(bytes(run, m.q)), read<float>(bytes(run, m.k)),
        read<float>(bytes(run, m.v)), read<float>(bytes(run, o)), read<float>(bytes(run, up)),
        one_of_eight(read<double>(bytes(run, most))), one_of_eight(read<double>(bytes(run, sum))));
    write(bytes(run, dq), r.dq);
    write(bytes(run, dk), r.dk);
    write(bytes(run, dv), r.dv);
  });
}

}  // namespace

#define ARGS_BEFORE                                                             \
  const aclTensor *query, const aclTensor *key, const aclTensor *value,         \
      const aclTensor *realShiftOptional, const aclTensor *dropMaskOptional,    \
      const aclTensor *paddingMaskOptional, const aclTensor *attenMaskOptional, \
      const aclIntArray *prefixOptional
#define ARGS_GRAD_BEFORE                                                                     \
  const aclTensor *query, const aclTensor *key, const aclTensor *value, const aclTensor *dy, \
      const aclTensor *realShiftOptional, const aclTensor *dropMaskOptional,                 \
      const aclTensor *paddingMaskOptional, const aclTensor *attenMaskOptional,              \
      const aclTensor *softmaxMax, const aclTensor *softmaxSum, const aclTensor *softmaxIn,  \
      const aclTensor *attentionIn, const aclIntArray *prefixOptional
#define ARGS_ENDS const aclIntArray *qEnds, const aclIntArray *kvEnds
#define ARGS_STARTS const aclIntArray *qStart, const aclIntArray *kvStart
#define ARGS_NUMBERS                                                                          \
  double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens, int64_t headNum, \
      char *inputLayout, int64_t innerPrecise, int64_t sparseMode
#define ARGS_OUT                                                                               \
  const aclTensor *softmaxMaxOut, const aclTensor *softmaxSumOut, const aclTensor *softmaxOut, \
      const aclTensor *out
#define ARGS_GRAD_OUT \
  const aclTensor *dq, const aclTensor *dk, const aclTensor *dv, const aclTensor *dpse
#define CALL(q_ends, k_ends, q_start, k_start, pse_type, varlen, second)                           \
  Call {                                                                                           \
    query, key, value, realShiftOptional, dropMaskOptional, paddingMaskOptional,                   \
        attenMaskOptional, prefixOptional, q_ends, k_ends, q_start, k_start, scaleValue, keepProb, \
        preTokens, nextTokens, headNum, inputLayout, innerPrecise, sparseMode, pse_type, varlen,   \
        second                                                                                     \
  }
#define FORWARD(op, call) \
  NPU_SIM_PLAN(op) { forward(p, call, softmaxMaxOut, softmaxSumOut, softmaxOut, out); })
#define BACKWARD(op, call)                                                                     \
  NPU_SIM_PLAN(op) {                                                                           \
    backward(p, call, {dy, softmaxMax, softmaxSum, softmaxIn, attentionIn, dq, dk, dv, dpse}); \
  })

NPU_SIM_DEFINE(aclnnFlashAttentionScore, ARGS_BEFORE, ARGS_NUMBERS, ARGS_OUT) {
  FORWARD(aclnnFlashAttentionScore, (CALL(nullptr, nullptr, nullptr, nullptr, 1, false, false)));
}
NPU_SIM_DEFINE(aclnnFlashAttentionScoreV2, ARGS_BEFORE, ARGS_STARTS, ARGS_NUMBERS, int64_t pseType,
               ARGS_OUT) {
  FORWARD(aclnnFlashAttentionScoreV2,
          (CALL(nullptr, nullptr, qStart, kvStart, pseType, false, true)));
}
NPU_SIM_DEFINE(aclnnFlashAttentionVarLenScore, ARGS_BEFORE, ARGS_ENDS, ARGS_NUMBERS, ARGS_OUT) {
  FORWARD(aclnnFlashAttentionVarLenScore, (CALL(qEnds, kvEnds, nullptr, nullptr, 1, true, false)));
}
NPU_SIM_DEFINE(aclnnFlashAttentionVarLenScoreV2, ARGS_BEFORE, ARGS_ENDS, ARGS_STARTS, ARGS_NUMBERS,
               int64_t pseType, ARGS_OUT) {
  FORWARD(aclnnFlashAttentionVarLenScoreV2,
          (CALL(qEnds, kvEnds, qStart, kvStart, pseType, true, true)));
}
NPU_SIM_DEFINE(aclnnFlashAttentionScoreGrad, ARGS_GRAD_BEFORE, ARGS_NUMBERS, ARGS_GRAD_OUT) {
  BACKWARD(aclnnFlashAttentionScoreGrad,
           (CALL(nullptr, nullptr, nullptr, nullptr, 1, false, false)));
}
NPU_SIM_DEFINE(aclnnFlashAttentionScoreGradV2, ARGS_GRAD_BEFORE, ARGS_STARTS, ARGS_NUMBERS,
               int64_t pseType, ARGS_GRAD_OUT) {
  BACKWARD(aclnnFlashAttentionScoreGradV2,
           (CALL(nullptr, nullptr, qStart, kvStart, pseType, false, true)));
}
NPU_SIM_DEFINE(aclnnFlashAttentionUnpaddingScoreGrad, ARGS_GRAD_BEFORE, ARGS_ENDS, ARGS_NUMBERS,
               ARGS_GRAD_OUT) {
  BACKWARD(aclnnFlashAttentionUnpaddingScoreGrad,
           (CALL(qEnds, kvEnds, nullptr, nullptr, 1, true, false)));
}
NPU_SIM_DEFINE(aclnnFlashAttentionUnpaddingScoreGradV2, ARGS_GRAD_BEFORE, ARGS_ENDS, ARGS_STARTS,
               ARGS_NUMBERS, int64_t pseType, ARGS_GRAD_OUT) {
  BACKWARD(aclnnFlashAttentionUnpaddingScoreGradV2,
           (CALL(qEnds, kvEnds, qStart, kvStart, pseType, true, true)));
}

NPU_SIM_DEFINE(aclnnRingAttentionUpdate, const aclTensor* prevAttnOut,
               const aclTensor* prevSoftmaxMax, const aclTensor* prevSoftmaxSum,
               const aclTensor* curAttnOut, const aclTensor* curSoftmaxMax,
               const aclTensor* curSoftmaxSum, const aclTensor* actualSeqQlenOptional,
               char* inputLayoutOptional, const aclTensor* attnOutOut,
               const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut) {
  NPU_SIM_PLAN(aclnnRingAttentionUpdate) {
    const Tensor o1 = p.in(prevAttnOut, "prevAttnOut"), o2 = p.in(curAttnOut, "curAttnOut"),
                 o = p.out(attnOutOut, "attnOutOut");
    const Tensor m1 = p.in(prevSoftmaxMax, "prevSoftmaxMax"),
                 s1 = p.in(prevSoftmaxSum, "prevSoftmaxSum");
    const Tensor m2 = p.in(curSoftmaxMax, "curSoftmaxMax"),
                 s2 = p.in(curSoftmaxSum, "curSoftmaxSum");
    const Tensor m = p.out(softmaxMaxOut, "softmaxMaxOut"),
                 s = p.out(softmaxSumOut, "softmaxSumOut");
    const Tensor lengths = p.optional(actualSeqQlenOptional, "actualSeqQlen");
    const std::string layout =
        inputLayoutOptional && *inputLayoutOptional ? inputLayoutOptional : "SBH";
    p.only_910b();
    p.require(layout == "SBH" || layout == "TND", "layout is SBH or TND");
    p.require(layout == "SBH" || (lengths && o1.dim(-1) % 64 == 0),
              "TND needs lengths, and D a multiple of 64");
    p.dtype(o1, kFloats);
    for (const Tensor& t : {o2, o}) {
      p.same_dtype(o1, t);
      p.shape(t, o1.dims());
    }
    for (const Tensor& t : {m1, s1, m2, s2, m, s}) {
      p.dtype(t, {ACL_FLOAT});
      p.shape(t, m1.dims());
    }
    p.require(m1.rank() == (layout == "SBH" ? 4 : 3) && m1.dim(-1) == kCopies,
              "statistics are [B,N,S,8] or [T,N,8]");
    // SBH: B, N and S of the statistics; TND: one batch of N heads and T tokens.
    const bool sbh = layout == "SBH";
    const int64_t batch = sbh ? m1.dim(0) : 1, heads = m1.dim(1),
                  tokens = sbh ? m1.dim(2) : m1.dim(0);
    p.require(o1.view.numel() % (batch * heads * tokens) == 0,
              "sizes of results and statistics differ");
    const int64_t width = o1.view.numel() / (batch * heads * tokens);
    p.run([=](Run& run) {
      const std::vector<double> a = read<double>(bytes(run, o1)), b = read<double>(bytes(run, o2));
      std::vector<double> max1 = read<double>(bytes(run, m1)), sum1 = read<double>(bytes(run, s1));
      const std::vector<double> max2 = read<double>(bytes(run, m2)),
                                sum2 = read<double>(bytes(run, s2));
      std::vector<double> out(a.size());
      for (int64_t row = 0; row < batch * heads * tokens; ++row) {
        // Statistics run over [B,N,S] or [T,N]; results over [S,B,N] or [T,N].
        const int64_t t = row % tokens, n = row / tokens % heads, bi = row / tokens / heads;
        const size_t first = at((sbh ? (t * batch + bi) * heads + n : row) * width);
        const size_t stat = at(row * kCopies);
        const double most = std::max(max1[stat], max2[stat]);
        const double w1 = sum1[stat] * std::exp(max1[stat] - most),
                     w2 = sum2[stat] * std::exp(max2[stat] - most);
        for (size_t d = first; d < first + at(width); ++d)
          out[d] = (a[d] * w1 + b[d] * w2) / (w1 + w2);
        for (size_t c = stat; c < stat + kCopies; ++c) {
          max1[c] = most;
          sum1[c] = w1 + w2;
        }
      }
      write(bytes(run, o), out);
      write(bytes(run, m), max1);
      write(bytes(run, s), sum1);
    });
  });
}
