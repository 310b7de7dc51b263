// The operators that serve: FusedInferAttentionScore, PromptFlashAttention, IncreFlashAttention;
// caches with pages.
#include "core/config.h"
#include "ops/attention.h"

using namespace npu_sim;

namespace {

constexpr int64_t kTriangle = 2048;

struct Ask {
  const aclTensor *query, *pse, *mask, *table;
  const aclTensorList *keys, *values;
  const aclIntArray *q_lengths, *k_lengths;
  int64_t heads, kv_heads, mode, before, after, precise, block;
  double scale;
  const char* layout;
  bool decode_only, fused;
};

/// Where token t of sequence b lies in the cache: one big tensor, one for each sequence, or pages.
struct Cache {
  std::vector<Tensor> parts;
  Tensor table;
  int64_t block = 0, pages = 0, heads = 0, width = 0;
  bool by_head = false;  // pages are [blocks, Nkv, blockSize, D]
  Sizes sizes;           // of a part, without pages
};

struct Server {
  Tensor q, mask;
  Cache k, v;
  Sizes sizes;
  std::vector<int64_t> q_lengths, k_lengths;
  Attention a;
};

void refuse_extras(Plan& p, std::initializer_list<const aclTensor*> extras) {
  for (const aclTensor* extra : extras) {
    if (!extra) continue;
    p.optional(extra, "quantisation, padding or prefix");
    throw Refused{561002, "quantised caches, padding sizes and shared prefixes are not simulated"};
  }
}

Cache make_cache(Plan& p, const aclTensorList* list, const char* name, const Ask& ask,
                 const Tensor& table, int64_t batch, const std::string& layout) {
  Cache c;
  if (!list) throw Refused{161001, std::string("'") + name + "' is null"};
  c.parts = p.in_list(list, name);
  c.table = table;
  c.heads = ask.kv_heads;
  p.require(!c.parts.empty() && c.parts.size() <= 256, std::string(name) + ": 1 … 256 tensors");
  const Tensor& first = c.parts[0];
  if (table) {
    p.require(c.parts.size() == 1, "a cache with pages is one tensor");
    p.require(first.rank() == 3 || first.rank() == 4, "a cache with pages has 3 or 4 dimensions");
    c.by_head = first.rank() == 4;
    c.pages = first.dim(0);
    c.block = ask.block;
    p.require(first.dim(c.by_head ? 2 : 1) == c.block, "blockSize is not that of the cache");
    p.require(c.by_head ? first.dim(1) == ask.kv_heads : first.dim(2) % ask.kv_heads == 0,
              "heads of the cache");
    p.require(c.by_head || first.dim(2) <= 65535, "Nkv·D of the cache is at most 65535");
    c.width = c.by_head ? first.dim(3) : first.dim(2) / ask.kv_heads;
    return c;
  }
  p.require(c.parts.size() == 1 || static_cast<int64_t>(c.parts.size()) == batch,
            "one tensor, or one for each sequence");
  c.sizes = sizes_of(p, first, layout, ask.kv_heads);
  c.width = c.sizes.width;
  for (const Tensor& part : c.parts) {
    const Sizes z = sizes_of(p, part, layout, ask.kv_heads);
    p.require(z.heads == ask.kv_heads && z.width == c.width, "heads and D of the caches differ");
    p.require(z.batch == (c.parts.size() == 1 ? batch : 1), "the batch of a cache");
  }
  return c;
}

std::vector<int64_t> lengths_of(Plan& p, const aclIntArray* array, const char* name, int64_t batch,
                                int64_t most) {
  std::vector<int64_t> lengths = p.optional_ints(array, name);
  if (lengths.empty()) lengths.assign(at(batch), most);
  if (lengths.size() == 1) lengths.assign(at(batch), lengths[0]);
  p.require(static_cast<int64_t>(lengths.size()) == batch,
            std::string(name) + " has a length for each sequence");
  for (const int64_t length : lengths) {
    p.require(length >= 0 && length <= most,
              std::string(name) + ": " + std::to_string(length) + " is more than the cache holds");
  }
  return lengths;
}

void check_pages(Plan& p, const Ask& ask, const Tensor& table, int64_t batch, bool prompt) {
  p.dtype(table, {ACL_INT32});
  p.require(table.rank() == 2 && table.dim(0) == batch, "blockTable is [B, blocks]");
  p.require(ask.block >= 16 && ask.block <= 512 && ask.block % (prompt ? 128 : 16) == 0,
            "blockSize is a multiple of 16 (128 for prompts), at most 512");
}

void make_pattern(Plan& p, Server& s, const Ask& ask) {
  Pattern& t = s.a.pattern;
  if (s.sizes.tokens == 1) return;  // a single query sees every key
  p.require(ask.mode >= 0 && ask.mode <= 4, "sparseMode is 0 … 4");
  t.mode = ask.mode;
  t.before = ask.before;
  t.after = ask.after;
  t.masked = static_cast<bool>(s.mask);
  if (!s.mask) return;
  p.dtype(s.mask, {ACL_BOOL, ACL_UINT8});
  if (ask.mode >= 2) return p.shape(s.mask, {kTriangle, kTriangle});
  p.require(s.mask.rank() == 2 || s.mask.rank() == 3 || s.mask.rank() == 4,
            "attenMask has 2 to 4 dimensions");
  t.mask_row = s.mask.dim(-1);
  t.mask_batch = s.mask.rank() > 2 && s.mask.dim(0) > 1 ? s.mask.dim(-1) * s.mask.dim(-2) : 0;
  for (size_t b = 0; b < s.q_lengths.size(); ++b) {
    p.require(s.q_lengths[b] <= s.mask.dim(-2) && s.k_lengths[b] <= s.mask.dim(-1),
              "attenMask is too small");
  }
}

Server make(Plan& p, const Ask& ask, std::string layout) {
  if (ask.fused) p.only_910b();
  if (config().chip.family == Family::k910A) p.only_910b();  // 310P has the older functions
  Server s;
  s.q = p.in(ask.query, "query");
  s.mask = p.optional(ask.mask, "attenMask");
  p.dtype(s.q, {ACL_FLOAT16, ACL_BF16});
  if (layout == "BNSD_BSND") layout = "BNSD";
  p.require(layout == "BSH" || layout == "BSND" || layout == "BNSD", "layout '" + layout + "'");
  s.sizes = sizes_of(p, s.q, layout, ask.heads);
  const Sizes& q = s.sizes;
  p.require(q.heads == ask.heads, "numHeads is not that of query");
  p.require(ask.kv_heads > 0 && ask.heads % ask.kv_heads == 0 && ask.heads / ask.kv_heads <= 64,
            "numKeyValueHeads");
  p.require(q.width % 16 == 0 && q.width <= 512, "D is a multiple of 16, at most 512");
  p.require(!ask.decode_only || q.tokens == 1, "one query a sequence");
  const Tensor table = p.optional(ask.table, "blockTable");
  if (table) check_pages(p, ask, table, q.batch, q.tokens > 1);
  s.k = make_cache(p, ask.keys, "key", ask, table, q.batch, layout);
  s.v = make_cache(p, ask.values, "value", ask, table, q.batch, layout);
  p.same_dtype(s.q, s.k.parts[0]);
  p.same_dtype(s.q, s.v.parts[0]);
  p.require(s.k.width == q.width, "D of query and key differ");
  const int64_t most = table ? table.dim(1) * s.k.block : s.k.sizes.tokens;
  s.q_lengths = lengths_of(p, ask.q_lengths, "actualSeqLengths", q.batch, q.tokens);
  s.k_lengths = lengths_of(p, ask.k_lengths, "actualSeqLengthsKv", q.batch, most);
  Attention& a = s.a;
  a.heads = ask.heads;
  a.kv_heads = ask.kv_heads;
  a.width = q.width;
  a.v_width = s.v.width;
  a.q = q.walk;
  a.scale = ask.scale;
  a.empty_rows_are_zero = (ask.precise & 2) != 0;
  make_pattern(p, s, ask);
  p.scratch(4 << 20);
  return s;
}

/// The first `length` tokens of a sequence as [token, head, D].
std::vector<float> gathered(const Run& run, const Cache& c, const std::vector<int64_t>& table,
                            int64_t b, int64_t length) {
  const bool single = c.parts.size() == 1;
  const Live live = bytes(run, c.parts[single ? 0 : at(b)]);
  std::vector<float> out;
  if (c.table) {
    const std::vector<int64_t>& st = live.view.strides;
    for (int64_t t = 0; t < length; ++t) {
      const int64_t page = table[at(b * c.table.dim(1) + t / c.block)], in_page = t % c.block;
      if (page < 0 || page >= c.pages) {
        throw TaskError{507035, "blockTable holds block " + std::to_string(page) + " of " +
                                    std::to_string(c.pages)};
      }
      for (int64_t n = 0; n < c.heads; ++n) {
        for (int64_t d = 0; d < c.width; ++d) {
          const int64_t place = c.by_head ? n * st[1] + in_page * st[2] + d * st[3]
                                          : in_page * st[1] + (n * c.width + d) * st[2];
          out.push_back(load<float>(live, live.view.offset + page * st[0] + place));
        }
      }
    }
    return out;
  }
  const std::vector<float> all = read<float>(live);
  for (int64_t t = 0; t < length; ++t) {
    for (int64_t n = 0; n < c.heads; ++n) {
      const int64_t first =
          (single ? b : 0) * c.sizes.walk.batch + t * c.sizes.walk.token + n * c.sizes.walk.head;
      out.insert(out.end(), all.begin() + first, all.begin() + first + c.width);
    }
  }
  return out;
}

/// The result's layout: that of the query, or for BNSD_BSND the other.
Walk walk_of_result(const Server& s, const std::string& layout) {
  const int64_t width = s.a.v_width, heads = s.a.heads, tokens = s.sizes.tokens;
  if (layout == "BNSD") return {tokens * heads * width, width, tokens * width};
  return {tokens * heads * width, heads * width, width};
}

void serve(Plan& p, const Ask& ask, const aclTensor* out, const aclTensor* lse, bool wants_lse) {
  const std::string layout = ask.layout && *ask.layout ? ask.layout : "BSH";
  Server s = make(p, ask, layout);
  const Tensor o = p.out(out, "attentionOut");
  const Tensor l = wants_lse ? p.out(lse, "softmaxLse") : p.optional_out(lse, "softmaxLse");
  p.same_dtype(s.q, o);
  p.require(o.view.numel() == s.q.view.numel() / s.a.width * s.a.v_width,
            "'attentionOut' is " + shown(o.dims()));
  s.a.out = walk_of_result(s, layout);
  if (wants_lse) {
    p.dtype(l, {ACL_FLOAT});
    p.shape(l, {s.sizes.batch, s.a.heads, s.sizes.tokens, 1});
  }
  p.run([=](Run& run) {
    Attention a = s.a;
    if (s.mask && a.pattern.masked && a.pattern.mode >= 2) check_triangle(bytes(run, s.mask));
    if (s.mask && a.pattern.masked && a.pattern.mode < 2)
      a.pattern.mask = read<int64_t>(bytes(run, s.mask));
    const std::vector<int64_t> table =
        s.k.table ? read<int64_t>(bytes(run, s.k.table)) : std::vector<int64_t>{};
    std::vector<float> k, v;
    a.k = {0, s.k.heads * s.k.width, s.k.width};
    a.v = {0, s.v.heads * s.v.width, s.v.width};
    for (int64_t b = 0; b < s.sizes.batch; ++b) {
      const int64_t length = s.k_lengths[at(b)];
      a.segments.push_back({b * a.q.batch, static_cast<int64_t>(k.size()),
                            static_cast<int64_t>(v.size()), b * a.out.batch, s.q_lengths[at(b)],
                            length, b, b * a.heads * s.sizes.tokens, 0});
      const std::vector<float> keys = gathered(run, s.k, table, b, length),
                               values = gathered(run, s.v, table, b, length);
      k.insert(k.end(), keys.begin(), keys.end());
      v.insert(v.end(), values.begin(), values.end());
    }
    a.stat_head = s.sizes.tokens;
    const int64_t rows = s.sizes.batch * a.heads * s.sizes.tokens;
    const AttentionResult r = attend(a, read<float>(bytes(run, s.q)), k, v, rows, o.view.numel());
    write(bytes(run, o), r.out);
    if (!wants_lse) return;
    std::vector<double> sums(at(rows));
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = r.most[i] + std::log(r.sum[i]);
    write(bytes(run, l), sums);
  });
}

/// A list around a single tensor, which lives as long as the call.
struct Alone {
  aclTensorList* list;
  explicit Alone(const aclTensor* tensor)
      : list(tensor ? aclCreateTensorList(&tensor, 1) : nullptr) {}
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  ~Alone() {
    if (!list) return;
    leave_book(list, Kind::kTensorList);
    delete list;
  }
};

}  // namespace

