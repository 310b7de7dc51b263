// bench/grouped_bench.cpp: the product of rows that stand in groups (experts) beside one dense
// product of as many multiplications.
//
//   grouped_bench [--threads 0] [--rounds 21] [--experts 16] [--rows 64] [--in 1024] [--out 512]
//
// One JSON line for each dtype and pass: the median over the rounds of the dense product's time by
// the grouped one's, beside the least and the largest. --rows: of each expert. "both": the backward
// pass too, into gradients of autograd. --threads 0: all.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "bench/statistics.h"
#include "flags.h"
#include "measure/gauge.h"
#include "ops/grouped_linear.h"
#include "ops/linear.h"

namespace {

using danlu::measure::Stopwatch;

struct Shape {
  int64_t experts = 16, rows = 64, in = 1024, out = 512;
};

double seconds_of(const Stopwatch& watch, const std::function<void()>& body) {
  const double begin = watch.now();
  body();
  return watch.now() - begin;
}

void report(const Shape& shape, at::ScalarType type, bool backward, int64_t rounds,
            const Stopwatch& watch) {
  const auto options = at::TensorOptions().dtype(type);
  const at::Tensor x = at::randn({shape.experts * shape.rows, shape.in}).to(options);
  const at::Tensor grad = at::randn({shape.experts * shape.rows, shape.out}).to(options);
  const auto weight_of = [&](int64_t out) {
    return at::randn({out, shape.in}).div_(32).to(options).requires_grad_(backward);
  };
  std::vector<at::Tensor> weights;
  for (int64_t i = 0; i < shape.experts; ++i) weights.push_back(weight_of(shape.out));
  const at::Tensor dense = weight_of(shape.out);
  const std::vector<int64_t> counts(static_cast<size_t>(shape.experts), shape.rows);
  const at::Tensor input = x.detach().requires_grad_(backward);
  const auto run = [&](const std::function<at::Tensor()>& forward) {
    const at::Tensor y = forward();
    if (backward) y.backward(grad);
  };
  std::vector<double> ratios;
  for (int64_t round = 0; round <= rounds; ++round) {  // the first warms up
    const double grouped = seconds_of(
        watch, [&] { run([&] { return danlu::ops::grouped_linear(input, weights, counts); }); });
    const double one =
        seconds_of(watch, [&] { run([&] { return danlu::ops::linear(input, dense, {}); }); });
    if (round > 0) ratios.push_back(one / grouped);
  }
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  fmt::print(
      "{{\"dtype\": \"{}\", \"pass\": \"{}\", \"experts\": {}, \"rows\": {}, \"in\": {}, \"out\": "
      "{}, \"threads\": {}, \"ratio\": {:.3f}, \"least\": {:.3f}, \"most\": {:.3f}}}\n",
      c10::toString(type), backward ? "both" : "forward", shape.experts, shape.rows, shape.in,
      shape.out, at::get_num_threads(), danlu::bench::median(ratios), *least, *most);
}

}  // namespace

int main(int argc, char** argv) {
  int64_t threads = 0, rounds = 21;
  Shape shape;
  danlu::bench::parse_flags(argc, argv,
                            {{"--threads", danlu::bench::WholeNumber{&threads, 0}},
                             {"--rounds", danlu::bench::WholeNumber{&rounds}},
                             {"--experts", danlu::bench::WholeNumber{&shape.experts}},
                             {"--rows", danlu::bench::WholeNumber{&shape.rows}},
                             {"--in", danlu::bench::WholeNumber{&shape.in}},
                             {"--out", danlu::bench::WholeNumber{&shape.out}}});
  if (threads > 0) at::set_num_threads(static_cast<int>(threads));
  const Stopwatch watch(static_cast<size_t>(at::get_num_threads()));
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (const bool backward : {false, true}) report(shape, type, backward, rounds, watch);
  return 0;
}
