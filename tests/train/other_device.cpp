// DANLU_TEST_DEVICE=pretend: ranks of meshes on pretend devices (train/mesh.h), whose memory the
// host cannot reach, with the table of devices that ATen computes on.
#include <gtest/gtest.h>

#include <optional>

#include "support/aten_table.h"
#include "train/mesh.h"

namespace danlu::train {
namespace other_device {

class TableOfAten : public testing::Environment {
 public:
  void SetUp() override {
    if (mesh_test::are_on_pretend_devices()) table_.emplace();
  }
  void TearDown() override { table_.reset(); }

 private:
  std::optional<danlu::test::AtenTable> table_;
};

testing::Environment* const added = testing::AddGlobalTestEnvironment(new TableOfAten);

}  // namespace other_device
}  // namespace danlu::train
