// Several ranks train; one of them is killed at any moment; the same command goes on, and nothing
// tells the result from one that nobody disturbed: no loss, no weight, no file.
//
// `make test` kills a few times, `make test-slow` nine times a mesh.
//   DANLU_KILL_SEED=5 build/test_durability --gtest_filter='*Ranks*'    other ranks and moments
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>
#include <thread>

#include "durability/campaign.h"
#include "durability/inputs.h"
#include "support/rank_process.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

bool is_slow() { return std::getenv("DANLU_SLOW") != nullptr; }
constexpr int64_t kSlowTrials = 9;  ///< of each mesh

std::string steps() { return is_slow() ? "40" : "20"; }

struct Job {
  const char* name;
  int64_t ranks;
  int64_t trials;  ///< of `make test`
  int64_t save_steps;
  std::vector<std::string> flags;
  bool sees = false;  ///< its model has a tower, which is trained or adapted too
};

void PrintTo(const Job& job, std::ostream* out) { *out << job.name; }

milliseconds since(Clock::time_point begin) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
}

/// The job in its directory, which is made anew before each trial.
class Ranks {
 public:
  explicit Ranks(const Job& job) : job_(job), root_(fs::path(Inputs::get() / job.name)) {
    const Inputs& in = Inputs::get();
    words_ = {"launch",
              "--nproc",
              std::to_string(job.ranks),
              "sft",
              "--model",
              in / "model",
              "--dataset",
              in / "rows.jsonl",
              "--output_dir",
              root_ / "run",
              "--no-version-dir",
              "--dtype",
              "fp32",
              "--max_steps",
              steps(),
              "--logging_steps",
              "1",
              "--save_steps",
              std::to_string(job.save_steps),
              "--save_total_limit",
              "2",
              "--eval_steps",
              "4",
              "--lr",
              "0.01",
              "--val_ratio",
              "0.1",
              "--batch_size",
              "1",
              "--global_batch_size",
              "4",
              "--max_length",
              "64",
              "--device",
              "cpu"};
    if (job.sees) {
      const SeeingModel& seeing = Inputs::seeing();
      words_.insert(words_.end(),
                    {"--model", seeing.model, "--dataset", seeing.rows, "--freeze_vit", "false",
                     "--freeze_aligner", "false", "--max_length", "256"});
    }
    words_.insert(words_.end(), job.flags.begin(), job.flags.end());
  }

  void make_directory() const {
    fs::remove_all(root_);
    fs::create_directories(root_ / "offloaded");
  }
  ProgramResult run() const {
    ProgramSettings settings;
    settings.environment = {{"OMP_NUM_THREADS", "1"}, {"DANLU_CACHE", root_ / "cache"}};
    settings.directory = root_;
    settings.timeout_s = 300;  // for a machine that has much else to do
    return run_danlu(words_, settings);
  }

  /// Runs the line and kills rank `rank` as soon after `moment` as it exists and, if wanted, as a
  /// checkpoint is being written. false: it was over before.
  bool run_and_kill(int64_t rank, milliseconds moment, bool amid_saving,
                    ProgramResult& result) const {
    std::atomic<bool> is_over = false;
    bool is_killed = false;
    std::thread job([&] {
      result = run();
      is_over = true;
    });
    std::this_thread::sleep_for(moment);
    while (!is_over && !is_killed) {
      if (!amid_saving || has_unfinished()) {
        const pid_t process = process_of(root_, rank);
        is_killed = process > 0 && ::kill(process, SIGKILL) == 0;
      }
      if (!is_killed) std::this_thread::sleep_for(milliseconds(1));
    }
    job.join();
    return is_killed;
  }

  /// A checkpoint that has not got its name.
  bool has_unfinished() const {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(root_ / "run", none)) {
      if (entry.path().filename().string().starts_with(".checkpoint-")) return true;
    }
    return false;
  }
  std::string newest() const {
    std::error_code none;
    return fs::read_symlink(root_ / "run/last", none).string();
  }
  const fs::path& root() const { return root_; }

 private:
  Job job_;
  fs::path root_;
  std::vector<std::string> words_;
};

uint64_t seed_of(const std::string& name) {
  const char* asked = std::getenv("DANLU_KILL_SEED");
  return (asked ? std::stoull(asked) : 17) * 1000 + name.size();
}

class RanksOf : public testing::TestWithParam<Job> {};

