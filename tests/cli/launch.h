// tests/cli/launch.h: training lines of several processes, in a folder of the test's.
#pragma once
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "cli/bad_input.h"
#include "support/rank_process.h"

namespace danlu::test {

class Launch : public BadInput {
 protected:
  std::vector<std::string> training(const std::string& run,
                                    const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"sft",
                                      "--model",
                                      good("model"),
                                      "--dataset",
                                      good("good.jsonl"),
                                      "--output_dir",
                                      (*this) / run,
                                      "--no-version-dir",
                                      "--dtype",
                                      "fp32",
                                      "--logging_steps",
                                      "1",
                                      "--adam_epsilon",
                                      "1e-6",
                                      "--plot_loss",
                                      "false"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  ProgramResult run_words(std::vector<std::string> words,
                          std::map<std::string, std::string> environment = {}) const {
    ProgramSettings settings;
    environment["XDG_CACHE_HOME"] = (*this) / "cache";
    environment.try_emplace("OMP_NUM_THREADS", "1");
    settings.environment = std::move(environment);
    settings.directory = (*this) / "";
    return run_danlu(words, settings);
  }
  ProgramResult launch(int64_t nproc, const std::vector<std::string>& words) const {
    std::vector<std::string> all = {"launch", "--nproc_per_node=" + std::to_string(nproc)};
    all.insert(all.end(), words.begin(), words.end());
    return run_words(std::move(all));
  }
  /// run(), whose rank 1 gets `signal` as soon as `file` is there.
  template <typename Run>
  ProgramResult signalled(int signal, const std::string& file, const Run& run) const {
    ProgramResult result;
    std::atomic<bool> over = false;
    std::thread job([&] {
      result = run();
      over = true;
    });
    pid_t rank = 0;
    // Looked for before it is needed: a run of few steps does not wait for the search.
    while (!over && !(rank > 0 && std::filesystem::exists((*this) / file))) {
      if (rank <= 0) rank = process_of((*this) / "", 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_FALSE(over) << "the run was over too soon";
    if (!over) ::kill(rank, signal);
    job.join();
    return result;
  }
};

}  // namespace danlu::test
