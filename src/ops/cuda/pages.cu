// Keys and values in pages: writing new tokens' there, and attention over them where they are.
//
// Attention: a block has one new token, some query heads of one key head, and a stretch of keys; it
// keeps the largest score and the sum of weights of what it has seen (FlashAttention-2,
// arXiv:2307.08691 §3.1). What stretches give is joined by a second kernel. Which keys are a
// stretch depends on places alone, so a token's bits do not depend on what else is in the batch.
#include <algorithm>

#include "ops/cuda/launch.cuh"

namespace danlu::ops::cuda {
namespace {

constexpr int kPage = 32;          ///< ops/pages.h's kPageTokens
constexpr int kStretchKeys = 512;  ///< a multiple of kPage
constexpr int kAttendThreads = 128, kWarps = kAttendThreads / kLanes;
constexpr int kSharedBytes = 46 << 10;  ///< of the 48 KB that need not be asked for
constexpr float kHidden = -INFINITY;

/// The first key of a layer in a page.
template <typename T>
__device__ T* page_at(const PageSlabs& pages, int32_t page) {
  return static_cast<T*>(pages.at[page / pages.per_slab]) +
         page % pages.per_slab * pages.page_elements;
}

template <typename T>
__global__ void store_rows(const T* k, const T* v, PageSlabs pages, PageTokens tokens,
                           const int32_t* tables, int64_t table_width) {
  const int token = blockIdx.x, head = blockIdx.y, place = tokens.place[token];
  const int32_t page = tables[tokens.sequence[token] * table_width + place / kPage];
  T* const keys = page_at<T>(pages, page);
  T* const values = keys + static_cast<int64_t>(pages.heads) * kPage * pages.key_dim;
  const int64_t from = static_cast<int64_t>(token) * pages.heads + head,
                to = static_cast<int64_t>(head) * kPage + place % kPage;
  for (int d = threadIdx.x; d < pages.key_dim; d += blockDim.x)
    keys[to * pages.key_dim + d] = k[from * pages.key_dim + d];
  for (int d = threadIdx.x; d < pages.value_dim; d += blockDim.x)
    values[to * pages.value_dim + d] = v[from * pages.value_dim + d];
}

/// How attention is dealt to blocks, and where in a block's memory things lie (in floats).
struct Plan {
  int dim, out_dim;  ///< of keys, of values
  int group;         ///< query heads of a key head
  int heads;         ///< query heads of a block
  int tile;          ///< keys at a time
  int stretches;     ///< of any token at most