TEST_P(RanksOf, OneOfThemIsKilledAndTheSameCommandGoesOn) {
  const Job& job = GetParam();
  const int64_t wanted = is_slow() ? kSlowTrials : job.trials;
  if (wanted == 0) GTEST_SKIP() << "runs with DANLU_SLOW";
  if (job.sees) DANLU_REQUIRES_SHARED();
  const Ranks ranks(job);
  ranks.make_directory();
  const auto begin = Clock::now();
  const ProgramResult alone = ranks.run();
  milliseconds duration = since(begin);
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const Tree whole = tree_of(ranks.root());
  ASSERT_NE(whole.at("run/logging.jsonl").find('"' + steps() + '/' + steps() + '"'),
            std::string::npos);

  const uint64_t seed = seed_of(job.name);
  std::printf("%s: %lld ms undisturbed, seed %llu\n", job.name,
              static_cast<long long>(duration.count()), static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  int64_t kills = 0, unfinished = 0, resumed = 0, tries = 0;
  for (; kills < wanted && tries < 2 * wanted; ++tries) {
    const auto rank = static_cast<int64_t>(random() % static_cast<uint64_t>(job.ranks));
    // Each in its own share of the run, anywhere there.
    const double place = static_cast<double>(random() % 1000) / 1000;
    const auto share = static_cast<double>(tries % wanted);
    const milliseconds moment(static_cast<int64_t>((share + place) / static_cast<double>(wanted) *
                                                   static_cast<double>(duration.count())));
    ranks.make_directory();
    ProgramResult killed;
    const bool is_killed = ranks.run_and_kill(rank, moment, tries % 3 == 2, killed);
    // It may have been killed behind its last word.
    EXPECT_TRUE(killed.exit_code == 7 || killed.exit_code == 0) << killed.exit_code << killed.err;
    if (!is_killed) {
      duration = duration * 4 / 5;  // other work of the machine has ended
      continue;
    }
    ++kills;
    const bool is_unfinished = ranks.has_unfinished();
    unfinished += is_unfinished;
    const std::string newest = ranks.newest();
    resumed += !newest.empty();
    const ProgramResult again = ranks.run();
    const std::string found = differences(whole, tree_of(ranks.root()));
    std::printf("  rank %lld at %5lld ms: exit %d, %s%s: %s\n", static_cast<long long>(rank),
                static_cast<long long>(moment.count()), killed.exit_code,
                newest.empty() ? "no checkpoint" : newest.c_str(),
                is_unfinished ? " and one unfinished" : "",
                again.exit_code == 0 && found.empty() ? "no difference" : "BAD");
    std::fflush(stdout);
    EXPECT_EQ(again.exit_code, 0) << killed.err << "\n--- again\n" << again.err;
    EXPECT_TRUE(found.empty()) << found << killed.err << "\n--- again\n" << again.err;
  }
  std::printf(
      "%s: %lld kills, %lld of them with a checkpoint to go on from, %lld while one was "
      "written\n",
      job.name, static_cast<long long>(kills), static_cast<long long>(resumed),
      static_cast<long long>(unfinished));
  EXPECT_GE(kills, wanted) << "hardly anything was killed";
  if (wanted >= kSlowTrials) {
    EXPECT_GT(std::min(unfinished, resumed), 0) << "none met a checkpoint, or one being written";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, RanksOf,
    testing::Values(
        Job{"dp2", 2, 0, 1, {"--tuner", "full"}},
        Job{"dp2_zero3", 2, 1, 2, {"--tuner", "full", "--shard", "zero3"}},
        Job{"tp2", 2, 0, 3, {"--tuner", "full", "--tp", "2"}},
        Job{"tp2_dp2", 4, 1, 1, {"--tuner", "full", "--tp", "2"}},
        Job{"pp2_dp2_zero1", 4, 0, 2, {"--tuner", "full", "--pp", "2", "--shard", "zero1"}},
        Job{"dp3_zero1_lora",
            3,
            0,
            2,
            {"--tuner", "lora", "--shard", "zero1", "--global_batch_size", "6"}},
        Job{"dp2_zero3_files",
            2,
            0,
            1,
            {"--tuner", "full", "--shard", "zero3", "--offload", "optimizer,params",
             "--offload_dir", "offloaded"}},
        Job{"pictures_zero3", 2, 1, 2, {"--tuner", "full", "--shard", "zero3"}, true},
        Job{"pictures_pp2_lora", 2, 1, 1, {"--tuner", "lora", "--pp", "2"}, true}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace danlu::test
