#include "ops/backend.h"

#include <array>

#include "ops/check.h"
#include "ops/kernels.h"

namespace danlu::ops {
namespace {

Backend completed(const Backend& given) {
  Backend table = given;
  const Backend& composite = composite_backend();
  const auto fill = [&](auto... entries) {
    ((table.*entries = table.*entries ? table.*entries : composite.*entries), ...);
  };
  fill(&Backend::largest_of_share, &Backend::sums_of_share, &Backend::place_of_largest,
       &Backend::loss_of_share, &Backend::divergence_sums, &Backend::divergence_grad,
       &Backend::merge, &Backend::larger_into, &Backend::rotary_table, &Backend::add_into,
       &Backend::add_to, &Backend::add_bias, &Backend::scaled, &Backend::take_rows,
       &Backend::add_rows, &Backend::column_sums, &Backend::scale_rows, &Backend::row_dots,
       &Backend::attention_delta, &Backend::adapted_row_squares, &Backend::stretch_factor,
       &Backend::scale_columns, &Backend::stretch_grad, &Backend::norm_head,
       &Backend::norm_head_backward, &Backend::sigmoid, &Backend::sigmoid_backward,
       &Backend::activation, &Backend::activation_backward, &Backend::gated_activation,
       &Backend::gated_activation_backward, &Backend::layer_norm, &Backend::layer_norm_backward,
       &Backend::capped, &Backend::through_cap, &Backend::with_rows, &Backend::adamw_update,
       &Backend::split_master, &Backend::join_master, &Backend::sums_of_squares,
       &Backend::all_finite);
  return table;
}

struct Tables {
  Backend given, complete = completed({});
};

std::array<Tables, c10::COMPILE_TIME_MAX_DEVICE_TYPES>& all() {
  static auto* const tables = [] {
    auto* const made = new std::array<Tables, c10::COMPILE_TIME_MAX_DEVICE_TYPES>;
    const auto put = [&](c10::DeviceType type, const Backend& table) {
      (*made)[static_cast<size_t>(type)] = {table, completed(table)};
    };
    put(c10::DeviceType::CPU, cpu::backend());
    put(c10::DeviceType::CUDA, cuda::backend());
    return made;
  }();
  return *tables;
}

Tables& of(c10::DeviceType type) { return all()[static_cast<size_t>(type)]; }

}  // namespace

const Backend& backend_of(c10::DeviceType type) { return of(type).given; }
const Backend& completed_backend(c10::DeviceType type) { return of(type).complete; }

void set_backend(c10::DeviceType type, const Backend& table) {
  const auto together = [&](const char* what, auto... entries) {
    const size_t given = (size_t{0} + ... + (entries != nullptr));
    require(given == 0 || given == sizeof...(entries), "backend", "of the entries for ", what,
            " some are missing");
    require(given == 0 || table.takes, "backend", "nothing says which types the ", what, " take");
  };
  together("products", table.product, table.input_grad, table.weight_grad, table.add_weight_grad,
           table.add_product);
  together("products in NF4", table.nf4_product, table.nf4_input_grad, table.nf4_rows);
  together("products with blocks", table.block_products, table.block_rows);
  together("norms", table.rms_norm, table.rms_norm_backward);
  together("gated activations", table.swiglu, table.swiglu_backward);
  together("attention", table.attention, table.attention_backward);
  together("sigmoids", table.sigmoid, table.sigmoid_backward);
  together("activations", table.activation, table.activation_backward, table.gated_activation,
           table.gated_activation_backward);
  together("layer norms", table.layer_norm, table.layer_norm_backward);
  together("linear attention", table.gated_delta, table.gated_delta_backward);
  together("caps", table.capped, table.through_cap);
  together("divergences", table.divergence_sums, table.divergence_grad);
  of(type) = {table, completed(table)};
}

const Backend* fused_for(Work work, const at::Tensor& x) {
  const Backend& table = backend_of(x.device().type());
  const bool takes =
      kernels() == Kernels::kFused && table.takes && table.takes(work, x.scalar_type());
  return takes ? &table : nullptr;
}

}  // namespace danlu::ops
