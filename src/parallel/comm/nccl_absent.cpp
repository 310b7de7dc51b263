#include "base/error.h"
#include "parallel/comm/nccl.h"

namespace danlu::parallel {

c10::intrusive_ptr<Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>&, int, int,
                                      std::chrono::milliseconds) {
  throw DeviceError(
      tr("[ranks] several processes on cards exchange by NCCL, which this program was "
         "built without"),
      tr("use --device cpu, or one process, or build with a libtorch that has NCCL "
         "(-DTorch_DIR=…)"));
}

}  // namespace danlu::parallel