NPU_SIM_DEFINE(aclnnFusedInferAttentionScoreV2, const aclTensor* query, const aclTensorList* key,
               const aclTensorList* value, const aclTensor* pseShift, const aclTensor* attenMask,
               const aclIntArray* actualSeqLengths, const aclIntArray* actualSeqLengthsKv,
               const aclTensor* deqScale1, const aclTensor* quantScale1, const aclTensor* deqScale2,
               const aclTensor* quantScale2, const aclTensor* quantOffset2,
               const aclTensor* antiquantScale, const aclTensor* antiquantOffset,
               const aclTensor* blockTable, const aclTensor* queryPaddingSize,
               const aclTensor* kvPaddingSize, const aclTensor* keyAntiquantScale,
               const aclTensor* keyAntiquantOffset, const aclTensor* valueAntiquantScale,
               const aclTensor* valueAntiquantOffset, const aclTensor* keySharedPrefix,
               const aclTensor* valueSharedPrefix, const aclIntArray*, int64_t numHeads,
               double scaleValue, int64_t preTokens, int64_t nextTokens, char* inputLayout,
               int64_t numKeyValueHeads, int64_t sparseMode, int64_t innerPrecise,
               int64_t blockSize, int64_t, bool softmaxLseFlag, int64_t, int64_t,
               const aclTensor* attentionOut, const aclTensor* softmaxLse) {
  NPU_SIM_PLAN(aclnnFusedInferAttentionScoreV2) {
    refuse_extras(
        p, {pseShift, deqScale1, quantScale1, deqScale2, quantScale2, quantOffset2, antiquantScale,
            antiquantOffset, queryPaddingSize, kvPaddingSize, keyAntiquantScale, keyAntiquantOffset,
            valueAntiquantScale, valueAntiquantOffset, keySharedPrefix, valueSharedPrefix});
    serve(p,
          {query, pseShift, attenMask, blockTable, key, value, actualSeqLengths, actualSeqLengthsKv,
           numHeads, numKeyValueHeads ? numKeyValueHeads : numHeads, sparseMode, preTokens,
           nextTokens, innerPrecise, blockSize, scaleValue, inputLayout, false, true},
          attentionOut, softmaxLse, softmaxLseFlag);
  });
}

