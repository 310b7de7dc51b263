// fuzz/weight_index_fuzz.cpp: any text as model.safetensors.index.json must become a map of shards
// or be refused; no shard may lie outside the index's directory, no tensor may be in two.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "weights/hf/sharded_source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace danlu;
  weights::WeightMap shards;
  try {
    const Json index = parse_json({reinterpret_cast<const char*>(data), size}, "input");
    shards = weights::parse_weight_map(index, "input");
  } catch (const DataError&) {
    return 0;
  } catch (const ModelError&) {
    return 0;
  }
  if (shards.empty()) std::abort();
  std::set<std::string> seen;
  for (const auto& [file, tensors] : shards) {
    const std::filesystem::path path(file);
    if (path.filename() != path || file == "." || file == "..") std::abort();
    if (file.find('\0') != std::string::npos || tensors.empty()) std::abort();
    for (const std::string& tensor : tensors) {
      if (!seen.insert(tensor).second) std::abort();
    }
  }
  return 0;
}
