// The tests, or with --program NAME one of the programs that they start.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "card.h"

int main(int argc, char** argv) {
  // The process ends without destructors: streams' threads may still wait for peers.
  if (argc == 3 && std::strcmp(argv[1], "--program") == 0)
    _exit(npu_sim_test::run_program_named(argv[2]));
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
