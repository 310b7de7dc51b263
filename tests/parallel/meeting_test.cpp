// A rank that does not come is not waited for, be it the one where they meet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
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

/// Takes connections and says nothing.
class MuteProgram {
 public:
  explicit MuteProgram(int64_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&any), sizeof(any)), 0);
    EXPECT_EQ(::listen(fd_, 8), 0);
  }
  ~MuteProgram() { ::close(fd_); }
  MuteProgram(const MuteProgram&) = delete;
  MuteProgram& operator=(const MuteProgram&) = delete;

 private:
  int fd_;
};

TEST(Meeting, APlaceThatAnotherProgramHasIsNotNeeded) {
  const int64_t port = free_port().value();
  const MuteProgram mute(port);
  EXPECT_NO_THROW(say_absent(job_of(0, 2, port), ModelError("no model", "copy it")));
}

TEST(Meeting, WhoTakesConnectionsAndSaysNothingIsNotTakenForRankZero) {
  const int64_t port = free_port().value();
  const MuteProgram mute(port);
  C10dJob job = job_of(1, 2, port);
  job.timeout = std::chrono::seconds(2);
  EXPECT_THAT(test::error_of([&] { connect_c10d(job); }),
              AllOf(HasSubstr("rank 1 cannot reach rank 0"), HasSubstr("127.0.0.1:")));
}

TEST(MeetingDeathTest, AResetConnectionThatNobodyCatchesEndsTheMainThread) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto lose = [] {
    throw std::system_error(std::make_error_code(std::errc::connection_reset));
  };
  const auto end = [&]() noexcept {
    const auto world = connect_c10d(job_of(0, 1, free_port().value()));
    ::alarm(60);  // where nothing else ends it
    lose();
  };
  EXPECT_EXIT(end(), testing::KilledBySignal(SIGABRT), "");
}

TEST(Meeting, MachinesThatMeanJobsOfUnlikeSizesAreToldSo) {
  const int64_t port = free_port().value();
  std::vector<std::thread> ranks;
  // Two machines: --nproc 2 on machine 0, --nproc 1 on machine 1, whose rank 1 is another.
  for (const auto& [rank, size] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 4}, {1, 4}, {1, 2}}) {
    ranks.emplace_back([=, rank = rank, size = size] {
      try {
        connect_c10d(job_of(rank, size, port));
        ADD_FAILURE() << "rank " << rank << " met the others";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::kUsage) << rank << ": " << error.what();
        EXPECT_THAT(error.what(), AllOf(HasSubstr(" 4 "), HasSubstr(" 2 ")));
        EXPECT_THAT(error.hint(), HasSubstr("--nproc"));
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace
}  // namespace danlu::parallel
