// What a device cannot do is refused by its name before a model is read.
#include "models/device_parts.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "ops/backend.h"

namespace danlu::models {

TEST(DeviceParts, NoiseOnRoutersIsRefusedWhereALibraryHasNoOperatorsOfATen) {
  settings::RouterTraining routers;
  routers.input_jitter = 0.01;
  const c10::Device other(c10::DeviceType::XLA, 0);
  require_routers(routers, c10::Device(c10::kCPU));
  require_routers(routers, other);
  ops::Backend table;
  table.takes = ops::cpu::backend().takes;
  table.lacks = [](ops::Part) { return false; };
  ops::set_backend(other.type(), table);
  require_routers({}, other);
  try {
    require_routers(routers, other);
    ADD_FAILURE() << "it was not refused";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("--moe-input-jitter-eps"));
  }
  ops::set_backend(other.type(), {});
}

}  // namespace danlu::models