NPU_SIM_DEFINE(aclnnPromptFlashAttentionV3, const aclTensor* query, const aclTensor* key,
               const aclTensor* value, const aclTensor* pseShift, const aclTensor* attenMask,
               const aclIntArray* actualSeqLengths, const aclIntArray* actualSeqLengthsKv,
               const aclTensor* deqScale1, const aclTensor* quantScale1, const aclTensor* deqScale2,
               const aclTensor* quantScale2, const aclTensor* quantOffset2, int64_t numHeads,
               double scaleValue, int64_t preTokens, int64_t nextTokens, char* inputLayout,
               int64_t numKeyValueHeads, int64_t sparseMode, int64_t innerPrecise,
               const aclTensor* attentionOut) {
  const Alone keys(key), values(value);
  NPU_SIM_PLAN(aclnnPromptFlashAttentionV3) {
    refuse_extras(p, {pseShift, deqScale1, quantScale1, deqScale2, quantScale2, quantOffset2});
    serve(p,
          {query, pseShift, attenMask, nullptr, keys.list, values.list, actualSeqLengths,
           actualSeqLengthsKv, numHeads, numKeyValueHeads ? numKeyValueHeads : numHeads, sparseMode,
           preTokens, nextTokens, innerPrecise, 0, scaleValue, inputLayout, false, false},
          attentionOut, nullptr, false);
    auto& used = p.executor().used;  // the lists are the simulator's own
    std::erase_if(used, [](const auto& one) { return one.kind == Kind::kTensorList; });
  });
}

