// fuzz/safetensors_fuzz.cpp: any bytes as a safetensors file must be read or refused, never crash;
// what is read lies inside the file and is written back to an equal header.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "weights/hf/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace danlu::weights;
  const std::span<const std::byte> file{reinterpret_cast<const std::byte*>(data), size};
  SafetensorsHeader header;
  try {
    header = parse_safetensors_header(file, "input");
  } catch (const danlu::ModelError&) {
    return 0;
  }
  std::vector<TensorInfo> infos;
  for (const SafetensorsEntry& entry : header.entries) {
    if (header.data_offset + entry.end > size || entry.end - entry.begin != entry.info.size_bytes())
      std::abort();
    infos.push_back(entry.info);
  }
  std::string again = build_safetensors_header(infos, header.metadata);
  again.append(reinterpret_cast<const char*>(data) + header.data_offset, size - header.data_offset);
  const auto* bytes = reinterpret_cast<const std::byte*>(again.data());
  const SafetensorsHeader second = parse_safetensors_header({bytes, again.size()}, "written");
  if (second.entries.size() != header.entries.size()) std::abort();
  for (size_t i = 0; i < infos.size(); ++i) {
    const SafetensorsEntry &a = header.entries[i], &b = second.entries[i];
    if (a.begin != b.begin || a.end != b.end) std::abort();
  }
  return 0;
}
