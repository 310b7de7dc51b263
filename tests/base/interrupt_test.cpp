#include "base/interrupt.h"

#include <gtest/gtest.h>
#include <signal.h>

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
