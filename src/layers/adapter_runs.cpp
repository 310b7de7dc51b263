#include "layers/adapter_runs.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "layers/linear.h"

namespace danlu::layers {

void append_run(AdapterRuns& runs, const AdapterSet* adapter, int64_t count) {
  if (count == 0) return;
  if (!runs.empty() && runs.back().adapter == adapter) {
    runs.back().count += count;
  } else {
    runs.push_back({adapter, count});
  }
}

AdapterRuns runs_within(const AdapterRuns& runs, int64_t first, int64_t count) {
  AdapterRuns within;
  int64_t begin = 0;
  for (const AdapterRun& run : runs) {
    const int64_t from = std::max(begin, first), end = std::min(begin + run.count, first + count);
    append_run(within, run.adapter, std::max<int64_t>(end - from, 0));
    begin += run.count;
  }
  return within;
}

AdapterRuns runs_of_rows(const AdapterRuns& runs, const at::Tensor& rows_R) {
  std::vector<const AdapterSet*> of_row;
  for (const AdapterRun& run : runs)
    of_row.insert(of_row.end(), static_cast<size_t>(run.count), run.adapter);
  const at::Tensor on_host = rows_R.cpu();
  const int64_t* const rows = on_host.data_ptr<int64_t>();
  AdapterRuns taken;
  for (int64_t r = 0; r < on_host.numel(); ++r)
    append_run(taken, of_row.at(static_cast<size_t>(rows[r])), 1);
  return taken;
}

void adapt_rows(const at::Tensor& y_NO, const at::Tensor& x_NI, const Linear& linear,
                const AdapterRuns& runs) {
  int64_t first = 0;
  for (const AdapterRun& run : runs) {
    const int64_t begin = first;
    first += run.count;
    if (first > y_NO.size(0)) break;
    const LoraAdapter* const adapter = linear.adapter_in(run);
    if (!adapter) continue;
    const at::Tensor rows_NO = y_NO.narrow(0, begin, run.count);
    rows_NO.copy_(with_adapter(rows_NO, x_NI.narrow(0, begin, run.count), linear.weight.tensor,
                               *adapter, linear.weight.quantized));
  }
  if (first != y_NO.size(0)) {
    throw InternalError(fmt::format("[lora] adapters of {} rows or more for the {} of '{}'", first,
                                    y_NO.size(0), linear.path));
  }
}

}  // namespace danlu::layers
