#include "npu/copies.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/empty.h>

#include "base/error.h"
#include "npu/context.h"
#include "npu/library.h"
#include "npu/memory.h"
#include "npu/operators.h"
#include "npu/staging.h"
#include "npu/status.h"
#include "npu/streams.h"

namespace danlu::npu {
namespace {

AclStream stream_for(const at::Tensor& tensor) {
  const int device = tensor.device().index();
  return stream_of(device, current_stream(device));
}

void copy_to_device(const at::Tensor& from, const at::Tensor& to) {
  // The host converts its own: it knows every type, and what is sent is no larger than what stays.
  const at::Tensor plain = from.to(to.scalar_type()).expand(to.sizes()).contiguous();
  const at::Tensor landing = to.is_contiguous() ? to : at::empty(to.sizes(), to.options());
  copy_in(to.device().index(), stream_for(to), landing.data_ptr(), plain.data_ptr(),
          plain.nbytes());
  if (!landing.is_same(to)) aclnn::inplace_copy(View(to), View(landing));
}

void copy_to_host(const at::Tensor& from, const at::Tensor& to) {
  const at::Tensor plain = from.is_contiguous() ? from : at::empty(from.sizes(), from.options());
  if (!plain.is_same(from)) aclnn::inplace_copy(View(plain), View(from));
  const bool lands =
      to.is_contiguous() && to.scalar_type() == from.scalar_type() && to.sizes() == from.sizes();
  const at::Tensor landing =
      lands ? to : at::empty(from.sizes(), at::TensorOptions(from.scalar_type()));
  copy_out(from.device().index(), stream_for(from), landing.data_ptr(), plain.data_ptr(),
           plain.nbytes());
  if (!lands) to.copy_(landing);
}

void copy_on_device(const at::Tensor& from, const at::Tensor& to) {
  if (from.device() != to.device()) {
    throw DeviceError(tr("[npu] a tensor of npu:{} cannot be copied to npu:{}",
                         int{from.device().index()}, int{to.device().index()}));
  }
  const bool is_plain = from.scalar_type() == to.scalar_type() && from.sizes() == to.sizes() &&
                        from.is_contiguous() && to.is_contiguous();
  if (!is_plain) return aclnn::inplace_copy(View(to), View(from));
  copy_bytes(to.device().index(), to.data_ptr(), from.data_ptr(), from.nbytes());
}

}  // namespace

void copy_bytes(int device, void* to, const void* from, size_t bytes) {
  const AclStream stream = stream_of(device, current_stream(device));
  note_launch("aclrtMemcpyAsync");
  check(acl().aclrtMemcpyAsync(to, bytes, from, bytes, kAclDeviceToDevice, stream),
        "aclrtMemcpyAsync");
}

void copy(const at::Tensor& from, const at::Tensor& to) {
  if (to.numel() == 0) return;
  if (from.is_cpu()) return copy_to_device(from, to);
  if (to.is_cpu()) return copy_to_host(from, to);
  copy_on_device(from, to);
}

void fill(const at::Tensor& tensor, const at::Scalar& value) {
  if (tensor.numel() == 0) return;
  const bool is_zero = !value.isComplex() && value.to<double>() == 0;
  if (is_zero && tensor.is_contiguous()) {
    const AclStream stream = stream_for(tensor);
    note_launch("aclrtMemsetAsync");
    return check(
        acl().aclrtMemsetAsync(tensor.data_ptr(), tensor.nbytes(), 0, tensor.nbytes(), stream),
        "aclrtMemsetAsync");
  }
  if (value.isFloatingPoint()) {
    aclnn::inplace_fill(View(tensor), Number(value.to<double>()));
  } else {
    aclnn::inplace_fill(View(tensor), Number(value.to<int64_t>()));
  }
}

at::Scalar only_number(const at::Tensor& tensor) {
  const at::Tensor here = at::empty({1}, at::TensorOptions(tensor.scalar_type()));
  copy_to_host(tensor.view({1}), here);
  return at::_local_scalar_dense(here);
}

}  // namespace danlu::npu
