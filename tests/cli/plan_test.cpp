// `danlu plan`.
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "base/json.h"
#include "cli/run_program.h"
#include "support/shared_data.h"

namespace danlu::test {
namespace {

using testing::HasSubstr;

std::string model() { return (shared_dir() / "data/models/stories260K/hf").string(); }

TEST(PlanCommand, PrintsJsonWithoutWeights) {
  DANLU_REQUIRES_SHARED();
  const TemporaryDirectory directory;
  const std::filesystem::path here = directory;
  const std::string alone = (here / "config.json").string();
  std::filesystem::copy_file(model() + "/config.json", alone);
  const ProgramResult got =
      run_danlu({"plan", "--model", alone, "--machine", "cpu-node", "--json"});
  ASSERT_EQ(got.exit_code, 0) << got.err;
  const Json json = Json::parse(got.out);
  EXPECT_EQ(json["devices"], 2);
  EXPECT_EQ(json["stages"][0]["moments"], 8 * json["parameters"].get<int64_t>());
}

TEST(PlanCommand, DrawsItsSchedule) {
  DANLU_REQUIRES_SHARED();
  const TemporaryDirectory directory;
  const std::filesystem::path here = directory;
  const std::string svg = (here / "a.svg").string();
  const ProgramResult got = run_danlu({"plan", "--model", model(), "--machine", "a100-80g",
                                       "--num_layer_list", "3,2", "--pp", "2", "--draw", svg});
  ASSERT_EQ(got.exit_code, 0) << got.err;
  std::ostringstream drawn;
  drawn << std::ifstream(svg).rdbuf();
  EXPECT_THAT(drawn.str(), HasSubstr("2 stages, 16 micro-batches"));
}

TEST(PlanCommand, BadInput) {
  DANLU_REQUIRES_SHARED();
  const ProgramResult machine = run_danlu({"plan", "--model", model(), "--machine", "a100-80"});
  EXPECT_EQ(machine.exit_code, 2);
  EXPECT_THAT(machine.err, HasSubstr("did you mean a100-80g?"));
  const ProgramResult split = run_danlu({"plan", "--model", model(), "--tp", "3"});
  EXPECT_EQ(split.exit_code, 2);
  EXPECT_THAT(split.err, HasSubstr("--tp 3: 8 processes are no multiple of it"));
}

}  // namespace
}  // namespace danlu::test
