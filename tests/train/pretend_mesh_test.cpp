// Ranks on devices whose every computation is in their table (ops/backend.h): the CPU's numbers.
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "support/cpu_table.h"
#include "support/pretend_device.h"
#include "support/pretend_kernels.h"
#include "train/mesh.h"
#include "train/mesh_cases.h"

namespace danlu::train {
namespace pretend_mesh_test {

using namespace mesh_test;

TEST(PretendDevice, MeshesComputeThroughTheirTablesAlone) {
  int64_t count = 0;
  for (mesh_test::Case c : quick_cases()) {
    if (c.shape.size() > danlu::test::kPretendDevices || c.in_files) continue;
    // Others have operations that are composites of ATen as yet.
    static const std::set<std::string> by_table = {"qwen2",    "qwen3",     "llama",
                                                   "baichuan", "internlm2", "mistral"};
    if (!by_table.contains(c.family)) continue;
    SCOPED_TRACE(name_of({c, 0}));
    ++count;
    const danlu::test::CpuTable adds(danlu::test::cpu_as_a_device());
    const Outcome cpu = train(c, c.shape, 2);
    const danlu::test::PretendKernels kernels;
    c.device = [](const Mesh& mesh) {
      return danlu::test::pretend_device(static_cast<int>(mesh.rank()));
    };
    if (count % 2 == 0) c.offload.to = settings::OffloadTo::kHost;
    const Outcome device = train(c, c.shape, 2);
    EXPECT_EQ(device.losses, cpu.losses);
    EXPECT_EQ(device.norms, cpu.norms);
    for (const auto& [name, weight] : cpu.weights)
      EXPECT_TRUE(at::equal(device.weights.at(name), weight)) << name;
    for (int card = 0; card < danlu::test::kPretendDevices; ++card)
      EXPECT_EQ(danlu::test::pretend_bytes(card), 0) << card;
  }
  EXPECT_GT(count, 15);
}

}  // namespace pretend_mesh_test
}  // namespace danlu::train
