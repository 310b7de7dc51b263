// Several machines (cli/two_machines.h) train, lose one another and begin again.
#include <algorithm>
#include <cstdlib>

#include "base/json.h"
#include "cli/bad_input.h"
#include "cli/logged_steps.h"
#include "cli/two_machines.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Machines : public BadInput {
 protected:
  void SetUp() override {
    BadInput::SetUp();
    if (const std::string why = machines_.obstacle(); !why.empty())
      GTEST_SKIP() << "this system lets nobody make network namespaces here: " << why;
  }
  void on_machine(int64_t machine, const std::string& launcher, const std::string& more = "") {
    std::string line = "exec '" + danlu_path() + "' sft --model '" + good("model").string() +
                       "' --dataset '" + good("good.jsonl").string() +
                       "' --output_dir run --no-version-dir --dtype fp32 --logging_steps 1 "
                       "--batch_size 1 --global_batch_size 4 " +
                       launcher + " " + more + "\n";
    write("machine-" + std::to_string(machine) + ".sh", line);
  }
  std::vector<MachineEnd> run_machines() { return machines_.run(); }
  static std::string of_two(int64_t machine, int64_t nproc) {
    return "--nproc " + std::to_string(nproc) + " --nnodes 2 --node_rank " +
           std::to_string(machine) + " --master_addr 10.99.0.1 --master_port 29511";
  }

 private:
  TwoMachines machines_{(*this) / ""};
};

