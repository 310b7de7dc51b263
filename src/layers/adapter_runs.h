// layers/adapter_runs.h: which rows of a pass have which of the adapters that lie beside a model.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace danlu::layers {

struct AdapterSet;
struct Linear;

/// The next `count` rows have this adapter (layers/lora.h); nullptr: the layers' own, if any.
struct AdapterRun {
  const AdapterSet* adapter = nullptr;
  int64_t count = 0;
};
/// The runs of all rows of a pass, in order.
using AdapterRuns = std::vector<AdapterRun>;

/// Appends `count` rows that use this adapter.
void append_run(AdapterRuns& runs, const AdapterSet* adapter, int64_t count);
/// The runs of rows [first, first + count) alone.
AdapterRuns runs_within(const AdapterRuns& runs, int64_t first, int64_t count);
/// The runs of rows that were taken by their numbers: int64 rows_R on any device.
AdapterRuns runs_of_rows(const AdapterRuns& runs, const at::Tensor& rows_R);

/// Adds to rows of y_NO, in place, what their adapters add to the product of x_NI with the layer's
/// weight, which y_NO is. Without gradient. Errors: InternalError for runs of another number of
/// rows.
void adapt_rows(const at::Tensor& y_NO, const at::Tensor& x_NI, const Linear& linear,
                const AdapterRuns& runs);

}  // namespace danlu::layers
