// fuzz/torch_document_fuzz.cpp: any bytes as a torch file must become a value or be refused, never
// crash. What becomes a value is written by the .pt writer and read back equal, or the writer says
// why not. The first byte picks the way in: the whole file, or a pickle in a well-formed zip.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "base/error.h"
#include "weights/torch/torch_contents.h"
#include "weights/torch/torch_document.h"
#include "weights/torch/torch_writer.h"
#include "zip_around.h"

namespace {

using namespace danlu::weights;
using namespace danlu::weights::torch_file;

std::span<const std::byte> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

/// The file with zeros as tensors; "" for one too large to make.
std::string filled(const PlannedFile& plan, size_t num_tensors) {
  if (plan.size_bytes > 64 << 20) return {};
  std::string file(plan.size_bytes, '\0');
  const std::vector<uint32_t> checksums(num_tensors);
  for (const PlacedBytes& part : plan.known)
    file.replace(part.offset, part.bytes.size(), part.bytes);
  for (const PlacedBytes& part : plan.seal(checksums))
    file.replace(part.offset, part.bytes.size(), part.bytes);
  if (file.size() != plan.size_bytes) std::abort();
  return file;
}

void read_and_write(const std::string& file) {
  TorchDocument document;
  try {
    document = read_torch_document(bytes_of(file), "input");
  } catch (const danlu::ModelError&) {
    return;
  }
  // Whoever gets a value gets the same tensors without it.
  if (read_torch_contents(bytes_of(file), "input").size() != document.tensors.size()) std::abort();
  to_json(document.root).dump();
  PlannedFile plan;
  try {
    plan = plan_torch_file(document.root, document.tensors, "a");
  } catch (const danlu::ModelError&) {
    return;
  }
  const std::string written = filled(plan, document.tensors.size());
  if (written.empty()) return;
  const TorchDocument again = read_torch_document(bytes_of(written), "written");
  if (!(again.root == document.root)) std::abort();
  if (again.tensors.size() != document.tensors.size()) std::abort();
  for (size_t i = 0; i < again.tensors.size(); ++i) {
    const TensorInfo &a = again.tensors[i], &b = document.tensors[i];
    if (a.name != b.name || a.shape != b.shape || a.dtype != b.dtype) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  read_and_write(data[0] % 2 == 0 ? rest : danlu::fuzz::zip_around(rest));
  return 0;
}
