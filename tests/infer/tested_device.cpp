#include "infer/tested_device.h"

#include <gtest/gtest.h>

#include <optional>

#include "support/aten_table.h"

namespace danlu::infer {
namespace tested_device_test {

class TableOfAten : public testing::Environment {
 public:
  void SetUp() override {
    if (is_on_pretend_device()) table_.emplace();
  }
  void TearDown() override { table_.reset(); }

 private:
  std::optional<danlu::test::AtenTable> table_;
};

testing::Environment* const added = testing::AddGlobalTestEnvironment(new TableOfAten);

}  // namespace tested_device_test
}  // namespace danlu::infer
