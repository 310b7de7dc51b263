// bench/collective_bench.cpp: what a collective costs in a process, over the same transport raw.
//
//   collective_bench [--ranks 2] [--rounds 21]
//
// Ranks are processes on this machine; both speak Gloo over the loopback. One JSON line for each
// collective and size: the median time of ours, the raw one's, and raw over ours, measured by
// turns. Raw sums are Gloo's ring (any order, f32); ours are in the order of ranks.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <tuple>
#include <vector>

#include "base/free_port.h"
#include "bench/statistics.h"
#include "flags.h"
#include "parallel/comm/c10d.h"

namespace {

using danlu::bench::median;
using Gloo = c10d::ProcessGroupGloo;

struct Sizes {
  int64_t ranks = 2, rounds = 21;
};

double seconds_of(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

c10::intrusive_ptr<Gloo> raw_group(const std::string& file, int64_t rank, int64_t ranks) {
  auto options = Gloo::Options::create();
  options->devices.push_back(Gloo::createDeviceForHostname("127.0.0.1"));
  const auto store = c10::make_intrusive<c10d::FileStore>(file, static_cast<int>(ranks));
  return c10::make_intrusive<Gloo>(store, static_cast<int>(rank), static_cast<int>(ranks), options);
}

void measure(const Sizes& sizes, const danlu::parallel::Group& own, Gloo& raw, bool speaks) {
  for (const int64_t elements : {int64_t{1} << 14, int64_t{1} << 20, int64_t{1} << 24}) {
    at::Tensor mine = at::ones({elements}), all = at::ones({elements * sizes.ranks});
    std::vector<at::Tensor> one{mine};
    std::vector<std::vector<at::Tensor>> parts{all.chunk(sizes.ranks)};
    const std::vector<std::tuple<const char*, std::function<void()>, std::function<void()>>> kinds =
        {{"sum", [&] { own.all_reduce_sum(mine.fill_(1)); },
          [&] {
            mine.fill_(1);
            raw.allreduce(one)->wait();
          }},
         {"gather", [&] { own.all_gather_into(mine, all); },
          [&] { raw.allgather(parts, one)->wait(); }}};
    for (const auto& [name, ours, theirs] : kinds) {
      std::vector<double> own_s, raw_s;
      for (int64_t round = 0; round < sizes.rounds; ++round) {
        own.barrier();
        own_s.push_back(seconds_of(ours));
        own.barrier();
        raw_s.push_back(seconds_of(theirs));
      }
      if (!speaks) continue;
      fmt::print(
          "{{\"collective\": \"{}\", \"ranks\": {}, \"bytes\": {}, \"own_ms\": {:.3f}, "
          "\"raw_ms\": {:.3f}, \"raw_over_own\": {:.3f}}}\n",
          name, sizes.ranks, elements * 4, median(own_s) * 1e3, median(raw_s) * 1e3,
          median(raw_s) / median(own_s));
      std::fflush(stdout);
    }
  }
}

void run_rank(const Sizes& sizes, int64_t rank, int64_t port, const std::string& file) {
  at::set_num_threads(1);
  danlu::parallel::C10dJob job;
  job.rank = rank;
  job.size = sizes.ranks;
  job.master_address = "127.0.0.1";
  job.master_port = port;
  const auto world = danlu::parallel::connect_c10d(job);
  const auto own = world->make_group_of_all();
  const auto raw = raw_group(file, rank, sizes.ranks);
  measure(sizes, *own, *raw, rank == 0);
  own->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  Sizes sizes;
  danlu::bench::parse_flags(argc, argv,
                            {{"--ranks", danlu::bench::WholeNumber{&sizes.ranks}},
                             {"--rounds", danlu::bench::WholeNumber{&sizes.rounds}}});
  const int64_t port = danlu::free_port().value();
  const std::string file =
      (std::filesystem::temp_directory_path() / fmt::format("collective-{}", ::getpid())).string();
  for (int64_t rank = 1; rank < sizes.ranks; ++rank) {
    if (::fork() != 0) continue;
    run_rank(sizes, rank, port, file);
    std::_Exit(0);
  }
  run_rank(sizes, 0, port, file);
  while (::wait(nullptr) > 0) {
  }
  std::filesystem::remove(file);
  return 0;
}