  __host__ __device__ int chunks() const { return (group + heads - 1) / heads; }
  __host__ __device__ int tile_row() const { return (dim > out_dim ? dim : out_dim) + 1; }
  __host__ __device__ int tile_at() const { return heads * dim; }
  __host__ __device__ int scores_at() const { return tile_at() + tile * tile_row(); }
  __host__ __device__ int sums_at() const { return scores_at() + heads * tile; }
  __host__ __device__ int states_at() const { return sums_at() + heads * out_dim; }
  __host__ __device__ int floats() const { return states_at() + 3 * heads; }
};

struct Stretch {
  int begin, end;  ///< keys
};
__host__ __device__ int first_seen(int place, int64_t window) {
  return window > 0 && place + 1 > window ? static_cast<int>(place + 1 - window) : 0;
}
/// A token's stretches end where multiples of kStretchKeys do.
__host__ __device__ int count_stretches(int place, int64_t window) {
  return place / kStretchKeys - first_seen(place, window) / kStretchKeys + 1;
}
__device__ Stretch stretch_of(int place, int64_t window, int index) {
  const int first = first_seen(place, window), cut = (first / kStretchKeys + index) * kStretchKeys;
  const int begin = index == 0 ? first : cut, end = cut + kStretchKeys;
  return {begin, end < place + 1 ? end : place + 1};
}

/// A row of the workspace: sums, the largest score, the sum of weights.
__host__ __device__ int64_t partial_row(int64_t token, int64_t head, int64_t stretch, int64_t heads,
                                        int64_t stretches) {
  return (token * heads + head) * stretches + stretch;
}

/// Reads `tile` rows of `dim` from `rows` on; those of keys outside of the stretch are 0, since
/// what nobody has written may be no number.
template <typename T>
__device__ void read_tile(const T* rows, int dim, const Plan& plan, int first, Stretch stretch,
                          float* to) {
  for (int i = threadIdx.x; i < plan.tile * dim; i += blockDim.x) {
    const int row = i / dim, key = first + row;
    const bool is_seen = key >= stretch.begin && key < stretch.end;
    to[row * plan.tile_row() + i % dim] = is_seen ? wide(rows[i]) : 0.0f;
  }
}

/// Turns the scores of a tile into weights, a warp for each head; says by which factor what was
/// summed before is now to count.
__device__ void weigh(const Plan& plan, int heads, float* scores, float* largest, float* sum,
                      float* factor) {
  const int lane = threadIdx.x % kLanes;
  for (int h = threadIdx.x / kLanes; h < heads; h += kWarps) {
    const float score = lane < plan.tile ? scores[h * plan.tile + lane] : kHidden;
    const float before = largest[h], now = fmaxf(before, warp_max(score));
    const float weight = score == kHidden ? 0.0f : expf(score - now);
    const float more = warp_sum(weight);
    if (lane < plan.tile) scores[h * plan.tile + lane] = weight;
    if (lane > 0) continue;
    const float kept = before == kHidden ? 0.0f : expf(before - now);
    factor[h] = kept;
    largest[h] = now;
    sum[h] = sum[h] * kept + more;
  }
}

/// What a block does, and its memory.
struct Work {
  int token, place, key_head, first_head, heads;  ///< heads: query heads, from first_head on
  Stretch stretch;
  float *q, *tile, *scores, *sums, *largest, *sum, *factor;
};

__device__ Work work_of(const Plan& plan, const PageTokens& tokens, const PageQueries& queries,
                        float* memory) {
  Work work;
  work.token = blockIdx.z;
  work.place = tokens.place[work.token];
  work.key_head = blockIdx.y / plan.chunks();
  work.first_head = work.key_head * plan.group + blockIdx.y % plan.chunks() * plan.heads;
  work.heads = min(plan.heads, (work.key_head + 1) * plan.group - work.first_head);
  work.stretch = stretch_of(work.place, queries.window, blockIdx.x);
  work.q = memory;
  work.tile = memory + plan.tile_at();
  work.scores = memory + plan.scores_at();
  work.sums = memory + plan.sums_at();
  work.largest = memory + plan.states_at();
  work.sum = work.largest + plan.heads;
  work.factor = work.sum + plan.heads;
  return work;
}

template <typename T>
__device__ void begin_work(const Work& work, const Plan& plan, const T* q, float scale) {
  for (int i = threadIdx.x; i < work.heads * plan.dim; i += blockDim.x)
    work.q[i] = wide(q[i]) * scale;
  for (int i = threadIdx.x; i < work.heads * plan.out_dim; i += blockDim.x) work.sums[i] = 0;
  for (int h = threadIdx.x; h < work.heads; h += blockDim.x) {
    work.largest[h] = kHidden;
    work.sum[h] = 0;
  }
}

/// Computes the scores of the keys in the tile, of which `first` is the first.
__device__ void score(const Work& work, const Plan& plan, const float* slopes, int first) {
  for (int i = threadIdx.x; i < work.heads * plan.tile; i += blockDim.x) {
    const int h = i / plan.tile, t = i % plan.tile, key = first + t;
    float sum = 0;
    for (int d = 0; d < plan.dim; ++d)
      sum += work.q[h * plan.dim + d] * work.tile[t * plan.tile_row() + d];
    if (slopes) sum += slopes[work.first_head + h] * static_cast<float>(key - work.place);
    work.scores[i] = key >= work.stretch.begin && key < work.stretch.end ? sum : kHidden;
  }
}

/// Adds the values of the tile's keys, weighted by their scores.
__device__ void add_values(const Work& work, const Plan& plan) {
  for (int i = threadIdx.x; i < work.heads * plan.out_dim; i += blockDim.x) {
    const int h = i / plan.out_dim, d = i % plan.out_dim;
    float value = work.sums[i] * work.factor[h];
    for (int t = 0; t < plan.tile; ++t)
      value += work.scores[h * plan.tile + t] * work.tile[t * plan.tile_row() + d];
    work.sums[i] = value;
  }
}

/// Each thread gives the sums that it made itself; states are those of before the last barrier.
template <typename T>
__device__ void finish(const Work& work, const Plan& plan, int64_t heads, bool is_whole,
                       float* workspace, T* out) {
  for (int i = threadIdx.x; i < work.heads * plan.out_dim; i += blockDim.x) {
    const int h = i / plan.out_dim, d = i % plan.out_dim, head = work.first_head + h;
    if (is_whole) {
      out[(work.token * heads + head) * plan.out_dim + d] = rounded<T>(work.sums[i] / work.sum[h]);
      continue;
    }
    float* const row =
        workspace +
        partial_row(work.token, head, blockIdx.x, heads, plan.stretches) * (plan.out_dim + 2);
    row[d] = work.sums[i];
    if (d > 0) continue;
    row[plan.out_dim] = work.largest[h];
    row[plan.out_dim + 1] = work.sum[h];
  }
}

template <typename T>
__global__ void attend(const T* q, PageSlabs pages, PageTokens tokens, PageQueries queries,
                       const int32_t* tables, int64_t table_width, Plan plan, float* workspace,
                       T* out) {
  DANLU_DYNAMIC_SHARED(float, memory);
  const int stretches = count_stretches(tokens.place[blockIdx.z], queries.window);
  if (static_cast<int>(blockIdx.x) >= stretches) return;  // all threads of the block
  const Work work = work_of(plan, tokens, queries, memory);
  const int64_t row = static_cast<int64_t>(work.token) * queries.heads + work.first_head;
  begin_work(work, plan, q + row * plan.dim, queries.scale);
  const int32_t* const table = tables + tokens.sequence[work.token] * table_width;
  const int first_tile = work.stretch.begin / plan.tile * plan.tile;
  for (int first = first_tile; first < work.stretch.end; first += plan.tile) {
    const T* const keys = page_at<const T>(pages, table[first / kPage]);
    const int64_t at = static_cast<int64_t>(work.key_head) * kPage + first % kPage;
    __syncthreads();  // what was read of the tile before has been used
    read_tile(keys + at * plan.dim, plan.dim, plan, first, work.stretch, work.tile);
    __syncthreads();
    score(work, plan, queries.slopes, first);
    __syncthreads();
    weigh(plan, work.heads, work.scores, work.largest, work.sum, work.factor);
    if (pages.value_dim > 0) {
      const T* const values = keys + static_cast<int64_t>(pages.heads) * kPage * pages.key_dim;
      read_tile(values + at * plan.out_dim, plan.out_dim, plan, first, work.stretch, work.tile);
    }
    __syncthreads();
    add_values(work, plan);
  }
  finish(work, plan, queries.heads, stretches == 1, workspace, out);
}

/// A block for each token and head.
template <typename T>
__global__ void join_stretches(PageTokens tokens, PageQueries queries, Plan plan,
                               const float* workspace, T* out) {
  const int head = blockIdx.x, token = blockIdx.y;
  const int stretches = count_stretches(tokens.place[token], queries.window);
  if (stretches == 1) return;
  const int64_t width = plan.out_dim + 2;
  const float* const rows =
      workspace + partial_row(token, head, 0, queries.heads, plan.stretches) * width;
  float largest = kHidden, total = 0;
  for (int s = 0; s < stretches; ++s) largest = fmaxf(largest, rows[s * width + plan.out_dim]);
  for (int s = 0; s < stretches; ++s)
    total += rows[s * width + plan.out_dim + 1] * expf(rows[s * width + plan.out_dim] - largest);
  for (int d = threadIdx.x; d < plan.out_dim; d += blockDim.x) {
    float value = 0;
    for (int s = 0; s < stretches; ++s)
      value += rows[s * width + d] * expf(rows[s * width + plan.out_dim] - largest);
    out[(static_cast<int64_t>(token) * queries.heads + head) * plan.out_dim + d] =
        rounded<T>(value / total);
  }
}

Plan plan_of(const PageSlabs& pages, const PageTokens& tokens, const PageQueries& queries) {
  constexpr int kMostHeads = 16, kLeastTile = 8;
  Plan plan{};
  plan.dim = pages.key_dim;
  plan.out_dim = pages.value_dim > 0 ? pages.value_dim : pages.key_dim;
  plan.group = queries.heads / pages.heads;
  plan.heads = std::min(plan.group, kMostHeads);
  plan.tile = kPage;
  const auto fits = [&] { return plan.floats() * 4 <= kSharedBytes; };
  while (!fits() && (plan.tile > kLeastTile || plan.heads > 1)) {
    if (plan.tile > kLeastTile) {
      plan.tile /= 2;
    } else {
      plan.heads = (plan.heads + 1) / 2;
    }
  }
  if (!fits()) throw std::runtime_error("attention over pages: heads are too wide for a block");
  for (int t = 0; t < tokens.count; ++t)
    plan.stretches = std::max(plan.stretches, count_stretches(tokens.place[t], queries.window));
  return plan;
}

}  // namespace

void store_in_pages(Type type, const void* k, const void* v, const PageSlabs& pages,
                    const PageTokens& tokens, const int32_t* tables, int64_t table_width,
                    Stream stream) {
  by_type(type, [&](auto number) {
    using T = decltype(number);
    launch("store_in_pages", &store_rows<T>,
           dim3(static_cast<unsigned>(tokens.count), static_cast<unsigned>(pages.heads)), dim3(64),
           0, stream, static_cast<const T*>(k), static_cast<const T*>(v), pages, tokens, tables,
           table_width);
  });
}

int64_t page_workspace(const PageSlabs& pages, const PageTokens& tokens,
                       const PageQueries& queries) {
  const Plan plan = plan_of(pages, tokens, queries);
  if (plan.stretches == 1) return 0;
  return int64_t{tokens.count} * queries.heads * plan.stretches * (plan.out_dim + 2);
}

void attention_over_pages(Type type, const void* q, const PageSlabs& pages,
                          const PageTokens& tokens, const PageQueries& queries,
                          const int32_t* tables, int64_t table_width, float* workspace, void* out,
                          Stream stream) {
  const Plan plan = plan_of(pages, tokens, queries);
  const auto count = static_cast<unsigned>(tokens.count);
  by_type(type, [&](auto number) {
    using T = decltype(number);
    launch("attention_over_pages", &attend<T>,
           dim3(static_cast<unsigned>(plan.stretches),
                static_cast<unsigned>(pages.heads * plan.chunks()), count),
           dim3(kAttendThreads), static_cast<size_t>(plan.floats()) * 4, stream,
           static_cast<const T*>(q), pages, tokens, queries, tables, table_width, plan, workspace,
           static_cast<T*>(out));
    if (plan.stretches == 1) return;
    launch("attention_over_pages", &join_stretches<T>,
           dim3(static_cast<unsigned>(queries.heads), count), dim3(kAttendThreads), 0, stream,
           tokens, queries, plan, static_cast<const float*>(workspace), static_cast<T*>(out));
  });
}

}  // namespace danlu::ops::cuda
