#include "weights/torch/torch_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "weights/source_base.h"
#include "weights/torch/pickle_reader.h"
#include "weights/torch/pickle_writer.h"
#include "weights/torch/utf8.h"
#include "weights/torch/zip_layout.h"

namespace danlu::weights::torch_file {
namespace {

/// Container version: what torch writes since 1.6; readers take 1 to 10.
constexpr const char* kContainerVersion = "3\n";

void check_folder(const std::string& folder) {
  const bool plain =
      !folder.empty() && folder.size() <= 1024 && folder != "." && folder != ".." &&
      folder.find_first_of("/\\:") == std::string::npos && is_python_utf8(folder) &&
      std::none_of(folder.begin(), folder.end(), [](unsigned char c) { return c < 0x20; });
  if (!plain) {
    throw InternalError(
        fmt::format("[plan_torch_file] \"{}\" is not the name of a folder", folder));
  }
}

/// Even of an empty tensor the other extents must fit, for they make its strides.
void check_shape(const TensorInfo& info) {
  auto bytes = static_cast<int64_t>(dtype_size_bytes(info.dtype));
  bool bad = false;
  for (const int64_t extent : info.shape) {
    bad |= extent < 0 || __builtin_mul_overflow(bytes, std::max<int64_t>(extent, 1), &bytes);
  }
  if (bad) {
    throw ModelError(tr("{} cannot be written to a .pt file: the impossible shape {}", info.name,
                        shape_text(info.shape)));
  }
}

}  // namespace

PlannedFile plan_torch_file(const PyValue& root, const std::vector<TensorInfo>& tensors,
                            const std::string& top_folder) {
  check_folder(top_folder);
  for (const TensorInfo& info : tensors) check_shape(info);
  const WrittenPickle pickle = write_pickle(root, tensors);
  if (pickle.program.size() > PickleLimits{}.max_bytes) {
    throw ModelError(
        tr("{}.pt: what stands beside the tensors takes {} bytes, at most {} "
           "can be read again",
           top_folder, pickle.program.size(), PickleLimits{}.max_bytes));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!pickle.used[i]) {
      throw InternalError(
          fmt::format("[plan_torch_file] tensor {} ({}) is not in the tree", i, tensors[i].name));
    }
  }
  ZipLayout zip;
  zip.add(top_folder + "/data.pkl", pickle.program);
  zip.add(top_folder + "/byteorder", "little");
  std::vector<uint64_t> offsets;
  for (size_t i = 0; i < tensors.size(); ++i) {
    offsets.push_back(
        zip.add_later(fmt::format("{}/data/{}", top_folder, i), tensors[i].size_bytes()));
  }
  zip.add(top_folder + "/version", kContainerVersion);
  PlannedFile file = std::move(zip).finish();
  file.tensor_offsets = std::move(offsets);
  return file;
}

}  // namespace danlu::weights::torch_file
