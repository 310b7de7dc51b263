// The checks of `danlu doctor`, in the order of its output. To add one: a function in one of the
// *_checks.cpp, its declaration in check.h, a line here, a row in docs/doctor.md.
#include "doctor/check.h"

namespace danlu::doctor {

const std::vector<Check>& checks() {
  static const std::vector<Check> list = {
      {"cpu", check_cpu},
      {"quota", check_quota},
      {"numa", check_numa},
      {"affinity", check_affinity},
      {"memory", check_memory},
      {"shm", check_shm},
      {"limits", check_limits},
      {"disk", check_disk},
      {"locks", check_locks},
      {"network", check_network},
      {"hub", check_hub},
      {"clock", check_clock},
      {"ports", check_ports},
      {"environment", check_environment},
      {"libtorch", check_libtorch},
      {"media", check_media},
      {"cuda", check_cuda},
      {"npu", check_npu},
      {"driver", check_driver},
      {"cann", check_cann},
      {"npu_engine", check_npu_engine},
      {"torch_npu", check_torch_npu},
      {"hccl", check_hccl},
      {"links", check_links},
      {"stale", check_stale},
      {"queue", check_queue},
      {"visible", check_visible},
  };
  return list;
}

}  // namespace danlu::doctor
