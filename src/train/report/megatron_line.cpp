#include "train/report/megatron_line.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>

namespace danlu::train {
namespace {

/// "nan", never "-nan".
double without_nans_sign(double value) { return std::isnan(value) ? std::fabs(value) : value; }

}  // namespace

std::string megatron_step_line(const StepRecord& r, int64_t samples_of_step, std::time_t now) {
  std::string line = fmt::format(" [{:%Y-%m-%d %H:%M:%S}] iteration {:8}/{:8} |",
                                 fmt::localtime(now), r.step, r.total_steps);
  line += fmt::format(" consumed samples: {:12} |", r.step * samples_of_step);
  line += fmt::format(" elapsed time per iteration (ms): {:.1f} |", 1000 * r.step_s);
  line += fmt::format(" learning rate: {:.6E} | global batch size: {:5} |", r.lr, samples_of_step);
  line += fmt::format(" lm loss: {:.6E} |", without_nans_sign(r.loss));
  for (const auto& [name, value] : r.metrics) line += fmt::format(" {}: {:.6E} |", name, value);
  line += fmt::format(" loss scale: {:.1f} | grad norm: {:.3f} |", r.loss_scale,
                      without_nans_sign(r.grad_norm));
  return line +
         fmt::format(" number of skipped iterations: {:3} | number of nan iterations: {:3} |",
                     r.skipped_steps, std::isfinite(r.loss) ? 0 : 1);
}

}  // namespace danlu::train
