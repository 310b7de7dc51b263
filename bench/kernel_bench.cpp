// bench/kernel_bench.cpp: what inner loops reach by where their operands lie, which says how much
// of a row that misses its goal the loop could give back at most.
//
//   kernel_bench [--threads 0] [--rounds 21]
//
// One JSON line each: the share of the peak that a tile's product takes from the first and from the
// second cache and whole products take, in f32 and where bf16 is multiplied as it is in bf16 too
// (AVX512-BF16, AMX; dtypes of the peak), and the share of the read bandwidth at which a row of
// input meets Q8_0 and Q4_0 weights in the second cache and in memory. A share is the median of the
// rounds, over what the machine could do before and after each, beside the least and the largest.
// --threads 0: all.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/number_blocks.h"
#include "bench/statistics.h"
#include "device/parallel.h"
#include "flags.h"
#include "measure/gauge.h"
#include "ops/gemm_cpu.h"
#include "ops/prefetch_cpu.h"
#include "ops/quantized_rows_cpu.h"
#include "ops/scratch_cpu.h"

namespace {

using danlu::BlockType;
using danlu::ops::band_code_bytes;
using danlu::ops::kBandRows;
using danlu::ops::kBandScaleBytes;
using namespace danlu::ops::cpu;

/// What work is measured against: operations a second in a type, or bytes read a second.
enum class Limit { kF32, kBF16, kRead };
const char* name_of(Limit limit) {
  return limit == Limit::kF32 ? "f32 peak" : limit == Limit::kBF16 ? "bf16 peak" : "read bandwidth";
}

/// Something to time: operations or bytes, and what does them.
struct Run {
  std::string what;
  double work;
  Limit limit;
  std::function<void()> body;
  std::vector<double> shares = {};
};

void on_each_thread(const std::function<void(size_t thread)>& body) {
  danlu::device::parallel_each(static_cast<size_t>(at::get_num_threads()), body);
}

/// Memory as kernels have it: a tile's panel begins at a page, and no vector of it lies in two
/// lines.
struct Operands {
  Operands(size_t bytes, int fill) { std::memset(memory.of(bytes), fill, bytes); }
  uint8_t* bytes() { return reinterpret_cast<uint8_t*>(memory.of(0)); }
  float* floats() { return memory.floats(0); }
  ScratchMemory memory;
};

/// A tile again and again, with requests for the next one's panel as products have them; each
/// thread has its own operands.
Run tile(Arithmetic arithmetic, const std::string& where, size_t rows, size_t steps) {
  const size_t columns = panel_columns(arithmetic), threads = at::get_num_threads();
  const size_t panel = steps * columns, left = rows * steps, sums = rows * columns;
  std::vector<std::shared_ptr<Operands>> memory;
  for (size_t i = 0; i < threads; ++i)
    memory.push_back(std::make_shared<Operands>((panel + left + sums) * sizeof(float), 0));
  const double once = 2.0 * static_cast<double>(rows * columns * steps * step_of(arithmetic));
  const auto times = static_cast<size_t>(2e9 / once);
  const bool asks = asks_for_memory();
  const Limit limit = arithmetic == Arithmetic::kF32 ? Limit::kF32 : Limit::kBF16;
  return {"tile, " + where, once * static_cast<double>(times * threads), limit, [=] {
            on_each_thread([&](size_t thread) {
              const TileShapes shapes(arithmetic);
              float* const data = memory[thread]->floats();
              float* const rows_at = data + panel;
              for (size_t i = 0; i < times; ++i)
                multiply_tile(arithmetic,
                              {rows, steps, rows_at, steps * sizeof(float), sizeof(float), data,
                               rows_at + left, columns, true, asks ? data : nullptr,
                               asks ? panel * sizeof(float) : 0});
            });
          }};
}

Run product(Element element, size_t m, size_t n, size_t k) {
  const auto memory = std::make_shared<Operands>((m * k + n * k + m * n) * sizeof(float), 0);
  return {fmt::format("product {} x {} x {}", m, n, k), 2.0 * static_cast<double>(m * n * k),
          element == Element::kF32 ? Limit::kF32 : Limit::kBF16, [=] {
            uint8_t* const left = memory->bytes();
            uint8_t* const right = left + m * k * size_of(element);
            multiply({m,
                      n,
                      k,
                      {element, left, 1, k},
                      {element, right, 1, k},
                      element,
                      right + n * k * size_of(element),
                      n});
          }};
}

/// One row of input times so many bytes of quantised weights, again and again.
Run rows(BlockType type, const std::string& where, size_t bytes, size_t times) {
  constexpr size_t kGroups = 28;  // 896 columns
  const size_t codes = band_code_bytes(type) * kGroups, scales = kBandScaleBytes * kGroups;
  const size_t bands = bytes / (codes + scales);
  const auto memory = std::make_shared<Operands>(bands * (codes + scales), 0x11);
  const auto input = std::make_shared<std::vector<int8_t>>(kGroups * danlu::kBlockGroup, 1);
  const auto facts = std::make_shared<std::vector<QuantizedInputBlock>>(
      kGroups, QuantizedInputBlock{0.01f, {16, 16}});
  const double all = static_cast<double>(bands * (codes + scales) * times);
  return {fmt::format("{} rows, {}", danlu::block_traits(type).name, where), all, Limit::kRead,
          [=] {
            const auto threads = static_cast<size_t>(at::get_num_threads());
            on_each_thread([&](size_t thread) {
              float sums[kBandRows];
              const uint8_t* const code = memory->bytes();
              const uint8_t* const scale = code + bands * codes;
              for (size_t i = 0; i < times; ++i)
                for (size_t b = bands * thread / threads; b < bands * (thread + 1) / threads; ++b)
                  multiply_band(type, {code + b * codes, scale + b * scales, nullptr, kGroups},
                                {input->data(), facts->data(), 0, 0}, 1, sums, kBandRows);
            });
          }};
}

}  // namespace

