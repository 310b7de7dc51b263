// A rank that does not come is not waited for, be it the one where they meet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/free_port.h"
#include "parallel/comm/c10d.h"
#include "support/throws.h"

namespace danlu::parallel {
namespace {

using testing::AllOf;
using testing::HasSubstr;

C10dJob job_of(int64_t rank, int64_t size, int64_t port) {
  return {.rank = rank,
          .size = size,
          .master_address = "127.0.0.1",
          .master_port = port,
          .timeout = std::chrono::minutes(1)};
}

/// What the ranks that are not `absent` throw, and its code.
void expect_dismissed(int64_t size, const std::vector<int64_t>& absent, const ModelError& why) {
  const int64_t port = free_port().value();
  std::vector<std::thread> ranks;
  for (int64_t rank = 0; rank < size; ++rank) {
    if (std::find(absent.begin(), absent.end(), rank) != absent.end()) {
      ranks.emplace_back([=] { say_absent(job_of(rank, size, port), why); });
      continue;
    }
    ranks.emplace_back([=] {
      try {
        connect_c10d(job_of(rank, size, port));
        ADD_FAILURE() << "rank " << rank << " met the others";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::kModel) << error.what();
        EXPECT_THAT(error.what(), AllOf(HasSubstr("[ranks] rank " + std::to_string(absent[0])),
                                        HasSubstr(" does not come: no model")));
        EXPECT_EQ(error.hint(), "copy it");
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(Meeting, RankZeroThatDoesNotComeOpensThePlaceToSaySo) {
  expect_dismissed(3, {0}, ModelError("no model", "copy it"));
}

TEST(Meeting, AnyOtherThatDoesNotComeLeavesItsWordThere) {
  expect_dismissed(3, {2}, ModelError("no model", "copy it"));
}

TEST(Meeting, AWordIsKeptForARankZeroThatIsStartedLater) {
  const int64_t port = free_port().value();
  std::thread absent([&] { say_absent(job_of(1, 2, port), ModelError("no model", "copy it")); });
  std::this_thread::sleep_for(std::chrono::seconds(4));
  C10dJob first = job_of(0, 2, port);
  first.timeout = std::chrono::seconds(3);
  EXPECT_THAT(test::error_of([&] { connect_c10d(first); }), HasSubstr("does not come: no model"));
  absent.join();
}

TEST(Meeting, RanksThatAllDoNotComeEnd) {
  expect_dismissed(2, {0, 1}, ModelError("no model", "copy it"));
}

TEST(Meeting, APlaceThatAnotherProgramHasIsNotNeeded) {
  const int64_t port = free_port().value();
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(static_cast<uint16_t>(port));
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof(any)), 0);
  ASSERT_EQ(::listen(fd, 1), 0);
  EXPECT_NO_THROW(say_absent(job_of(0, 2, port), ModelError("no model", "copy it")));
  ::close(fd);
}

}  // namespace
}  // namespace danlu::parallel
