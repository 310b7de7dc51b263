#include "base/thread_team.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

namespace danlu {
namespace {

/// Calls body(part) for each part.
template <typename Body>
void run(ThreadTeam& team, size_t parts, Body body) {
  team.run(parts, [](void* context, size_t part) { (*static_cast<Body*>(context))(part); }, &body);
}

TEST(ThreadTeam, EveryPartRunsOnceInAThreadOfItsOwnHoweverManyAreAskedFor) {
  ThreadTeam team;
  std::vector<std::thread::id> of_part(8);
  for (size_t round = 0; round < 3000; ++round) {
    const size_t parts = 1 + round * 7 % 8;
    std::vector<int> runs(8, 0);
    std::vector<std::thread::id> now(8);
    run(team, parts, [&](size_t part) {
      ++runs[part];
      now[part] = std::this_thread::get_id();
    });
    for (size_t part = 0; part < 8; ++part) {
      ASSERT_EQ(runs[part], part < parts) << round;
      if (part >= parts) continue;
      if (of_part[part] == std::thread::id()) of_part[part] = now[part];
      ASSERT_EQ(now[part], of_part[part]) << "a thread keeps its part";
    }
  }
  EXPECT_EQ(of_part[0], std::this_thread::get_id());
  EXPECT_EQ(team.size(), 7u);
}

TEST(ThreadTeam, WhatAPartThrowsReachesTheOwnerWhenAllAreOver) {
  ThreadTeam team;
  for (size_t thrower = 0; thrower < 3; ++thrower) {
    std::atomic<int> others{0};
    const auto fails = [&](size_t part) {
      if (part == thrower) throw std::runtime_error("part " + std::to_string(part));
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      ++others;
    };
    try {
      run(team, 3, fails);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), "part " + std::to_string(thrower));
    }
    EXPECT_EQ(others, 2);
  }
  int after = 0;
  run(team, 1, [&](size_t) { ++after; });
  EXPECT_EQ(after, 1);
}

TEST(ThreadTeam, OwnersDoNotMeet) {
  std::vector<std::thread> owners;
  std::vector<size_t> sums(4, 0);
  for (size_t owner = 0; owner < sums.size(); ++owner) {
    owners.emplace_back([&sum = sums[owner], owner] {
      ThreadTeam team;
      for (size_t round = 0; round < 500; ++round) {
        std::vector<size_t> parts(3, 0);
        run(team, 3, [&](size_t part) { parts[part] = owner + part; });
        sum += parts[0] + parts[1] + parts[2];
      }
    });
  }
  for (std::thread& owner : owners) owner.join();
  for (size_t owner = 0; owner < sums.size(); ++owner)
    EXPECT_EQ(sums[owner], 500 * (3 * owner + 3));
}

/// The state of this process's thread, as /proc has it: R runs, S sleeps.
char state_of(const std::string& thread) {
  std::ifstream file("/proc/self/task/" + thread + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t name = line.rfind(')');  // names may hold blanks
  return name == std::string::npos ? '?' : line.at(name + 2);
}

TEST(ThreadTeam, SleepsWhenNothingComesAndWakesForMore) {
  ThreadTeam team;
  std::vector<std::string> names(3);
  for (int round = 0; round < 3; ++round) {
    run(team, 3, [&](size_t part) {
      names[part] = std::filesystem::read_symlink("/proc/thread-self").filename().string();
    });
    for (const size_t member : {1, 2}) {
      while (state_of(names[member]) != 'S')  // the suite's time limit ends a wait without end
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

/// The owner waits longer than it looks.
TEST(ThreadTeam, WaitsForAPartThatTakesLong) {
  ThreadTeam team;
  for (const size_t slow : {0, 1}) {
    std::atomic<int> over{0};
    run(team, 2, [&](size_t part) {
      if (part == slow) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      ++over;
    });
    EXPECT_EQ(over, 2);
  }
}

}  // namespace
}  // namespace danlu