NPU_SIM_DEFINE(aclnnIncreFlashAttentionV4, const aclTensor* query, const aclTensorList* key,
               const aclTensorList* value, const aclTensor* pseShift, const aclTensor* attenMask,
               const aclIntArray* actualSeqLengths, const aclTensor* dequantScale1,
               const aclTensor* quantScale1, const aclTensor* dequantScale2,
               const aclTensor* quantScale2, const aclTensor* quantOffset2,
               const aclTensor* antiquantScale, const aclTensor* antiquantOffset,
               const aclTensor* blocktable, const aclTensor* kvPaddingSize, int64_t numHeads,
               double scaleValue, char* inputLayout, int64_t numKeyValueHeads, int64_t blockSize,
               int64_t innerPrecise, const aclTensor* attentionOut) {
  NPU_SIM_PLAN(aclnnIncreFlashAttentionV4) {
    refuse_extras(p, {pseShift, dequantScale1, quantScale1, dequantScale2, quantScale2,
                      quantOffset2, antiquantScale, antiquantOffset, kvPaddingSize});
    serve(p,
          {query, pseShift, attenMask, blocktable, key, value, nullptr, actualSeqLengths, numHeads,
           numKeyValueHeads ? numKeyValueHeads : numHeads, 0, 2147483647, 2147483647, innerPrecise,
           blockSize, scaleValue, inputLayout, true, false},
          attentionOut, nullptr, false);
  });
}
