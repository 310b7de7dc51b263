// What ranks tell each other, above all that one has failed.
#include "parallel/agree.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>
#include <new>
#include <vector>

#include "base/error.h"
#include "parallel/comm/local.h"

namespace danlu::parallel {
namespace {

struct Caught {
  bool is_numeric = false;
  ExitCode code = ExitCode::kSuccess;
  std::string what, hint;
};

/// What each of three ranks catches of together(body(rank)).
std::vector<Caught> caught_of(const std::function<void(int64_t)>& body) {
  std::vector<Caught> caught(3);
  run_local_ranks(3, [&](World& world) {
    const auto group = world.make_group_of_all();
    Caught& mine = caught[static_cast<size_t>(world.rank())];
    try {
      together(*group, [&] { body(world.rank()); });
    } catch (const NumericError& error) {
      mine = {true, error.code(), error.what(), error.hint()};
    } catch (const Error& error) {
      mine = {false, error.code(), error.what(), error.hint()};
    } catch (const std::exception& error) {
      mine = {false, ExitCode::kInternal, error.what(), "not one of ours"};
    }
    // They are still in step.
    EXPECT_EQ(largest_of(*group, world.rank()), 2);
  });
  return caught;
}

TEST(OfAll, TextsAndNumbersAreInTheOrderOfRanks) {
  run_local_ranks(3, [](World& world) {
    const auto group = world.make_group_of_all();
    const std::vector<std::string> texts = {"", std::string("a\0b", 3), "longer than the others"};
    const auto own = static_cast<size_t>(world.rank());
    EXPECT_EQ(texts_of_all(*group, texts[own]), texts);
    EXPECT_EQ(texts_of_all(*group, ""), std::vector<std::string>(3));
    EXPECT_EQ(numbers_of_all(*group, 10 - world.rank()), (std::vector<int64_t>{10, 9, 8}));
  });
}

TEST(Together, AnExchangeThatBreaksIsNotFollowedByAnother) {
  try {
    run_local_ranks(3, [&](World& world) {
      const auto group = world.make_group_of_all(), beside = world.make_group_of_all();
      together(*group, [&] {
        if (world.rank() > 0) return beside->barrier();
        try {
          throw std::bad_alloc();
        } catch (...) {
          throw_broken_exchange();
        }
      });
    });
    FAIL() << "nobody failed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kMemory);
  }
}

TEST(Together, NobodyFailsWhereNobodyDoes) {
  for (const Caught& one : caught_of([](int64_t) {})) EXPECT_EQ(one.code, ExitCode::kSuccess);
}

TEST(Together, TheOthersFailAsTheFirstThatFailsDoes) {
  const auto caught = caught_of([](int64_t rank) {
    if (rank == 1) throw NumericError("the loss is nan", "lower --lr");
    if (rank == 2) throw DataError("a bad row");
  });
  EXPECT_TRUE(caught[0].is_numeric);
  EXPECT_EQ(caught[0].code, ExitCode::kNumeric);
  EXPECT_EQ(caught[0].what, "rank 1: the loss is nan");
  EXPECT_EQ(caught[0].hint, "lower --lr");
  EXPECT_EQ(caught[1].what, "the loss is nan");
  EXPECT_EQ(caught[1].code, ExitCode::kNumeric);
  EXPECT_EQ(caught[2].what, "a bad row");
  EXPECT_EQ(caught[2].code, ExitCode::kData);
}

TEST(Together, WhatIsNoErrorOfOursHasTheKindThatItIsReportedAs) {
  const auto caught = caught_of([](int64_t rank) {
    if (rank == 2) {
      throw std::filesystem::filesystem_error("status", "/a/b",
                                              std::make_error_code(std::errc::no_space_on_device));
    }
  });
  EXPECT_EQ(caught[0].code, ExitCode::kIo);
  EXPECT_EQ(caught[0].what, "rank 2: /a/b: No space left on device");
  EXPECT_EQ(caught[2].hint, "not one of ours");
}

TEST(Together, ATextThatIsNoUtf8IsToldAllTheSame) {
  const auto caught = caught_of([](int64_t rank) {
    if (rank == 0) throw IoError("\xff.bin: no such file");
  });
  EXPECT_EQ(caught[1].code, ExitCode::kIo);
  EXPECT_EQ(caught[1].what, "rank 0: \xef\xbf\xbd.bin: no such file");
}

TEST(Together, AnErrorOfCommunicationIsThrownAtOnce) {
  EXPECT_THROW(run_local_ranks(2,
                               [](World& world) {
                                 const auto group = world.make_group_of_all();
                                 together(*group, [&] {
                                   if (world.rank() == 0) throw CommError("lost");
                                 });
                               }),
               CommError);
}

TEST(FirstFailure, IsTheSameOnEveryRank) {
  run_local_ranks(3, [](World& world) {
    const auto group = world.make_group_of_all();
    EXPECT_FALSE(first_failure(*group, [] {}));
    const auto failure = first_failure(*group, [&] {
      if (world.rank() > 0) throw ModelError("of rank " + std::to_string(world.rank()));
    });
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->rank, 1);
    EXPECT_EQ(failure->error.code(), ExitCode::kModel);
    EXPECT_STREQ(failure->error.what(), "of rank 1");
  });
}

}  // namespace
}  // namespace danlu::parallel