TEST_F(Machines, TrainTogetherWithTheNumbersOfOne) {
  for (const int64_t machine : {0, 1})
    on_machine(machine, of_two(machine, 2), "--tp 2 --max_steps 4");
  const auto ends = run_machines();
  for (const MachineEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(ends[0].err, HasSubstr("× 2 processes = 4 samples a step"));
  EXPECT_THAT(ends[1].err, testing::Not(HasSubstr("step 1/")));
  EXPECT_TRUE(fs::exists((*this) / "run/rank-3.log"));
  ASSERT_EQ(run({"sft", "--model", good("model"), "--dataset", good("good.jsonl"), "--output_dir",
                 "one", "--no-version-dir", "--dtype", "fp32", "--batch_size", "4",
                 "--global_batch_size", "4", "--max_steps", "4"})
                .exit_code,
            0);
  const ProgramResult same = run({"diff", "one", "run", "--tolerance", "1e-4"});
  EXPECT_EQ(same.exit_code, 0) << same.out;
}

TEST_F(Machines, OfAHostFileFindThemselvesByAddress) {
  write("hosts", "10.99.0.1 slots=1\n10.99.0.2 slots=2\n");
  for (const int64_t machine : {0, 1})
    on_machine(machine, "--hostfile hosts --master_port 29512",
               "--max_steps 2 --global_batch_size 6");
  const auto ends = run_machines();
  for (const MachineEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(ends[0].err, HasSubstr("× 3 processes = 6 samples a step"));
}

TEST_F(Machines, BeginAgainTogether) {
  for (const int64_t machine : {0, 1})
    on_machine(machine, of_two(machine, 1), "--max_steps 120 --save_steps 2 --max_restarts 2");
  write("then.sh",
        "for p in $(pgrep -x exe); do\n"
        "  grep -qz '^RANK=1$' /proc/$p/environ && [ $(readlink /proc/$p/cwd) = $PWD ]"
        " && kill -KILL $p\ndone\n");
  const auto ends = run_machines();
  for (const MachineEnd& end : ends) {
    EXPECT_EQ(end.exit_code, 0) << end.err;
    EXPECT_THAT(end.err, HasSubstr("restart 1 of 2"));
  }
  EXPECT_THAT(ends[0].err, HasSubstr("resuming from"));
}

/// Everything of machine 1 is gone at once, as when its power fails.
constexpr const char* kMachineOneDies =
    "for p in $(pgrep -f -- '--node_rank 1'); do\n"
    "  [ $(readlink /proc/$p/cwd) = $PWD ] && kill -STOP $p && dying=\"$dying $p\"\ndone\n"
    "kill -KILL $dying\n";

TEST_F(Machines, GoOnWithoutOneThatStaysAway) {
  DANLU_SLOW_TEST();
  const std::string steps = "--tuner full --max_steps 120 --save_steps 2 --adam_epsilon 1e-6";
  for (const int64_t machine : {0, 1}) {
    on_machine(machine, of_two(machine, 1),
               steps + " --max_restarts 2 --min_ranks 1 --rdzv_timeout 8");
  }
  write("then.sh", "ip link set dev p1 nomaster\n");
  const auto ends = run_machines();
  EXPECT_EQ(ends[0].exit_code, 0) << ends[0].err;
  EXPECT_THAT(ends[0].err, testing::AllOf(HasSubstr("machine 1 ("),
                                          HasSubstr(") did not come within 8 s: the job goes on "
                                                    "with 1 of its 2 ranks"),
                                          HasSubstr("resuming from"),
                                          HasSubstr("4 accumulation × 1 process = 4 samples")));
  EXPECT_EQ(ends[1].exit_code, 7) << ends[1].err;
  EXPECT_THAT(ends[1].err, HasSubstr("machine 0 is gone: its launcher at 10.99.0.1:29511 does not "
                                     "answer for 8 s"));
  on_machine(0, "", steps + " --output_dir one --save_steps 120");
  on_machine(1, "", "--help");
  fs::remove((*this) / "then.sh");
  EXPECT_EQ(run_machines()[0].exit_code, 0);
  expect_same_losses((*this) / "one", (*this) / "run", 120);
}

TEST_F(Machines, EndWhereTooFewAreLeft) {
  DANLU_SLOW_TEST();
  for (const int64_t machine : {0, 1}) {
    on_machine(machine, of_two(machine, 1),
               "--max_steps 100000 --save_steps 5 --max_restarts 2 --rdzv_timeout 8");
  }
  write("then.sh", kMachineOneDies);
  const auto ends = run_machines();
  EXPECT_EQ(ends[0].exit_code, 7) << ends[0].err;
  EXPECT_THAT(ends[0].err, testing::AllOf(HasSubstr("did not come within 8 s: of 2 ranks 1 are "
                                                    "there, and 2 are needed"),
                                          HasSubstr("--min_ranks N")));
  EXPECT_TRUE(fs::exists((*this) / "run/last/DONE"));
}

TEST_F(Machines, AFreshLauncherTakesItsMachinesPlaceAgain) {
  DANLU_SLOW_TEST();
  for (const int64_t machine : {0, 1})
    on_machine(machine, of_two(machine, 1), "--max_steps 120 --save_steps 2 --max_restarts 2");
  // Its second start, as a cluster's manager would.
  std::string line = content_of((*this) / "machine-1.sh");
  line = line.substr(line.find(' ') + 1);
  write("machine-1.sh", line + "echo again >&2\n" + line);
  write("then.sh", kMachineOneDies);
  const auto ends = run_machines();
  for (const MachineEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(ends[0].err, testing::AllOf(HasSubstr("restart 1 of 2"), HasSubstr("resuming from"),
                                          testing::Not(HasSubstr("did not come"))));
  EXPECT_THAT(ends[1].err, testing::Not(HasSubstr("restart 1 of 2")));
}

TEST_F(Machines, OfDifferentJobsSaySo) {
  on_machine(0, of_two(0, 1), "--max_restarts 1 --max_steps 1");
  on_machine(1, of_two(1, 2), "--max_restarts 1 --max_steps 1");
  const std::string line = content_of((*this) / "machine-0.sh");
  write("machine-0.sh", line.substr(line.find(' '), line.size() - line.find(' ') - 1) +
                            " &\nuntil [ -e machine-1.end ]; do sleep 0.1; done\nkill $!\n");
  const auto ends = run_machines();
  EXPECT_EQ(ends[1].exit_code, 2) << ends[1].err;
  EXPECT_THAT(ends[1].err, HasSubstr("means 4 processes in all, machine 0 means 2 on 2 machines"));
}

TEST_F(Machines, ThatBothCallThemselvesTheFirstSaySo) {
  DANLU_SLOW_TEST();
  for (const char* more : {"--max_steps 1", "--max_steps 1 --max_restarts 1"}) {
    for (const int64_t machine : {0, 1}) on_machine(machine, of_two(0, 1), more);
    const std::string line = content_of((*this) / "machine-0.sh");
    write("machine-0.sh", line.substr(line.find(' '), line.size() - line.find(' ') - 1) +
                              " &\nuntil [ -e machine-1.end ]; do sleep 0.1; done\nkill $!\n");
    const auto ends = run_machines();
    EXPECT_EQ(ends[1].exit_code, 2) << ends[1].err;
    EXPECT_THAT(ends[1].err,
                testing::ContainsRegex("0 is there twice: .*process .* and .*process "));
  }
}

/// Ten seconds are the promise, to a machine that has nothing else to do.
void expect_end_in_time(const MachineEnd& end) {
  constexpr int kLimitSeconds = 10 + 10;
  if (!is_slow()) return;
  EXPECT_LE(end.seconds, kLimitSeconds);
}

TEST_F(Machines, APulledCableEndsTheJobOnBoth) {
  for (const int64_t machine : {0, 1})
    on_machine(machine, of_two(machine, 2),
               "--max_steps 1000000 --eval_strategy no --save_steps 5");
  write("then.sh", "ip link set dev p1 nomaster\n");  // up, and nothing comes through
  const auto ends = run_machines();
  for (const MachineEnd& end : ends) {
    EXPECT_EQ(end.exit_code, 7) << end.err;
    expect_end_in_time(end);
  }
  EXPECT_THAT(ends[0].err, testing::AllOf(testing::ContainsRegex("rank [23] on .* is gone"),
                                          HasSubstr("among ranks 0, 1, 2, 3"), HasSubstr("step ")));
  EXPECT_THAT(ends[1].err, HasSubstr("rank 0 is gone"));
  EXPECT_TRUE(fs::exists((*this) / "run/last/DONE"));
}

TEST_F(Machines, ARankThatIsStoppedOrKilledOnOneEndsBoth) {
  for (const char* signal : {"STOP", "KILL"}) {
    SCOPED_TRACE(signal);
    fs::remove_all((*this) / "run");
    for (const int64_t machine : {0, 1})
      on_machine(machine, of_two(machine, 1),
                 "--max_steps 1000000 --eval_strategy no --save_steps 5");
    write("then.sh",
          "for p in $(pgrep -x exe); do\n"
          "  grep -qz '^RANK=1$' /proc/$p/environ && [ $(readlink /proc/$p/cwd) = $PWD ]"
          " && kill -" +
              std::string(signal) + " $p\ndone\n");
    const auto ends = run_machines();
    for (const MachineEnd& end : ends) {
      EXPECT_EQ(end.exit_code, 7) << end.err;
      expect_end_in_time(end);
    }
    EXPECT_THAT(ends[0].err, HasSubstr("rank 1 on "));
    EXPECT_THAT(ends[1].err, HasSubstr(std::string("by SIG") + signal));
  }
}

}  // namespace
}  // namespace danlu::test
