// tests/media/golden.h: the recorded pictures and videos beside the checkout.
#pragma once
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "hub/transport.h"
#include "media/raw_picture.h"
#include "support/shared_data.h"
#include "weights/hf/safetensors_header.h"

namespace danlu::media {

inline std::filesystem::path golden_dir() { return test::shared_dir() / "golden/vl"; }

inline std::string sha256_of(const void* data, size_t num_bytes) {
  const auto digest = hub::make_digest("sha256");
  digest->update({static_cast<const char*>(data), num_bytes});
  return digest->hex();
}

inline std::string sha256_of(const Picture& picture) {
  return sha256_of(picture.rgb.data(), static_cast<size_t>(picture.rgb.size()));
}

/// Tensors of one safetensors file.
class Golden {
 public:
  explicit Golden(const std::filesystem::path& file)
      : map_(file), header_(weights::parse_safetensors_header(map_.bytes(), file.string())) {}

  template <typename T>
  std::vector<T> values(const std::string& name) const {
    for (const auto& entry : header_.entries) {
      if (entry.info.name != name) continue;
      std::vector<T> out((entry.end - entry.begin) / sizeof(T));
      std::memcpy(out.data(), map_.bytes().data() + header_.data_offset + entry.begin,
                  out.size() * sizeof(T));
      return out;
    }
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }

 private:
  MappedFile map_;
  weights::SafetensorsHeader header_;
};

}  // namespace danlu::media
