#include "base/interrupt.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace danlu {
namespace {

TEST(Interrupt, TheFirstSignalIsAFlagTheSecondEndsTheProcess) {
  const auto signalled_twice = [] {
    watch_interrupts();
    ::raise(SIGTERM);
    if (pending_interrupt() != SIGTERM) ::_exit(1);
    ::raise(SIGINT);
    ::_exit(2);
  };
  EXPECT_EXIT(signalled_twice(), testing::ExitedWithCode(128 + SIGINT), "");
}

/// A rank that a service manager and its launcher both tell to end, and once more by the launcher.
[[noreturn]] void hear_it_twice(int told) {
  watch_interrupts();
  ::raise(SIGTERM);
  sigset_t termination, none;
  ::sigemptyset(&none);
  ::sigemptyset(&termination);
  ::sigaddset(&termination, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &termination, nullptr);
  for (const char* said : {"r", "s"}) {
    if (::write(told, said, 1) != 1) ::_exit(1);
    ::sigsuspend(&none);
  }
  ::_exit(2);
}

TEST(Interrupt, WhatTheParentPassesOnIsNoSecondOne) {
  const auto launcher = [] {
    int ends[2];
    if (::pipe(ends) != 0) ::_exit(3);
    const pid_t rank = ::fork();
    if (rank == 0) hear_it_twice(ends[1]);
    ::close(ends[1]);
    char said = 0;
    if (::read(ends[0], &said, 1) != 1) ::_exit(4);
    ::kill(rank, SIGTERM);
    if (::read(ends[0], &said, 1) != 1) ::_exit(5);  // it has ended
    ::kill(rank, SIGTERM);
    int status = 0;
    ::waitpid(rank, &status, 0);
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 6);
  };
  EXPECT_EXIT(launcher(), testing::ExitedWithCode(128 + SIGTERM), "");
}

TEST(Interrupt, WhoIsEndedAtOnceHasLastWords) {
  const auto signalled_twice = [](int first, int second) {
    watch_interrupts();
    set_last_words("nothing yet");
    set_last_words("half a file is there", STDERR_FILENO);
    ::raise(first);
    ::raise(second);
  };
  EXPECT_EXIT(signalled_twice(SIGTERM, SIGTERM), testing::ExitedWithCode(143),
              "^half a file is there.STOPPED \\(exit 143\\).half a file");
  EXPECT_EXIT(signalled_twice(SIGTERM, SIGINT), testing::ExitedWithCode(130),
              "^half a file is there.STOPPED \\(exit 130\\)");
}

TEST(Interrupt, WhoDoesNotWatchEndsByTheFirstAndSaysSo) {
  const auto signalled = [](int signal) {
    for (const int each : {SIGINT, SIGTERM, SIGHUP}) ::signal(each, SIG_DFL);
    name_interrupts();
    set_last_words("ended at once by a second signal");  // which this one is not
    ::raise(signal);
    ::_exit(1);
  };
  EXPECT_EXIT(signalled(SIGINT), testing::KilledBySignal(SIGINT), "^STOPPED \\(exit 130\\)\n$");
  EXPECT_EXIT(signalled(SIGTERM), testing::KilledBySignal(SIGTERM), "^STOPPED \\(exit 143\\)\n$");
  EXPECT_EXIT(signalled(SIGHUP), testing::KilledBySignal(SIGHUP), "^STOPPED \\(exit 129\\)\n$");
}

TEST(Interrupt, NamingThemLeavesIgnoredOnesAndGivesWayToWatching) {
  const auto signalled = [] {
    ::signal(SIGINT, SIG_IGN);
    ::signal(SIGTERM, SIG_DFL);
    name_interrupts();
    ::raise(SIGINT);
    watch_interrupts();
    ::raise(SIGTERM);
    if (pending_interrupt() != SIGTERM) ::_exit(1);
    ::raise(SIGTERM);
    ::_exit(2);
  };
  EXPECT_EXIT(signalled(), testing::ExitedWithCode(143), "^STOPPED \\(exit 143\\)\n$");
}

TEST(Interrupt, NobodyWaitsForAReaderThatDoesNotRead) {
  const auto signalled = [](bool is_gone) {
    int ends[2];
    if (::pipe2(ends, O_NONBLOCK) != 0) ::_exit(1);
    while (::write(ends[1], "x", 1) == 1) {
    }
    ::fcntl(ends[1], F_SETFL, 0);
    if (is_gone) ::close(ends[0]);
    ::dup2(ends[1], STDERR_FILENO);
    ::signal(SIGTERM, SIG_DFL);
    name_interrupts();
    ::alarm(60);
    ::raise(SIGTERM);
  };
  EXPECT_EXIT(signalled(false), testing::KilledBySignal(SIGTERM), "");
  EXPECT_EXIT(signalled(true), testing::KilledBySignal(SIGTERM), "");
}

TEST(Interrupt, WhoPassesTheSecondSignalOnEndsByTheThird) {
  const auto signalled = [] {
    watch_interrupts();
    allow_second_interrupt();
    ::raise(SIGINT);
    ::raise(SIGINT);
    if (interrupts_received() != 2) ::_exit(1);
    ::raise(SIGINT);
    ::_exit(2);
  };
  EXPECT_EXIT(signalled(), testing::ExitedWithCode(130), "");
}

TEST(Interrupt, AHangupComesSeveralTimesAndNeverCountsAsTheSecondSignal) {
  const auto hung_up = [] {
    ::signal(SIGHUP, SIG_DFL);  // this suite may itself run under nohup
    watch_interrupts();
    for (int i = 0; i < 3; ++i) ::raise(SIGHUP);
    if (pending_interrupt() != SIGHUP) ::_exit(1);
    // What read our output is gone with the terminal.
    ::raise(SIGPIPE);
    ::raise(SIGTERM);
    ::raise(SIGHUP);
    if (pending_interrupt() != SIGTERM) ::_exit(2);
    ::raise(SIGTERM);
    ::_exit(3);
  };
  EXPECT_EXIT(hung_up(), testing::ExitedWithCode(128 + SIGTERM), "");
}

TEST(Interrupt, UnderNohupAHangupIsNothing) {
  const auto ignored = [] {
    ::signal(SIGHUP, SIG_IGN);
    watch_interrupts();
    ::raise(SIGHUP);
    ::_exit(pending_interrupt() == 0 ? 0 : 1);
  };
  EXPECT_EXIT(ignored(), testing::ExitedWithCode(0), "");
}

TEST(Interrupt, EverySignalHasItsExitCode) {
  EXPECT_THROW(throw_interrupted(SIGINT, ""), InterruptedError);
  EXPECT_THROW(throw_interrupted(SIGTERM, ""), TerminatedError);
  EXPECT_THROW(throw_interrupted(SIGHUP, ""), HungUpError);
  EXPECT_EQ(HungUpError("").code(), static_cast<ExitCode>(128 + SIGHUP));
}

TEST(Interrupt, ClearingMakesTheNextSignalAFirstOneAgain) {
  const auto cleared = [] {
    watch_interrupts();
    ::raise(SIGINT);
    clear_interrupt();
    if (pending_interrupt() != 0) ::_exit(1);
    ::raise(SIGINT);
    ::_exit(pending_interrupt() == SIGINT ? 0 : 2);
  };
  EXPECT_EXIT(cleared(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace danlu