int main(int argc, char** argv) {
  int64_t threads = 0, rounds = 21;
  danlu::bench::parse_flags(argc, argv,
                            {{"--threads", danlu::bench::WholeNumber{&threads, 0}},
                             {"--rounds", danlu::bench::WholeNumber{&rounds}}});
  if (threads > 0) at::set_num_threads(static_cast<int>(threads));
  const auto count = static_cast<size_t>(at::get_num_threads());
  std::vector<Run> runs;
  runs.push_back(tile(Arithmetic::kF32, "first cache", 6, 64));
  runs.push_back(tile(Arithmetic::kF32, "second cache", 96, 1024));
  runs.push_back(product(Element::kF32, 4096, 2048, 768));
  if (const Arithmetic bf16 = arithmetic_of(/*are_both_bf16=*/true); bf16 != Arithmetic::kF32) {
    runs.push_back(tile(bf16, "first cache", bf16 == Arithmetic::kAmx ? 32 : 6, 64));
    runs.push_back(tile(bf16, "second cache", 96, 1024));
    runs.push_back(product(Element::kBF16, 2048, 2048, 768));
    runs.push_back(product(Element::kBF16, 4096, 2048, 768));
  }
  for (const BlockType type : {BlockType::kQ8_0, BlockType::kQ4_0}) {
    runs.push_back(rows(type, "second cache", count * (size_t{512} << 10), 200));
    runs.push_back(rows(type, "memory", size_t{256} << 20, 1));
  }
  danlu::measure::Gauge gauge(count);
  const danlu::measure::Stopwatch watch(count);
  const auto limit_of = [&](const Run& run) {
    if (run.limit == Limit::kRead) return gauge.read_bandwidth();
    const danlu::bench::Limits limits = gauge.read();
    return run.limit == Limit::kF32 ? limits.f32_flops : limits.bf16_flops;
  };
  for (int64_t round = 0; round <= rounds; ++round) {  // the first warms up
    for (Run& run : runs) {
      const double before = limit_of(run), begin = watch.now();
      run.body();
      const double seconds = watch.now() - begin, after = limit_of(run);
      if (round > 0) run.shares.push_back(run.work / seconds / ((before + after) / 2));
    }
  }
  for (const Run& run : runs) {
    const auto [least, most] = std::minmax_element(run.shares.begin(), run.shares.end());
    fmt::print(
        "{{\"what\": \"{}\", \"threads\": {}, \"of\": \"{}\", \"share\": {:.3f}, \"least\": "
        "{:.3f}, "
        "\"most\": {:.3f}}}\n",
        run.what, count, name_of(run.limit), danlu::bench::median(run.shares), *least, *most);
  }
  return 0;
}
